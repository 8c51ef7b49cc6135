/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that ends by exit() and has closed nothing: what it had seen completed is acknowledged and sent, as an adapter has done it before
 * the program knows. Whatever else goes on in it: input that nobody has read, other threads, a signal handler in the midst of a call.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define ROUNDS 20
#define MESSAGES 48
#define SEEN 8

static uint32_t length; /* of a message */
static int apart;	/* each message when the one before it has completed */

static int end_begin(int (*fn)(int), int *ret_sock)
{
	fflush(NULL); /* the other end's exit() shall not say it again */
	return spawn_end(fn, ret_sock);
}

static void end_receive(struct end *e, int sock)
{
	int i;

	end_open_connected(e, 1, (size_t)MESSAGES * length, sock);
	for (i = 0; i < MESSAGES; i++)
		die_unless(!post_recv(e, 0, (uint64_t)i, (size_t)i * length, length));
	meet(sock);
}

static void see(struct end *e)
{
	uint64_t i;

	for (i = 0; i < SEEN; i++)
		good_wc(e->rcq, i);
}

/* How many of the messages that are sent to it end well. */
static int sent_to(int (*receiver)(int), int status)
{
	int sock, i, good = 0;
	pid_t pid = end_begin(receiver, &sock);
	struct end e;

	end_open_connected(&e, 1, (size_t)MESSAGES * length, sock);
	meet(sock);
	for (i = 0; i < MESSAGES; i++) {
		die_unless(!post(&e, 0, (uint64_t)i, IBV_WR_SEND, (size_t)i * length, length, 0, IBV_SEND_SIGNALED));
		if (apart)
			good += next_wc(e.scq).status == IBV_WC_SUCCESS;
	}
	for (i = 0; !apart && i < MESSAGES; i++)
		good += next_wc(e.scq).status == IBV_WC_SUCCESS;
	assert_int_equal(reap(pid), status);
	close(sock);
	end_close(&e);
	return good;
}

static int receive_some(int sock)
{
	struct end e;

	end_receive(&e, sock);
	see(&e);
	exit(0);
}

static int receive_all(int sock)
{
	struct end e;
	uint64_t i;

	end_receive(&e, sock);
	for (i = 0; i < MESSAGES; i++)
		good_wc(e.rcq, i);
	exit(0);
}

static void test_all(void **state)
{
	int i;

	length = 64;
	apart = 1;
	for (i = 0; i < ROUNDS; i++)
		assert_int_equal(sent_to(receive_all, 0), MESSAGES);
	apart = 0;
}

/* More is on its way than has been read when it ends. */
static void test_unread(void **state)
{
	int i;

	length = 200000;
	for (i = 0; i < ROUNDS; i++)
		assert_in_range(sent_to(receive_some, 0), SEEN, MESSAGES);
}

static void *poll_on(void *arg)
{
	struct ibv_cq *cq = arg;
	struct ibv_wc wc;

	for (;;)
		ibv_poll_cq(cq, 1, &wc);
	return NULL;
}

static int receive_beside_thread(int sock)
{
	pthread_t t;
	struct end e;

	end_receive(&e, sock);
	die_unless(!pthread_create(&t, NULL, poll_on, e.scq));
	see(&e);
	exit(0);
}

static void test_thread(void **state)
{
	length = 1000;
	assert_in_range(sent_to(receive_beside_thread, 0), SEEN, MESSAGES);
}

static void end_here(int sig)
{
	exit(3);
}

static int receive_until_signal(int sock)
{
	const struct itimerval soon = { .it_value = { 0, 20000 } };
	struct end e;

	end_receive(&e, sock);
	see(&e);
	signal(SIGALRM, end_here);
	die_unless(!setitimer(ITIMER_REAL, &soon, NULL));
	poll_on(e.rcq);
	return 1;
}

static void test_signal(void **state)
{
	int i;

	length = 1000;
	for (i = 0; i < ROUNDS; i++)
		assert_in_range(sent_to(receive_until_signal, 3), SEEN, MESSAGES);
}

/* A child that ends has no connections, though it has its parent's descriptors. */
static int receive_beside_child(int sock)
{
	struct end e;
	uint64_t i;
	pid_t pid;

	end_receive(&e, sock);
	see(&e);
	pid = fork();
	if (!pid)
		exit(5);
	die_unless(reap(pid) == 5);
	for (i = SEEN; i < MESSAGES; i++)
		good_wc(e.rcq, i);
	exit(0);
}

static void test_child(void **state)
{
	length = 1000;
	assert_int_equal(sent_to(receive_beside_child, 0), MESSAGES);
}

/* ---- what is unreliable and has completed: more than the kernels hold, for a host that takes it only later ---- */

#define PIECE 2000u
#define PIECES 2000
#define FULL_NS 300000000ll /* so long nothing more completes */
#define ENDED_MS 200	    /* who does not wait has ended by then */

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int completes(struct end *e)
{
	long long end = now_ns() + FULL_NS;
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(e->scq, 1, &wc);
	while (!n && now_ns() < end);
	return n;
}

/* Connections of this process hold no more than that. */
static void hold_little(int option)
{
	int fd, little = 65536;

	for (fd = 0; (fd = end_connection(fd)) >= 0; fd++)
		die_unless(!setsockopt(fd, SOL_SOCKET, option, &little, sizeof(little)));
}

static int write_until_full(int sock)
{
	struct end e;
	int i;

	end_open_as(&e, 1, PIECES * PIECE, IBV_QPT_UC);
	fill(e.buf, e.size, 1);
	end_connect(&e, sock);
	die_unless(!post(&e, 0, 0, IBV_WR_RDMA_WRITE, 0, PIECE, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 0);
	meet(sock); /* there it is */
	hold_little(SO_SNDBUF);
	for (i = 1; i < PIECES; i++) {
		die_unless(!post(&e, 0, (uint64_t)i, IBV_WR_RDMA_WRITE, (size_t)i * PIECE, PIECE, (size_t)i * PIECE, IBV_SEND_SIGNALED));
		if (!completes(&e))
			break;
	}
	die_unless(i < PIECES && write(sock, &i, sizeof(i)) == sizeof(i));
	exit(0);
}

static void take(struct end *e, int pieces)
{
	long long end = now_ns() + 5000000000ll;

	while (!filled(e->buf, (size_t)pieces * PIECE, 1))
		die_unless(now_ns() < end);
}

static int take_later(int sock)
{
	struct end e;
	int n;

	end_open(&e, 0, 1); /* the writer's address */
	end_close(&e);
	end_open_as(&e, 1, PIECES * PIECE, IBV_QPT_UC);
	end_connect(&e, sock);
	take(&e, 1);
	hold_little(SO_RCVBUF);
	meet(sock);
	raise(SIGSTOP);
	die_unless(read(sock, &n, sizeof(n)) == sizeof(n));
	take(&e, n);
	end_close(&e);
	return 0;
}

/* Each says as much as the other. */
static void relay(const int sock[2], size_t size)
{
	char said[2][sizeof(struct end_name)];
	int i;

	for (i = 0; i < 2; i++)
		die_unless(recv(sock[i], said[i], size, MSG_WAITALL) == (ssize_t)size);
	for (i = 0; i < 2; i++)
		die_unless(write(sock[i], said[!i], size) == (ssize_t)size);
}

static void test_unreliable(void **state)
{
	int sock[2], status, n;
	pid_t writer = end_begin(write_until_full, &sock[0]), taker = end_begin(take_later, &sock[1]);
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, writer, 0), .events = POLLIN };

	relay(sock, sizeof(struct end_name));
	relay(sock, 1);
	relay(sock, 1);
	die_unless(waitpid(taker, &status, WUNTRACED) == taker && WIFSTOPPED(status));
	die_unless(read(sock[0], &n, sizeof(n)) == sizeof(n) && write(sock[1], &n, sizeof(n)) == sizeof(n));
	die_unless(p.fd >= 0 && poll(&p, 1, ENDED_MS) >= 0 && !kill(taker, SIGCONT));
	assert_int_equal(reap(writer), 0);
	assert_int_equal(reap(taker), 0);
	close(p.fd);
	close(sock[0]);
	close(sock[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all), cmocka_unit_test(test_unread), cmocka_unit_test(test_thread),
					    cmocka_unit_test(test_signal), cmocka_unit_test(test_child), cmocka_unit_test(test_unreliable) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
