/* SPDX-License-Identifier: BSD-2-Clause */
/* Every operation between two processes and within one, of each size, in pieces and inline. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (4u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED

static const uint32_t sizes[] = { 0, 1, 8, 100, 4095, 4096, 4097, 8193, 65536, 1u << 20, HALF };
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The half that answers: receives, and looks at what was written. */
static int ops_child(int sock)
{
	struct end e;
	size_t i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 0; i < NSIZES; i++) {
		struct ibv_wc wc;

		memset(e.buf, 0, SIZE);
		die_unless(!post_recv(&e, 0, 1, 0, HALF));
		die_unless(!post_recv(&e, 0, 2, 0, HALF));
		die_unless(!post_recv(&e, 0, 3, 0, 0));
		meet(sock);
		wc = good_wc(e.rcq, 1);
		die_unless(wc.opcode == IBV_WC_RECV && wc.byte_len == sizes[i] && !wc.wc_flags);
		die_unless(filled(e.buf, sizes[i], 1));
		meet(sock);
		wc = good_wc(e.rcq, 2);
		die_unless(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == (2 ^ 0x5a5a));
		die_unless(filled(e.buf, sizes[i], 2));
		meet(sock);
		wc = good_wc(e.rcq, 3);
		die_unless(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == sizes[i]);
		die_unless(wc.imm_data == (3 ^ 0x5a5a));
		die_unless(filled(e.buf + HALF, sizes[i], 3));
		meet(sock);
		/* written without a completion, read back */
		die_unless(filled(e.buf, sizes[i], 4));
		fill(e.buf, sizes[i], 5);
		meet(sock);
		meet(sock);
	}
	expect_empty(e.rcq);
	end_close(&e);
	return 0;
}

static void one_size(struct end *e, int sock, uint32_t n)
{
	struct ibv_wc wc;

	meet(sock);
	fill(e->buf, n, 1);
	die_unless(!post(e, 0, 1, IBV_WR_SEND, 0, n, 0, SIG));
	good_wc(e->scq, 1);
	meet(sock);
	fill(e->buf, n, 2);
	die_unless(!post(e, 0, 2, IBV_WR_SEND_WITH_IMM, 0, n, 0, SIG));
	good_wc(e->scq, 2);
	meet(sock);
	fill(e->buf, n, 3);
	die_unless(!post(e, 0, 3, IBV_WR_RDMA_WRITE_WITH_IMM, 0, n, HALF, SIG));
	wc = good_wc(e->scq, 3);
	die_unless(wc.opcode == IBV_WC_RDMA_WRITE);
	fill(e->buf, n, 4);
	die_unless(!post(e, 0, 4, IBV_WR_RDMA_WRITE, 0, n, 0, SIG));
	good_wc(e->scq, 4);
	meet(sock);
	meet(sock);
	die_unless(!post(e, 0, 5, IBV_WR_RDMA_READ, HALF, n, 0, SIG));
	wc = good_wc(e->scq, 5);
	die_unless(wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == n);
	die_unless(filled(e->buf + HALF, n, 5));
	meet(sock);
}

static void test_operations(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(ops_child, &sock);
	size_t i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 0; i < NSIZES; i++)
		one_size(&e, sock, sizes[i]);
	end_close(&e);
	close(sock);
	assert_int_equal(reap(pid), 0);
}

static int pieces_child(int sock)
{
	struct end e;
	struct ibv_sge s[3];
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = s, .num_sge = 3 }, *bad;

	end_open_connected(&e, 1, SIZE, sock);
	s[0] = (struct ibv_sge){ (uintptr_t)e.buf, 10, e.mr->lkey };
	s[1] = (struct ibv_sge){ (uintptr_t)e.buf + 1000, 0, e.mr->lkey };
	s[2] = (struct ibv_sge){ (uintptr_t)e.buf + 2000, 100000, e.mr->lkey };
	die_unless(!ibv_post_recv(e.qp[0], &wr, &bad));
	die_unless(!ibv_post_recv(e.qp[0], &wr, &bad));
	meet(sock);
	good_wc(e.rcq, 9);
	die_unless(!memcmp(e.buf, "aaaaabbbbb", 10) && !memcmp(e.buf + 2000, "bbcccccc", 8));
	meet(sock);
	good_wc(e.rcq, 9);
	die_unless(filled(e.buf, 10, 1));
	die_unless(e.buf[2000] == 1 + 10 * 7);
	end_close(&e);
	return 0;
}

static void test_pieces_and_inline(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(pieces_child, &sock);
	struct ibv_sge s[3];
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = s, .num_sge = 3, .opcode = IBV_WR_SEND };

	end_open_connected(&e, 1, SIZE, sock);
	memset(e.buf, 'a', 5);
	memset(e.buf + 100, 'b', 7);
	memset(e.buf + 200, 'c', 6);
	/* Inline data needs no key and may change when the post has returned. */
	s[0] = (struct ibv_sge){ (uintptr_t)e.buf, 5, 0 };
	s[1] = (struct ibv_sge){ (uintptr_t)e.buf + 100, 7, 0 };
	s[2] = (struct ibv_sge){ (uintptr_t)e.buf + 200, 6, 0 };
	wr.send_flags = IBV_SEND_INLINE | SIG;
	meet(sock);
	die_unless(!post_wr(&e, 0, &wr));
	memset(e.buf, 'x', 300);
	good_wc(e.scq, 1);
	meet(sock);
	fill(e.buf, 50010, 1);
	s[0] = (struct ibv_sge){ (uintptr_t)e.buf, 3, e.mr->lkey };
	s[1] = (struct ibv_sge){ (uintptr_t)e.buf + 3, 20000, e.mr->lkey };
	s[2] = (struct ibv_sge){ (uintptr_t)e.buf + 20003, 30007, e.mr->lkey };
	wr.send_flags = SIG;
	die_unless(!post_wr(&e, 0, &wr));
	good_wc(e.scq, 1);
	end_close(&e);
	close(sock);
	assert_int_equal(reap(pid), 0);
}

#define FENCED 200

static int fence_child(int sock)
{
	struct end e;

	end_open_connected(&e, 1, SIZE, sock);
	meet(sock);
	meet(sock);
	end_close(&e);
	return 0;
}

/* What an atomic brings is sent on by the request behind it, which only a fence lets wait for that (ibv_post_send(3)). */
static void test_fence(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(fence_child, &sock);
	struct ibv_sge s;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
	uint64_t seen[FENCED];

	end_open_connected(&e, 1, SIZE, sock);
	memset(e.buf, 0xff, 8);
	s = (struct ibv_sge){ (uintptr_t)e.buf, 8, e.mr->lkey };
	wr.wr.atomic.remote_addr = e.other.addr;
	wr.wr.atomic.rkey = e.other.rkey;
	wr.wr.atomic.compare_add = 1;
	meet(sock);
	for (size_t i = 0; i < FENCED; i++) {
		die_unless(!post_wr(&e, 0, &wr));
		die_unless(!post(&e, 0, 2, IBV_WR_RDMA_WRITE, 0, 8, HALF + 8 * i, SIG | IBV_SEND_FENCE));
		good_wc(e.scq, 2);
	}
	die_unless(!post(&e, 0, 3, IBV_WR_RDMA_READ, HALF, sizeof(seen), HALF, SIG));
	good_wc(e.scq, 3);
	memcpy(seen, e.buf + HALF, sizeof(seen));
	for (size_t i = 0; i < FENCED; i++)
		assert_int_equal(seen[i], i);
	meet(sock);
	end_close(&e);
	close(sock);
	assert_int_equal(reap(pid), 0);
}

static void cas(struct end *e, uint64_t compare, uint64_t swap, uint64_t expect_old)
{
	struct ibv_sge s = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 3, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				  .send_flags = SIG };
	uint64_t old;

	wr.wr.atomic.remote_addr = e->other.addr + HALF;
	wr.wr.atomic.rkey = e->other.rkey;
	wr.wr.atomic.compare_add = compare;
	wr.wr.atomic.swap = swap;
	die_unless(!post_wr(e, 0, &wr));
	die_unless(good_wc(e->scq, 3).opcode == IBV_WC_COMP_SWAP);
	memcpy(&old, e->buf, 8);
	die_unless(old == expect_old);
}

static void loop_messages(struct end *e, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		uint32_t len = i % 2 ? 100000 : 64;

		die_unless(!post_recv(e, 0, 7, HALF, HALF));
		fill(e->buf, len, (unsigned int)i);
		die_unless(!post(e, 0, 6, IBV_WR_SEND, 0, len, 0, SIG));
		good_wc(e->rcq, 7);
		good_wc(e->scq, 6);
		die_unless(filled(e->buf + HALF, len, (unsigned int)i));
	}
}

/* A queue pair connected to itself, and two contexts of one process. */
static void test_within_one_process(void **state)
{
	struct end a, b;

	end_open(&a, 1, SIZE);
	end_connect_to(&a, &a.me);
	memset(a.buf, 0, SIZE);
	loop_messages(&a, 10);
	memset(a.buf + HALF, 0, 8);
	cas(&a, 0, 17, 0);
	cas(&a, 3, 99, 17);
	cas(&a, 17, 5, 17);
	end_close(&a);

	end_open(&a, 1, SIZE);
	end_open(&b, 1, SIZE);
	end_connect_to(&a, &b.me);
	end_connect_to(&b, &a.me);
	fill(a.buf, 5000, 3);
	die_unless(!post_recv(&b, 0, 1, 0, SIZE));
	die_unless(!post(&a, 0, 2, IBV_WR_SEND, 0, 5000, 0, SIG));
	good_wc(a.scq, 2);
	good_wc(b.rcq, 1);
	assert_true(filled(b.buf, 5000, 3));
	end_close(&a);
	end_close(&b);
}

static int crash(int sock)
{
	return sock < 0 ? 0 : raise(SIGSEGV);
}

/* The runner's handlers are the runner's alone. */
static void test_crash_of_an_end(void **state)
{
	pid_t pid;
	int sock;

	(void)state;
	pid = spawn_end(crash, &sock);
	assert_int_equal(reap(pid), -SIGSEGV);
	close(sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crash_of_an_end), cmocka_unit_test(test_operations), cmocka_unit_test(test_pieces_and_inline),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_within_one_process),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
