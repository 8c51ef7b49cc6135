/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices, ports, partition keys, GIDs and the two personalities: what they are called, and that a message finds
 * the port and partition that it is addressed to and no other.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED
#define GRH 40u
#define ALL_AV (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static const char *const variables[] = { "SOFTRDMA_DEVICES", "SOFTRDMA_PORTS", "SOFTRDMA_PKEYS", "SOFTRDMA_GIDS", "SOFTRDMA_LINK" };

static int plain(void **state)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	return 0;
}

/* Where a queue pair is, and how it is addressed. */
struct at {
	uint8_t port, sgid_index;
	uint16_t pkey_index;
	int global;
};

static struct ibv_ah_attr address(struct end *e, const struct at *from, struct end *to, const struct at *at)
{
	struct ibv_ah_attr a = { .port_num = from->port };
	struct ibv_port_attr port;

	die_unless(!ibv_query_port(to->ctx, at->port, &port));
	a.dlid = port.lid;
	if (from->global) {
		a.is_global = 1;
		a.grh.sgid_index = from->sgid_index;
		die_unless(!ibv_query_gid(to->ctx, at->port, at->sgid_index, &a.grh.dgid));
	}
	return a;
}

static void half(struct end *e, int q, const struct at *from, struct end *to, const struct at *at)
{
	const int named = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = from->port, .pkey_index = from->pkey_index,
				 .qp_access_flags = ALL_ACCESS };

	die_unless(!ibv_modify_qp(e->qp[q], &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	die_unless(!ibv_modify_qp(e->qp[q], &a, named));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->me.qpn[q],
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = address(e, from, to, at) };
	die_unless(!ibv_modify_qp(e->qp[q], &a, IBV_QP_STATE | ALL_AV | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 2, .rnr_retry = 7, .max_rd_atomic = 1 };
	die_unless(!ibv_modify_qp(e->qp[q], &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
	e->other = to->me;
}

/* Connects queue pair 0 of both, writes from a to b, and says how that ended. */
static enum ibv_wc_status written(struct end *a, const struct at *at_a, struct end *b, const struct at *at_b)
{
	struct ibv_wc wc;

	half(a, 0, at_a, b, at_b);
	half(b, 0, at_b, a, at_a);
	fill(a->buf, 100, 3);
	memset(b->buf + 200, 0, 100);
	die_unless(!post(a, 0, 1, IBV_WR_RDMA_WRITE, 0, 100, 200, SIG));
	wc = next_wc(a->scq);
	die_unless((wc.status == IBV_WC_SUCCESS) == filled(b->buf + 200, 100, 3));
	return wc.status;
}

static const struct at one = { .port = 1 };

/* ---- names ---- */

static void test_names(void **state)
{
	struct ibv_device **list;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint16_t lid[4];
	union ibv_gid gid[4];
	uint64_t guid[2];
	int n, i, j;

	setenv("SOFTRDMA_DEVICES", "2", 1);
	setenv("SOFTRDMA_PORTS", "2", 1);
	list = ibv_get_device_list(&n);
	assert_int_equal(n, 2);
	assert_null(list[2]);
	for (i = 0; i < 2; i++) {
		struct ibv_context *ctx = ibv_open_device(list[i]);

		assert_non_null(ctx);
		assert_string_equal(ibv_get_device_name(list[i]), i ? "soft1" : "soft0");
		assert_int_equal(ibv_get_device_index(list[i]), i);
		guid[i] = ibv_get_device_guid(list[i]);
		assert_int_equal(ibv_query_device(ctx, &attr), 0);
		assert_int_equal(attr.phys_port_cnt, 2);
		assert_true(attr.node_guid == guid[i]);
		for (j = 0; j < 2; j++) {
			assert_int_equal(ibv_query_port(ctx, (uint8_t)(j + 1), &port), 0);
			assert_int_equal(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
			assert_int_equal(port.gid_tbl_len, 1);
			lid[i * 2 + j] = port.lid;
			assert_int_equal(ibv_query_gid(ctx, (uint8_t)(j + 1), 0, &gid[i * 2 + j]), 0);
		}
		assert_int_equal(ibv_query_port(ctx, 3, &port), EINVAL);
		assert_int_equal(ibv_query_port(ctx, 0, &port), EINVAL);
		assert_int_equal(ibv_close_device(ctx), 0);
	}
	assert_true(guid[0] != guid[1]);
	for (i = 0; i < 4; i++)
		for (j = 0; j < i; j++)
			assert_true(lid[i] != lid[j] && memcmp(&gid[i], &gid[j], sizeof(*gid)));
	ibv_free_device_list(list);
	plain(NULL);
	list = ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	ibv_free_device_list(list);
}

static void test_paths(void **state)
{
	const struct at two = { .port = 2 }, global = { .port = 2, .global = 1 }, global1 = { .port = 1, .global = 1 };
	struct end a, b;

	setenv("SOFTRDMA_DEVICES", "2", 1);
	setenv("SOFTRDMA_PORTS", "2", 1);
	end_open(&a, 1, SIZE);
	end_open_at(&b, 1, 1, SIZE, IBV_QPT_RC);
	assert_int_equal(written(&a, &one, &b, &one), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &one, &b, &two), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &two, &b, &one), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &global, &b, &global1), IBV_WC_SUCCESS);
	end_close(&a);
	end_close(&b);
}

/* A number is found at its own device and port only, and answers only to where it is connected. */
static void test_wrong_port(void **state)
{
	const struct at two = { .port = 2 };
	struct end a, b, c;

	setenv("SOFTRDMA_DEVICES", "2", 1);
	setenv("SOFTRDMA_PORTS", "2", 1);
	end_open(&a, 1, SIZE);
	end_open_at(&b, 1, 1, SIZE, IBV_QPT_RC);
	end_open(&c, 1, SIZE);
	half(&b, 0, &one, &a, &one);
	half(&a, 0, &one, &b, &two); /* b is at its port 1 */
	die_unless(!post(&a, 0, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG));
	expect_wc(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	end_open(&a, 1, SIZE);
	half(&b, 0, &one, &a, &two); /* expects it at port 2 */
	half(&a, 0, &one, &b, &one);
	die_unless(!post(&a, 0, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG));
	expect_wc(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	end_open(&a, 1, SIZE);
	half(&b, 0, &one, &a, &one);
	half(&c, 0, &one, &a, &one);
	c.me.qpn[0] = b.me.qpn[0];
	half(&a, 0, &one, &c, &one); /* b's number at c's device */
	die_unless(!post(&a, 0, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, SIG));
	expect_wc(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	end_close(&b);
	end_close(&c);
}

/* ---- partitions ---- */

static void test_pkeys(void **state)
{
	/* full, another, limited in that other */
	const struct at full = { .port = 1, .pkey_index = 1 }, limited = { .port = 1, .pkey_index = 2 };
	struct ibv_qp_attr bad = { .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 3 };
	struct ibv_port_attr port;
	struct end a, b;
	__be16 key;

	setenv("SOFTRDMA_PKEYS", "0xffff,0x8123,0x0123", 1);
	end_open(&a, 1, SIZE);
	end_open(&b, 1, SIZE);
	assert_int_equal(ibv_query_port(a.ctx, 1, &port), 0);
	assert_int_equal(port.pkey_tbl_len, 3);
	assert_int_equal(ibv_query_pkey(a.ctx, 1, 2, &key), 0);
	assert_int_equal(ntohs(key), 0x0123);
	assert_int_equal(ibv_query_pkey(a.ctx, 1, 3, &key), -1);
	assert_int_equal(ibv_get_pkey_index(a.ctx, 1, htons(0x8123)), 1);
	assert_int_equal(ibv_get_pkey_index(a.ctx, 1, htons(0x8124)), -1);
	assert_int_equal(ibv_modify_qp(a.qp[0], &bad, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
	assert_int_equal(written(&a, &full, &b, &full), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &full, &b, &limited), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &limited, &b, &full), IBV_WC_SUCCESS);
	assert_int_equal(written(&a, &limited, &b, &limited), IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(written(&a, &one, &b, &full), IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	end_close(&b);
}

static void datagram_end(struct end *e, const struct at *at)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = at->port, .pkey_index = at->pkey_index, .qkey = END_QKEY };

	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void send_datagram(struct end *e, struct ibv_ah_attr *to, uint32_t qpn, uint64_t id)
{
	struct ibv_sge s = { (uintptr_t)e->buf, 32, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .sg_list = &s, .num_sge = 1, .send_flags = SIG };
	struct ibv_ah *ah = ibv_create_ah(e->pd, to);

	die_unless(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = END_QKEY;
	die_unless(!post_wr(e, 0, &wr));
	good_wc(e->scq, id);
	die_unless(!ibv_destroy_ah(ah));
}

/* A datagram of another partition, or to another port, is dropped; the next is not. */
static void test_datagrams(void **state)
{
	const struct at two = { .port = 2, .pkey_index = 1 }, other = { .port = 1, .pkey_index = 0 };
	struct ibv_ah_attr to, wrong;
	struct end a, b, c;

	setenv("SOFTRDMA_PORTS", "2", 1);
	setenv("SOFTRDMA_PKEYS", "0xffff,0x8123", 1);
	end_open_as(&a, 1, SIZE, IBV_QPT_UD);
	end_open_as(&b, 1, SIZE, IBV_QPT_UD);
	end_open_as(&c, 1, SIZE, IBV_QPT_UD);
	datagram_end(&a, &two);
	datagram_end(&b, &two);
	datagram_end(&c, &other);
	to = address(&a, &two, &b, &two);
	wrong = address(&a, &two, &b, &one);
	die_unless(!post_recv(&b, 0, 7, 0, 100));
	send_datagram(&c, &to, b.me.qpn[0], 1);
	expect_empty(b.rcq);
	send_datagram(&a, &wrong, b.me.qpn[0], 2);
	expect_empty(b.rcq);
	send_datagram(&a, &to, b.me.qpn[0], 3);
	assert_int_equal(good_wc(b.rcq, 7).slid, address(&b, &two, &a, &two).dlid);
	end_close(&a);
	end_close(&b);
	end_close(&c);
}

/* ---- GIDs ---- */

static void test_gids(void **state)
{
	struct ibv_gid_entry entries[8];
	struct ibv_ah_attr to, back;
	struct at from = { .port = 1, .global = 1, .sgid_index = 2 }, at = { .port = 1, .sgid_index = 3 };
	struct ibv_grh grh;
	struct end a, b;
	struct ibv_wc wc;

	setenv("SOFTRDMA_GIDS", "4", 1);
	end_open_as(&a, 1, SIZE, IBV_QPT_UD);
	end_open_as(&b, 1, SIZE, IBV_QPT_UD);
	assert_int_equal(ibv_query_gid_table(a.ctx, entries, 8, 0), 4);
	assert_int_equal(ibv_query_gid_table(a.ctx, entries, 3, 0), -EINVAL);
	assert_int_equal(entries[3].gid_index, 3);
	assert_int_equal(entries[3].gid_type, IBV_GID_TYPE_IB);
	assert_memory_not_equal(&entries[3].gid, &entries[2].gid, 16);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 4, entries, 0), ENODATA);
	datagram_end(&a, &one);
	datagram_end(&b, &one);
	to = address(&a, &from, &b, &at);
	die_unless(!post_recv(&b, 0, 7, 0, 100));
	send_datagram(&a, &to, b.me.qpn[0], 3);
	wc = good_wc(b.rcq, 7);
	memcpy(&grh, b.buf, sizeof(grh));
	assert_memory_equal(&grh.sgid, &entries[2].gid, 16);
	assert_memory_equal(&grh.dgid, &entries[3].gid, 16);
	assert_int_equal(ibv_init_ah_from_wc(b.ctx, 1, &wc, &grh, &back), 0);
	assert_int_equal(back.grh.sgid_index, 3);
	die_unless(!post_recv(&a, 0, 8, 0, 100));
	send_datagram(&b, &back, a.me.qpn[0], 4);
	good_wc(a.rcq, 8);
	to.grh.sgid_index = 4;
	assert_null(ibv_create_ah(a.pd, &to));
	to.grh.sgid_index = 0;
	to.grh.dgid.raw[15] ^= 1; /* nobody's */
	send_datagram(&a, &to, b.me.qpn[0], 5);
	expect_empty(b.rcq);
	end_close(&a);
	end_close(&b);
}

/* ---- RoCE ---- */

static void test_roce(void **state)
{
	const struct at at = { .port = 1, .global = 1 };
	struct ibv_ah_attr to;
	struct ibv_gid_entry e[2];
	struct ibv_port_attr port;
	uint8_t mac[6];
	uint16_t vid;
	struct end a, b;

	setenv("SOFTRDMA_LINK", "roce", 1);
	end_open(&a, 1, SIZE);
	end_open(&b, 1, SIZE);
	assert_int_equal(ibv_query_port(a.ctx, 1, &port), 0);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.lid, 0);
	assert_true(port.flags & IBV_QPF_GRH_REQUIRED);
	assert_true(port.gid_tbl_len >= 2);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 0, &e[0], 0), 0);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 1, &e[1], 0), 0);
	assert_int_equal(e[0].gid_type, IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(e[1].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_memory_equal(&e[0].gid, &e[1].gid, 16);
	to = address(&a, &one, &b, &one);
	assert_null(ibv_create_ah(a.pd, &to));
	assert_int_equal(errno, EINVAL);
	to = address(&a, &at, &b, &at);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(a.ctx, &to, mac, &vid), 0);
	assert_int_equal(mac[0], 2);
	assert_int_equal(mac[5], e[0].gid.raw[15]);
	for (int i = 0; i < port.gid_tbl_len; i++) { /* the host's addresses as well */
		const struct at by = { .port = 1, .global = 1, .sgid_index = (uint8_t)i };

		assert_int_equal(written(&a, &by, &b, &by), IBV_WC_SUCCESS);
	}
	end_close(&a);
	end_close(&b);
}

/* The two personalities are two networks. */
static void test_apart(void **state)
{
	const struct at at = { .port = 1, .global = 1 };
	struct end a, b;

	end_open(&a, 1, SIZE);
	setenv("SOFTRDMA_LINK", "roce", 1);
	end_open(&b, 1, SIZE);
	assert_int_equal(written(&a, &at, &b, &at), IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
	end_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_names, plain),	   cmocka_unit_test_teardown(test_paths, plain),
		cmocka_unit_test_teardown(test_wrong_port, plain), cmocka_unit_test_teardown(test_pkeys, plain),
		cmocka_unit_test_teardown(test_datagrams, plain),  cmocka_unit_test_teardown(test_gids, plain),
		cmocka_unit_test_teardown(test_roce, plain),	   cmocka_unit_test_teardown(test_apart, plain),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
