/* SPDX-License-Identifier: BSD-2-Clause */
/* What a restart of the verbs plugin brings back: keys, states of queue pairs, and a peer that is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "plugins/verbs/verbs_keys.h"
#include "verbs_pair.h"

/* ---- keys, reads and writes under new names ---- */

static int one_sided(int sock)
{
	struct ibv_mr *late;
	char *more = e.buf;

	pair_begin(sock, 2);
	fill(e.buf, 4096, 9);
	meet(sock);
	pair_checkpoint();
	pair_restart();
	die_unless(shadow_mr(e.mr)->real->rkey != e.mr->rkey);
	die_unless(!post(&e, 0, 1, IBV_WR_RDMA_WRITE, 0, 4096, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 1);
	die_unless(!post(&e, 1, 2, IBV_WR_RDMA_READ, 65536, 4096, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	die_unless(filled(e.buf + 65536, 4096, 9));
	/* a region that is made now is used under its own keys, by both */
	more = e.buf + SIZE / 2;
	late = ibv_reg_mr(e.pd, more, 4096, ALL_ACCESS);
	die_unless(late && late->lkey == shadow_mr(late)->real->lkey && !verbs_key_known(shadow_context(e.ctx), late->lkey, late->rkey));
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
	return pair_over();
}

static void test_one_sided(void **state)
{
	pair_run(one_sided, one_sided);
}

#define OTHER_MEMBER 7777u
#define CROWD 40u
#define KEY_INDEX 0x01ffff00u /* softrdma's; the rest is random */

static uint32_t key_next(void)
{
	struct ibv_mr *mr = ibv_reg_mr(e.pd, e.buf, 4096, ALL_ACCESS);
	uint32_t key = mr ? mr->rkey : 0;

	die_unless(mr && !ibv_dereg_mr(mr));
	return key;
}

/* Another process has each key of the next indices, or every second one. */
static void keys_of_other(uint32_t step)
{
	uint32_t index = key_next() & KEY_INDEX;

	for (uint32_t i = 0; i < CROWD; i++)
		for (uint32_t high = 0; high < 1u << 7; high++)
			for (uint32_t tag = 0; tag < 1u << 8; tag += step)
				die_unless(!verbs_keys_add(&verbs_rkeys, high << 25 | (index + (i << 8)) | tag, 1, (struct verbs_owner){ OTHER_MEMBER, 1 }));
}

/* Of a new queue pair's other end is not known whose it is, so new keys are nobody's as long as there are such. */
static int keys_of_others(int sock)
{
	pair_begin(sock, 1);
	pair_checkpoint();
	pair_restart();
	verbs_rkeys = NULL; /* that of all cannot be written to */
	die_unless(!verbs_keys_make(&verbs_rkeys, 0));
	keys_of_other(2);
	for (uint32_t i = 0; i < CROWD / 2; i++)
		die_unless(verbs_key_known(shadow_context(e.ctx), 0, key_next()) == NAME_NEW);
	keys_of_other(1);
	die_unless(verbs_key_known(shadow_context(e.ctx), 0, key_next()) == NAME_OTHERS);
	meet(sock);
	return pair_over();
}

static void test_keys_of_others(void **state)
{
	pair_run(keys_of_others, keys_of_others);
}

#define SAME_KEY 0x12345678u

static struct ibv_qp *qp_new(int sock)
{
	struct ibv_qp_init_attr init = { .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(e.pd, &init);
	uint32_t other;

	die_unless(qp && write(sock, &qp->qp_num, sizeof(qp->qp_num)) == sizeof(qp->qp_num));
	die_unless(read(sock, &other, sizeof(other)) == sizeof(other));
	qp_to_init(qp, ALL_ACCESS);
	qp_to_rts(qp, other, &e);
	return qp;
}

/* Each writes to the other's region, and reads it; @seed: this side's, and the other's. */
static void reach_other(int sock, unsigned int seed, unsigned int others)
{
	fill(e.buf, 4096, seed);
	meet(sock);
	die_unless(!post(&e, 0, 1, IBV_WR_RDMA_WRITE, 0, 4096, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 1);
	die_unless(!post(&e, 0, 2, IBV_WR_RDMA_READ, 65536, 4096, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	die_unless(filled(e.buf + 65536, 4096, others));
	meet(sock);
	die_unless(filled(e.buf + 8192, 4096, others));
}

/* The same by a queue pair that is new in this life. */
static void reach_anew(int sock, unsigned int seed, unsigned int others)
{
	struct ibv_qp *qp = qp_new(sock), *old = e.qp[0];

	e.qp[0] = qp;
	reach_other(sock, seed, others);
	e.qp[0] = old;
	die_unless(!ibv_destroy_qp(qp));
}

/* Two processes have one key: by a queue pair that is new in this life each gets at the other's region. */
static int same_key(int sock)
{
	int first;

	pair_begin(sock, 1);
	first = e.me.qpn[0] < e.other.qpn[0];
	shadow_mr(e.mr)->pub.rkey = e.other.rkey = SAME_KEY;
	pair_checkpoint();
	pair_restart();
	reach_anew(sock, first ? 1 : 2, first ? 2 : 1);
	return pair_over();
}

/* As two devices may, two contexts of each process have one key: each is used for its own region, here and there. */
static int same_key_twice(int sock)
{
	struct end end[2];
	int first;

	for (int i = 0; i < 2; i++) {
		memset(&e, 0, sizeof(e));
		pair_begin(sock, 1);
		shadow_mr(e.mr)->pub.lkey = shadow_mr(e.mr)->pub.rkey = e.other.rkey = SAME_KEY;
		end[i] = e;
	}
	first = e.me.qpn[0] < e.other.qpn[0];
	pair_checkpoint();
	pair_restart();
	for (unsigned int i = 0; i < 2; i++) {
		e = end[i];
		reach_other(sock, first ? 1 + i : 3 + i, first ? 3 + i : 1 + i);
		reach_anew(sock, first ? 5 + i : 7 + i, first ? 7 + i : 5 + i);
	}
	/* that of one is gone: the other's stays, and the key is no key in the first any more */
	die_unless(!post_recv(&e, 0, 10, 4096, 64));
	die_unless(!ibv_dereg_mr(end[0].mr));
	meet(sock);
	die_unless(!post(&e, 0, 11, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 11);
	good_wc(e.rcq, 10);
	end[0].mr = ibv_reg_mr(end[0].pd, end[0].buf, 4096, ALL_ACCESS);
	meet(sock);
	end_close(&end[0]);
	return pair_over();
}

static void test_same_key_twice(void **state)
{
	pair_run(same_key_twice, same_key_twice);
}

static void test_same_key(void **state)
{
	pair_run(same_key, same_key);
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
	pair_checkpoint();
	pair_restart();
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
	return pair_over();
}

static void test_states(void **state)
{
	pair_run(states, states);
}

/* ---- partition keys ---- */

static struct ibv_qp *qp_in(uint16_t pkey_index)
{
	struct ibv_qp_init_attr init = { .send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .pkey_index = pkey_index, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(e.pd, &init);

	die_unless(qp && !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	return qp;
}

/* Its partition is where the program put it, and the device where that lies now. */
static void check_partition(struct ibv_qp *qp, uint16_t pkey_index, uint16_t now)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	die_unless(!ibv_query_qp(qp, &a, IBV_QP_PKEY_INDEX, &init) && a.pkey_index == pkey_index);
	die_unless(!VERBS_DEVICE(verbs_backend.ibv_query_qp(shadow_qp(qp)->real, &a, IBV_QP_PKEY_INDEX, &init)) && a.pkey_index == now);
}

/* The table of partition keys has another order on the next host, and on the one after that it is shorter. */
static int partitions(int sock)
{
	static const char *const later[] = { "0xffff,0x8003,0x8002,0x8001", "0xffff,0x0002" };
	static const uint16_t key[] = { 0xffff, 0x8001, 0x8002 }, now[2][3] = { { 0, 3, 2 }, { 0, 0, 1 } };
	struct ibv_port_attr port;
	struct ibv_qp *qp[3];
	__be16 pkey;

	setenv("SOFTRDMA_PKEYS", "0xffff,0x8001,0x8002", 1);
	pair_begin(sock, 1);
	for (uint16_t i = 0; i < 3; i++)
		qp[i] = qp_in(i);
	for (int move = 0; move < 2; move++) {
		pair_checkpoint();
		setenv("SOFTRDMA_PKEYS", later[move], 1);
		pair_restart();
		die_unless(!verbs_query_port(e.ctx, 1, &port, sizeof(port)) && port.pkey_tbl_len == 3);
		for (uint16_t i = 0; i < 3; i++) {
			struct ibv_qp *late = qp_in(i);

			die_unless(!ibv_query_pkey(e.ctx, 1, i, &pkey) && pkey == htobe16(key[i]) && ibv_get_pkey_index(e.ctx, 1, pkey) == i);
			check_partition(qp[i], i, now[move][i]);
			check_partition(late, i, now[move][i]);
			die_unless(!ibv_destroy_qp(late));
		}
		die_unless(ibv_query_pkey(e.ctx, 1, 3, &pkey) && ibv_get_pkey_index(e.ctx, 1, htobe16(0x8003)) < 0);
	}
	for (int i = 0; i < 3; i++)
		die_unless(!ibv_destroy_qp(qp[i]));
	meet(sock);
	return pair_over();
}

static void test_partitions(void **state)
{
	pair_run(partitions, partitions);
}

/* ---- a peer that has closed everything ---- */

static int left(int sock)
{
	pair_begin(sock, 1);
	meet(sock);
	meet(sock);
	pair_checkpoint();
	pair_restart();
	die_unless(!post(&e, 0, 5, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	expect_wc(e.scq, 5, IBV_WC_RETRY_EXC_ERR);
	end_close(&e);
	fake_host_barrier();
	return 0;
}

static int gone(int sock)
{
	pair_begin(sock, 1);
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
	pair_run(left, gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_sided), cmocka_unit_test(test_keys_of_others), cmocka_unit_test(test_same_key), cmocka_unit_test(test_same_key_twice),
		cmocka_unit_test(test_states), cmocka_unit_test(test_partitions), cmocka_unit_test(test_peer_gone),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
