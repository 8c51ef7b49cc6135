/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that wait in the kernel, each in another call, without a limit of time. They come back when the program
 * gives them what they wait for, and never with EINTR.
 */
#include "loopback.h"

#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { READ, POLL, SELECT, FULL, ACCEPT, RECV, SEM, FUTEX, WAIT, KINDS };

static int read_pipe[2], poll_pipe[2], select_pipe[2], full_pipe[2], listener, pair[2];
static sem_t sem;
static uint32_t futex_word;
static pid_t child;
static int done[KINDS];
static char page[65536];

static void block_read(void)
{
	char c;

	CHECK(read(read_pipe[0], &c, 1) == 1 && c == 'r');
}

static void block_poll(void)
{
	struct pollfd p = { .fd = poll_pipe[0], .events = POLLIN };

	CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLIN);
}

static void block_select(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(select_pipe[0], &set);
	CHECK(select(select_pipe[0] + 1, &set, NULL, NULL, NULL) == 1);
	CHECK(FD_ISSET(select_pipe[0], &set));
}

/* The pipe holds 64 KiB already. */
static void block_full(void)
{
	CHECK(write(full_pipe[1], "f", 1) == 1);
}

static void block_accept(void)
{
	int fd = accept(listener, NULL, NULL);

	CHECK(fd >= 0 && close(fd) == 0);
}

static void block_recv(void)
{
	char c;

	CHECK(recv(pair[0], &c, 1, 0) == 1 && c == 's');
}

static void block_sem(void)
{
	CHECK(sem_wait(&sem) == 0);
}

static void block_futex(void)
{
	while (__atomic_load_n(&futex_word, __ATOMIC_ACQUIRE) == 0) {
		long r = syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);

		CHECK(r == 0 || errno == EAGAIN);
	}
}

static void block_wait(void)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void (*const block[KINDS])(void) = { block_read, block_poll, block_select, block_full, block_accept,
					    block_recv, block_sem,  block_futex,  block_wait };

static void *work(void *arg)
{
	uintptr_t kind = (uintptr_t)arg;

	block[kind]();
	__atomic_store_n(&done[kind], 1, __ATOMIC_RELEASE);
	return NULL;
}

static socklen_t listen_loopback(struct sockaddr_in *ret)
{
	const socklen_t len = sizeof(*ret);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	bind_loopback(listener, ret);
	CHECK(listen(listener, 5) == 0);
	return len;
}

static void make_objects(struct sockaddr_in *address)
{
	CHECK(pipe(read_pipe) == 0 && pipe(poll_pipe) == 0 && pipe(select_pipe) == 0 && pipe(full_pipe) == 0);
	CHECK(write(full_pipe[1], page, sizeof(page)) == (ssize_t)sizeof(page));
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(sem_init(&sem, 0, 0) == 0);
	listen_loopback(address);
}

static void release_all(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(write(read_pipe[1], "r", 1) == 1 && write(poll_pipe[1], "p", 1) == 1);
	CHECK(write(select_pipe[1], "s", 1) == 1 && write(pair[1], "s", 1) == 1);
	CHECK(read(full_pipe[0], page, sizeof(page)) == (ssize_t)sizeof(page));
	CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0);
	CHECK(sem_post(&sem) == 0);
	__atomic_store_n(&futex_word, 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0);
}

int main(void)
{
	struct sockaddr_in address;
	pthread_t threads[KINDS];

	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		while (!feature_finished())
			feature_work();
		_exit(9);
	}
	make_objects(&address);
	for (uintptr_t i = 0; i < KINDS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < KINDS; i++)
			CHECK(i == WAIT || !__atomic_load_n(&done[i], __ATOMIC_ACQUIRE));
	} while (feature_step());
	release_all(&address);
	for (int i = 0; i < KINDS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
