/* SPDX-License-Identifier: BSD-2-Clause */
/* The cases of verbs_objects.h, one after another. */
#include "verbs_objects.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"

void connected(enum ibv_qp_type type)
{
	end_open_as(&e, 1, SIZE, type);
	end_connect_to(&e, &e.me);
}

void send_works(void)
{
	fill(e.buf, 64, 3);
	die_unless(!post_recv(&e, 0, 1, 4096, 64) && !post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.rcq, 1);
	good_wc(e.scq, 2);
	die_unless(filled(e.buf + 4096, 64, 3));
}

void qp_unmake(void)
{
	die_unless(!ibv_destroy_qp(e.qp[0]));
	e.nqp = 0;
}

/* The restart is on another host, by other names, where we may be one. */
static void move_host(void)
{
	if (!unshare(getuid() ? CLONE_NEWUSER | CLONE_NEWUTS : CLONE_NEWUTS) && sethostname("elsewhere", 9))
		end_die(__FILE__, __LINE__, "sethostname");
}

static int run(const struct object *o)
{
	int r;

	fake_host_init(1);
	alarm(40);
	o->make();
	r = fake_host_checkpoint(&plugin_verbs);
	if (!!r != !!o->refused || (r && ((r != -EOPNOTSUPP && r != -EAGAIN) || !strstr(fake_host_failure(), o->refused)))) {
		fprintf(stderr, "%s: checkpoint: %d: %s\n", o->name, r, fake_host_failure());
		return 1;
	}
	if (!r) {
		move_host();
		pair_restart();
		die_unless(getuid() || shadow_context(e.ctx)->device->port[1].real_lid != e.me.lid);
	}
	if (o->check)
		o->check();
	if (o->unmake)
		o->unmake();
	die_unless((o->refused && !o->unmake) || !fake_host_checkpoint(&plugin_verbs));
	return 0;
}

static void test_object(void **state)
{
	pid_t pid = end_fork();

	if (!pid)
		_exit(run(*state));
	assert_int_equal(reap(pid), 0);
}

int main(void)
{
	const struct object *const files[] = { other_objects, memory_objects, window_objects, queue_objects, datagram_objects, cm_objects, xrc_objects };
	struct CMUnitTest tests[64];
	size_t n = 0;

	for (size_t f = 0; f < ARRAY_SIZE(files); f++)
		for (const struct object *o = files[f]; o->name && n < ARRAY_SIZE(tests); o++)
			tests[n++] = (struct CMUnitTest){ .name = o->name, .test_func = test_object, .initial_state = (void *)(uintptr_t)o };
	return _cmocka_run_group_tests("verbs_objects", tests, n, directory_make, directory_remove);
}
