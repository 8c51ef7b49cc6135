/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device says there can be of reads at once, protection domains and address handles is what there can be. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define ALL_AV (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static void test_limits(void **state)
{
	struct ibv_device_attr d;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
				 .ah_attr = { .dlid = 1, .port_num = 1 } };
	struct end e;

	end_open(&e, 1, SIZE);
	assert_int_equal(ibv_query_device(e.ctx, &d), 0);
	qp_to_init(e.qp[0], ALL_ACCESS);
	a.max_dest_rd_atomic = (uint8_t)(d.max_qp_rd_atom + 1);
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE | ALL_AV | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), EINVAL);
	a.max_dest_rd_atomic = (uint8_t)d.max_qp_rd_atom;
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE | ALL_AV | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .max_rd_atomic = (uint8_t)(d.max_qp_init_rd_atom + 1) };
	assert_int_equal(ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), EINVAL);
	end_close(&e);
}

/* No more protection domains and address handles than there are said to be; and one that ends makes room. */
static void test_counts(void **state)
{
	struct ibv_ah_attr a = { .dlid = 1, .port_num = 1 };
	struct ibv_device_attr d;
	struct ibv_pd **pd;
	struct ibv_ah **ah;
	struct end e;
	int i;

	end_open(&e, 0, SIZE);
	assert_int_equal(ibv_query_device(e.ctx, &d), 0);
	pd = calloc((size_t)d.max_pd, sizeof(*pd));
	ah = calloc((size_t)d.max_ah, sizeof(*ah));
	die_unless(pd && ah);
	for (i = 1; i < d.max_pd; i++) /* e has one */
		die_unless((pd[i] = ibv_alloc_pd(e.ctx)));
	assert_null(ibv_alloc_pd(e.ctx));
	assert_int_equal(errno, ENOMEM);
	for (i = 0; i < d.max_ah; i++)
		die_unless((ah[i] = ibv_create_ah(e.pd, &a)));
	assert_null(ibv_create_ah(e.pd, &a));
	assert_int_equal(errno, ENOMEM);
	die_unless(!ibv_dealloc_pd(pd[1]) && (pd[1] = ibv_alloc_pd(e.ctx)));
	die_unless(!ibv_destroy_ah(ah[0]) && (ah[0] = ibv_create_ah(e.pd, &a)));
	for (i = 1; i < d.max_pd; i++)
		die_unless(!ibv_dealloc_pd(pd[i]));
	for (i = 0; i < d.max_ah; i++)
		die_unless(!ibv_destroy_ah(ah[i]));
	free(pd);
	free(ah);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits), cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
