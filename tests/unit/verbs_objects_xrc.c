/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended connections: domains, sends that wait for several shared queues, handles of targets. */
#include "verbs_objects.h"
#include "verbs_xrc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two connections into two shared queues of one domain. */
static struct ibv_xrcd *domain;
static struct ibv_srq *srqs[2];
static uint32_t srqns[2];
static struct ibv_qp *initiators[2], *targets[2], *handle;
static char file[] = "/tmp/verbs-xrc-XXXXXX";

static void receive(int q, uint64_t id)
{
	xrc_receive(srqs[q], id);
}

static void send(int from, int q, uint64_t id, enum ibv_wr_opcode op, unsigned int flags, size_t to)
{
	xrc_post(initiators[from], srqns[q], id, op, flags, (uintptr_t)e.buf + to, e.mr->rkey);
}

static void got(uint64_t receive, int from, uint64_t id)
{
	xrc_got(receive, targets[from]->qp_num, id);
}

static void open_all(int fd)
{
	end_open(&e, 0, SIZE);
	domain = xrc_domain(e.ctx, fd);
	for (int i = 0; i < 2; i++) {
		srqs[i] = xrc_srq(domain, &srqns[i]);
		initiators[i] = xrc_initiator();
		targets[i] = xrc_target(domain);
		qp_to_rts(initiators[i], targets[i]->qp_num, &e);
		qp_to_rts(targets[i], initiators[i]->qp_num, &e);
	}
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++)
		die_unless(!ibv_destroy_qp(initiators[i]) && !ibv_destroy_qp(targets[i]) && !ibv_destroy_srq(srqs[i]));
	die_unless(!ibv_close_xrcd(domain));
}

/*
 * Three receives. Connection 0 sends to queue 0, to queue 1 twice: its third waits, and a WRITE behind it. Connection 1 finds queue 0 with one left and its
 * second send waits. What was executed is unsignalled in part, and nothing is polled.
 */
static void waits_make(void)
{
	open_all(-1);
	receive(0, 1);
	receive(0, 2);
	receive(1, 3);
	send(0, 0, 11, IBV_WR_SEND, 0, 0);
	send(0, 1, 12, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	send(1, 0, 21, IBV_WR_SEND, 0, 0);
	send(0, 1, 13, IBV_WR_SEND, 0, 0);
	send(0, 1, 14, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64 * XRC_ROOM);
	send(1, 0, 22, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
}

static void waits_check(void)
{
	uint32_t number;

	got(1, 0, 11);
	got(3, 0, 12);
	got(2, 1, 21);
	good_wc(e.scq, 12);
	expect_empty(e.rcq);
	expect_empty(e.scq);
	die_unless(!filled(e.buf + 64 * XRC_ROOM, 64, 14) && !ibv_get_srq_num(srqs[1], &number) && number == srqns[1]);
	receive(1, 4);
	got(4, 0, 13);
	good_wc(e.scq, 14);
	die_unless(filled(e.buf + 64 * XRC_ROOM, 64, 14));
	receive(0, 5);
	got(5, 1, 22);
	good_wc(e.scq, 22);
	send(1, 1, 23, IBV_WR_SEND, IBV_SEND_SIGNALED, 0); /* waits at the second checkpoint */
	receive(0, 6);
}

static void waits_unmake(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	pair_restart();
	expect_empty(e.rcq);
	receive(1, 7);
	got(7, 1, 23);
	good_wc(e.scq, 23);
	send(0, 0, 15, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	got(6, 0, 15);
	good_wc(e.scq, 15);
	close_all();
}

/* A queue that is made after the restart has a number that is nobody's; its domain is opened by the file once more. */
static void file_make(void)
{
	int fd = mkstemp(file);

	die_unless(fd >= 0);
	open_all(fd);
	close(fd);
	receive(0, 1);
}

static void file_check(void)
{
	struct ibv_srq *old = srqs[1], *srq;
	int fd = open(file, O_RDONLY);
	uint32_t number = srqns[1];
	struct ibv_xrcd *d;

	die_unless(fd >= 0);
	d = xrc_domain(e.ctx, fd);
	close(fd);
	srqs[1] = srq = xrc_srq(d, &srqns[1]);
	die_unless(srqns[1] != srqns[0] && srqns[1] != number);
	receive(1, 2);
	send(0, 1, 11, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	got(2, 0, 11);
	send(0, 0, 12, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	got(1, 0, 12);
	good_wc(e.scq, 11);
	good_wc(e.scq, 12);
	die_unless(!ibv_destroy_srq(srq) && !ibv_close_xrcd(d));
	srqs[1] = old;
	srqns[1] = number;
}

static void file_unmake(void)
{
	die_unless(!unlink(file) && fake_host_checkpoint(&plugin_verbs) && strstr(fake_host_failure(), file));
	close_all();
}

static void handle_make(void)
{
	open_all(-1);
	handle = xrc_handle(domain, targets[0]->qp_num);
}

static void handle_check(void)
{
	die_unless(handle->qp_num == targets[0]->qp_num && xrc_state(handle) == IBV_QPS_RTS);
	die_unless(!ibv_destroy_qp(targets[0]));
	die_unless(xrc_state(handle) == IBV_QPS_ERR);
}

/* Its target is gone at the second checkpoint. */
static void handle_unmake(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	pair_restart();
	die_unless(xrc_state(handle) == IBV_QPS_ERR && !ibv_destroy_qp(handle));
	targets[0] = xrc_target(domain);
	/* nobody hears what is sent to it */
	send(0, 0, 11, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	expect_wc(e.scq, 11, IBV_WC_RETRY_EXC_ERR);
	close_all();
}

static void flags_make(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_UD, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
					    .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
					    .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	connected(IBV_QPT_RC);
	init.pd = e.pd;
	init.send_cq = e.scq;
	init.recv_cq = e.rcq;
	die_unless((handle = ibv_create_qp_ex(e.ctx, &init)));
}

/* It was made in the same way. */
static void flags_check(void)
{
	die_unless(shadow_qp(handle)->more == (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS));
	send_works();
}

static void flags_unmake(void)
{
	die_unless(!ibv_destroy_qp(handle));
}

const struct object xrc_objects[] = {
	{ "XRC, sends that wait", NULL, waits_make, waits_check, waits_unmake },
	{ "XRC domain of a file", NULL, file_make, file_check, file_unmake },
	{ "XRC handle", NULL, handle_make, handle_check, handle_unmake },
	{ "creation flags", NULL, flags_make, flags_check, flags_unmake },
	{ 0 },
};
