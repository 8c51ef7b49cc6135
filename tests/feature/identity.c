/* SPDX-License-Identifier: BSD-2-Clause */
/* Who a process is: its ids, those of its threads and child, its name, directory, environment, limits, and what /proc says. */
#include "feature.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static volatile int stop;
static pid_t main_pid, thread_tid, child;
static pthread_barrier_t started;
static volatile sig_atomic_t hits;

static void hit(int sig)
{
	hits++;
}

static void *thread(void *arg)
{
	char name[16];
	pid_t tid = gettid();

	thread_tid = tid;
	CHECK(pthread_setname_np(pthread_self(), "worker-name") == 0);
	pthread_barrier_wait(&started);
	while (!stop) {
		CHECK(gettid() == tid && getpid() == main_pid);
		CHECK(pthread_getname_np(pthread_self(), name, sizeof(name)) == 0);
		CHECK(strcmp(name, "worker-name") == 0);
		CHECK(sched_getcpu() >= 0 && sched_getcpu() < (int)sysconf(_SC_NPROCESSORS_CONF));
	}
	return arg;
}

static void proc_check(void)
{
	char text[4096], path[64];
	int pid = 0, tid = 0;
	FILE *f = fopen("/proc/self/status", "r");

	CHECK(f);
	while (fgets(text, sizeof(text), f)) {
		sscanf(text, "Tgid: %d", &pid);
		sscanf(text, "Pid: %d", &tid);
	}
	CHECK(fclose(f) == 0);
	CHECK(pid == main_pid && tid == main_pid);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", main_pid, thread_tid);
	f = fopen(path, "r");
	CHECK(f && fgets(text, sizeof(text), f) && strcmp(text, "worker-name\n") == 0);
	CHECK(fclose(f) == 0);
}

static void pthreads_check(pthread_t t)
{
	pthread_attr_t attr;
	void *stack;
	size_t size;
	int before = hits, here;

	CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
	CHECK(pthread_attr_getstack(&attr, &stack, &size) == 0);
	CHECK((char *)&here >= (char *)stack && (char *)&here < (char *)stack + size);
	CHECK(pthread_attr_destroy(&attr) == 0);
	CHECK(pthread_kill(t, SIGUSR1) == 0);
	while (hits == before)
		sched_yield();
	CHECK(tgkill(main_pid, main_pid, SIGUSR1) == 0 && hits == before + 2);
	CHECK(kill(child, 0) == 0);
}

static const struct {
	int which;
	rlim_t soft;
} limits[] = { { RLIMIT_STACK, 5 << 20 }, { RLIMIT_FSIZE, 1ul << 40 }, { RLIMIT_NOFILE, 1000 } };

static void limits_set(void)
{
	struct rlimit l;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		CHECK(getrlimit(limits[i].which, &l) == 0);
		l.rlim_cur = limits[i].soft;
		CHECK(setrlimit(limits[i].which, &l) == 0);
	}
}

static void limits_check(void)
{
	struct rlimit l;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		CHECK(getrlimit(limits[i].which, &l) == 0 && l.rlim_cur == limits[i].soft);
}

static void family(void)
{
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		while (!feature_finished())
			CHECK(getppid() == main_pid);
		_exit(0);
	}
}

int main(int argc, char **argv)
{
	char cwd[1024], now[1024], exe[1024] = "", exe_now[1024];
	pid_t group = getpgrp(), session = getsid(0);
	mode_t mask = 027;
	pthread_t t;

	main_pid = getpid();
	CHECK(getcwd(cwd, sizeof(cwd)));
	CHECK(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	CHECK(setenv("FEATURE_ENV", "kept", 1) == 0);
	umask(mask);
	signal(SIGUSR1, hit);
	limits_set();
	family();
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0);
	CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
	pthread_barrier_wait(&started);
	feature_ready();
	do {
		CHECK(getpid() == main_pid && gettid() == main_pid);
		CHECK(getpgrp() == group && getsid(0) == session && getpgid(child) == group);
		limits_check();
		CHECK(getcwd(now, sizeof(now)) && strcmp(now, cwd) == 0);
		memset(exe_now, 0, sizeof(exe_now));
		CHECK(readlink("/proc/self/exe", exe_now, sizeof(exe_now) - 1) > 0 && strcmp(exe, exe_now) == 0);
		CHECK(strcmp(getenv("FEATURE_ENV"), "kept") == 0);
		CHECK(umask(mask) == mask);
		proc_check();
		pthreads_check(t);
		feature_work();
	} while (feature_step());
	stop = 1;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
	return 0;
}
