/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who opens the device after a restart, on a host with another LID and other GIDs, when his peer had told its names before, or who is begun only then: the port is called as the
 * peer calls it, and the two find each other in this life and in the next one, on another host again. The host's name, from which softrdma
 * makes LIDs and GIDs, is this file's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/utsname.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "plugins/verbs/verbs_drain.h"
#include "verbs_pair.h"

static int host = 1;

EXPORT int uname(struct utsname *u)
{
	memset(u, 0, sizeof(*u));
	snprintf(u->nodename, sizeof(u->nodename), "host%d", host);
	return 0;
}

static void move(void)
{
	die_unless(!fake_host_checkpoint(&plugin_verbs));
	host++;
	pair_restart();
}

static void exchange(int sock)
{
	die_unless(!post_recv(&e, 0, 1, 4096, 64));
	fill(e.buf, 64, 7);
	meet(sock);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	good_wc(e.rcq, 1);
	die_unless(filled(e.buf + 4096, 64, 7));
	die_unless(!post(&e, 0, 3, IBV_WR_RDMA_WRITE, 0, 64, 8192, IBV_SEND_SIGNALED));
	good_wc(e.scq, 3);
	meet(sock);
}

/* Both are here by now: one port, one name. */
static int from_here_on(int sock, uint16_t first)
{
	struct ibv_port_attr port;
	union ibv_gid own, other;

	end_connect(&e, sock);
	die_unless(e.me.lid == e.other.lid && (!first || e.me.lid == first));
	die_unless(!ibv_query_gid(e.ctx, 1, 0, &own) && write(sock, &own, sizeof(own)) == sizeof(own));
	die_unless(read(sock, &other, sizeof(other)) == sizeof(other) && !memcmp(&own, &other, sizeof(own)));
	exchange(sock);
	move();
	die_unless(shadow_qp(e.qp[0])->peer == PEER_CONNECTED); /* the drain had found it */
	die_unless(!ibv_query_port(e.ctx, 1, (struct _compat_ibv_port_attr *)&port) && port.lid == e.me.lid);
	exchange(sock);
	return pair_over();
}

static int early(int sock)
{
	alarm(45);
	end_open(&e, 1, SIZE);
	move();
	die_unless(shadow_qp(e.qp[0])->real->qp_num != e.qp[0]->qp_num);
	return from_here_on(sock, e.me.lid);
}

static int late(int sock)
{
	alarm(45);
	move();
	end_open(&e, 1, SIZE);
	return from_here_on(sock, 0);
}

/* Has looked for devices. */
static int late_listed(int sock)
{
	ibv_free_device_list(ibv_get_device_list(NULL));
	return late(sock);
}

/* Has the system's library, but has not looked for devices; in the other life the device is softrdma. */
static int late_loaded(int sock)
{
	fake_system_answers = 2;
	die_unless(!verbs_backend_load() && !verbs_backend.soft);
	return late(sock);
}

/* The first look has loaded the system's library, and comes back from that into another life. */
static int late_loading(int sock)
{
	fake_system_answers = 1;
	die_unless(!verbs_backend_load() && verbs_backend.soft);
	return late(sock);
}

static int nothing(void)
{
	return 0;
}

static int nothing_to_drain(unsigned int round)
{
	return FERMATA_DRAINED;
}

static int nothing_to_dump(struct fermata_sink *sink)
{
	return 0;
}

static int nothing_to_make(const void *record, size_t len)
{
	return 0;
}

/* In the place of a program that is not there yet. */
static const struct fermata_plugin nobody = {
	.name = "nobody", .quiesce = nothing, .drain = nothing_to_drain, .dump = nothing_to_dump, .recreate = nothing_to_make, .reconnect = nothing,
};

static int late_begun(int sock)
{
	alarm(45);
	die_unless(!fake_host_checkpoint(&nobody));
	host++;
	fake_host_barrier();
	die_unless(!fake_host_restart(&nobody));
	end_open(&e, 1, SIZE);
	return from_here_on(sock, 0);
}

static void test_late(void **state)
{
	pair_run(early, late);
}

static void test_late_listed(void **state)
{
	pair_run(early, late_listed);
}

static void test_late_loaded(void **state)
{
	pair_run(early, late_loaded);
}

static void test_late_loading(void **state)
{
	pair_run(early, late_loading);
}

static void test_late_begun(void **state)
{
	pair_run(early, late_begun);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late), cmocka_unit_test(test_late_listed), cmocka_unit_test(test_late_loaded),
		cmocka_unit_test(test_late_loading), cmocka_unit_test(test_late_begun),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
