/* SPDX-License-Identifier: BSD-2-Clause */
/* Many queue pairs at once, several processes that add to one word, and the order in which a write can be seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (4u << 20)
#define SIG IBV_SEND_SIGNALED

#define ROUNDS 500

static int many_child(int sock)
{
	struct end e;
	int i, q;

	end_open(&e, END_QPS, SIZE);
	for (q = 0; q < END_QPS; q++)
		qp_to_init(e.qp[q], e.access);
	for (q = 0; q < END_QPS; q++)
		for (i = 0; i < 4; i++)
			die_unless(!post_recv(&e, q, (uint64_t)q, (size_t)q * 65536, 65536));
	for (q = 0; q < END_QPS; q++) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

		die_unless(!ibv_modify_qp(e.qp[q], &a, IBV_QP_STATE));
	}
	end_connect(&e, sock);
	for (q = 0; q < END_QPS; q++)
		for (i = 0; i < 4; i++)
			die_unless(!post_recv(&e, q, (uint64_t)q, (size_t)q * 65536, 65536));
	meet(sock);
	for (i = 0; i < ROUNDS * END_QPS; i++) {
		struct ibv_wc wc = next_good_wc(e.rcq);

		q = (int)wc.wr_id;
		die_unless(wc.qp_num == e.qp[q]->qp_num);
		die_unless(!post_recv(&e, q, (uint64_t)q, (size_t)q * 65536, 65536));
	}
	meet(sock);
	end_close(&e);
	return 0;
}

static void test_many_queue_pairs(void **state)
{
	struct end e;
	int sock, i, q, waiting[END_QPS] = { 0 };
	pid_t pid = spawn_end(many_child, &sock);

	end_open_connected(&e, END_QPS, SIZE, sock);
	meet(sock);
	for (i = 0; i < ROUNDS; i++)
		for (q = 0; q < END_QPS; q++) {
			uint32_t len = (uint32_t)(i * 37 + q * 1009) % 9000;

			while (waiting[q] == 16)
				waiting[next_good_wc(e.scq).wr_id]--;
			waiting[q]++;
			die_unless(!post(&e, q, (uint64_t)q, IBV_WR_SEND, 0, len, 0, SIG));
		}
	for (q = 0; q < END_QPS; q++)
		while (waiting[q])
			waiting[next_good_wc(e.scq).wr_id]--;
	meet(sock);
	end_close(&e);
	close(sock);
	assert_int_equal(reap(pid), 0);
}

#define ADDS 3000

static int adder(int sock)
{
	struct end e;
	int i;

	end_open_connected(&e, 1, 4096, sock);
	for (i = 0; i < ADDS; i++) {
		struct ibv_sge s = { (uintptr_t)e.buf, 8, e.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .send_flags = SIG,
					  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

		wr.wr.atomic.remote_addr = e.other.addr;
		wr.wr.atomic.rkey = e.other.rkey;
		wr.wr.atomic.compare_add = 3;
		die_unless(!post_wr(&e, 0, &wr));
		good_wc(e.scq, 1);
	}
	end_close(&e);
	return 0;
}

/* Two processes add to a word of a third that does nothing meanwhile. */
static void test_atomics_of_several(void **state)
{
	struct end e[2];
	int sock[2], i;
	pid_t pid[2];
	uint64_t sum;

	pid[0] = spawn_end(adder, &sock[0]);
	pid[1] = spawn_end(adder, &sock[1]);
	end_open(&e[0], 1, 4096);
	end_open(&e[1], 1, 4096);
	/* the same memory through two contexts */
	e[1].mr = (die_unless(!ibv_dereg_mr(e[1].mr)), ibv_reg_mr(e[1].pd, e[0].buf, 4096, ALL_ACCESS));
	e[1].me.addr = (uintptr_t)e[0].buf;
	e[1].me.rkey = e[1].mr->rkey;
	for (i = 0; i < 2; i++)
		end_connect(&e[i], sock[i]);
	for (i = 0; i < 2; i++)
		assert_int_equal(reap(pid[i]), 0);
	memcpy(&sum, e[0].buf, 8);
	assert_int_equal(sum, 2 * 3 * ADDS);
	for (i = 0; i < 2; i++) {
		end_close(&e[i]);
		close(sock[i]);
	}
}

/* A writer's last bytes come last: whoever sees them sees all. */
static int writer(int sock)
{
	struct end e;
	unsigned int i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 1; i <= 200; i++) {
		uint32_t len = i % 2 ? 3001 : 100001;

		memset(e.buf, (int)(i & 0xff), len);
		die_unless(!post(&e, 0, i, IBV_WR_RDMA_WRITE, 0, len, 0, SIG));
		good_wc(e.scq, i);
		meet(sock);
	}
	end_close(&e);
	return 0;
}

static void test_last_byte_last(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(writer, &sock);
	unsigned int i, k;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 1; i <= 200; i++) {
		uint32_t len = i % 2 ? 3001 : 100001;
		volatile char *last = e.buf + len - 1;

		while (*last != (char)i)
			sched_yield();
		for (k = 0; k < len; k++)
			if (e.buf[k] != (char)i)
				fail_msg("write %u: byte %u late", i, k);
		*last = 0;
		meet(sock);
	}
	close(sock);
	assert_int_equal(reap(pid), 0);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_queue_pairs), cmocka_unit_test(test_atomics_of_several),
		cmocka_unit_test(test_last_byte_last),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
