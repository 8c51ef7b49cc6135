/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has been told that his datagrams are sent may close his context and end: they arrive, though the other host takes them only later. More than its kernel
 * holds for it, less than both do.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "softrdma_datagram.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"

#define LENGTH 4000u
#define MESSAGES 32
#define ROOM (LENGTH + GRH)

static int receiver(int sock)
{
	struct end e;
	int i;

	end_open_as(&e, 1, MESSAGES * ROOM, IBV_QPT_UD);
	end_connect(&e, sock);
	for (i = 0; i < MESSAGES; i++)
		die_unless(!post_recv(&e, 0, (uint64_t)i, (size_t)i * ROOM, ROOM));
	meet(sock);
	good_wc(e.rcq, 0); /* the connection stands */
	raise(SIGSTOP);
	for (i = 1; i < MESSAGES; i++)
		good_wc(e.rcq, (uint64_t)i);
	end_close(&e);
	return 0;
}

static void test_close(void **state)
{
	struct ibv_ah_attr to = { .port_num = 1 };
	struct ibv_ah *ah;
	struct end e;
	int sock, status, i;
	pid_t pid = spawn_end(receiver, &sock);

	end_open_as(&e, 1, LENGTH, IBV_QPT_UD);
	end_connect(&e, sock);
	meet(sock);
	to.dlid = e.other.lid;
	die_unless(ah = ibv_create_ah(e.pd, &to));
	for (i = 0; i < MESSAGES; i++) {
		die_unless(!datagram_post(&e, ah, e.other.qpn[0], END_QKEY, (uint64_t)i, LENGTH));
		good_wc(e.scq, (uint64_t)i);
		if (!i)
			die_unless(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	}
	die_unless(!ibv_destroy_ah(ah));
	end_close(&e);
	die_unless(!kill(pid, SIGCONT));
	assert_int_equal(reap(pid), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_close) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
