/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of completions: asked for, only of solicited ones, of what came before somebody asked. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

static int readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms);
}

static struct ibv_cq *event_of(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	die_unless(!ibv_get_cq_event(e->channel, &cq, &context));
	die_unless(context == e);
	ibv_ack_cq_events(cq, 1);
	return cq;
}

static int events_child(int sock)
{
	struct end e;

	end_open_connected(&e, 1, SIZE, sock);
	die_unless(!post_recv(&e, 0, 1, 0, 100));
	die_unless(!post_recv(&e, 0, 2, 0, 100));
	die_unless(!post_recv(&e, 0, 3, 0, 100));
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	meet(sock);
	die_unless(readable(e.channel->fd, 10000) == 1);
	die_unless(event_of(&e) == e.rcq);
	die_unless(!readable(e.channel->fd, 0));
	good_wc(e.rcq, 1);
	/* only solicited ones now */
	die_unless(!ibv_req_notify_cq(e.rcq, 1));
	meet(sock);
	meet(sock);
	die_unless(!readable(e.channel->fd, 20));
	die_unless(fcntl(e.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	{
		struct ibv_cq *cq;
		void *context;

		die_unless(ibv_get_cq_event(e.channel, &cq, &context));
	}
	die_unless(fcntl(e.channel->fd, F_SETFL, 0) == 0);
	meet(sock);
	die_unless(event_of(&e) == e.rcq); /* sleeps until the solicited one */
	good_wc(e.rcq, 2);
	good_wc(e.rcq, 3);
	end_close(&e);
	return 0;
}

static void test_events(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(events_child, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	meet(sock);
	die_unless(!ibv_req_notify_cq(e.scq, 0));
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_ptr_equal(event_of(&e), e.scq);
	good_wc(e.scq, 1);
	meet(sock);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 10, 0, SIG));
	meet(sock);
	meet(sock);
	die_unless(!post(&e, 0, 3, IBV_WR_SEND, 0, 10, 0, SIG | IBV_SEND_SOLICITED));
	close(sock);
	assert_int_equal(reap(pid), 0);
	end_close(&e);
}

static int receiver(int sock)
{
	struct end e;

	end_open_connected(&e, 1, SIZE, sock);
	for (uint64_t id = 1; id <= 8; id++)
		die_unless(!post_recv(&e, 0, id, 0, 100));
	meet(sock);
	meet(sock);
	end_close(&e);
	return 0;
}

/* What came before the arming calls for an event if it was neither polled nor told of: a program that polls, arms and sleeps misses nothing. */
static void test_armed_late(void **state)
{
	struct end e;
	int sock;
	pid_t pid = spawn_end(receiver, &sock);

	end_open_connected(&e, 1, SIZE, sock);
	meet(sock);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_int_equal(ibv_req_notify_cq(e.scq, 0), 0);
	assert_int_equal(readable(e.channel->fd, 0), 1);
	assert_ptr_equal(event_of(&e), e.scq);
	good_wc(e.scq, 1);
	assert_int_equal(ibv_req_notify_cq(e.scq, 0), 0);
	assert_int_equal(readable(e.channel->fd, 0), 0);
	/* told of, not polled: no second event */
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_ptr_equal(event_of(&e), e.scq);
	assert_int_equal(ibv_req_notify_cq(e.scq, 0), 0);
	assert_int_equal(readable(e.channel->fd, 0), 0);
	good_wc(e.scq, 2);
	/* one behind it that was not told of */
	die_unless(!post(&e, 0, 3, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_ptr_equal(event_of(&e), e.scq);
	die_unless(!post(&e, 0, 4, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_int_equal(readable(e.channel->fd, 0), 0);
	assert_int_equal(ibv_req_notify_cq(e.scq, 0), 0);
	assert_ptr_equal(event_of(&e), e.scq);
	good_wc(e.scq, 3);
	good_wc(e.scq, 4);
	/* not solicited */
	die_unless(!post(&e, 0, 5, IBV_WR_SEND, 0, 10, 0, SIG));
	assert_int_equal(ibv_req_notify_cq(e.scq, 1), 0);
	assert_int_equal(readable(e.channel->fd, 0), 0);
	assert_int_equal(ibv_req_notify_cq(e.scq, 0), 0);
	assert_ptr_equal(event_of(&e), e.scq);
	good_wc(e.scq, 5);
	meet(sock);
	close(sock);
	assert_int_equal(reap(pid), 0);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events), cmocka_unit_test(test_armed_late),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
