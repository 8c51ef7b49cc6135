/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An extended connection whose initiator and target are two processes, which share a domain by a file: sends by the one target into the queues of
 * both, over a checkpoint, a restart that finds the file in another directory, and a restart of that. The initiator's own memory is written by way of the other's target: keys belong to the queue's process.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_xrc.h"

static char directory[] = "/tmp/verbs-xrc-XXXXXX", file[80], moved[64];

/* What an end tells the other. */
struct names {
	uint32_t qpn, srqn;
};

static struct ibv_xrcd *domain;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct names mine, other;

static void open_all(int sock, int initiates)
{
	int fd = open(file, O_RDONLY);

	alarm(45);
	die_unless(fd >= 0);
	end_open(&e, 0, SIZE);
	domain = xrc_domain(e.ctx, fd);
	close(fd);
	srq = xrc_srq(domain, &mine.srqn);
	qp = initiates ? xrc_initiator() : xrc_target(domain);
	mine.qpn = qp->qp_num;
	die_unless(write(sock, &mine, sizeof(mine)) == sizeof(mine) && read(sock, &other, sizeof(other)) == sizeof(other));
	qp_to_rts(qp, other.qpn, &e);
	xrc_receive(srq, 1);
	meet(sock);
}

static void move_and_restart(int sock, int moves)
{
	char rule[128];
	int length = snprintf(rule, sizeof(rule), "%s%c%s%c", directory, 0, moved, 0);

	pair_checkpoint();
	die_unless(!moves || !rename(directory, moved));
	meet(sock);
	fake_moved = (struct path_map){ rule, (size_t)length };
	pair_restart();
	fake_moved = (struct path_map){ 0 };
	pair_checkpoint();
	pair_restart();
	die_unless(access(directory, F_OK) < 0);
}

static int close_all(void)
{
	fake_host_barrier();
	die_unless(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_close_xrcd(domain));
	return pair_over();
}

static int initiator(int sock)
{
	uint64_t to;
	struct ibv_qp *handle;

	open_all(sock, 1);
	to = (uintptr_t)e.buf + 64 * XRC_ROOM;
	handle = xrc_handle(domain, other.qpn);
	xrc_post(qp, other.srqn, 11, IBV_WR_SEND, 0, 0, 0);
	xrc_post(qp, mine.srqn, 12, IBV_WR_SEND, 0, 0, 0);
	xrc_post(qp, mine.srqn, 13, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 0); /* waits, and all behind it */
	xrc_post(qp, mine.srqn, 14, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, to, e.mr->rkey);
	xrc_post(qp, other.srqn, 15, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 0);
	meet(sock);
	move_and_restart(sock, 1);
	xrc_got(1, other.qpn, 12);
	expect_empty(e.rcq);
	expect_empty(e.scq);
	die_unless(xrc_state(handle) == IBV_QPS_RTS && !ibv_destroy_qp(handle));
	meet(sock);
	xrc_receive(srq, 2);
	good_wc(e.scq, 13);
	good_wc(e.scq, 14);
	good_wc(e.scq, 15);
	xrc_got(2, other.qpn, 13);
	die_unless(filled(e.buf + 64 * XRC_ROOM, 64, 14));
	expect_empty(e.rcq);
	meet(sock);
	return close_all();
}

static int target(int sock)
{
	open_all(sock, 0);
	meet(sock);
	move_and_restart(sock, 0);
	xrc_got(1, mine.qpn, 11);
	expect_empty(e.rcq);
	xrc_receive(srq, 2);
	meet(sock);
	xrc_got(2, mine.qpn, 15);
	expect_empty(e.rcq);
	meet(sock);
	return close_all();
}

static void test_two_processes(void **state)
{
	int fd;

	die_unless(mkdtemp(directory));
	snprintf(file, sizeof(file), "%s/file", directory);
	snprintf(moved, sizeof(moved), "%s.moved", directory);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	die_unless(fd >= 0);
	close(fd);
	pair_run(initiator, target);
	snprintf(file, sizeof(file), "%s/file", moved);
	die_unless(!unlink(file) && !rmdir(moved));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_two_processes) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
