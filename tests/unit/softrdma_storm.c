/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A storm of SIGKILL. Survivors send each other numbered messages, write into each other's memory and add to each other's
 * counters, and do the same with victims, who are killed at random moments and followed by new ones. Nothing that happens
 * to a victim may be seen in what the survivors have from each other: each message comes once, in order, with its
 * data, each addition counts once, each event wakes. One survivor polls, the others sleep on their channels.
 *
 * SOFTRDMA_STORM: seconds; default SECONDS.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_stream.h"
#include "softrdma_util.h"

#define SECONDS 10
#define PATIENCE 5000 /* ms */

/* ---- a victim ---- */

static _Noreturn void victim_run(int v, uint32_t generation)
{
	static struct party p;
	int i, up = 0;

	/* -2 - v: its number for word_there */
	party_open(&p, SURVIVORS, -2 - v);
	for (i = 0; i < SURVIVORS; i++) {
		struct cell *c = &board->cell[v][i];

		p.s[i].target = i;
		c->victim = p.e.me;
		atomic_store(&c->here, generation);
	}
	for (;;) {
		for (i = 0; i < SURVIVORS && up < SURVIVORS; i++) {
			struct cell *c = &board->cell[v][i];

			if (p.s[i].up || atomic_load(&c->connected) != generation)
				continue;
			stream_start(&p, i, &c->survivor, c->survivor.qpn[v]);
			p.s[i].up = 1;
			up++;
			atomic_store(&c->ready, generation);
		}
		for (i = 0; i < SURVIVORS; i++)
			stream_send(&p, i);
		if (!party_complete(&p))
			sched_yield();
	}
}

/* ---- a survivor ---- */

/* A new victim stands there, or one is ready for our messages. 1: somebody is awaited. */
static int victims_look(struct party *p)
{
	int v, awaited = 0;

	for (v = 0; v < VICTIMS; v++) {
		struct cell *c = &board->cell[v][p->me];
		struct stream *s = &p->s[v];
		uint32_t here = atomic_load(&c->here);

		if (here != s->generation) {
			struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

			s->generation = here;
			s->target = -1;
			die_unless(!ibv_modify_qp(p->e.qp[v], &reset, IBV_QP_STATE));
			qp_to_init(p->e.qp[v], ALL_ACCESS);
			stream_start(p, v, &c->victim, c->victim.qpn[p->me]);
			s->sent = UINT32_MAX; /* not ready yet */
			c->survivor = p->e.me;
			atomic_store(&c->connected, here);
		}
		if (s->sent == UINT32_MAX && atomic_load(&c->ready) == s->generation) {
			s->sent = 0;
			s->up = 1;
		}
		awaited |= s->sent == UINT32_MAX || !s->up;
	}
	return awaited;
}

/* Sleeps until a completion comes; that its event did not wake us is an error. */
static void wait_event(struct party *p, int ms)
{
	struct pollfd fd = { .fd = p->e.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int r;

	die_unless(!ibv_req_notify_cq(p->e.scq, 0) && !ibv_req_notify_cq(p->e.rcq, 0));
	if (party_complete(p))
		return;
	r = poll(&fd, 1, ms);
	while (!ibv_get_cq_event(p->e.channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (!r && party_complete(p) && ms == PATIENCE)
		end_die(__FILE__, __LINE__, "a completion without its event");
}

static void survivors_connect(struct party *p)
{
	int i;

	board->survivor[p->me] = p->e.me;
	atomic_fetch_add(&board->opened, 1);
	while (atomic_load(&board->opened) < SURVIVORS)
		sched_yield();
	for (i = 0; i < SURVIVORS; i++) {
		p->s[VICTIMS + i].target = i;
		stream_start(p, VICTIMS + i, &board->survivor[i], board->survivor[i].qpn[VICTIMS + p->me]);
	}
	atomic_fetch_add(&board->opened, 1);
	while (atomic_load(&board->opened) < 2 * SURVIVORS)
		sched_yield();
	for (i = 0; i < SURVIVORS; i++)
		p->s[VICTIMS + i].up = 1;
}

static int busy(struct party *p)
{
	int i, n = 0;

	for (i = VICTIMS; i < PARTNERS; i++)
		n += p->s[i].waiting || p->s[i].adding;
	return n;
}

static void survivor_run(int me)
{
	static struct party p;
	int i, stop = 0, told = 0, sleeps = me != 0;

	party_open(&p, PARTNERS, me);
	fcntl(p.e.channel->fd, F_SETFL, O_NONBLOCK);
	survivors_connect(&p);
	while (atomic_load(&board->idle) < SURVIVORS) {
		int awaited = victims_look(&p);

		for (i = 0; i < PARTNERS && !stop; i++)
			stream_send(&p, i);
		if (!party_complete(&p) && sleeps)
			wait_event(&p, awaited || stop ? 1 : PATIENCE);
		stop = atomic_load(&board->stop) != 0;
		if (stop && !told && !busy(&p))
			told = atomic_fetch_add(&board->idle, 1) + 1 > 0;
	}
	while (party_complete(&p))
		;
	for (i = 0; i < SURVIVORS; i++) {
		board->sent[me][i] = p.s[VICTIMS + i].sent;
		board->received[me][i] = p.s[VICTIMS + i].received;
	}
	atomic_fetch_add(&board->closed, 1);
	while (atomic_load(&board->closed) < SURVIVORS)
		sched_yield();
	board->counter[me] = *(uint64_t *)p.e.buf;
	end_close(&p.e);
}

/* ---- all ---- */

static pid_t start(int survivor, int v, uint32_t generation, unsigned int limit)
{
	pid_t pid = end_fork();

	die_unless(pid >= 0);
	if (pid)
		return pid;
	alarm(limit);
	if (survivor < 0)
		victim_run(v, generation);
	survivor_run(survivor);
	_exit(0);
}

static uint64_t counted(int survivor)
{
	uint64_t i, n = 0;

	for (i = 0; i < BITS / 8; i++)
		n += (uint64_t)__builtin_popcount(board->added[survivor][i]);
	return n;
}

static void check_sums(unsigned long kills)
{
	int i, k;

	for (i = 0; i < SURVIVORS; i++) {
		uint64_t got = counted(i);

		for (k = 0; k < SURVIVORS; k++)
			assert_true(board->sent[i][k] > 0 && board->sent[i][k] == board->received[k][i]);
		/* What a victim did not live to see was added all the same. */
		assert_true(got <= board->counter[i] && board->counter[i] - got <= kills + VICTIMS);
	}
}

/* Nothing is left of the dead once somebody has come after them. */
static void check_directory(const char *dir)
{
	struct end e;

	end_open(&e, 0, 4096);
	end_close(&e);
	assert_int_equal(directory_entries(dir), 0);
}

static void random_wait(void)
{
	struct timespec t = { .tv_nsec = random() % 12000000 };

	nanosleep(&t, NULL);
}

static void test_storm(void **state)
{
	const char *want = getenv("SOFTRDMA_STORM");
	unsigned int seconds = want ? (unsigned int)atoi(want) : SECONDS, limit = seconds + 60;
	time_t end = time(NULL) + (time_t)seconds;
	pid_t survivor[SURVIVORS], victim[VICTIMS];
	unsigned long kills = 0;
	int i;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(board != MAP_FAILED);
	for (i = 0; i < SURVIVORS; i++)
		survivor[i] = start(i, 0, 0, limit);
	for (i = 0; i < VICTIMS; i++)
		victim[i] = start(-1, i, 1, limit);
	while (time(NULL) < end) {
		random_wait();
		i = (int)(random() % VICTIMS);
		kill(victim[i], SIGKILL);
		assert_int_equal(reap(victim[i]), -SIGKILL);
		kills++;
		victim[i] = start(-1, i, (uint32_t)kills + 1, limit);
	}
	atomic_store(&board->stop, 1);
	for (i = 0; i < SURVIVORS; i++)
		assert_int_equal(reap(survivor[i]), 0);
	for (i = 0; i < VICTIMS; i++) {
		kill(victim[i], SIGKILL);
		reap(victim[i]);
	}
	print_message("%lu kills, %lu messages\n", kills, (unsigned long)board->messages);
	assert_true(kills > 10);
	check_sums(kills);
	check_directory(getenv("SOFTRDMA_DIR"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_storm) };

	srandom((unsigned int)getpid());
	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
