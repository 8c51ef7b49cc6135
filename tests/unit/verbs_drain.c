/* SPDX-License-Identifier: BSD-2-Clause */
/* The drain of a reliable connection whose peer has gone: what he sent before may be on its way still, and is waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_pair.h"

#define ROUNDS 7 /* a message's way */

static int left;

static int on_the_way(struct ibv_context *c)
{
	(void)c;
	left -= left > 0;
	return left > 0;
}

static int stays(int sock)
{
	pair_begin(sock, 1);
	die_unless(verbs_backend.softrdma_on_the_wire);
	verbs_backend.softrdma_on_the_wire = on_the_way;
	left = ROUNDS;
	pair_checkpoint();
	die_unless(!left);
	pair_restart();
	return pair_over();
}

static int goes(int sock)
{
	pair_begin(sock, 1);
	die_unless(!ibv_destroy_qp(e.qp[0]));
	e.nqp = 0;
	pair_checkpoint();
	pair_restart();
	return pair_over();
}

static void test_peer_gone(void **state)
{
	pair_run(stays, goes);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_peer_gone) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
