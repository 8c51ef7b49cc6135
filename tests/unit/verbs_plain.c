/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slots of shared receive queues; what they do as objects of a device, the device's own tests show through the plugin (verbs_over_*). An alternate path that a
 * device has taken: no checkpoint, by its name.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/verbs/verbs_internal.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"
#include "tests/lib/fake_verbs_host.h"

#define SIZE 65536
#define ROOM 16

static void not_refused(void)
{
	assert_int_equal(plugin_verbs.quiesce(), 0);
}

static struct ibv_qp *shared_qp(struct end *e, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = e->scq, .recv_cq = e->rcq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);

	assert_non_null(qp);
	assert_ptr_equal(qp->srq, srq);
	return qp;
}

static void receive(struct end *e, struct ibv_srq *srq, uint64_t id, int answer)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), answer);
	assert_ptr_equal(bad, answer ? &wr : NULL);
}

/* A queue pair that ends with completions unpolled gives the receives' slots back. */
static void test_shared(void **state)
{
	struct ibv_srq_init_attr init = { .srq_context = state, .attr = { .max_wr = ROOM, .max_sge = 1 } };
	struct end e, to;
	struct ibv_srq *srq;
	uint64_t id = 1;

	end_open(&e, 1, SIZE);
	srq = ibv_create_srq(e.pd, &init);
	assert_non_null(srq);
	assert_ptr_equal(srq->srq_context, state);
	not_refused();
	while (id <= init.attr.max_wr)
		receive(&e, srq, id++, 0);
	receive(&e, srq, id, ENOMEM);
	for (int round = 0; round < 3 * ROOM; round++) {
		end_open(&to, 1, SIZE);
		assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
		e.qp[0] = shared_qp(&e, srq);
		e.me.qpn[0] = e.qp[0]->qp_num;
		end_connect_to(&e, &to.me);
		end_connect_to(&to, &e.me);
		die_unless(!post(&to, 0, 1, IBV_WR_SEND, 0, 8, 0, IBV_SEND_SIGNALED));
		good_wc(to.scq, 1);
		if (round % 2)
			good_wc(e.rcq, id - init.attr.max_wr);
		assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
		e.qp[0] = shared_qp(&e, srq);
		receive(&e, srq, id++, 0);
		receive(&e, srq, id, ENOMEM);
		end_close(&to);
	}
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	not_refused();
	e.nqp = 0;
	end_close(&e);
}

static int (*modify)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

/* A device that has alternate paths. */
static int modify_taking_paths(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	mask &= ~(IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
	return mask ? modify(qp, attr, mask) : 0;
}

static void test_alternate_path(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET, .alt_port_num = 1 };
	struct end e;

	end_open(&e, 1, SIZE);
	end_connect_to(&e, &e.me);
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_ALT_PATH), EINVAL);
	not_refused();
	modify = verbs_backend.ibv_modify_qp;
	verbs_backend.ibv_modify_qp = modify_taking_paths;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_ALT_PATH), 0);
	assert_int_equal(plugin_verbs.quiesce(), -EOPNOTSUPP);
	assert_non_null(strstr(fake_host_failure(), "alternate path"));
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE), 0);
	verbs_backend.ibv_modify_qp = modify;
	not_refused();
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shared), cmocka_unit_test(test_alternate_path) };

	fake_host_init(1);
	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
