/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose device has threads of its own, a bare clone and a pthread (fake_device.c). Over checkpoints and restarts they are at work,
 * made anew where they were lost, and never the program's: no signal comes to them, a fork's child has none of them, libc thinks
 * the program single-threaded, and its last pthread_exit ends it.
 */
#include "feature.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/single_threaded.h>
#include <sys/wait.h>

#include "fake_device.h"

#define LIMIT_NS 30000000000u

static struct world *(*world)(void);
static int (*make_threads_that_end)(void);
static volatile int taken, taken_by;
static int under_fermata;
static __thread unsigned char own[1 << 20]; /* lies between a thread's pointer and libc's errno, in the device's threads as well */

static void handler(int sig)
{
	(void)sig;
	taken++;
	taken_by = gettid();
}

/* The program begins again where the device's library is found. */
static void begin_again(char **argv)
{
	char folder[4096], *dir;
	ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

	if (getenv("FEATURE_AGAIN"))
		return;
	CHECK(n > 0);
	folder[n] = 0;
	dir = dirname(folder);
	CHECK(!setenv("FEATURE_AGAIN", "1", 1) && !setenv("LD_LIBRARY_PATH", dir, 1) && !setenv("FERMATA_RDMA", "system", 1));
	execv("/proc/self/exe", argv);
	CHECK(!"exec");
}

static void device_open(void)
{
	void *(*list)(int *) = (void *(*)(int *))dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	void *lib = dlopen("libibverbs-real.so.1", RTLD_NOW | RTLD_LOCAL);
	int n = 0;

	if (!lib)
		feature_skip("the device's library was not built");
	under_fermata = list != NULL;
	if (!list)
		list = (void *(*)(int *))dlsym(lib, "ibv_get_device_list");
	world = (struct world *(*)(void))dlsym(lib, "fake_world");
	make_threads_that_end = (int (*)(void))dlsym(under_fermata ? RTLD_DEFAULT : lib, "ibv_fork_init");
	CHECK(list && world && make_threads_that_end);
	CHECK(list(&n) && n == 1);
}

/* A restart may come between any two instructions, and after it the old world is not there: so a pipe copies what the pointer leads to, or says that it leads nowhere. */
static struct world *world_now(struct world *ret)
{
	static int look[2] = { -1, -1 };
	struct world *w;
	ssize_t n;

	if (look[0] < 0)
		CHECK(!pipe(look));
	do {
		w = world();
		n = write(look[1], w, sizeof(*w));
		CHECK(n == (ssize_t)sizeof(*w) || (n < 0 && errno == EFAULT));
		CHECK(n < 0 || read(look[0], ret, sizeof(*ret)) == n);
	} while (n < 0 || w != world());
	return w;
}

static uint32_t world_number(void)
{
	struct world now;

	world_now(&now);
	return now.number;
}

/* Until both have been there again. */
static void threads_work(void)
{
	struct world was_then, now;
	struct world *w = world_now(&was_then);
	uint64_t until = feature_now(CLOCK_MONOTONIC) + LIMIT_NS;
	const unsigned char was = own[0];

	for (size_t i = 0; i < sizeof(own); i += 4001) {
		CHECK(own[i] == was);
		own[i]++;
	}
	while (world_now(&now) == w && (now.bare == was_then.bare || now.pthread == was_then.pthread)) {
		CHECK(feature_now(CLOCK_MONOTONIC) < until);
		sched_yield();
	}
}

static void signals_are_ours(void)
{
	sigset_t usr1, pending;
	int before = taken;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(!sigprocmask(SIG_BLOCK, &usr1, NULL));
	CHECK(!kill(getpid(), SIGUSR1));
	threads_work();
	if (under_fermata) /* else the pthread is one of the program */
		CHECK(!sigpending(&pending) && sigismember(&pending, SIGUSR1) && taken == before);
	CHECK(!sigprocmask(SIG_UNBLOCK, &usr1, NULL));
	CHECK(!under_fermata || (taken == before + 1 && taken_by == getpid()));
}

/* A child that is restarted has a device of its own. */
static void child(uint32_t number)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *e;

	CHECK(tasks);
	while ((e = readdir(tasks))) {
		char path[300], name[32] = "";
		int fd, n;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		fd = open(path, O_RDONLY);
		n = fd < 0 ? 0 : (int)read(fd, name, sizeof(name) - 1);
		CHECK(n <= 0 || strcmp(name, "device\n") || world_number() != number);
		close(fd);
	}
	_exit(0);
}

static void fork_is_without(void)
{
	uint32_t number = world_number();
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid)
		child(number);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = handler };
	unsigned int steps = 0;

	(void)argc;
	begin_again(argv);
	CHECK(!sigaction(SIGUSR1, &sa, NULL));
	device_open();
	feature_ready();
	while (feature_step()) {
		threads_work();
		signals_are_ours();
		CHECK(!make_threads_that_end());
		if (steps++ % 8 == 0)
			fork_is_without();
		CHECK(!under_fermata || __libc_single_threaded);
	}
	threads_work();
	if (under_fermata)
		pthread_exit(NULL);
	_exit(0); /* without fermata the pthread is libc's, and is waited for */
}
