/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests over checkpoints and restarts of the verbs plugin: their ids, completions that are kept, sends that wait, additions that count once.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_pair.h"

/* ---- wr_ids ---- */

static int wr_ids_receiver(int sock)
{
	pair_begin(sock, 4);
	for (uint64_t i = 0; i < 40; i++)
		die_unless(!post_recv(&e, (int)(i % 4), 1000 + i, i * 64, 64));
	meet(sock);
	for (uint64_t i = 0; i < 10; i++) /* the sender goes backwards over the connections */
		for (uint64_t q = 4; q-- > 0;)
			good_wc(e.rcq, 1000 + i * 4 + q);
	return pair_over();
}

static int wr_ids_sender(int sock)
{
	struct ibv_send_wr chain[66], *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	pair_begin(sock, 4);
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
	return pair_over();
}

static void test_wr_ids(void **state)
{
	pair_run(wr_ids_receiver, wr_ids_sender);
}

/* ---- kept completions come first, resume touches nothing ---- */

static int kept_receiver(int sock)
{
	struct ibv_qp *real;

	pair_begin(sock, 2);
	for (uint64_t i = 0; i < 20; i++)
		die_unless(!post_recv(&e, (int)(i % 2), i, i * 64, 64));
	meet(sock);
	meet(sock);
	real = shadow_qp(e.qp[0])->real;
	pair_checkpoint();
	die_unless(shadow_qp(e.qp[0])->real == real && shadow_cq(e.rcq)->kept_count == 10);
	pair_checkpoint(); /* kept ones outlive a second checkpoint */
	meet(sock);
	meet(sock);
	for (uint64_t i = 0; i < 20; i++)
		good_wc(e.rcq, i);
	expect_empty(e.rcq);
	return pair_over();
}

static int kept_sender(int sock)
{
	pair_begin(sock, 2);
	meet(sock);
	for (uint64_t i = 0; i < 10; i++)
		die_unless(!post(&e, (int)(i % 2), i, IBV_WR_SEND, 0, 64, 0, i % 4 < 2 ? IBV_SEND_SIGNALED : 0));
	meet(sock);
	pair_checkpoint();
	pair_checkpoint();
	meet(sock);
	for (uint64_t i = 10; i < 20; i++)
		die_unless(!post(&e, (int)(i % 2), i, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	meet(sock);
	for (uint64_t i = 0; i < 20; i++)
		if (i % 4 < 2 || i >= 10)
			good_wc(e.scq, i);
	expect_empty(e.scq);
	return pair_over();
}

static void test_kept_first(void **state)
{
	pair_run(kept_receiver, kept_sender);
}

/* ---- sends that wait for a receive, over a checkpoint and over restarts ---- */

static int after(int (*then)(int), int sock)
{
	pair_checkpoint();
	if (then)
		then(sock);
	return 0;
}

static int once(int sock)
{
	pair_restart();
	return 0;
}

static int twice(int sock)
{
	pair_restart();
	pair_checkpoint();
	pair_restart();
	return 0;
}

static int (*what_then)(int);

/* Two receives for six sends: two arrive, four are posted again; the counter before the waiting ones was added to once. */
static int waiting_receiver(int sock)
{
	uint64_t *counter;

	pair_begin(sock, 1);
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
	return pair_over();
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
	pair_begin(sock, 1);
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
	return pair_over();
}

static void test_waiting(void **state)
{
	what_then = NULL;
	pair_run(waiting_receiver, waiting_sender);
	what_then = once;
	pair_run(waiting_receiver, waiting_sender);
	what_then = twice;
	pair_run(waiting_receiver, waiting_sender);
}

/* ---- fetch-and-add: exact totals over many restarts, unsignalled tails and all ---- */

#define ADD_ROUNDS 10

static int adds(int sock)
{
	uint64_t mine = 0;

	pair_begin(sock, 1);
	for (uint64_t round = 0; round < ADD_ROUNDS; round++) {
		for (uint64_t i = 0; i < 5; i++) {
			die_unless(!add(i, 1 + i, 0));
			mine += 1 + i;
		}
		pair_checkpoint();
		if (round % 2)
			pair_restart();
		die_unless(!add(77, 100, IBV_SEND_SIGNALED));
		mine += 100;
		good_wc(e.scq, 77);
		expect_empty(e.scq);
	}
	meet(sock);
	die_unless(mine == ADD_ROUNDS * 115);
	return pair_over();
}

/* The target: its own word is what the other added, but for the last value fetched, which lies there too. */
static int adds_target(int sock)
{
	pair_begin(sock, 1);
	for (int round = 0; round < ADD_ROUNDS; round++) {
		pair_checkpoint();
		if (round % 2)
			pair_restart();
	}
	meet(sock);
	die_unless(*(uint64_t *)(e.buf + 65536) == ADD_ROUNDS * 115);
	return pair_over();
}

static void test_adds(void **state)
{
	pair_run(adds, adds_target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wr_ids), cmocka_unit_test(test_kept_first),
		cmocka_unit_test(test_waiting), cmocka_unit_test(test_adds),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
