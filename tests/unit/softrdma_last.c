/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The last that another host has said is heard, whatever the next thing here is: a send, on a connection that the other host has reset since, which fails; or a
 * move to ERR, because the program has been told in another way that the other end is through. So that nobody reads before that, a child
 * holds the library's thread by ptrace.
 */
#include <dirent.h>
#include <linux/sockios.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define LENGTH 100u
#define MESSAGES 8 /* besides the first and the last */
#define ALL (MESSAGES + 2)

static int sender(int sock)
{
	const struct linger now = { .l_onoff = 1 };
	int i, fd, left = 1;
	struct end e;

	end_open_connected(&e, 1, ALL * LENGTH, sock);
	for (i = 0; i < ALL; i++)
		die_unless(!post_recv(&e, 0, (uint64_t)i, (size_t)i * LENGTH, LENGTH));
	meet(sock);
	for (i = 0; i <= MESSAGES; i++)
		good_wc(e.rcq, (uint64_t)i);
	die_unless(!post(&e, 0, 0, IBV_WR_SEND, 0, LENGTH, 0, 0)); /* behind the acknowledgements */
	die_unless((fd = end_connection(0)) >= 0);
	while (left)
		die_unless(!ioctl(fd, SIOCOUTQ, &left));
	die_unless(!setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	return 0; /* by _exit */
}

static pid_t library_thread(pid_t pid)
{
	char path[64], name[32] = "";
	struct dirent *d;
	pid_t tid = 0;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	die_unless(dir = opendir(path));
	while (!tid && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", pid, d->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && !strcmp(name, "softrdma\n"))
			tid = atoi(d->d_name);
		if (f)
			fclose(f);
	}
	closedir(dir);
	return tid;
}

/* Holds its parent's thread from the first meeting to the second; 77: it may not. */
static int holder(int sock)
{
	time_t end = time(NULL) + 20;
	int status;
	pid_t tid;

	while (!(tid = library_thread(getppid()))) /* it may not have begun */
		die_unless(time(NULL) < end);
	if (ptrace(PTRACE_SEIZE, tid, 0, 0))
		return 77;
	die_unless(!ptrace(PTRACE_INTERRUPT, tid, 0, 0) && waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status));
	meet(sock);
	meet(sock);
	return 0;
}

static void send_one(struct end *e, int i)
{
	die_unless(!post(e, 0, (uint64_t)i, IBV_WR_SEND, (size_t)i * LENGTH, LENGTH, 0, IBV_SEND_SIGNALED));
}

static void last_words(struct end *e, pid_t other, int hold)
{
	int i;

	meet(hold);
	for (i = 1; i <= MESSAGES; i++)
		send_one(e, i);
	assert_int_equal(reap(other), 0);
	send_one(e, i);
	for (i = 1; i <= MESSAGES; i++)
		good_wc(e->scq, (uint64_t)i);
	good_wc(e->rcq, 0);
	meet(hold);
	expect_wc(e->scq, (uint64_t)i, IBV_WC_RETRY_EXC_ERR);
}

static void test_last(void **state)
{
	int sock, hold, status;
	pid_t other = spawn_end(sender, &sock), held;
	char byte;
	struct end e;

	end_open_connected(&e, 1, ALL * LENGTH, sock);
	die_unless(!post_recv(&e, 0, 0, 0, LENGTH));
	meet(sock);
	send_one(&e, 0);
	good_wc(e.scq, 0);
	held = spawn_end(holder, &hold);
	if (recv(hold, &byte, 1, MSG_PEEK) == 1)
		last_words(&e, other, hold);
	else
		die_unless(!close(sock) && reap(other) >= 0);
	status = reap(held);
	if (status == 77)
		skip();
	assert_int_equal(status, 0);
	end_close(&e);
}

/* Has got the message, so it is through, and says so. */
static int leaver(int sock)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct end e;

	end_open_connected(&e, 1, ALL * LENGTH, sock);
	for (int i = 0; i < 2; i++)
		die_unless(!post_recv(&e, 0, (uint64_t)i, 0, LENGTH));
	meet(sock);
	good_wc(e.rcq, 0);
	meet(sock);
	good_wc(e.rcq, 1);
	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
	meet(sock);
	meet(sock);
	return 0;
}

static void follow(struct end *e, int sock)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	int fd = end_connection(0), there = 0;

	die_unless(fd >= 0);
	meet(sock);
	send_one(e, 1);
	meet(sock);
	while (!there)
		die_unless(!ioctl(fd, SIOCINQ, &there));
	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE));
	good_wc(e->scq, 1);
}

/* What the other end's program has got has been acknowledged, so it does not end as flushed. In a process of its own: another host than the other test's. */
static int stayer(int nobody)
{
	int sock, hold, status;
	pid_t other = spawn_end(leaver, &sock), held;
	char byte;
	struct end e;

	end_open_connected(&e, 1, ALL * LENGTH, sock);
	meet(sock);
	send_one(&e, 0);
	good_wc(e.scq, 0);
	held = spawn_end(holder, &hold);
	if (recv(hold, &byte, 1, MSG_PEEK) == 1) {
		meet(hold);
		follow(&e, sock);
		meet(hold);
		meet(sock);
	}
	close(sock);
	status = reap(held);
	return status ? status : reap(other);
}

static void test_leave(void **state)
{
	int sock, status = reap(spawn_end(stayer, &sock));

	if (status == 77)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_leave), cmocka_unit_test(test_last) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
