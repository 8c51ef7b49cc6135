/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a call of each kind that fermata wraps costs: prints "KIND NANOSECONDS" lines. Run bare and under fermata, by
 * benchmarks/run. The best of several rounds counts: the machine may do other things meanwhile.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int quiet[2];

static void must(int ok)
{
	if (!ok)
		abort();
}

static void call_none(void)
{
	__asm__ volatile("");
}

static void call_getppid(void)
{
	getppid();
}

static void call_open_close(void)
{
	must(close(open("/dev/null", O_RDONLY)) == 0);
}

static void call_dup_close(void)
{
	must(close(dup(quiet[0])) == 0);
}

static void call_socket_close(void)
{
	must(close(socket(AF_UNIX, SOCK_STREAM, 0)) == 0);
}

static void call_mmap_munmap(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED && munmap(p, 4096) == 0);
}

static void call_sigprocmask(void)
{
	sigset_t set;

	sigemptyset(&set);
	must(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
}

static void call_clock(void)
{
	struct timespec t;

	must(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
}

static void call_cpu_clock(void)
{
	struct timespec t;

	must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
}

static void call_getrusage(void)
{
	struct rusage u;

	must(getrusage(RUSAGE_SELF, &u) == 0);
}

static void call_sigaction(void)
{
	struct sigaction sa;

	must(sigaction(SIGUSR1, NULL, &sa) == 0);
}

static void call_poll(void)
{
	struct pollfd p = { .fd = quiet[0], .events = POLLIN };

	must(poll(&p, 1, 0) == 0);
}

static void call_select(void)
{
	struct timeval tv = { 0, 0 };

	must(select(0, NULL, NULL, NULL, &tv) == 0);
}

static void call_nanosleep(void)
{
	struct timespec ts = { 0, 0 };

	must(nanosleep(&ts, NULL) == 0);
}

static int there[2], back[2];
static cpu_set_t processors; /* all of ours */

/* To the first of them: a way between two takes as long as the other one sleeps deep. */
static void one_processor(void)
{
	cpu_set_t one;
	int n = 0;

	while (!CPU_ISSET(n, &processors))
		n++;
	CPU_ZERO(&one);
	CPU_SET(n, &one);
	must(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static void echo_begin(void)
{
	char c;

	must(sched_getaffinity(0, sizeof(processors), &processors) == 0);
	must(pipe(there) == 0 && pipe(back) == 0);
	if (fork() != 0)
		return;
	one_processor();
	close(there[1]);
	while (read(there[0], &c, 1) == 1)
		must(write(back[1], &c, 1) == 1);
	_exit(0);
}

static void call_pipe(void)
{
	char c = 'c';

	must(write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1);
}

static void call_malloc(void)
{
	char *volatile p = malloc(1000);

	must(p != NULL);
	free(p);
}

static void *nothing(void *arg)
{
	return arg;
}

static void call_thread(void)
{
	pthread_t t;

	must(pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0);
}

static void call_fork_wait(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	must(pid > 0 && waitpid(pid, NULL, 0) == pid);
}

static void call_spawn_wait(void)
{
	char *argv[] = { "true", NULL };
	pid_t pid;

	must(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0 && waitpid(pid, NULL, 0) == pid);
}

static const struct {
	const char *name;
	void (*call)(void);
	unsigned int count;
} kinds[] = {
	{ "none", call_none, 200000 },		   { "getppid", call_getppid, 20000 },
	{ "open+close", call_open_close, 5000 },   { "dup+close", call_dup_close, 10000 },
	{ "socket+close", call_socket_close, 3000 }, { "mmap+munmap", call_mmap_munmap, 5000 },
	{ "sigprocmask", call_sigprocmask, 20000 }, { "sigaction", call_sigaction, 20000 },
	{ "clock", call_clock, 200000 },	   { "clock-cpu", call_cpu_clock, 20000 },
	{ "getrusage", call_getrusage, 20000 },
	{ "poll", call_poll, 10000 },		   { "select", call_select, 10000 },
	{ "nanosleep", call_nanosleep, 200 },	   { "malloc+free", call_malloc, 200000 },
	{ "pipe-there+back", call_pipe, 3000 },	   { "thread", call_thread, 500 },
	{ "fork+wait", call_fork_wait, 100 },	   { "spawn+wait", call_spawn_wait, 50 },
};

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double measure(void (*call)(void), unsigned int count)
{
	double best = 1e18;

	for (int round = 0; round < 15; round++) {
		uint64_t begin = now();
		double took;

		for (unsigned int i = 0; i < count; i++)
			call();
		took = (double)(now() - begin) / count;
		best = took < best ? took : best;
	}
	return best;
}

int main(void)
{
	must(pipe(quiet) == 0);
	echo_begin();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].call == call_pipe)
			one_processor();
		else
			must(sched_setaffinity(0, sizeof(processors), &processors) == 0);
		printf("%s %.1f\n", kinds[i].name, measure(kinds[i].call, kinds[i].count));
		fflush(stdout);
	}
	return 0;
}
