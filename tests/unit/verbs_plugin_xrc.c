/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An extended connection whose initiator and target are two processes, which share a domain by a file: sends by the one target into the queues of
 * both, over a checkpoint and a restart. The initiator's own memory is written by way of the other's target: keys belong to the queue's process.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_xrc.h"

static char file[] = "/tmp/verbs-xrc-XXXXXX";

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
	pair_checkpoint();
	pair_restart();
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
	pair_checkpoint();
	pair_restart();
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
	int fd = mkstemp(file);

	die_unless(fd >= 0);
	close(fd);
	pair_run(initiator, target);
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_two_processes) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
