/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that sleep in ibv_get_cq_event beside others that poll the channel's descriptor: each event is taken, by one of them, also when a
 * sleeper is called away by a signal or cancelled in the moment in which it comes. Whether the descriptor is readable for nothing afterwards is not looked
 * at: one who takes an event may be faster than its datagram.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"
#include "thread_sleeps.h"

#define SIZE 4096u
#define LIMIT_MS 20000

static struct pair pair;
static _Atomic int taken, begun;

static int readable(int ms)
{
	struct pollfd p = { .fd = pair.a.channel->fd, .events = POLLIN };

	return poll(&p, 1, ms);
}

static int take(void)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(pair.a.channel, &cq, &context))
		return errno;
	ibv_ack_cq_events(cq, 1);
	atomic_fetch_add(&taken, 1);
	return 0;
}

static void *sleeper(void *arg)
{
	(void)arg;
	for (;;)
		die_unless(!take());
}

static void *poller(void *arg)
{
	(void)arg;
	for (;;)
		if (readable(-1) == 1)
			die_unless(!take());
}

static void event_make(uint64_t id)
{
	die_unless(!post(&pair.a, 0, id, IBV_WR_RDMA_WRITE, 0, 8, 0, IBV_SEND_SIGNALED));
}

static void arm(void)
{
	die_unless(!ibv_req_notify_cq(pair.a.scq, 0));
}

static void expect_taken(int count)
{
	for (int i = 0; atomic_load(&taken) != count; i++) {
		die_unless(i < LIMIT_MS * 1000);
		sched_yield();
	}
}

static void end_threads(pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++)
		pthread_cancel(threads[i]);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void together(int pollers, int sleepers)
{
	pthread_t threads[4];
	int n = 0;

	pair_open(&pair, SIZE);
	atomic_store(&taken, 0);
	while (n < pollers + sleepers) {
		die_unless(!pthread_create(&threads[n], NULL, n < pollers ? poller : sleeper, NULL));
		n++;
	}
	for (int i = 1; i <= 3000; i++) {
		arm();
		event_make((uint64_t)i);
		expect_taken(i);
		good_wc(pair.a.scq, (uint64_t)i);
	}
	end_threads(threads, n);
	pair_close(&pair);
}

static void test_alone(void **state) { together(0, 1); }
static void test_together(void **state) { together(1, 2); }

static void nothing(int sig)
{
	(void)sig;
}

static void *sleeper_once(void *arg)
{
	int err;

	(void)arg;
	atomic_store(&begun, (int)gettid());
	err = take();
	die_unless(!err || err == EINTR);
	return NULL;
}

static void wait_a_while(int i)
{
	for (volatile int n = i % 64 * 200; n > 0; n--)
		;
}

/* In the moment in which an event comes one who sleeps is called away: it is his, or the descriptor says that it is there. */
static int called_away_by(int (*call)(pthread_t t), int rounds)
{
	int missed = 0;
	pthread_t t;

	pair_open(&pair, SIZE);
	for (int i = 1; i <= rounds; i++) {
		atomic_store(&taken, 0);
		atomic_store(&begun, 0);
		die_unless(!pthread_create(&t, NULL, sleeper_once, NULL));
		while (!atomic_load(&begun))
			sched_yield();
		usleep(i % 4 * 20);
		while (i % 16 == 0 && !thread_sleeps_in(atomic_load(&begun), SYS_futex))
			sched_yield();
		arm();
		if (i % 2)
			event_make((uint64_t)i);
		wait_a_while(i);
		die_unless(!call(t));
		if (i % 16 == 0)
			die_unless(!pthread_join(t, NULL)); /* this one has certainly gone without it */
		if (i % 2 == 0)
			event_make((uint64_t)i);
		if (i % 16)
			die_unless(!pthread_join(t, NULL));
		if (!atomic_load(&taken)) {
			missed++;
			die_unless(readable(LIMIT_MS) == 1);
			die_unless(!take());
		}
		good_wc(pair.a.scq, (uint64_t)i);
	}
	pair_close(&pair);
	return missed;
}

static int interrupt(pthread_t t)
{
	return pthread_kill(t, SIGUSR1);
}

static void test_signal(void **state)
{
	struct sigaction act = { .sa_handler = nothing };

	sigaction(SIGUSR1, &act, NULL);
	assert_true(called_away_by(interrupt, 2000) > 0);
}

static void test_cancelled(void **state)
{
	assert_true(called_away_by(pthread_cancel, 2000) > 0);
}

static sigjmp_buf outside;
static pid_t jumper;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(outside, 1);
}

static void *interrupt_sleep(void *arg)
{
	while (!thread_sleeps_in(jumper, SYS_futex))
		sched_yield();
	die_unless(!interrupt(*(pthread_t *)arg));
	return NULL;
}

/* A sleeper who leaves by a jump out of a handler, as programs do that have no other time limit, has left nothing that hides an event. */
static void test_jumped_out(void **state)
{
	struct sigaction act = { .sa_handler = jump };
	pthread_t self = pthread_self(), t;

	sigaction(SIGUSR1, &act, NULL);
	jumper = gettid();
	pair_open(&pair, SIZE);
	arm();
	die_unless(!pthread_create(&t, NULL, interrupt_sleep, &self));
	if (!sigsetjmp(outside, 1)) {
		take();
		die_unless(!"nothing comes before the signal");
	}
	die_unless(!pthread_join(t, NULL));
	event_make(1);
	die_unless(readable(LIMIT_MS) == 1);
	die_unless(!take());
	good_wc(pair.a.scq, 1);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone), cmocka_unit_test(test_together), cmocka_unit_test(test_signal), cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_jumped_out),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
