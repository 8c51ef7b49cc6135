/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that computes on stacks with no room for a signal's frame, as Go's goroutines and OCaml's fibers do, and has a large signal stack for that: in each thread, nothing is written below them. And a process with a small
 * signal stack, with room for its own handler alone: nothing else is written there.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { PAGE = 4096, ROOM = 1024, LARGE = 65536, SMALL = 4096, TURNS = 200000 };

struct fiber {
	ucontext_t self, back;
	uint64_t sum, expected;
};

static __thread struct fiber *own;

static uint64_t turns(uint64_t sum)
{
	for (volatile int i = 0; i < TURNS; i++)
		sum = sum * 6364136223846793005u + 1442695040888963407u;
	return sum;
}

static void compute(void)
{
	for (;;) {
		own->sum = turns(own->sum);
		swapcontext(&own->self, &own->back);
	}
}

static void take_signal_stack(size_t size)
{
	stack_t stack = { .ss_sp = malloc(size), .ss_size = size };

	CHECK(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	memset(stack.ss_sp, 0xa5, size);
}

/* Its stack ends where nothing can be written. */
static void make(struct fiber *f)
{
	char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED && mprotect(at, PAGE, PROT_NONE) == 0 && getcontext(&f->self) == 0);
	f->self.uc_stack = (stack_t){ .ss_sp = at + PAGE, .ss_size = ROOM };
	makecontext(&f->self, compute, 0);
	f->sum = f->expected = (uint64_t)(uintptr_t)f;
	own = f;
}

static void run(struct fiber *f)
{
	CHECK(swapcontext(&f->back, &f->self) == 0);
	f->expected = turns(f->expected);
	CHECK(f->sum == f->expected);
}

static void *thread(void *arg)
{
	struct fiber f;

	take_signal_stack(LARGE);
	make(&f);
	while (!feature_finished())
		run(&f);
	return arg;
}

static void child(void)
{
	static char left[SMALL];
	stack_t stack;

	memset(left, 0xa5, sizeof(left));
	take_signal_stack(SMALL);
	while (!feature_finished())
		turns(0);
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_size == SMALL && !memcmp(stack.ss_sp, left, SMALL));
	exit(0);
}

int main(void)
{
	struct fiber f;
	pthread_t other;
	int status;
	pid_t pid;

	CHECK((pid = fork()) >= 0);
	if (!pid)
		child();
	take_signal_stack(LARGE);
	CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
	make(&f);
	feature_ready();
	do
		run(&f);
	while (feature_step());
	CHECK(pthread_join(other, NULL) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
