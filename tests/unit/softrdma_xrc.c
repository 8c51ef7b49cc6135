/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended connections: every operation by way of a shared queue, in the target's process and in another one of the
 * domain; wrong queues and domains; not ready; initiators that die.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED

/* One end: an initiator, a target, a shared queue with a completion queue of its own. */
struct xend {
	struct end e;
	struct ibv_xrcd *domain;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *ini, *tgt;
	uint32_t srqn;
};

static struct ibv_qp *xqp(struct xend *x, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex a = { .qp_type = type, .send_cq = x->e.scq, .pd = x->e.pd, .xrcd = x->domain,
					 .comp_mask = type == IBV_QPT_XRC_SEND ? IBV_QP_INIT_ATTR_PD
									       : IBV_QP_INIT_ATTR_XRCD,
					 .cap = { .max_send_wr = 16, .max_send_sge = 2, .max_inline_data = 64 } };
	struct ibv_qp *qp = ibv_create_qp_ex(x->e.ctx, &a);

	die_unless(qp);
	qp_to_init(qp, ALL_ACCESS);
	return qp;
}

static void xend_open(struct xend *x, int fd)
{
	struct ibv_xrcd_init_attr d = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd,
					.oflags = O_CREAT };
	struct ibv_srq_init_attr_ex s = { .attr = { .max_wr = 32, .max_sge = 2 }, .srq_type = IBV_SRQT_XRC,
					  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
						       IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD };

	end_open(&x->e, 0, SIZE);
	x->domain = ibv_open_xrcd(x->e.ctx, &d);
	x->cq = ibv_create_cq(x->e.ctx, 64, NULL, NULL, 0);
	die_unless(x->domain && x->cq);
	s.pd = x->e.pd;
	s.xrcd = x->domain;
	s.cq = x->cq;
	x->srq = ibv_create_srq_ex(x->e.ctx, &s);
	die_unless(x->srq && !ibv_get_srq_num(x->srq, &x->srqn));
	x->ini = xqp(x, IBV_QPT_XRC_SEND);
	x->tgt = xqp(x, IBV_QPT_XRC_RECV);
	die_unless(ibv_close_xrcd(x->domain) == EBUSY && ibv_destroy_cq(x->cq) == EBUSY);
}

static void xend_close(struct xend *x)
{
	die_unless(!ibv_destroy_qp(x->ini) && !ibv_destroy_qp(x->tgt));
	die_unless(!ibv_destroy_srq(x->srq) && !ibv_destroy_cq(x->cq) && !ibv_close_xrcd(x->domain));
	end_close(&x->e);
}

static void connect_to(struct xend *a, struct xend *b)
{
	qp_to_rts(a->ini, b->tgt->qp_num, &a->e);
	qp_to_rts(b->tgt, a->ini->qp_num, &b->e);
}

static int xrecv(struct xend *x, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)x->e.buf + off, len, x->e.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(x->srq, &wr, &bad);
}

static int xpost(struct xend *x, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint32_t srqn, uint64_t addr,
		 uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)x->e.buf, len, x->e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .send_flags = SIG,
				  .imm_data = 99 }, *bad;

	wr.qp_type.xrc.remote_srqn = srqn;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(x->ini, &wr, &bad);
}

/* a sends by b's target into the queue of c. */
static void operations(struct xend *a, struct xend *b, struct xend *c)
{
	static const uint32_t sizes[] = { 0, 8, 64, 65, 4096, 100000 };
	uint64_t there = (uintptr_t)c->e.buf + HALF;
	struct ibv_wc wc;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		die_unless(!xrecv(c, 1, 0, HALF) && !xrecv(c, 2, 0, HALF));
		fill(a->e.buf, sizes[i], 3);
		die_unless(!xpost(a, 7, IBV_WR_SEND_WITH_IMM, sizes[i], c->srqn, 0, 0));
		good_wc(a->e.scq, 7);
		wc = good_wc(c->cq, 1);
		die_unless(wc.qp_num == b->tgt->qp_num && wc.byte_len == sizes[i] && wc.imm_data == 99);
		die_unless(filled(c->e.buf, sizes[i], 3));
		die_unless(!xpost(a, 8, IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i], c->srqn, there, c->e.mr->rkey));
		good_wc(a->e.scq, 8);
		wc = good_wc(c->cq, 2);
		die_unless(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && filled(c->e.buf + HALF, sizes[i], 3));
		fill(c->e.buf + HALF, sizes[i], 5);
		die_unless(!xpost(a, 9, IBV_WR_RDMA_READ, sizes[i], c->srqn, there, c->e.mr->rkey));
		good_wc(a->e.scq, 9);
		die_unless(filled(a->e.buf, sizes[i], 5));
	}
	memset(c->e.buf + HALF, 0, 8);
	die_unless(!xpost(a, 9, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, c->srqn, there, c->e.mr->rkey));
	good_wc(a->e.scq, 9);
	assert_int_equal(c->e.buf[HALF], 5);
}

static void test_operations(void **state)
{
	struct xend a, b;

	xend_open(&a, -1);
	xend_open(&b, -1);
	connect_to(&a, &b);
	operations(&a, &b, &b);
	/* receiver not ready, and then it is */
	die_unless(!xpost(&a, 1, IBV_WR_SEND, 8, b.srqn, 0, 0));
	expect_empty(a.e.scq);
	die_unless(!xrecv(&b, 2, 0, 100));
	good_wc(b.cq, 2);
	good_wc(a.e.scq, 1);
	assert_int_equal(ibv_post_recv(b.tgt, &(struct ibv_recv_wr){ 0 }, &(struct ibv_recv_wr *){ NULL }), EINVAL);
	/* a queue that is none */
	die_unless(!xpost(&a, 1, IBV_WR_SEND, 8, b.srqn ^ 1, 0, 0));
	expect_wc(a.e.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	xend_close(&a);
	xend_close(&b);
}

static int other_domain(void)
{
	struct xend a, b, c;

	xend_open(&a, -1);
	xend_open(&b, -1);
	xend_open(&c, -1);
	connect_to(&a, &b);
	die_unless(!xrecv(&c, 1, 0, 100));
	die_unless(!xpost(&a, 1, IBV_WR_SEND, 8, c.srqn, 0, 0));
	expect_wc(a.e.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_empty(c.cq);
	xend_close(&a);
	xend_close(&b);
	xend_close(&c);
	return 0;
}

static char domain_file[] = "/tmp/softrdma-xrc-XXXXXX";

/* Sends by the parent's target into the parent's queues, of two contexts. */
static int initiator_child(int sock)
{
	struct {
		uint32_t tgt, srqn[2];
	} other;
	struct xend a;
	int i;

	xend_open(&a, -1);
	die_unless(write(sock, &a.ini->qp_num, 4) == 4 && read(sock, &other, sizeof(other)) == sizeof(other));
	qp_to_rts(a.ini, other.tgt, &a.e);
	meet(sock);
	for (i = 0;; i++) {
		uint32_t len = (uint32_t)random() % 9000;

		memset(a.e.buf, i & 0x7f, len);
		die_unless(!xpost(&a, 1, IBV_WR_SEND, len, other.srqn[random() % 2], 0, 0));
		good_wc(a.e.scq, 1);
	}
}

static void xserve(struct xend *x, int *ret_got)
{
	struct ibv_wc wc;
	uint32_t i;

	while (ibv_poll_cq(x->cq, 1, &wc) > 0) {
		if (wc.status == IBV_WC_SUCCESS) {
			for (i = 1; i < wc.byte_len; i++)
				die_unless(x->e.buf[wc.wr_id * 9000 + i] == x->e.buf[wc.wr_id * 9000]);
			++*ret_got;
		}
		die_unless(!xrecv(x, wc.wr_id, wc.wr_id * 9000, 9000));
	}
}

/* Initiators are killed in the middle of their work; no receive of either queue is lost, no data is torn. */
static void test_death(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	int fd = mkstemp(domain_file), i, n, sock, got;
	struct xend b, c;
	struct {
		uint32_t tgt, srqn[2];
	} me;

	die_unless(fd >= 0);
	xend_open(&b, fd);
	xend_open(&c, fd);
	me.tgt = b.tgt->qp_num;
	me.srqn[0] = b.srqn;
	me.srqn[1] = c.srqn;
	for (i = 0; i < 32; i++)
		die_unless(!xrecv(&b, (uint64_t)i, (size_t)i * 9000, 9000) && !xrecv(&c, (uint64_t)i, (size_t)i * 9000, 9000));
	for (n = 0; n < 60; n++) {
		pid_t pid = spawn_end(initiator_child, &sock);
		uint32_t ini;

		die_unless(read(sock, &ini, 4) == 4 && write(sock, &me, sizeof(me)) == sizeof(me));
		qp_to_rts(b.tgt, ini, &b.e);
		meet(sock);
		for (got = 0; got < 5 + n;) {
			xserve(&b, &got);
			xserve(&c, &got);
		}
		kill(pid, SIGKILL);
		assert_int_equal(reap(pid), -SIGKILL);
		close(sock);
		assert_int_equal(ibv_modify_qp(b.tgt, &reset, IBV_QP_STATE), 0);
		qp_to_init(b.tgt, ALL_ACCESS);
		xserve(&b, &got);
		xserve(&c, &got);
	}
	/* each queue is full: all its receives are still posted */
	assert_int_equal(xrecv(&b, 1, 0, 10), ENOMEM);
	assert_int_equal(xrecv(&c, 1, 0, 10), ENOMEM);
	connect_to(&c, &b);
	for (i = 0; i < 32; i++) {
		die_unless(!xpost(&c, 5, IBV_WR_SEND, 4, b.srqn, 0, 0));
		good_wc(c.e.scq, 5);
		die_unless(next_wc(b.cq).status == IBV_WC_SUCCESS);
		die_unless(!xpost(&c, 5, IBV_WR_SEND, 4, c.srqn, 0, 0));
		good_wc(c.e.scq, 5);
		die_unless(next_wc(c.cq).status == IBV_WC_SUCCESS);
	}
	xend_close(&b);
	xend_close(&c);
	close(fd);
	unlink(domain_file);
}

static void test_domains(void **state)
{
	struct ibv_xrcd_init_attr bad = { .comp_mask = IBV_XRCD_INIT_ATTR_FD };
	struct xend a, b, c;
	int fd = open("/tmp", O_RDONLY);

	assert_int_equal(other_domain(), 0);
	xend_open(&a, fd);
	xend_open(&b, fd);
	xend_open(&c, fd);
	connect_to(&a, &b);
	operations(&a, &b, &c);
	assert_null(ibv_open_xrcd(a.e.ctx, &bad));
	xend_close(&a);
	xend_close(&b);
	xend_close(&c);
	close(fd);
}

/* Another process has a target open: it sees it move, and sees it gone; its own end leaves the target as it is. */
static int opener(int sock)
{
	struct ibv_xrcd_init_attr x = { .oflags = O_CREAT, .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_qp_open_attr o = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
				      .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_xrcd *other;
	struct ibv_qp *qp;
	struct end e;

	die_unless(read(sock, &o.qp_num, 4) == 4);
	end_open(&e, 0, 4096);
	x.fd = open("/tmp", O_RDONLY);
	o.xrcd = ibv_open_xrcd(e.ctx, &x);
	x.fd = -1;
	other = ibv_open_xrcd(e.ctx, &x);
	die_unless(o.xrcd && other);
	qp = ibv_open_qp(e.ctx, &o);
	die_unless(qp && qp->qp_num == o.qp_num && qp->state == IBV_QPS_INIT);
	die_unless(ibv_close_xrcd(o.xrcd) == EBUSY);
	die_unless(ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == EOPNOTSUPP);
	die_unless(!ibv_destroy_qp(qp));
	o.qp_num++; /* the initiator beside it, or nobody */
	die_unless(!ibv_open_qp(e.ctx, &o) && errno == EINVAL);
	o.qp_num--;
	qp = ibv_open_qp(e.ctx, &o);
	die_unless(qp);
	meet(sock); /* moves to RTS */
	meet(sock);
	die_unless(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS && init.qp_type == IBV_QPT_XRC_RECV);
	meet(sock); /* ends */
	meet(sock);
	die_unless(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
	die_unless(!ibv_destroy_qp(qp) && !ibv_open_qp(e.ctx, &o));
	o.xrcd = (die_unless(!ibv_close_xrcd(o.xrcd)), other);
	die_unless(!ibv_open_qp(e.ctx, &o) && !ibv_close_xrcd(other));
	end_close(&e);
	return 0;
}

static void test_open(void **state)
{
	int fd, sock;
	struct xend x;
	pid_t pid;

	fd = open("/tmp", O_RDONLY);
	pid = spawn_end(opener, &sock);
	xend_open(&x, fd);
	die_unless(write(sock, &x.tgt->qp_num, 4) == 4);
	meet(sock);
	qp_to_rts(x.tgt, x.ini->qp_num, &x.e);
	meet(sock);
	meet(sock);
	xend_close(&x);
	meet(sock);
	assert_int_equal(reap(pid), 0);
	close(fd);
	close(sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_domains),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
