/* SPDX-License-Identifier: BSD-2-Clause */
/* Arming and events of completion queues, over checkpoints and restarts: who sleeps on a channel is woken by everything that comes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "verbs_pair.h"

static int readable(void)
{
	struct pollfd p = { .fd = e.channel->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void take_event(struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	die_unless(!ibv_get_cq_event(e.channel, &cq, &context));
	die_unless(cq == expected && context == &e);
	ibv_ack_cq_events(cq, 1);
}

static void no_event(void)
{
	int flags = fcntl(e.channel->fd, F_GETFL);
	struct ibv_cq *cq;
	void *context;

	die_unless(!fcntl(e.channel->fd, F_SETFL, flags | O_NONBLOCK));
	errno = 0;
	die_unless(ibv_get_cq_event(e.channel, &cq, &context) == -1 && errno == EAGAIN);
	die_unless(!fcntl(e.channel->fd, F_SETFL, flags));
}

static int events_receiver(int sock)
{
	int number;

	pair_begin(sock, 1);
	number = e.channel->fd;
	for (uint64_t i = 0; i < 3; i++)
		die_unless(!post_recv(&e, 0, i, 0, 64));
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	meet(sock);
	meet(sock); /* a message has come; its event is not read */
	pair_checkpoint();
	die_unless(readable());
	pair_restart();
	die_unless(e.channel->fd == number && readable());
	take_event(e.rcq);
	die_unless(!readable());
	good_wc(e.rcq, 0);
	/* armed, and nothing has come */
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	pair_checkpoint();
	pair_restart();
	die_unless(!readable());
	meet(sock);
	take_event(e.rcq);
	good_wc(e.rcq, 1);
	/* not armed: what comes raises nothing */
	pair_checkpoint();
	pair_restart();
	meet(sock);
	meet(sock);
	die_unless(!readable());
	good_wc(e.rcq, 2);
	expect_empty(e.rcq);
	return pair_over();
}

static int events_sender(int sock)
{
	pair_begin(sock, 1);
	meet(sock);
	die_unless(!ibv_req_notify_cq(e.scq, 0)); /* only our no-op comes to this queue: that is no event */
	die_unless(!post(&e, 0, 0, IBV_WR_SEND, 0, 64, 0, 0));
	meet(sock);
	pair_checkpoint();
	no_event();
	pair_restart();
	pair_checkpoint();
	pair_restart();
	meet(sock);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, 0));
	pair_checkpoint();
	pair_restart();
	die_unless(!readable());
	meet(sock);
	die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	meet(sock);
	take_event(e.scq);
	good_wc(e.scq, 2);
	return pair_over();
}

static void test_events(void **state)
{
	pair_run(events_receiver, events_sender);
}

/* What the drain has taken before the program armed its queue is told when it does, as the device tells what came between its last poll and the arming. */
static int untold_receiver(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 4; i++)
		die_unless(!post_recv(&e, 0, i, 0, 64));
	expect_empty(e.rcq);
	meet(sock);
	meet(sock); /* a message has come */
	pair_checkpoint();
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	die_unless(readable());
	take_event(e.rcq);
	/* it is told of, so arming alone does not tell of it again */
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	no_event();
	good_wc(e.rcq, 0);
	meet(sock);
	meet(sock);
	take_event(e.rcq);
	pair_checkpoint();
	pair_restart();
	good_wc(e.rcq, 1);
	meet(sock);
	meet(sock);
	pair_checkpoint();
	pair_restart();
	die_unless(!ibv_req_notify_cq(e.rcq, 0));
	/* its event is unread at the next one */
	pair_checkpoint();
	pair_restart();
	take_event(e.rcq);
	good_wc(e.rcq, 2);
	die_unless(!readable());
	meet(sock);
	return pair_over();
}

static int untold_sender(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 3; i++) {
		meet(sock);
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
		good_wc(e.scq, i);
		meet(sock);
		pair_checkpoint();
		if (i)
			pair_restart();
	}
	pair_checkpoint();
	pair_restart();
	meet(sock);
	return pair_over();
}

static void test_untold(void **state)
{
	pair_run(untold_receiver, untold_sender);
}

/*
 * A queue that is armed once more before its event is read has both events, over a restart before the first and one between them. A device that does not
 * tell how many are unread may have one too many.
 */
static int tells;

static void event_for(uint64_t id)
{
	struct ibv_wc wc;

	do
		take_event(e.rcq);
	while (!tells && !ibv_poll_cq(e.rcq, 1, &wc));
	if (tells)
		good_wc(e.rcq, id);
	else
		die_unless(wc.wr_id == id && wc.status == IBV_WC_SUCCESS);
}

static void cut(void)
{
	if (!tells)
		verbs_backend.softrdma_events_unread = NULL;
	pair_checkpoint();
	pair_restart();
}

static int armed_twice_receiver(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 4; i++)
		die_unless(!post_recv(&e, 0, i, 0, 64));
	for (uint64_t i = 0; i < 4; i += 2) {
		die_unless(!ibv_req_notify_cq(e.rcq, 0));
		meet(sock);
		meet(sock); /* the first one has come */
		good_wc(e.rcq, i);
		die_unless(!ibv_req_notify_cq(e.rcq, 0));
		if (i)
			cut();
		take_event(e.rcq);
		if (!i)
			cut();
		die_unless(!tells || !readable());
		meet(sock);
		meet(sock); /* and the second one */
		event_for(i + 1);
	}
	if (tells)
		no_event();
	return pair_over();
}

static int armed_twice_sender(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 4; i++) {
		meet(sock);
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
		good_wc(e.scq, i);
		meet(sock);
		if (i % 2 == 0)
			cut();
	}
	return pair_over();
}

static void test_armed_twice(void **state)
{
	for (tells = 0; tells < 2; tells++)
		pair_run(armed_twice_receiver, armed_twice_sender);
}

/* Two events of one queue are unread. */
static int two_unread_receiver(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 2; i++) {
		die_unless(!post_recv(&e, 0, i, 0, 64) && !ibv_req_notify_cq(e.rcq, 0));
		meet(sock);
		meet(sock);
	}
	cut();
	take_event(e.rcq);
	take_event(e.rcq);
	good_wc(e.rcq, 0);
	good_wc(e.rcq, 1);
	if (tells)
		no_event();
	return pair_over();
}

static int two_unread_sender(int sock)
{
	pair_begin(sock, 1);
	for (uint64_t i = 0; i < 2; i++) {
		meet(sock);
		die_unless(!post(&e, 0, i, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
		good_wc(e.scq, i);
		meet(sock);
	}
	cut();
	return pair_over();
}

static void test_two_unread(void **state)
{
	for (tells = 0; tells < 2; tells++)
		pair_run(two_unread_receiver, two_unread_sender);
}

/* What moderation holds back at the checkpoint nothing that comes later might set free. */
static int moderated_receiver(int sock)
{
	struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 1000, .cq_period = 60000 } };

	pair_begin(sock, 1);
	die_unless(!ibv_modify_cq(e.rcq, &a) && !post_recv(&e, 0, 1, 0, 64) && !ibv_req_notify_cq(e.rcq, 0));
	meet(sock);
	meet(sock);
	pair_checkpoint();
	pair_restart();
	take_event(e.rcq);
	good_wc(e.rcq, 1);
	return pair_over();
}

static int moderated_sender(int sock)
{
	pair_begin(sock, 1);
	meet(sock);
	die_unless(!post(&e, 0, 1, IBV_WR_SEND, 0, 64, 0, IBV_SEND_SIGNALED));
	good_wc(e.scq, 1);
	meet(sock);
	pair_checkpoint();
	pair_restart();
	return pair_over();
}

static void test_moderated(void **state)
{
	pair_run(moderated_receiver, moderated_sender);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events), cmocka_unit_test(test_untold), cmocka_unit_test(test_armed_twice),
		cmocka_unit_test(test_two_unread), cmocka_unit_test(test_moderated),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
