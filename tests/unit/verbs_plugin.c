/* SPDX-License-Identifier: BSD-2-Clause */
/* The shadows of the verbs plugin: what a program sees of them, what is passed through and refused, extended queue pairs and queues. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_pair.h"

/* What is passed through works, and no checkpoint is refused for it. */
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
	die_unless(!ibv_close_xrcd(xrcd));
	SAVED();
	die_unless((p.td = ibv_alloc_td(e.ctx, &t)) && (pd = ibv_alloc_parent_domain(e.ctx, &p)) && pd->context == e.ctx);
	die_unless((mr = ibv_reg_mr(pd, word, 8, IBV_ACCESS_LOCAL_WRITE)) && !ibv_dereg_mr(mr));
	die_unless(!ibv_dealloc_pd(pd));
	die_unless(!ibv_dealloc_td(p.td));
	SAVED();
	die_unless((dm = ibv_alloc_dm(e.ctx, &d)) && !ibv_memcpy_to_dm(dm, 8, word, 8));
	die_unless((mr = ibv_reg_dm_mr(e.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE)) && mr->pd == e.pd);
	memset(word, 0, 8);
	die_unless(!ibv_memcpy_from_dm(word, dm, 8, 8) && !strcmp(word, "seven b"));
	die_unless(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	SAVED();
	die_unless((mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_1)) && mw->pd == e.pd);
	SAVED();
	die_unless(!ibv_dealloc_mw(mw));
	SAVED();
	die_unless((cq = ibv_create_cq_ex(e.ctx, &stamped)) && cq->context == e.ctx);
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

	pair_begin(sock, 1);
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
	pair_checkpoint();
	pair_restart();
	die_unless(!ibv_start_poll(cq, &none) && cq->wr_id == 50 && cq->status == IBV_WC_SUCCESS);
	die_unless(ibv_wc_read_byte_len(cq) == 64 && ibv_wc_read_qp_num(cq) == x->qp_base.qp_num);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_SEND);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 51 && ibv_wc_read_imm_data(cq) == 77u);
	die_unless(!ibv_next_poll(cq) && cq->wr_id == 2 && ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	die_unless(ibv_start_poll(cq, &none) == ENOENT);
	die_unless(!ibv_destroy_qp(&x->qp_base) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return pair_over();
}

static void test_extended(void **state)
{
	pair_run(extended, extended);
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
	pair_begin(sock, 1);
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
	return pair_over();
}

static void test_shadows(void **state)
{
	pair_run(shadows, shadows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_extended), cmocka_unit_test(test_shadows),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
