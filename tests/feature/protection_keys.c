/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory under protection keys (pkeys(7)): what each thread may do with it, which key it has, which keys are taken; memory that can only be executed, for which the kernel takes a key itself;
 * and memory of a key that has been given back.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define LENGTH 40960ul

static volatile int stop;
static volatile sig_atomic_t faults, fault_key;
static unsigned char *closed, *read_only, *old, *code;
static int closed_key, read_only_key, old_key, code_key;
static pthread_barrier_t started;

/* Behind the instruction, whose length is two bytes. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *frame = context;

	faults++;
	fault_key = info->si_code == SEGV_PKUERR ? (int)info->si_pkey : -1;
	frame->uc_mcontext.gregs[REG_RIP] += 2;
}

static void load(const void *at)
{
	__asm__ volatile(".byte 0x8a, 0x07" : : "D"(at) : "rax", "memory"); /* mov (%rdi), %al */
}

static void store(void *at)
{
	__asm__ volatile(".byte 0x88, 0x07" : : "D"(at), "a"(0) : "memory"); /* mov %al, (%rdi) */
}

static void fault_check(void (*access)(const void *), const void *at, int key)
{
	int before = faults;

	access(at);
	CHECK(faults == before + 1 && fault_key == key);
}

static void *map(int key, unsigned int seed)
{
	unsigned char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	pattern_fill(at, LENGTH, seed);
	CHECK(pkey_mprotect(at, LENGTH, PROT_READ | PROT_WRITE, key) == 0);
	return at;
}

/* The key that the kernel has taken: a fault tells. */
static int kernels_key(void)
{
	int before = faults;

	load(code);
	CHECK(faults == before + 1);
	return fault_key;
}

static void make_code(void)
{
	static const unsigned char returns_42[] = { 0xb8, 42, 0, 0, 0, 0xc3 };

	code = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(code != MAP_FAILED);
	memcpy(code, returns_42, sizeof(returns_42));
	CHECK(mprotect(code, LENGTH, PROT_EXEC) == 0);
	code_key = kernels_key();
}

static void *writer(void *arg)
{
	unsigned int n = 3;

	CHECK(pkey_set(closed_key, 0) == 0 && pkey_set(read_only_key, 0) == 0);
	pthread_barrier_wait(&started);
	for (; !stop; n++) {
		CHECK(pkey_get(closed_key) == 0 && pkey_get(read_only_key) == 0);
		CHECK(pattern_holds(closed, LENGTH, n));
		pattern_fill(closed, LENGTH, n + 1);
		feature_work();
	}
	return arg;
}

/* What the first thread may. */
static void rights_check(void)
{
	CHECK(pkey_get(closed_key) == PKEY_DISABLE_ACCESS && pkey_get(read_only_key) == PKEY_DISABLE_WRITE);
	fault_check(load, closed, closed_key);
	fault_check((void (*)(const void *))store, read_only, read_only_key);
	CHECK(pattern_holds(read_only, LENGTH, 1));
	CHECK(((int (*)(void))code)() == 42 && kernels_key() == code_key);
}

/* Those that are free are given in order, and memory of one that was given back has it yet. */
static void keys_check(void)
{
	int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

	CHECK(key == old_key);
	fault_check(load, old, old_key);
	CHECK(pkey_set(key, 0) == 0 && pattern_holds(old, LENGTH, 2) && pkey_free(key) == 0);
	CHECK(pkey_mprotect(code, LENGTH, PROT_EXEC, code_key) == -1 && errno == EINVAL);
}

int main(void)
{
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	pthread_t t;

	old_key = pkey_alloc(0, 0);
	if (old_key < 0)
		feature_skip("this processor or kernel has no protection keys");
	CHECK(sigaction(SIGSEGV, &fault, NULL) == 0);
	old = map(old_key, 2);
	closed_key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
	make_code();
	read_only_key = pkey_alloc(0, PKEY_DISABLE_WRITE);
	CHECK(old_key == 1 && closed_key == 2 && code_key == 3 && read_only_key == 4);
	CHECK(pkey_free(old_key) == 0);
	closed = map(closed_key, 3);
	read_only = map(read_only_key, 1);
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0 && pthread_create(&t, NULL, writer, NULL) == 0);
	pthread_barrier_wait(&started);
	feature_ready();
	do {
		rights_check();
		keys_check();
		feature_work();
	} while (feature_step());
	stop = 1;
	CHECK(pthread_join(t, NULL) == 0);
	return 0;
}
