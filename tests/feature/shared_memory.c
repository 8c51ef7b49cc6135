/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory between processes: shared anonymous memory of a parent and its children stays shared, with atomics and a
 * process-shared mutex in it; private memory of before the fork stays apart; a memfd and a POSIX object, too.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 3 };
#define PAGE 4096ul

struct area {
	pthread_mutex_t lock;
	uint64_t atomic_count, locked_count, stop;
	uint64_t own[CHILDREN];
	unsigned char data[16 * PAGE];
};

static struct area *area;
static unsigned char *private_page;

static void mutex_make(void)
{
	pthread_mutexattr_t attr;

	CHECK(pthread_mutexattr_init(&attr) == 0);
	CHECK(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_mutex_init(&area->lock, &attr) == 0);
}

static void child(int id)
{
	memset(private_page, 100 + id, PAGE);
	while (!__atomic_load_n(&area->stop, __ATOMIC_ACQUIRE)) {
		__atomic_add_fetch(&area->atomic_count, 1, __ATOMIC_RELAXED);
		CHECK(pthread_mutex_lock(&area->lock) == 0);
		area->locked_count++;
		CHECK(pthread_mutex_unlock(&area->lock) == 0);
		area->own[id]++;
		CHECK(private_page[PAGE - 1] == 100 + id);
		CHECK(pattern_holds(area->data, sizeof(area->data), 5));
	}
	_exit(0);
}

int main(void)
{
	uint64_t sum = 0, before = 0, *named;
	int status, fd;

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	private_page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd = memfd_create("feature", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, 2 * (off_t)PAGE) == 0);
	named = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(area != MAP_FAILED && private_page != MAP_FAILED && named != MAP_FAILED);
	CHECK(close(fd) == 0);
	mutex_make();
	memset(private_page, 1, PAGE);
	pattern_fill(area->data, sizeof(area->data), 5);
	named[0] = 1234;
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			child(i);
	}
	feature_ready();
	while (feature_step()) {
		feature_work();
		CHECK(private_page[0] == 1);
		CHECK(__atomic_load_n(&area->atomic_count, __ATOMIC_RELAXED) >= before);
		before = area->atomic_count;
		CHECK(named[0] == 1234);
	}
	__atomic_store_n(&area->stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < CHILDREN; i++) {
		CHECK(wait(&status) > 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	for (int i = 0; i < CHILDREN; i++)
		sum += area->own[i];
	CHECK(sum == area->atomic_count && sum == area->locked_count);
	return 0;
}
