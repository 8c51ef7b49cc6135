/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups: who hears a datagram, queue pairs that do not want their own, groups of those who die. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_datagram.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (1u << 20)
#define HALF (SIZE / 2)
#define SIG IBV_SEND_SIGNALED

static const union ibv_gid group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 7 } };
static const union ibv_gid other_group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 8 } };
static const union ibv_gid empty_group = { .raw = { 0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, [15] = 9 } };

static int member_child(int sock)
{
	struct end e;
	int q;

	end_open_as(&e, 3, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	for (q = 0; q < 3; q++)
		die_unless(!post_recv(&e, q, (uint64_t)q, (size_t)q * 8192, 8192));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001)); /* once is enough */
	die_unless(!ibv_attach_mcast(e.qp[2], &group, 0xc001));
	die_unless(!ibv_attach_mcast(e.qp[1], &other_group, 0xc001));
	meet(sock); /* it sends */
	meet(sock);
	good_wc(e.rcq, 0);
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	die_unless(filled(e.buf + GRH, 500, 1) && filled(e.buf + 2 * 8192 + GRH, 500, 1));
	die_unless(!memcmp(e.buf + 24, &group, 16));
	die_unless(ibv_destroy_qp(e.qp[0]) == EBUSY);
	die_unless(!ibv_detach_mcast(e.qp[0], &group, 0xc001));
	die_unless(ibv_detach_mcast(e.qp[0], &group, 0xc001) == EINVAL);
	die_unless(!post_recv(&e, 0, 0, 0, 8192) && !post_recv(&e, 2, 2, 0, 8192));
	meet(sock); /* it sends once more */
	meet(sock);
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	raise(SIGKILL); /* attached */
	return 1;
}

static void test_multicast(void **state)
{
	struct ibv_ah *ah, *nobody;
	struct end e;
	int sock, i;
	pid_t pid = spawn_end(member_child, &sock);

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	end_connect(&e, sock);
	ah = datagram_address(&e, &group);
	nobody = datagram_address(&e, &empty_group);
	die_unless(!datagram_post(&e, nobody, 0xffffff, END_QKEY, 1, 500));
	good_wc(e.scq, 1);
	die_unless(!ibv_destroy_ah(nobody));
	meet(sock);
	fill(e.buf, 500, 1);
	die_unless(!post_recv(&e, 0, 9, HALF, 8192));
	die_unless(!ibv_attach_mcast(e.qp[0], &group, 0xc001));
	for (i = 0; i < 2; i++) {
		die_unless(!datagram_post(&e, ah, 0xffffff, END_QKEY, 2, 500));
		good_wc(e.scq, 2);
		if (!i) /* its own copy */
			good_wc(e.rcq, 9);
		meet(sock);
		if (!i)
			meet(sock);
	}
	assert_int_equal(reap(pid), -SIGKILL);
	die_unless(!post_recv(&e, 0, 9, HALF, 8192));
	die_unless(!datagram_post(&e, ah, 0xffffff, END_QKEY, 2, 500));
	good_wc(e.scq, 2);
	good_wc(e.rcq, 9);
	die_unless(!ibv_detach_mcast(e.qp[0], &group, 0));
	assert_int_equal(ibv_attach_mcast(e.qp[0], (union ibv_gid *)e.buf, 0), EINVAL); /* no group's GID */
	die_unless(!ibv_destroy_ah(ah));
	end_close(&e);
	close(sock);
	end_open(&e, 1, SIZE);
	assert_int_equal(ibv_attach_mcast(e.qp[0], &group, 0), EINVAL); /* not a datagram queue pair */
	end_close(&e);
}

/* A queue pair that does not want its own context to hear it. */
static void test_block_self(void **state)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = 4, .max_send_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
					    .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB };
	struct ibv_qp *first;
	struct ibv_ah *ah;
	struct end a, b;

	device_only(); /* fermata has no extended queue pairs yet */
	end_open_as(&a, 1, SIZE, IBV_QPT_UD);
	end_open_as(&b, 1, SIZE, IBV_QPT_UD);
	end_connect_to(&b, &a.me);
	init.pd = a.pd;
	init.send_cq = a.scq;
	init.recv_cq = a.rcq;
	first = a.qp[0];
	qp_to_init(first, 0);
	qp_to_rts(first, 0, &a);
	die_unless(!ibv_attach_mcast(first, &group, 0) && !ibv_attach_mcast(b.qp[0], &group, 0));
	die_unless(!post_recv(&a, 0, 1, 0, 4096) && !post_recv(&b, 0, 2, 0, 4096));
	a.qp[0] = ibv_create_qp_ex(a.ctx, &init);
	die_unless(a.qp[0]);
	qp_to_init(a.qp[0], 0);
	qp_to_rts(a.qp[0], 0, &a);
	ah = datagram_address(&a, &group);
	die_unless(!datagram_post(&a, ah, 0xffffff, END_QKEY, 3, 10));
	good_wc(a.scq, 3);
	good_wc(b.rcq, 2);
	expect_empty(a.rcq);
	die_unless(!ibv_detach_mcast(first, &group, 0) && !ibv_detach_mcast(b.qp[0], &group, 0));
	die_unless(!ibv_destroy_ah(ah) && !ibv_destroy_qp(first));
	end_close(&a);
	end_close(&b);
}

/* More groups than there is room for, again and again, by those who die: their slots come back. */
static int hoarder(int sock)
{
	union ibv_gid gid = group;
	struct end e;
	int i, got = 0;

	end_open_as(&e, 1, SIZE, IBV_QPT_UD);
	for (i = 0; i < 300; i++) {
		gid.raw[14] = (uint8_t)(i >> 8);
		gid.raw[13] = (uint8_t)i;
		got += !ibv_attach_mcast(e.qp[0], &gid, 0);
	}
	die_unless(got == 256);
	raise(SIGKILL);
	return 1;
}

static void test_groups_of_the_dead(void **state)
{
	int i, sock;

	for (i = 0; i < 3; i++) {
		pid_t pid = spawn_end(hoarder, &sock);

		assert_int_equal(reap(pid), -SIGKILL);
		close(sock);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_multicast), cmocka_unit_test(test_block_self),
		cmocka_unit_test(test_groups_of_the_dead),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
