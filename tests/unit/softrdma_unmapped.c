/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is registered and has been unmapped since, between hosts: no end dies of it. Whatever the length, and whichever way the bytes
 * would have gone, the request ends as one whose key does not fit its memory, and another queue pair on the same
 * connection goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "softrdma_util.h"

#define SIZE 65536u
#define PAGE 4096u
#define HOLE (1u << 20)
#define SIG IBV_SEND_SIGNALED

/* Short, in one buffer; in the buffer at the other end alone; long; in several frames, which begin well. */
static const uint32_t lengths[] = { 1, 8, 64, 1000, 5000, 20000, 300000, 900000 };
#define EACH_LENGTH(i) for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)

struct pair {
	struct end a, b;
	/* Of one end: only its first page is still mapped. */
	char *hole;
	struct ibv_mr *mr;
};

static void pair_open(struct pair *p, enum ibv_qp_type type)
{
	end_open_as(&p->a, 2, SIZE, type);
	end_open_as(&p->b, 2, SIZE, type);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

/* Memory of @e's of which all but the first page is gone when it is used. */
static void hole_make(struct pair *p, struct end *e)
{
	p->hole = mmap(NULL, HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	die_unless(p->hole != MAP_FAILED);
	memset(p->hole, 'h', HOLE);
	p->mr = ibv_reg_mr(e->pd, p->hole, HOLE, ALL_ACCESS);
	die_unless(p->mr != NULL);
	die_unless(!munmap(p->hole + PAGE, HOLE - PAGE));
}

/* Where a message of @len begins: a long one where there is memory. */
static char *hole_at(const struct pair *p, uint32_t len)
{
	return p->hole + PAGE - (len > PAGE ? PAGE : len / 2);
}

static void pair_close(struct pair *p)
{
	die_unless(!ibv_dereg_mr(p->mr));
	munmap(p->hole, PAGE);
	end_close(&p->a);
	end_close(&p->b);
}

/* The second queue pairs. */
static void others_go_on(struct pair *p)
{
	fill(p->a.buf, 30000, 7);
	memset(p->b.buf, 0, 30000);
	die_unless(!post_recv(&p->b, 1, 99, 0, SIZE));
	die_unless(!post(&p->a, 1, 98, IBV_WR_SEND, 0, 30000, 0, SIG));
	good_wc(p->a.scq, 98);
	good_wc(p->b.rcq, 99);
	die_unless(filled(p->b.buf, 30000, 7));
}

static enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	die_unless(!ibv_query_qp(e->qp[0], &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* From a's own memory, or into it, to b's hole or from there. */
static void to_hole(struct pair *p, enum ibv_wr_opcode op, uint32_t len, char *own, uint32_t lkey, char *to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)own, len, lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = op, .sg_list = &sge, .num_sge = 1, .send_flags = SIG };

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)to;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 3;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to;
		wr.wr.rdma.rkey = rkey;
	}
	die_unless(!post_wr(&p->a, 0, &wr));
}

/* b's memory is gone: what a asked for fails there. */
static void remote(enum ibv_wr_opcode op, uint32_t len)
{
	static char own[HOLE];
	struct ibv_mr *mr;
	struct pair p;

	pair_open(&p, IBV_QPT_RC);
	hole_make(&p, &p.b);
	mr = ibv_reg_mr(p.a.pd, own, sizeof(own), ALL_ACCESS);
	die_unless(mr && !post_recv(&p.b, 0, 21, 0, 8));
	others_go_on(&p);
	to_hole(&p, op, len, own, mr->lkey,
		op == IBV_WR_RDMA_READ || op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM ? hole_at(&p, len) : p.hole + PAGE,
		p.mr->rkey);
	expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR);
	expect_wc(p.b.rcq, 21, IBV_WC_WR_FLUSH_ERR);
	die_unless(state_of(&p.a) == IBV_QPS_ERR && state_of(&p.b) == IBV_QPS_ERR);
	others_go_on(&p);
	die_unless(!ibv_dereg_mr(mr));
	pair_close(&p);
}

static void receive_into(struct end *e, uint64_t id, char *to, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)to, len, lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	die_unless(!ibv_post_recv(e->qp[0], &wr, &bad));
}

/* a's own is: nothing happens to b. */
static void own(enum ibv_wr_opcode op, uint32_t len)
{
	static char there[HOLE];
	struct ibv_mr *mr;
	struct pair p;

	pair_open(&p, IBV_QPT_RC);
	hole_make(&p, &p.a);
	mr = ibv_reg_mr(p.b.pd, there, sizeof(there), ALL_ACCESS);
	die_unless(mr != NULL);
	others_go_on(&p);
	receive_into(&p.b, 21, there, HOLE, mr->lkey);
	/* Requests before it end well. */
	die_unless(!post(&p.a, 0, 2, IBV_WR_RDMA_WRITE, 0, 100, 0, SIG));
	die_unless(!post(&p.a, 0, 3, IBV_WR_RDMA_READ, 0, 3000, 0, SIG));
	to_hole(&p, op, len, hole_at(&p, len), p.mr->lkey, there, mr->rkey);
	die_unless(!post(&p.a, 0, 4, IBV_WR_RDMA_WRITE, 0, 100, 0, SIG));
	good_wc(p.a.scq, 2);
	good_wc(p.a.scq, 3);
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	expect_wc(p.a.scq, 4, IBV_WC_WR_FLUSH_ERR);
	die_unless(state_of(&p.a) == IBV_QPS_ERR && state_of(&p.b) == IBV_QPS_RTS);
	others_go_on(&p);
	die_unless(!ibv_dereg_mr(mr));
	pair_close(&p);
}

static void receive_into_hole(struct pair *p, uint64_t id)
{
	receive_into(&p->b, id, p->hole + PAGE / 2, HOLE - PAGE, p->mr->lkey);
}

/* A receive's memory is gone. @type: RC or UC. */
static void receive(enum ibv_qp_type type, uint32_t len)
{
	static char data[HOLE];
	struct ibv_mr *mr;
	struct pair p;

	pair_open(&p, type);
	hole_make(&p, &p.b);
	mr = ibv_reg_mr(p.a.pd, data, sizeof(data), 0);
	receive_into_hole(&p, 21);
	receive_into_hole(&p, 22);
	to_hole(&p, IBV_WR_SEND, PAGE / 2 + len, data, mr->lkey, NULL, 0);
	expect_wc(p.a.scq, 1, type == IBV_QPT_RC ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 21, IBV_WC_LOC_PROT_ERR);
	expect_wc(p.b.rcq, 22, IBV_WC_WR_FLUSH_ERR);
	die_unless(state_of(&p.b) == IBV_QPS_ERR);
	others_go_on(&p);
	die_unless(!ibv_dereg_mr(mr));
	pair_close(&p);
}

static void test_write(void **state)
{
	EACH_LENGTH(i) {
		remote(IBV_WR_RDMA_WRITE, lengths[i]);
		remote(IBV_WR_RDMA_WRITE_WITH_IMM, lengths[i]);
	}
}

static void test_read(void **state)
{
	EACH_LENGTH(i)
		remote(IBV_WR_RDMA_READ, lengths[i]);
}

static void test_atomic(void **state)
{
	remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	remote(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
}

static void test_receive(void **state)
{
	EACH_LENGTH(i) {
		receive(IBV_QPT_RC, lengths[i]);
		receive(IBV_QPT_UC, lengths[i]);
	}
}

static void test_own(void **state)
{
	EACH_LENGTH(i) {
		own(IBV_WR_RDMA_WRITE, lengths[i]);
		own(IBV_WR_SEND, lengths[i]);
		own(IBV_WR_RDMA_READ, lengths[i]);
	}
	own(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
}

/* Many requests in one turn, one of which has no memory: those before it are executed, those behind it are not. */
static void test_among_many(void **state)
{
	struct pair p;
	int i;

	pair_open(&p, IBV_QPT_RC);
	hole_make(&p, &p.a);
	memset(p.b.buf, 0, SIZE);
	fill(p.a.buf, 64, 3);
	/* A send that waits for its receive holds the others back, then all go at once. */
	die_unless(!post(&p.a, 0, 100, IBV_WR_SEND, 0, 8, 0, SIG));
	for (i = 0; i < 30; i++) {
		if (i == 20)
			to_hole(&p, IBV_WR_RDMA_WRITE, 64, p.hole + PAGE, p.mr->lkey, p.b.buf, p.b.mr->rkey);
		die_unless(!post(&p.a, 0, (uint64_t)i + 200, IBV_WR_RDMA_WRITE, 0, 64, 100 + 64 * (size_t)i, SIG));
	}
	die_unless(!post_recv(&p.b, 0, 21, 0, 64));
	good_wc(p.a.scq, 100);
	good_wc(p.b.rcq, 21);
	for (i = 0; i < 20; i++)
		good_wc(p.a.scq, (uint64_t)i + 200);
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	for (; i < 30; i++)
		expect_wc(p.a.scq, (uint64_t)i + 200, IBV_WC_WR_FLUSH_ERR);
	for (i = 0; i < 20; i++)
		die_unless(filled(p.b.buf + 100 + 64 * i, 64, 3));
	for (; i < 30; i++)
		die_unless(!p.b.buf[100 + 64 * i] && !p.b.buf[100 + 64 * i + 63]);
	die_unless(state_of(&p.b) == IBV_QPS_RTS);
	others_go_on(&p);
	pair_close(&p);
}

static struct ibv_ah *handle_to(struct pair *p)
{
	struct ibv_ah_attr attr = { .dlid = p->b.me.lid, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(p->a.pd, &attr);

	die_unless(ah != NULL);
	return ah;
}

static void datagram(struct pair *p, struct ibv_ah *ah, int q, uint64_t id, char *from, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)from, 2000, lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = SIG };

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = p->b.me.qpn[q];
	wr.wr.ud.remote_qkey = END_QKEY;
	die_unless(!post_wr(&p->a, q, &wr));
}

static void datagrams_go_on(struct pair *p, struct ibv_ah *ah)
{
	fill(p->a.buf, 2000, 9);
	die_unless(!post_recv(&p->b, 1, 99, 0, SIZE));
	datagram(p, ah, 1, 98, p->a.buf, p->a.mr->lkey);
	good_wc(p->a.scq, 98);
	good_wc(p->b.rcq, 99);
	die_unless(filled(p->b.buf + 40, 2000, 9));
}

static void test_datagram(void **state)
{
	struct ibv_ah *ah;
	struct pair p;

	pair_open(&p, IBV_QPT_UD);
	hole_make(&p, &p.b);
	ah = handle_to(&p);
	datagrams_go_on(&p, ah);
	receive_into_hole(&p, 21);
	die_unless(!munmap(p.hole, PAGE));
	datagram(&p, ah, 0, 1, p.a.buf, p.a.mr->lkey);
	good_wc(p.a.scq, 1);
	expect_wc(p.b.rcq, 21, IBV_WC_LOC_PROT_ERR);
	datagrams_go_on(&p, ah);
	die_unless(!ibv_destroy_ah(ah));
	pair_close(&p);
	pair_open(&p, IBV_QPT_UD);
	hole_make(&p, &p.a);
	ah = handle_to(&p);
	datagrams_go_on(&p, ah);
	datagram(&p, ah, 0, 1, p.hole + PAGE - 8, p.mr->lkey);
	expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	die_unless(state_of(&p.a) == IBV_QPS_SQE);
	datagrams_go_on(&p, ah);
	die_unless(!ibv_destroy_ah(ah));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),	 cmocka_unit_test(test_read),	    cmocka_unit_test(test_atomic),
		cmocka_unit_test(test_receive),	 cmocka_unit_test(test_own),	    cmocka_unit_test(test_among_many),
		cmocka_unit_test(test_datagram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
