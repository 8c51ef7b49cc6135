/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A debugger sees the truth in an image: this process stops its threads in known places, writes itself, and
 * gdb must show each stack, with the functions of the program and of its shared libraries. readelf and
 * eu-stack must take the file too.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/sys.h"
#include "image_sample.h"

#define THREADS 3
#define MAPPINGS 256

static struct image_thread threads[THREADS];
static const void *fxsave[THREADS];
static unsigned int stopped; /* of THREADS */
static uint32_t go;
static sem_t semaphore;
static pid_t tids[THREADS];
static struct image_mapping mappings[MAPPINGS];
static struct image_run runs[MAPPINGS];
static char paths[MAPPINGS * 256];
static struct sample s;

static void on_stop(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	const greg_t *g = u->uc_mcontext.gregs;
	unsigned int n = __atomic_load_n(&stopped, __ATOMIC_SEQ_CST); /* one at a time */
	const uint64_t user[27] = {
		(uint64_t)g[REG_R15], (uint64_t)g[REG_R14], (uint64_t)g[REG_R13], (uint64_t)g[REG_R12], (uint64_t)g[REG_RBP],
		(uint64_t)g[REG_RBX], (uint64_t)g[REG_R11], (uint64_t)g[REG_R10], (uint64_t)g[REG_R9], (uint64_t)g[REG_R8],
		(uint64_t)g[REG_RAX], (uint64_t)g[REG_RCX], (uint64_t)g[REG_RDX], (uint64_t)g[REG_RSI], (uint64_t)g[REG_RDI],
		~0ull, (uint64_t)g[REG_RIP], 0x33, (uint64_t)g[REG_EFL], (uint64_t)g[REG_RSP], 0x2b,
	};

	threads[n].tid = (uint32_t)syscall(SYS_gettid);
	fxsave[n] = u->uc_mcontext.fpregs;
	memcpy(threads[n].user_regs, user, sizeof(user));
	__atomic_store_n(&stopped, n + 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
		raw_futex(&go, FUTEX_WAIT, 0, NULL, 0);
}

__attribute__((noinline)) static void wait_in_pause(void)
{
	__atomic_store_n(&tids[1], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	pause();
	__asm__ volatile("");
}

__attribute__((noinline)) static int wait_in_semaphore(int depth)
{
	if (depth) {
		int r = wait_in_semaphore(depth - 1);

		__asm__ volatile("" : "+r"(r)); /* or gcc makes a loop of it */
		return r + 1;
	}
	__atomic_store_n(&tids[2], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	sem_wait(&semaphore);
	return 0;
}

static void *run_pause(void *arg)
{
	wait_in_pause();
	return NULL;
}

static void *run_semaphore(void *arg)
{
	return (void *)(intptr_t)wait_in_semaphore(3);
}

static void add_mapping(uint64_t start, uint64_t end, const char *rights, uint64_t offset, const char *path, uint32_t *length)
{
	uint32_t prot = (rights[0] == 'r' ? 1 : 0) | (rights[1] == 'w' ? 2 : 0) | (rights[2] == 'x' ? 4 : 0);
	uint32_t n = s.dump.mapping_count;
	bool file = path[0] == '/';

	mappings[n] = (struct image_mapping){ .start = start, .end = end, .prot = prot, .offset = offset,
					      .kind = file ? IMAGE_MAPPING_FILE : IMAGE_MAPPING_ANON };
	if (file) {
		mappings[n].path = *length;
		strcpy(paths + *length, path);
		*length += (uint32_t)strlen(path) + 1;
	}
	runs[n] = (struct image_run){ start, end, prot, IMAGE_RUN_EMPTY };
	if (!strcmp(path, "[vdso]"))
		runs[n].flags = IMAGE_RUN_DATA;
	else if (prot & PROT_WRITE || (!file && prot))
		runs[n].flags = IMAGE_RUN_LIVE;
	else if (file && rights[1] == '-' && strcmp(rights, "r--p") == 0)
		runs[n].flags = IMAGE_RUN_DATA; /* relocated memory that was made read-only is among these */
	s.dump.mapping_count = s.dump.run_count = n + 1;
}

static void list_memory(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[600], rights[8], path[512];
	uint32_t length = 1;

	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end, offset;

		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %511s", &start, &end, rights, &offset, path) < 4)
			continue;
		if (strstr(path, "[v") && strcmp(path, "[vdso]"))
			continue;
		if (s.dump.mapping_count < MAPPINGS)
			add_mapping(start, end, rights, offset, path, &length);
	}
	fclose(f);
	s.dump.paths_length = length;
}

static void fill_process(void)
{
	int fd = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);

	s.process.auxv_length = (uint32_t)read(fd, s.process.auxv, sizeof(s.process.auxv));
	close(fd);
	s.process.pid = (uint32_t)getpid();
	s.process.thread_count = THREADS;
	s.dump.threads = threads;
	s.dump.fxsave = fxsave;
	s.dump.mappings = mappings;
	s.dump.runs = runs;
	s.dump.paths = paths;
}

/* Until thread @n is in system call @number, with @argument if that is not NULL. */
static void wait_for_call(unsigned int n, int number, const void *argument)
{
	char path[64], text[256], want_number[16], want[32];
	pid_t tid;

	snprintf(want_number, sizeof(want_number), "%d ", number);
	snprintf(want, sizeof(want), "%p", argument);
	for (;; sched_yield()) {
		tid = __atomic_load_n(&tids[n], __ATOMIC_SEQ_CST);
		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
		if (tid && raw_read_file(path, text, sizeof(text)) > 0 && !strncmp(text, want_number, strlen(want_number)) &&
		    (!argument || strstr(text, want)))
			return;
	}
}

static void stop_all(pthread_t *all)
{
	wait_for_call(0, SYS_futex, NULL);
	wait_for_call(1, SYS_pause, NULL);
	wait_for_call(2, SYS_futex, &semaphore);
	for (unsigned int n = 0; n < THREADS; n++) { /* main first: it is the one that gdb selects */
		pthread_kill(all[n], SIGUSR1);
		while (__atomic_load_n(&stopped, __ATOMIC_SEQ_CST) <= n)
			sched_yield();
	}
}

static int grep(const char *command, const char *const *wanted)
{
	char *all = calloc(1, 1 << 20);
	FILE *f = popen(command, "re");
	int missing = 0;

	all[fread(all, 1, (1 << 20) - 1, f)] = 0;
	if (pclose(f)) {
		fprintf(stderr, "failed: %s\n", command);
		missing++;
	}
	for (; *wanted; wanted++)
		if (!strstr(all, *wanted)) {
			fprintf(stderr, "\"%s\" is missing\n", *wanted);
			missing++;
		}
	if (missing)
		fprintf(stderr, "%s\n%s\n", command, all);
	free(all);
	return missing;
}

static int look(const char *directory)
{
	static const char *const stacks[] = { "wait_in_pause (", "pause ()", "wait_in_semaphore (", "run_semaphore (",
					      "sem_wait", "wait_for_others (", "main (", NULL };
	static const char *const selected[] = { "wait_for_others (", "libc.so.6", "xmm0", NULL };
	static const char *const notes[] = { "NT_PRSTATUS", "NT_FPREGSET", "NT_PRPSINFO", "NT_AUXV", "NT_FILE", "FERMATA", NULL };
	static const char *const unwound[] = { "wait_in_pause", "wait_in_semaphore", "main", NULL };
	char exe[256], command[800];
	int missing = 0;

	exe[readlink("/proc/self/exe", exe, sizeof(exe) - 1)] = 0;
	snprintf(command, sizeof(command), "gdb -nx -batch -ex 'thread apply all bt' %s %s/image 2>&1", exe, directory);
	missing += grep(command, stacks);
	snprintf(command, sizeof(command), "gdb -nx -batch -ex bt -ex 'info sharedlibrary' -ex 'info all-registers' %s %s/image 2>&1",
		 exe, directory);
	missing += grep(command, selected);
	snprintf(command, sizeof(command), "readelf -aW %s/image 2>&1", directory);
	missing += grep(command, notes);
	if (!system("command -v eu-stack >/dev/null")) {
		snprintf(command, sizeof(command), "eu-stack --core %s/image -e %s 2>/dev/null", directory, exe);
		missing += grep(command, unwound);
	}
	return missing;
}

static void *run_writer(void *arg)
{
	struct image_written written;
	const char *directory = sample_directory();
	int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), missing = 1;
	char text[256];

	stop_all(arg);
	sample_init(&s);
	fill_process();
	list_memory();
	if (image_write(dir, "image", &s.dump, &written, text, sizeof(text)))
		fprintf(stderr, "%s\n", text);
	else
		missing = look(directory);
	close(dir);
	exit(missing ? 1 : 0);
}

__attribute__((noinline)) static void wait_for_others(pthread_t writer)
{
	__atomic_store_n(&tids[0], getpid(), __ATOMIC_SEQ_CST);
	pthread_join(writer, NULL);
	__asm__ volatile("");
}

int main(void)
{
	struct sigaction stop = { .sa_sigaction = on_stop, .sa_flags = SA_SIGINFO };
	static pthread_t all[THREADS];
	pthread_t writer;

	if (system("command -v gdb >/dev/null")) {
		fprintf(stderr, "skipped: no gdb\n");
		return 77;
	}
	sigaction(SIGUSR1, &stop, NULL);
	sem_init(&semaphore, 0, 0);
	all[0] = pthread_self();
	pthread_create(&all[1], NULL, run_pause, NULL);
	pthread_create(&all[2], NULL, run_semaphore, NULL);
	pthread_create(&writer, NULL, run_writer, all);
	wait_for_others(writer);
	return 1;
}
