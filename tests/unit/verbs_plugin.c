/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs plugin over softrdma, without an agent: two processes call the plugin's hooks where the agent would
 * (tests/lib/fake_verbs_host.c). A restart is simulated by closing every object of the device behind the shadows' backs: the plugin
 * must make all of it again from what it kept, under new numbers and keys, for softrdma draws them at random.
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
#include <unistd.h>

#include <cmocka.h>

#include "plugins/verbs/verbs_internal.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"
#include "tests/lib/fake_verbs_host.h"

#define SIZE (1u << 20)

static struct end e;

/* ---- the host's side ---- */

static void device_drop(void)
{
	struct shadow_context *c;
	struct shadow_channel *ch;
	struct shadow_mr *mr;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	struct shadow_pd *pd;

	fermata_device_enter();
	for_each_context(c) {
		list_each(qp, &c->qps, link)
			die_unless(!verbs_backend.ibv_destroy_qp(qp->real));
		list_each(cq, &c->cqs, link)
			die_unless(!verbs_backend.ibv_destroy_cq(cq->real));
		list_each(ch, &c->channels, link)
			die_unless(!verbs_backend.ibv_destroy_comp_channel(ch->real));
		list_each(mr, &c->mrs, link)
			die_unless(!verbs_backend.ibv_dereg_mr(mr->real));
		list_each(pd, &c->pds, link)
			die_unless(!verbs_backend.ibv_dealloc_pd(pd->real));
		die_unless(!verbs_backend.ibv_close_device(c->real));
	}
	fermata_device_leave();
}

static void checkpoint(void)
{
	size_t before = fake_host_sunk();

	die_unless(!fake_host_checkpoint(&plugin_verbs));
	die_unless(fake_host_sunk() > before);
}

static void restart(void)
{
	device_drop();
	fake_host_barrier();
	die_unless(!fake_host_restart(&plugin_verbs));
}

/* Runs @a and @b as two processes; both must return 0. */
static void run_pair(int (*a)(int), int (*b)(int))
{
	int sock[2];
	pid_t pa, pb;

	fake_host_init(2);
	alarm(50);
	pa = spawn_end(a, &sock[0]);
	pb = spawn_end(b, &sock[1]);
	for (;;) { /* carry the children's words to each other */
		struct pollfd p[2] = { { sock[0], POLLIN, 0 }, { sock[1], POLLIN, 0 } };
		char buf[4096];

		poll(p, 2, -1);
		for (int i = 0; i < 2; i++) {
			ssize_t n = p[i].revents ? read(sock[i], buf, sizeof(buf)) : 0;

			if (n > 0 && write(sock[!i], buf, (size_t)n) != n)
				break;
			if (p[i].revents && n <= 0)
				goto over;
		}
	}
over:
	assert_int_equal(reap(pa), 0);
	assert_int_equal(reap(pb), 0);
	close(sock[0]);
	close(sock[1]);
	alarm(0);
}

static void begin(int sock, int qps)
{
	alarm(45);
	end_open(&e, qps, SIZE);
	end_connect(&e, sock);
}

static int over(void)
{
	fake_host_barrier();
	end_close(&e);
	fake_host_barrier();
	return 0;
}

/* ---- shadows ---- */

/* What cannot be saved yet works, and a checkpoint is refused as long as it is there. */
#define REFUSED() die_unless(plugin_verbs.quiesce() == -EOPNOTSUPP)
#define SAVED() die_unless(!plugin_verbs.quiesce())

static void passed_through(void)
{
	struct ibv_xrcd_init_attr x = { .fd = -1, .oflags = O_CREAT,
					.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_alloc_dm_attr d = { .length = 4096 };
	struct ibv_parent_domain_init_attr p = { .pd = e.pd };
	struct ibv_td_init_attr t = { 0 };
	struct ibv_cq_init_attr_ex stamped = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_xrcd *xrcd;
	struct ibv_cq_ex *cq;
	struct ibv_pd *pd;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	char word[8] = "seven b";

	SAVED();
	die_unless((xrcd = ibv_open_xrcd(e.ctx, &x)) && xrcd->context == e.ctx);
	REFUSED();
	die_unless(!ibv_close_xrcd(xrcd));
	SAVED();
	die_unless((p.td = ibv_alloc_td(e.ctx, &t)) && (pd = ibv_alloc_parent_domain(e.ctx, &p)) && pd->context == e.ctx);
	REFUSED();
	die_unless((mr = ibv_reg_mr(pd, word, 8, IBV_ACCESS_LOCAL_WRITE)) && !ibv_dereg_mr(mr));
	die_unless(!ibv_dealloc_pd(pd));
	REFUSED();
	die_unless(!ibv_dealloc_td(p.td));
	SAVED();
	die_unless((dm = ibv_alloc_dm(e.ctx, &d)) && !ibv_memcpy_to_dm(dm, 8, word, 8));
	die_unless((mr = ibv_reg_dm_mr(e.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE)) && mr->pd == e.pd);
	memset(word, 0, 8);
	die_unless(!ibv_memcpy_from_dm(word, dm, 8, 8) && !strcmp(word, "seven b"));
	REFUSED();
	die_unless(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	SAVED();
	die_unless((mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_1)) && mw->pd == e.pd);
	REFUSED();
	die_unless(!ibv_dealloc_mw(mw));
	SAVED();
	die_unless((cq = ibv_create_cq_ex(e.ctx, &stamped)) && cq->context == e.ctx);
	REFUSED();
	die_unless(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	SAVED();
}

/* A region that was changed is the changed one. */
static void changed_region(void)
{
	struct ibv_mr *mr = ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_LOCAL_WRITE);

	die_unless(mr && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, e.buf + 64, 32, 0));
	die_unless(mr->addr == e.buf + 64 && mr->length == 32 && mr->lkey == shadow_mr(mr)->real->lkey);
	die_unless(!ibv_dereg_mr(mr));
}

/* ibv_wr_* and start_poll over the plain queues: saved as these are. */
static int extended(int sock)
{
	struct ibv_cq_init_attr_ex c = { .cqe = 16, .cq_context = &e, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr_ex q = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
					 .cap = { .max_send_wr = 3, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1,
						  .max_inline_data = 32 } };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *x;

	begin(sock, 1);
	die_unless((cq = ibv_create_cq_ex(e.ctx, &c)));
	q.pd = e.pd;
	q.send_cq = q.recv_cq = ibv_cq_ex_to_cq(cq);
	die_unless((x = ibv_qp_to_qp_ex(ibv_create_qp_ex(e.ctx, &q))));
	qp_to_init(&x->qp_base, ALL_ACCESS);
	qp_to_rts(&x->qp_base, x->qp_base.qp_num, &e);
	SAVED();
	for (uint64_t i = 0; i < 2; i++) {
		struct ibv_sge to = { (uintptr_t)e.buf + 1024 + i * 64, 64, e.mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = 50 + i, .sg_list = &to, .num_sge = 1 }, *bad;

		die_unless(!ibv_post_recv(&x->qp_base, &recv, &bad));
	}
	fill(e.buf, 64, 4);
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, e.mr->lkey, (uintptr_t)e.buf, 64);
	x->wr_id = 2;
	ibv_wr_rdma_write_imm(x, e.mr->rkey, (uintptr_t)e.buf + 2048, 77u);
	ibv_wr_set_inline_data(x, e.buf, 20);
	memset(e.buf, 0, 20); /* it was copied */
	die_unless(!ibv_wr_complete(x));
	die_unless(filled(e.buf + 2048, 20, 4) && !memcmp(e.buf + 1024, e.buf, 20));
	ibv_wr_start(x); /* more than there is room for: none */
	for (int i = 0; i < 4; i++)
		ibv_wr_send(x);
	die_unless(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	checkpoint();
	restart();
	die_unless(!ibv_start_poll(cq, &none) && cq->wr_id == 50 && cq->status == IBV_WC_SUCCESS);
	die_unless(ibv_wc_read_byte_len(cq) == 64 && ibv_wc_read_qp_num(cq) == x->qp_base.qp_num);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_SEND);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 51 && ibv_wc_read_imm_data(cq) == 77u);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 2 && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	die_unless(ibv_start_poll(cq, &none) == ENOENT);
	die_unless(!ibv_destroy_qp(&x->qp_base) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return over();
}

static void test_extended(void **state)
{
	run_pair(extended, extended);
}

static int shadows(int sock)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct shadow_context *c;
	struct ibv_device_attr_ex ex;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint64_t word;

	die_unless(list && list[0] && !list[1]);
	memcpy(&word, (char *)list[0] + 664, sizeof(word));
	die_unless(word == 0);
	die_unless(list[0] != shadow_device(list[0])->real);
	die_unless(!strcmp(ibv_get_device_name(list[0]), "soft0") && ibv_get_device_guid(list[0]));
	ibv_free_device_list(list);
	begin(sock, 1);
	c = shadow_context(e.ctx);
	die_unless(c->real != e.ctx && verbs_get_ctx(e.ctx) && e.ctx->device == &c->device->pub);
	die_unless(e.ctx->ops.poll_cq == verbs_poll_cq && e.ctx->ops.post_send == verbs_post_send);
	die_unless(!ibv_query_device_ex(e.ctx, NULL, &ex) && ex.orig_attr.max_qp > 0);
	die_unless(!ibv_query_qp(e.qp[0], &attr, IBV_QP_STATE, &init));
	die_unless(attr.qp_state == IBV_QPS_RTS && init.send_cq == e.scq && init.recv_cq == e.rcq);
	die_unless(attr.cap.max_send_wr == 64 && attr.dest_qp_num == e.other.qpn[0]);
	die_unless(shadow_qp(e.qp[0])->real->context != e.ctx && e.qp[0]->context == e.ctx);
	die_unless(e.mr->pd == e.pd && e.scq->cq_context == &e);
	passed_through();
	changed_region();
	die_unless(!ibv_qp_to_qp_ex(e.qp[0]));
	return over();
}

static void test_shadows(void **state)
{
	run_pair(shadows, shadows);
}

/* ---- wr_ids ---- */

static int wr_ids_receiver(int sock)
{
	begin(sock, 4);
	for (uint64_t i = 0; i < 40; i++)
		die_unless(!post_recv(&e, (int)(i % 4), 1000 + i, i * 64, 64));
	meet(sock);
	for (uint64_t i = 0; i < 10; i++) /* the sender goes backwards over the connections */
		for (uint64_t q = 4; q-- > 0;)
			good_wc(e.rcq, 1000 + i * 4 + q);
	return over();
}

static int wr_ids_sender(int sock)
{
	struct ibv_send_wr chain[66], *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	begin(sock, 4);
	meet(sock);
	for (uint64_t i = 0; i < 10; i++)
		for (int q = 4; q-- > 0;)
			die_unless(!post(&e, q, 7000 + i * 4 + (uint64_t)q, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	for (uint64_t i = 0; i < 10; i++)
		for (uint64_t q = 4; q-- > 0;) {
			wc = good_wc(e.scq, 7000 + i * 4 + q);
			die_unless(wc.qp_num == e.qp[q]->qp_num);
		}
	/* many rounds through the ring; one in eight is signalled */
	for (uint64_t i = 0; i < 1000; i++) {
		die_unless(!post(&e, 0, i, IBV_WR_RDMA_WRITE, 0, 8, 0, i % 8 == 7 ? IBV_SEND_SIGNALED : 0));
		if (i % 8 == 7)
			good_wc(e.scq, i);
	}
	expect_empty(e.scq);
	/* a chain that is longer than the queue: 64 are taken, the 65th is named */
	memset(chain, 0, sizeof(chain));
	sge = (struct ibv_sge){ (uintptr_t)e.buf, 8, e.mr->lkey };
	for (int i = 0; i < 66; i++) {
		chain[i] = (struct ibv_send_wr){ .wr_id = 100 + (uint64_t)i, .next = i < 65 ? &chain[i + 1] : NULL,
						 .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		chain[i].send_flags = i == 63 ? IBV_SEND_SIGNALED : 0;
		chain[i].wr.rdma.remote_addr = e.other.addr;
		chain[i].wr.rdma.rkey = e.other.rkey;
	}
	die_unless(ibv_post_send(e.qp[1], chain, &bad) == ENOMEM && bad == &chain[64]);
	good_wc(e.scq, 163);
	die_unless(!ibv_post_send(e.qp[1], &chain[64], &bad));
	return over();
}

static void test_wr_ids(void **state)
{
	run_pair(wr_ids_receiver, wr_ids_sender);
}

/* ---- kept completions come first, resume touches nothing ---- */

static int kept_receiver(int sock)
{
	struct ibv_qp *real;

	begin(sock, 2);
	for (uint64_t i = 0; i < 20; i++)
		die_unless(!post_recv(&e, (int)(i % 2), i, i * 64, 64));
	meet(sock);
	meet(sock);
	real = shadow_qp(e.qp[0])->real;
	checkpoint();
	die_unless(shadow_qp(e.qp[0])->real == real && shadow_cq(e.rcq)->kept_count == 10);
	checkpoint(); /* kept ones outlive a second checkpoint */
	meet(sock);
	meet(sock);
	for (uint64_t i = 0; i < 20; i++)
		good_wc(e.rcq, i);
	expect_empty(e.rcq);
	return over();
}

static int kept_sender(int sock)
{
	begin(sock, 2);
	meet(sock);
	for (uint64_t i = 0; i < 10; i++)
		die_unless(!post(&e, (int)(i % 2), i, IBV_WR_SEND, 0, 64, 0, i % 4 < 2 ? IBV_SEND_SIGNALED : 0));
	meet(sock);
	checkpoint();
	checkpoint();
	meet(sock);
	for (uint64_t i = 10; i < 20; i++)
		die_unless(!post(&e, (int)(i % 2), i, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	meet(sock);
	for (uint64_t i = 0; i < 20; i++)
		if (i % 4 < 2 || i >= 10)
			good_wc(e.scq, i);
	expect_empty(e.scq);
	return over();
}

static void test_kept_first(void **state)
{
	run_pair(kept_receiver, kept_sender);
}

/* ---- sends that wait for a receive, over a checkpoint and over restarts ---- */

static int after(int (*then)(int), int sock)
{
	checkpoint();
	if (then)
		then(sock);
	return 0;
}

static int once(int sock)
{
	restart();
	return 0;
}

static int twice(int sock)
{
	restart();
	checkpoint();
	restart();
	return 0;
}

static int (*what_then)(int);

/* Two receives for six sends: two arrive, four are posted again; the counter before the waiting ones was added to once. */
static int waiting_receiver(int sock)
{
	uint64_t *counter;

	begin(sock, 1);
	counter = (uint64_t *)(e.buf + 65536);
	for (uint64_t i = 0; i < 2; i++)
		die_unless(!post_recv(&e, 0, i, i * 4096, 4096));
	meet(sock);
	meet(sock); /* all is posted */
	after(what_then, sock);
	die_unless(*counter == 3 && shadow_cq(e.rcq)->kept_count == 2);
	if (what_then)
		die_unless(shadow_qp(e.qp[0])->real->qp_num != e.qp[0]->qp_num);
	for (uint64_t i = 2; i < 6; i++)
		die_unless(!post_recv(&e, 0, i, i * 4096, 4096));
	for (uint64_t i = 0; i < 6; i++) {
		struct ibv_wc wc = good_wc(e.rcq, i);

		die_unless(wc.byte_len == (i == 4 ? 100 : 4096) && wc.qp_num == e.qp[0]->qp_num);
		die_unless(filled(e.buf + i * 4096, wc.byte_len, (unsigned int)i));
	}
	meet(sock);
	die_unless(*counter == 3 + 10);
	expect_empty(e.rcq);
	return over();
}

static int add(uint64_t id, uint64_t value, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)e.buf + 65536, 8, e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .send_flags = flags,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

	wr.wr.atomic.remote_addr = e.other.addr + 65536;
	wr.wr.atomic.rkey = e.other.rkey;
	wr.wr.atomic.compare_add = value;
	return post_wr(&e, 0, &wr);
}

static int waiting_sender(int sock)
{
	begin(sock, 1);
	for (unsigned int i = 0; i < 6; i++)
		fill(e.buf + i * 4096, 4096, i);
	meet(sock);
	for (uint64_t i = 0; i < 2; i++)
		die_unless(!post(&e, 0, i, IBV_WR_SEND, i * 4096, 4096, 0, 0));
	die_unless(!add(50, 3, 0)); /* executed, and unsignalled behind it nothing tells so */
	for (uint64_t i = 2; i < 4; i++)
		die_unless(!post(&e, 0, i, IBV_WR_SEND, i * 4096, 4096, 0, i == 3 ? IBV_SEND_SIGNALED : 0));
	die_unless(!post(&e, 0, 4, IBV_WR_SEND, 4 * 4096, 100, 0, IBV_SEND_INLINE));
	memset(e.buf + 4 * 4096, 0xaa, 100); /* inline is what it was at post time */
	die_unless(!add(51, 10, IBV_SEND_SIGNALED));
	die_unless(!post(&e, 0, 5, IBV_WR_SEND, 5 * 4096, 4096, 0, 0));
	meet(sock);
	after(what_then, sock);
	good_wc(e.scq, 3);
	good_wc(e.scq, 51);
	die_unless(*(uint64_t *)(e.buf + 65536) == 3);
	die_unless(!post(&e, 0, 99, IBV_WR_RDMA_WRITE, 0, 8, 8192 * 16, IBV_SEND_SIGNALED));
	good_wc(e.scq, 99);
	meet(sock);
	expect_empty(e.scq);
	return over();
}

static void test_waiting(void **state)
{
	what_then = NULL;
	run_pair(waiting_receiver, waiting_sender);
	what_then = once;
	run_pair(waiting_receiver, waiting_sender);
	what_then = twice;
	run_pair(waiting_receiver, waiting_sender);
}

/* ---- fetch-and-add: exact totals over many restarts, unsignalled tails and all ---- */

#define ADD_ROUNDS 10

static int adds(int sock)
{
	uint64_t mine = 0;

	begin(sock, 1);
	for (uint64_t round = 0; round < ADD_ROUNDS; round++) {
		for (uint64_t i = 0; i < 5; i++) {
			die_unless(!add(i, 1 + i, 0));
			mine += 1 + i;
		}
		checkpoint();
		if (round % 2)
			restart();
		die_unless(!add(77, 100, IBV_SEND_SIGNALED));
		mine += 100;
		good_wc(e.scq, 77);
		expect_empty(e.scq);
	}
	meet(sock);
	die_unless(mine == ADD_ROUNDS * 115);
	return over();
}

/* The target: its own word is what the other added, but for the last value fetched, which lies there too. */
static int adds_target(int sock)
{
	begin(sock, 1);
	for (int round = 0; round < ADD_ROUNDS; round++) {
		checkpoint();
		if (round % 2)
			restart();
	}
	meet(sock);
	die_unless(*(uint64_t *)(e.buf + 65536) == ADD_ROUNDS * 115);
	return over();
}

static void test_adds(void **state)
{
	run_pair(adds, adds_target);
}

/* ---- keys, reads and writes under new names ---- */

static int one_sided(int sock)
{
	struct ibv_mr *late;
	char *more = e.buf;

	begin(sock, 2);
	fill(e.buf, 4096, 9);
	meet(sock);
	checkpoint();
	restart();
	die_unless(shadow_mr(e.mr)->real->rkey != e.mr->rkey);
	die_unless(!post(&e, 0, 1, IBV_WR_RDMA_WRITE, 0, 4096, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 1);
	die_unless(!post(&e, 1, 2, IBV_WR_RDMA_READ, 65536, 4096, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	die_unless(filled(e.buf + 65536, 4096, 9));
	/* a region that is made now is used under its own keys, by both */
	more = e.buf + SIZE / 2;
	late = ibv_reg_mr(e.pd, more, 4096, ALL_ACCESS);
	die_unless(late && late->lkey == shadow_mr(late)->real->lkey && !verbs_key_known(late->lkey, late->rkey));
	meet(sock);
	fill(more, 4096, 3);
	die_unless(write(sock, &late->rkey, sizeof(late->rkey)) == sizeof(late->rkey));
	die_unless(read(sock, &e.other.rkey, sizeof(e.other.rkey)) == sizeof(e.other.rkey));
	die_unless(!post(&e, 0, 3, IBV_WR_RDMA_READ, 0, 4096, SIZE / 2, IBV_SEND_SIGNALED));
	good_wc(e.scq, 3);
	die_unless(filled(e.buf, 4096, 3));
	meet(sock);
	/* a wrong key still is one; each side spoils another connection */
	e.other.rkey ^= 0x5a5a00;
	die_unless(!post(&e, e.me.qpn[0] < e.other.qpn[0], 4, IBV_WR_RDMA_READ, 0, 4096, 0, IBV_SEND_SIGNALED));
	expect_wc(e.scq, 4, IBV_WC_REM_ACCESS_ERR);
	meet(sock);
	die_unless(!ibv_dereg_mr(late));
	return over();
}

static void test_one_sided(void **state)
{
	run_pair(one_sided, one_sided);
}

/* ---- events ---- */

static int readable(void)
{
	struct pollfd p = { .fd = e.channel->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void take_event(struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	die_unless(!ibv_get_cq_event(e.channel, &cq, &context));
	die_unless(cq == expected && context == &e);
	ibv_ack_cq_events(cq, 1);
}

static void no_event(void)
{
	int flags = fcntl(e.channel->fd, F_GETFL);
	struct ibv_cq *cq;
	void *context;

	die_unless(!fcntl(e.channel->fd, F_SETFL, flags | O_NONBLOCK));
	errno = 0;
	die_unless(ibv_get_cq_event(e.channel, &cq, &context) == -1 && errno == EAGAIN);
	die_unless(!fcntl(e.channel->fd, F_SETFL, flags));
}

static int events_receiver(int sock)
{
	int number;

	begin(sock, 1);
	number = e.channel->fd;
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post_recv(&e, 0, i, 0, 64));
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	meet(sock);
	meet(sock); /* a message has come; its event is not read */
	checkpoint();
	die_unless(readable());
	restart();
	die_unless(e.channel->fd == number && readable());
	take_event(e.rcq);
	die_unless(!readable());
	good_wc(e.rcq, 0);
	/* armed, and nothing has come */
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	checkpoint();
	restart();
	die_unless(!readable());
	meet(sock);
	take_event(e.rcq);
	good_wc(e.rcq, 1);
	/* not armed: what comes raises nothing */
	checkpoint();
	restart();
	meet(sock);
	meet(sock);
	die_unless(!readable());
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	return over();
}

static int events_sender(int sock)
{
	begin(sock, 1);
	meet(sock);
	die_unless(!ibv_req_notify_cq(e.scq, 0)); /* only our no-op comes to this queue: that is no event */
	die_unless(!post(&e, 0, 0, IBV_WR_SEND, 0, 64, 0, 0));
	meet(sock);
	checkpoint();
	no_event();
	restart();
	checkpoint();
	restart();
	meet(sock);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, 0));
	checkpoint();
	restart();
	die_unless(!readable());
	meet(sock);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	meet(sock);
	take_event(e.scq);
	good_wc(e.scq, 2);
	return over();
}

static void test_events(void **state)
{
	run_pair(events_receiver, events_sender);
}

/* ---- states ---- */

/* One connection in error, one not connected yet, one reset: each comes back as it was. */
static int states(int sock)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;

	alarm(45);
	end_open(&e, 3, SIZE);
	die_unless(write(sock, &e.me, sizeof(e.me)) == sizeof(e.me));
	die_unless(read(sock, &e.other, sizeof(e.other)) == sizeof(e.other));
	qp_to_init(e.qp[0], ALL_ACCESS);
	qp_to_rts(e.qp[0], e.other.qpn[0], &e);
	qp_to_init(e.qp[1], ALL_ACCESS);
	die_unless(!post_recv(&e, 0, 10, 0, 64) && !post_recv(&e, 1, 11, 64, 64));
	meet(sock);
	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
	checkpoint();
	restart();
	expect_wc(e.rcq, 10, IBV_WC_WR_FLUSH_ERR);
	die_unless(!ibv_query_qp(e.qp[0], &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_ERR);
	die_unless(!ibv_query_qp(e.qp[1], &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_INIT);
	die_unless(!ibv_query_qp(e.qp[2], &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_RESET);
	meet(sock);
	/* the numbers were told before the checkpoint; they connect now */
	qp_to_rts(e.qp[1], e.other.qpn[1], &e);
	meet(sock);
	fill(e.buf + 4096, 64, 5);
	die_unless(!post(&e, 1, 12, IBV_WR_SEND, 4096, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 12);
	good_wc(e.rcq, 11);
	die_unless(filled(e.buf + 64, 64, 5));
	return over();
}

static void test_states(void **state)
{
	run_pair(states, states);
}

/* ---- a peer that has closed everything ---- */

static int left(int sock)
{
	begin(sock, 1);
	meet(sock);
	meet(sock);
	checkpoint();
	restart();
	die_unless(!post(&e, 0, 5, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	expect_wc(e.scq, 5, IBV_WC_RETRY_EXC_ERR);
	end_close(&e);
	fake_host_barrier();
	return 0;
}

static int gone(int sock)
{
	begin(sock, 1);
	meet(sock);
	end_close(&e);
	meet(sock);
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	fake_host_barrier();
	die_unless(!fake_host_restart(&plugin_verbs));
	fake_host_barrier();
	return 0;
}

static void test_peer_gone(void **state)
{
	run_pair(left, gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shadows),	  cmocka_unit_test(test_extended), cmocka_unit_test(test_wr_ids),  cmocka_unit_test(test_kept_first),
		cmocka_unit_test(test_waiting),	  cmocka_unit_test(test_adds),	  cmocka_unit_test(test_one_sided),
		cmocka_unit_test(test_events),	  cmocka_unit_test(test_states),
		cmocka_unit_test(test_peer_gone),
	};

	return cmocka_run_group_tests_name("verbs_plugin", tests, directory_make, directory_remove);
}
