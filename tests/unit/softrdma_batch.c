/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of short WRITEs into another process, which are executed several at a time: each byte arrives, and a fault in the midst of a list
 * leaves those ahead of it done and those behind it undone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define PLACE 4096u /* from one request's target to the next's */
#define LIST 40
#define BAD 22 /* behind the end of a batch, and not at the beginning of one */

enum fault { FAULT_NONE, FAULT_KEY, FAULT_LOCAL_KEY, FAULT_MEMORY };

/* 1, 8, 9, .. 512, and two that are too long to go with others. */
static uint32_t length_of(int i)
{
	static const uint32_t lengths[] = { 1, 8, 9, 64, 100, 511, 512, 513, 4096, 7 };

	return lengths[i % 10];
}

/* The target: what has come when the other end says that it is over, by the number of requests that it says are done. */
static int target(int sock)
{
	char none[PLACE] = { 0 };
	struct end e;
	int i, done, fault;

	end_open(&e, 1, SIZE);
	memset(e.buf, 0, SIZE);
	end_connect(&e, sock);
	die_unless(read(sock, &fault, sizeof(fault)) == sizeof(fault));
	if (fault == FAULT_MEMORY)
		die_unless(!munmap(e.buf + BAD * PLACE, PLACE));
	meet(sock);
	die_unless(read(sock, &done, sizeof(done)) == sizeof(done));
	for (i = 0; i < done; i++)
		die_unless(filled(e.buf + i * PLACE, length_of(i), (unsigned int)i));
	for (i = done + (fault == FAULT_MEMORY); i < LIST; i++)
		die_unless(!memcmp(e.buf + i * PLACE, none, PLACE));
	return 0;
}

static void list_post(struct end *e, enum fault fault)
{
	struct ibv_send_wr wr[LIST] = { 0 }, *bad;
	struct ibv_sge sge[LIST];
	int i;

	for (i = 0; i < LIST; i++) {
		fill(e->buf + i * PLACE, length_of(i), (unsigned int)i);
		sge[i] = (struct ibv_sge){ (uintptr_t)e->buf + i * PLACE, length_of(i), e->mr->lkey };
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge[i], .num_sge = 1,
					      .send_flags = IBV_SEND_SIGNALED | (i % 3 == 0 && length_of(i) <= 64 ? IBV_SEND_INLINE : 0),
					      .next = i + 1 < LIST ? &wr[i + 1] : NULL };
		wr[i].wr.rdma.remote_addr = e->other.addr + i * PLACE;
		wr[i].wr.rdma.rkey = e->other.rkey;
	}
	if (fault == FAULT_KEY)
		wr[BAD].wr.rdma.rkey ^= 1u << 30;
	if (fault == FAULT_LOCAL_KEY)
		sge[BAD].lkey ^= 1u << 30;
	die_unless(!ibv_post_send(e->qp[0], wr, &bad));
}

static void list_into(enum fault fault, enum ibv_wc_status status)
{
	int sock, done = fault == FAULT_NONE ? LIST : BAD, said = fault, i;
	pid_t pid = spawn_end(target, &sock);
	struct end e;

	end_open_connected(&e, 1, SIZE, sock);
	die_unless(write(sock, &said, sizeof(said)) == sizeof(said));
	meet(sock);
	/* The first message of a connection goes alone. */
	die_unless(!post(&e, 0, LIST, IBV_WR_RDMA_WRITE, 0, 1, LIST * PLACE, IBV_SEND_SIGNALED));
	expect_wc(e.scq, LIST, IBV_WC_SUCCESS);
	list_post(&e, fault);
	for (i = 0; i < LIST; i++)
		expect_wc(e.scq, (uint64_t)i, i < done ? IBV_WC_SUCCESS : i == done ? status : IBV_WC_WR_FLUSH_ERR);
	expect_empty(e.scq);
	die_unless(write(sock, &done, sizeof(done)) == sizeof(done));
	assert_int_equal(reap(pid), 0);
	end_close(&e);
	close(sock);
}

static void test_list(void **state)
{
	list_into(FAULT_NONE, IBV_WC_SUCCESS);
}

static void test_faults(void **state)
{
	list_into(FAULT_KEY, IBV_WC_REM_ACCESS_ERR);
	list_into(FAULT_LOCAL_KEY, IBV_WC_LOC_PROT_ERR);
	list_into(FAULT_MEMORY, IBV_WC_REM_OP_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_list), cmocka_unit_test(test_faults) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
