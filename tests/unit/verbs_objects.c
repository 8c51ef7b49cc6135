/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every kind of object and every state that a program can have at a checkpoint, each alone: either it comes back right from a restart, or the
 * checkpoint is refused, and says its name. Nothing is neither. Each case runs in a process of its own, a queue pair connected to itself in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_pair.h"

struct object {
	const char *name;
	const char *refused; /* a word of the refusal; NULL: it is saved */
	void (*make)(void);
	void (*check)(void); /* after the restart, or after the refusal */
	void (*unmake)(void); /* then a checkpoint is refused no more */
};

static void connected(enum ibv_qp_type type)
{
	end_open_as(&e, 1, SIZE, type);
	end_connect_to(&e, &e.me);
}

static void send_works(void)
{
	fill(e.buf, 64, 3);
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.rcq, 1);
	good_wc(e.scq, 2);
	die_unless(filled(e.buf + 4096, 64, 3));
}

/* ---- an open row of requests, an open poll ---- */

static struct ibv_qp_ex *qx;
static struct ibv_cq_ex *cx;

static void extended_make(void)
{
	struct ibv_cq_init_attr_ex c = { .cqe = 16, .cq_context = &e, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr_ex q = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1,
						  .max_inline_data = 32 } };

	end_open(&e, 1, SIZE);
	die_unless((cx = ibv_create_cq_ex(e.ctx, &c)));
	q.pd = e.pd;
	q.send_cq = q.recv_cq = ibv_cq_ex_to_cq(cx);
	die_unless((qx = ibv_qp_to_qp_ex(ibv_create_qp_ex(e.ctx, &q))));
	die_unless(!ibv_destroy_qp(e.qp[0]));
	e.qp[0] = &qx->qp_base;
	e.me.qpn[0] = qx->qp_base.qp_num;
	e.scq = e.rcq; /* the other one is used no more */
	end_connect_to(&e, &e.me);
}

static void builder_make(void)
{
	extended_make();
	fill(e.buf, 64, 3);
	die_unless(!post_recv(&e, 0, 1, 4096, 64));
	ibv_wr_start(qx);
	qx->wr_id = 2;
	qx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qx);
	ibv_wr_set_sge(qx, e.mr->lkey, (uintptr_t)e.buf, 64);
	qx->wr_id = 3;
	ibv_wr_send(qx);
	ibv_wr_set_inline_data(qx, e.buf, 20);
}

static void builder_check(void)
{
	die_unless(!post_recv(&e, 0, 4, 8192, 64));
	memset(e.buf, 0, 20); /* what was inline is not read any more; the rest is */
	fill(e.buf, 64, 5);
	die_unless(!ibv_wr_complete(qx));
	good_wc(ibv_cq_ex_to_cq(cx), 1);
	good_wc(ibv_cq_ex_to_cq(cx), 2);
	good_wc(ibv_cq_ex_to_cq(cx), 4);
	good_wc(ibv_cq_ex_to_cq(cx), 3);
	die_unless(filled(e.buf + 4096, 64, 5) && filled(e.buf + 8192, 20, 3));
}

static void poll_make(void)
{
	struct ibv_poll_cq_attr none = { 0 };

	extended_make();
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post_recv(&e, 0, 10 + i, 4096 * i, 64));
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, (uint32_t)(i + 1), 0, 0));
	die_unless(!ibv_start_poll(cx, &none) && cx->wr_id == 10);
}

static void poll_check(void)
{
	die_unless(cx->wr_id == 10 && ibv_wc_read_byte_len(cx) == 1 && ibv_wc_read_qp_num(cx) == qx->qp_base.qp_num);
	die_unless(!ibv_next_poll(cx) && cx->wr_id == 11 && ibv_wc_read_byte_len(cx) == 2);
	die_unless(!ibv_next_poll(cx) && cx->wr_id == 12 && ibv_wc_read_opcode(cx) == IBV_WC_RECV);
	die_unless(ibv_next_poll(cx) == ENOENT);
	ibv_end_poll(cx);
}

static void stamps_make(void)
{
	struct ibv_cq_init_attr_ex c = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };

	connected(IBV_QPT_RC);
	die_unless((cx = ibv_create_cq_ex(e.ctx, &c)));
}

static void stamps_unmake(void)
{
	die_unless(!ibv_destroy_cq(ibv_cq_ex_to_cq(cx)));
}

/* ---- memory ---- */

static struct ibv_mw *mw;
static struct ibv_dm *dm;
static struct ibv_mr *mr;

static void window_make(void)
{
	connected(IBV_QPT_RC);
	die_unless((mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_1)));
}

static void window_unmake(void)
{
	die_unless(!ibv_dealloc_mw(mw));
}

/* A binding that waits behind a send, of a window that is gone by then. */
static void bind_make(void)
{
	struct ibv_mw_bind bind = { .wr_id = 2, .send_flags = IBV_SEND_SIGNALED };

	end_open(&e, 1, SIZE);
	die_unless((mr = ibv_reg_mr(e.pd, e.buf, 64, ALL_ACCESS | IBV_ACCESS_MW_BIND)));
	end_connect_to(&e, &e.me);
	die_unless((mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_1)));
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)e.buf, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	die_unless(!ibv_bind_mw(e.qp[0], mw, &bind) && !ibv_dealloc_mw(mw));
}

static void bind_unmake(void)
{
	die_unless(!ibv_destroy_qp(e.qp[0]) && !ibv_dereg_mr(mr));
	e.nqp = 0;
}

static void device_memory_make(void)
{
	struct ibv_alloc_dm_attr d = { .length = 4096 };

	connected(IBV_QPT_RC);
	die_unless((dm = ibv_alloc_dm(e.ctx, &d)));
	die_unless((mr = ibv_reg_dm_mr(e.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE)));
	die_unless(ibv_free_dm(dm)); /* not before its region */
}

static void device_memory_unmake(void)
{
	die_unless(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
}

static void rereg_make(void)
{
	connected(IBV_QPT_RC);
	die_unless((mr = ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_LOCAL_WRITE)));
	die_unless(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, e.buf + 8192, 128, ALL_ACCESS));
}

/* Writes 64 bytes to @to through the region's keys. */
static void through_region(size_t to)
{
	struct ibv_sge sge = { (uintptr_t)e.buf, 64, e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = (uintptr_t)e.buf + to;
	wr.wr.rdma.rkey = mr->rkey;
	fill(e.buf, 64, (unsigned int)to);
	die_unless(!post_wr(&e, 0, &wr));
	good_wc(e.scq, 5);
	die_unless(filled(e.buf + to, 64, (unsigned int)to));
}

static void rereg_check(void)
{
	uint32_t rkey = mr->rkey;

	through_region(8192 + 64);
	die_unless(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, e.buf + 16384, 64, 0));
	die_unless(mr->addr == e.buf + 16384 && mr->length == 64);
	die_unless(mr->rkey == rkey || !verbs_key_known(mr->lkey, mr->rkey));
	through_region(16384);
	send_works();
}

static void rereg_unmake(void)
{
	die_unless(!ibv_dereg_mr(mr));
}

/* ---- domains ---- */

static struct ibv_xrcd *xrcd;
static struct ibv_td *td;
static struct ibv_pd *parent;

static void xrcd_make(void)
{
	struct ibv_xrcd_init_attr x = { .fd = -1, .oflags = O_CREAT, .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };

	connected(IBV_QPT_RC);
	die_unless((xrcd = ibv_open_xrcd(e.ctx, &x)));
}

static void xrcd_unmake(void)
{
	die_unless(!ibv_close_xrcd(xrcd));
}

static void xrc_send_make(void)
{
	end_open_as(&e, 1, SIZE, IBV_QPT_XRC_SEND);
}

static void parent_make(void)
{
	struct ibv_td_init_attr t = { 0 };
	struct ibv_parent_domain_init_attr p = { 0 };

	connected(IBV_QPT_RC);
	die_unless((td = ibv_alloc_td(e.ctx, &t)));
	p.pd = e.pd;
	p.td = td;
	die_unless((parent = ibv_alloc_parent_domain(e.ctx, &p)));
}

static void parent_unmake(void)
{
	die_unless(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
}

/* ---- queue pairs ---- */

static void qp_unmake(void)
{
	die_unless(!ibv_destroy_qp(e.qp[0]));
	e.nqp = 0;
}

static void uc_make(void)
{
	connected(IBV_QPT_UC);
}

static struct ibv_ah *ah;

static void ud_make(void)
{
	connected(IBV_QPT_UD);
}

static void ah_make(void)
{
	struct ibv_ah_attr a = { .port_num = 1 };

	connected(IBV_QPT_RC);
	a.dlid = e.me.lid;
	die_unless((ah = ibv_create_ah(e.pd, &a)));
}

static void ah_unmake(void)
{
	die_unless(!ibv_destroy_ah(ah));
}

static void mcast_make(void)
{
	union ibv_gid gid = { .raw = { 0xff, 0x12, [15] = 7 } };

	connected(IBV_QPT_UD);
	die_unless(!ibv_attach_mcast(e.qp[0], &gid, 0xc001));
}

static void mcast_unmake(void)
{
	union ibv_gid gid = { .raw = { 0xff, 0x12, [15] = 7 } };

	die_unless(!ibv_detach_mcast(e.qp[0], &gid, 0xc001));
	qp_unmake();
}

/*
 * Queue pairs 0 and 1 send three messages each to 2 and 3, whose shared queue has four receives: two sends wait. All but the last sends are unsignalled. The limit's
 * event is unread; a second limit is armed on another queue.
 */
static struct ibv_srq *srq, *other_srq;

static void shared_post(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)e.buf + 4096 * id, 64, e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	die_unless(!ibv_post_srq_recv(srq, &wr, &bad));
}

static void shared_connect(void)
{
	struct ibv_qp_init_attr init = { .send_cq = e.scq, .recv_cq = e.rcq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };

	for (int i = 2; i < 4; i++) {
		die_unless(!ibv_destroy_qp(e.qp[i]) && (e.qp[i] = ibv_create_qp(e.pd, &init)));
		e.me.qpn[i] = e.qp[i]->qp_num;
	}
	e.other = e.me;
	for (int i = 0; i < 4; i++) {
		qp_to_init(e.qp[i], e.access);
		qp_to_rts(e.qp[i], e.me.qpn[(i + 2) % 4], &e);
	}
}

static void srq_make(void)
{
	struct ibv_srq_init_attr init = { .srq_context = &srq, .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };

	end_open(&e, 4, SIZE);
	die_unless((srq = ibv_create_srq(e.pd, &init)) && (other_srq = ibv_create_srq(e.pd, &init)));
	shared_connect();
	for (uint64_t i = 1; i <= 4; i++)
		shared_post(i);
	die_unless(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	limit.srq_limit = 1;
	die_unless(!ibv_modify_srq(other_srq, &limit, IBV_SRQ_LIMIT));
	for (uint64_t i = 0; i < 6; i++) {
		fill(e.buf + 65536 + i * 64, 64, (unsigned int)i);
		die_unless(!post(&e, (int)i / 3, 20 + i, IBV_WR_SEND, 65536 + i * 64, 64, 0, i % 3 == 2 ? IBV_SEND_SIGNALED : 0));
	}
}

/* The receive @id has the message @message of its connection. */
static void shared_expect(uint64_t id, uint64_t message)
{
	struct ibv_wc wc = good_wc(e.rcq, id);

	die_unless(wc.qp_num == e.qp[2 + message / 3]->qp_num && wc.byte_len == 64);
	die_unless(filled(e.buf + 4096 * id, 64, (unsigned int)message));
}

static void srq_check(void)
{
	struct ibv_async_event ev;
	struct ibv_srq_attr attr;

	for (uint64_t i = 0; i < 4; i++)
		shared_expect(i + 1, i);
	expect_empty(e.rcq);
	good_wc(e.scq, 22);
	expect_empty(e.scq);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == srq);
	ibv_ack_async_event(&ev);
	die_unless(!ibv_query_srq(srq, &attr) && attr.max_wr == 8 && !attr.srq_limit);
	die_unless(!ibv_query_srq(other_srq, &attr) && attr.srq_limit == 1);
	shared_post(6);
	shared_post(5);
	shared_expect(6, 4);
	shared_expect(5, 5);
	good_wc(e.scq, 25);
	expect_empty(e.scq);
	expect_empty(e.rcq);
	shared_post(7); /* is there at the second checkpoint, and stays */
}

static void srq_unmake(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	pair_restart();
	fill(e.buf + 65536, 64, 9);
	die_unless(!post(&e, 1, 30, IBV_WR_SEND, 65536, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 30);
	die_unless(good_wc(e.rcq, 7).qp_num == e.qp[3]->qp_num && filled(e.buf + 4096 * 7, 64, 9));
	for (int i = 0; i < 4; i++)
		die_unless(!ibv_destroy_qp(e.qp[i]));
	die_unless(!ibv_destroy_srq(srq) && !ibv_destroy_srq(other_srq));
}

static enum ibv_qp_state state_of(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	die_unless(!ibv_query_qp(e.qp[0], &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static void move(enum ibv_qp_state to)
{
	struct ibv_qp_attr a = { .qp_state = to };

	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
}

static void sqd_make(void)
{
	connected(IBV_QPT_RC);
	move(IBV_QPS_SQD);
}

static void sqd_check(void)
{
	die_unless(state_of() == IBV_QPS_SQD);
}

static void sqd_unmake(void)
{
	move(IBV_QPS_RTS);
	send_works();
}

static void err_make(void)
{
	connected(IBV_QPT_RC);
	die_unless(!post_recv(&e, 0, 1, 0, 64));
	move(IBV_QPS_ERR);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, 0));
}

static void err_check(void)
{
	die_unless(state_of() == IBV_QPS_ERR);
	expect_wc(e.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
	die_unless(!post_recv(&e, 0, 3, 0, 64));
	expect_wc(e.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.rcq);
	expect_empty(e.scq);
}

/* ---- what waits in a send queue ---- */

/* A send that finds no receive, and behind it @last. */
static void behind_a_send(struct ibv_send_wr *last)
{
	connected(IBV_QPT_RC);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	last->wr_id = 2;
	last->send_flags = IBV_SEND_SIGNALED;
	die_unless(!post_wr(&e, 0, last));
}

static void local_inv_make(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = 0x1234 };

	behind_a_send(&wr);
}

static void send_inv_make(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = 0x1234 };

	behind_a_send(&wr);
}

static void local_inv_check(void)
{
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	expect_wc(e.scq, 2, IBV_WC_LOC_QP_OP_ERR);
}

static void send_inv_check(void)
{
	die_unless(!post_recv(&e, 0, 10, 4096, 64) && !post_recv(&e, 0, 11, 4096, 64));
	good_wc(e.rcq, 10);
	good_wc(e.scq, 1);
	expect_wc(e.scq, 2, IBV_WC_REM_OP_ERR);
}

/* ---- events ---- */

static int event_there(void)
{
	struct pollfd p = { .fd = e.ctx->async_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* The first message comes in RTR: COMM_EST. The wrong key of the second: an error event of the responder. */
static void events_make(void)
{
	end_open(&e, 2, SIZE);
	e.other = e.me;
	for (int i = 0; i < 2; i++)
		qp_to_init(e.qp[i], e.access);
	qp_to_rtr(e.qp[0], e.me.qpn[1], &e);
	qp_to_rts(e.qp[1], e.me.qpn[0], &e);
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post(&e, 1, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	e.other.rkey ^= 0x5a5a00;
	die_unless(!post(&e, 1, 3, IBV_WR_RDMA_WRITE, 0, 64, 0, IBV_SEND_SIGNALED));
	expect_wc(e.scq, 3, IBV_WC_REM_ACCESS_ERR);
	die_unless(event_there());
}

static void events_check(void)
{
	struct ibv_async_event ev;

	good_wc(e.rcq, 1);
	die_unless(event_there());
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_COMM_EST && ev.element.qp == e.qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_QP_ACCESS_ERR && ev.element.qp == e.qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!event_there());
}

/* A device that cannot tell an event again. */
static void events_lost_make(void)
{
	events_make();
	verbs_backend.softrdma_async_raise = NULL;
}

static int cm_fd;

static void cm_make(void)
{
	connected(IBV_QPT_RC);
	cm_fd = plugin_verbs.file_open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	die_unless(cm_fd >= 0);
}

static void cm_unmake(void)
{
	die_unless(!plugin_verbs.file_close(cm_fd));
}

/* What a program cannot even make is nothing to save. */
static void absent_make(void)
{
	struct ibv_ece ece = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow), .port = 1 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1 };

	connected(IBV_QPT_RC);
	wq.pd = e.pd;
	wq.cq = e.rcq;
	die_unless(ibv_set_ece(e.qp[0], &ece) && ibv_query_ece(e.qp[0], &ece));
	die_unless(!ibv_create_counters(e.ctx, &counters) && errno == EOPNOTSUPP);
	die_unless(!ibv_create_flow(e.qp[0], &flow) && errno == EOPNOTSUPP);
	die_unless(!ibv_create_wq(e.ctx, &wq) && errno == EOPNOTSUPP);
	die_unless(!ibv_alloc_null_mr(e.pd) && !ibv_reg_dmabuf_mr(e.pd, 0, 64, 0, 0, IBV_ACCESS_LOCAL_WRITE));
	die_unless(!ibv_import_device(0) && !ibv_import_pd(e.ctx, 0) && !ibv_import_mr(e.pd, 0));
}

static const struct object objects[] = {
	{ "open row of requests", NULL, builder_make, builder_check, NULL },
	{ "open poll", NULL, poll_make, poll_check, NULL },
	{ "time stamps", "time stamps", stamps_make, send_works, stamps_unmake },
	{ "memory window", "memory window", window_make, send_works, window_unmake },
	{ "binding", "bind a memory window", bind_make, NULL, bind_unmake },
	{ "device memory", "device memory", device_memory_make, send_works, device_memory_unmake },
	{ "changed region", NULL, rereg_make, rereg_check, rereg_unmake },
	{ "XRC domain", "XRC", xrcd_make, send_works, xrcd_unmake },
	{ "XRC queue pair", "XRC", xrc_send_make, NULL, qp_unmake },
	{ "parent domain", "parent domain", parent_make, send_works, parent_unmake },
	{ "UC", "unreliably connected", uc_make, NULL, qp_unmake },
	{ "UD", "of datagrams", ud_make, NULL, qp_unmake },
	{ "address handle", "address handle", ah_make, send_works, ah_unmake },
	{ "multicast", "of datagrams", mcast_make, NULL, mcast_unmake },
	{ "shared receive queue", NULL, srq_make, srq_check, srq_unmake },
	{ "SQD", "SQD", sqd_make, sqd_check, sqd_unmake },
	{ "ERR", NULL, err_make, err_check, NULL },
	{ "local invalidation", NULL, local_inv_make, local_inv_check, NULL },
	{ "SEND with invalidate", NULL, send_inv_make, send_inv_check, NULL },
	{ "unread events", NULL, events_make, events_check, NULL },
	{ "unread events of another device", "asynchronous event", events_lost_make, events_check, NULL },
	{ "rdma_cm channel", "rdma_cm", cm_make, send_works, cm_unmake },
	{ "what is not there", NULL, absent_make, send_works, NULL },
};

static int run(const struct object *o)
{
	int r;

	fake_host_init(1);
	alarm(40);
	o->make();
	r = fake_host_checkpoint(&plugin_verbs);
	if (!!r != !!o->refused || (r && (r != -EOPNOTSUPP || !strstr(fake_host_failure(), o->refused)))) {
		fprintf(stderr, "%s: checkpoint: %d: %s\n", o->name, r, fake_host_failure());
		return 1;
	}
	if (!r)
		pair_restart();
	if (o->check)
		o->check();
	if (o->unmake)
		o->unmake();
	die_unless((o->refused && !o->unmake) || !fake_host_checkpoint(&plugin_verbs));
	return 0;
}

static void test_object(void **state)
{
	pid_t pid = fork();

	if (!pid)
		_exit(run(*state));
	assert_int_equal(reap(pid), 0);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_SIZE(objects)];

	for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
		tests[i] = (struct CMUnitTest){ .name = objects[i].name, .test_func = test_object, .initial_state = (void *)(uintptr_t)&objects[i] };
	return cmocka_run_group_tests_name("verbs_objects", tests, directory_make, directory_remove);
}
