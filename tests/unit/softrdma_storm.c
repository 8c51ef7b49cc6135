/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A storm of SIGKILL. Survivors send each other numbered messages, write into each other's memory and add to each other's
 * counters, and do the same with victims, who are killed at random moments and followed by new ones. Nothing that happens
 * to a victim may be seen in what the survivors have from each other: each message comes once, in order, with its
 * data, each addition counts once, each event wakes. One survivor polls, the others sleep on their channels.
 *
 * The processes find each other through a board in shared memory. SOFTRDMA_STORM: seconds; default SECONDS.
 */
#include <errno.h>
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
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SECONDS 10
#define SURVIVORS 3
#define VICTIMS 4
#define PARTNERS (VICTIMS + SURVIVORS) /* a survivor's: victims first */
#define DEPTH 8
#define SLOT 16384u
#define SIG IBV_SEND_SIGNALED
#define BITS (1u << 26) /* additions that are told apart */
#define PATIENCE 5000	/* ms */

/* Where two processes meet. Each writes its own half. */
struct cell {
	_Atomic uint32_t here, connected; /* generation of the victim; of the connection */
	_Atomic uint32_t ready;
	struct end_name victim, survivor;
};

static struct {
	struct cell cell[VICTIMS][SURVIVORS];
	struct end_name survivor[SURVIVORS];
	_Atomic uint32_t opened, stop, idle, closed;
	uint64_t sent[SURVIVORS][SURVIVORS], received[SURVIVORS][SURVIVORS]; /* by whom, with whom */
	uint64_t counter[SURVIVORS];
	_Atomic uint64_t messages;
	_Atomic uint8_t added[SURVIVORS][BITS / 8]; /* results of additions that somebody has got */
} *board;

/* One partner: numbered messages in each direction, and an addition at a time. */
struct stream {
	struct end_name other;
	int target; /* the survivor whose counter is there; -1: a victim */
	int up;
	uint32_t generation, sent, waiting, received;
	int adding;
	uint64_t last;
};

struct party {
	struct end e;
	struct stream s[PARTNERS];
	int n, me; /* me: survivor's number, or -1 */
};

static uint32_t length_of(uint32_t seq)
{
	static const uint32_t lengths[] = { 16, 3000, 64, SLOT, 4096, 5000, 1 };

	return lengths[seq % 7];
}

/* The buffer: the counter; for each partner a word that he writes and one that an addition brings; then the slots. */
static size_t word_at(int q) { return 64 + (size_t)q * 64; }
static size_t result_at(int q) { return 64 + (size_t)(PARTNERS + q) * 64; }
static size_t slot_at(int q, uint32_t i, int receive)
{
	return 4096 + (((size_t)q * 2 + (size_t)receive) * DEPTH + i % DEPTH) * SLOT;
}
#define SIZE (4096 + (size_t)PARTNERS * 2 * DEPTH * SLOT)

enum kind { MESSAGE, WORD, ADD };
static uint64_t id_of(int q, enum kind kind) { return (uint64_t)q * 4 + kind; }

static void receive_post(struct party *p, int q, uint32_t i)
{
	die_unless(!post_recv(&p->e, q, (uint64_t)q, slot_at(q, i, 1), SLOT));
}

static void stream_start(struct party *p, int q, const struct end_name *other, uint32_t qpn)
{
	struct stream *s = &p->s[q];
	uint32_t i;

	*s = (struct stream){ .other = *other, .target = s->target, .generation = s->generation };
	memset(p->e.buf + word_at(q), 0, 8);
	for (i = 0; i < DEPTH; i++)
		receive_post(p, q, i);
	qp_to_rts(p->e.qp[q], qpn, &p->e);
}

/* One request of @len bytes at @from, to @to of the partner. */
static int request(struct party *p, int q, enum kind kind, enum ibv_wr_opcode op, size_t from, uint32_t len, size_t to)
{
	struct stream *s = &p->s[q];
	struct ibv_sge sge = { (uintptr_t)p->e.buf + from, len, p->e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id_of(q, kind), .opcode = op, .sg_list = &sge, .num_sge = 1,
				  .send_flags = kind == WORD ? SIG | IBV_SEND_INLINE : SIG, .imm_data = s->sent };

	if (kind == ADD) {
		wr.wr.atomic.remote_addr = s->other.addr + to;
		wr.wr.atomic.rkey = s->other.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = s->other.addr + to;
		wr.wr.rdma.rkey = s->other.rkey;
	}
	return post_wr(&p->e, q, &wr);
}

/* Where in the partner's buffer our word is: its number for us. */
static size_t word_there(struct party *p, int q)
{
	if (p->s[q].target < 0)
		return word_at(p->me);
	return word_at(p->me < 0 ? -1 - p->me - 1 : VICTIMS + p->me);
}

static void stream_send(struct party *p, int q)
{
	struct stream *s = &p->s[q];
	uint32_t len = length_of(s->sent), *word = (uint32_t *)(p->e.buf + slot_at(q, s->sent, 0));

	if (!s->up || s->waiting == DEPTH)
		return;
	/* A word that says which message follows, then the message. */
	*word = s->sent;
	die_unless(!request(p, q, WORD, IBV_WR_RDMA_WRITE, slot_at(q, s->sent, 0), 4, word_there(p, q)));
	memset(word, (int)(s->sent & 0x7f) + 1, len);
	die_unless(!request(p, q, MESSAGE, IBV_WR_SEND_WITH_IMM, slot_at(q, s->sent, 0), len, 0));
	s->sent++;
	s->waiting++;
	if (s->target >= 0 && !s->adding) {
		die_unless(!request(p, q, ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, result_at(q), 8, 0));
		s->adding = 1;
	}
}

static void added(struct party *p, int q)
{
	struct stream *s = &p->s[q];
	uint64_t old;

	memcpy(&old, p->e.buf + result_at(q), sizeof(old));
	die_unless(!s->last || old >= s->last);
	s->last = old + 1;
	s->adding = 0;
	die_unless(old < BITS);
	die_unless(!(atomic_fetch_or(&board->added[s->target][old / 8], (uint8_t)(1u << old % 8)) >> old % 8 & 1));
}

static void send_ended(struct party *p, const struct ibv_wc *wc)
{
	int q = (int)(wc->wr_id / 4);

	if (wc->status != IBV_WC_SUCCESS) {
		/* The living do not fail. */
		if (p->me < 0 || q >= VICTIMS) {
			fprintf(stderr, "%d: to %d: request %lu: %s\n", p->me, q, wc->wr_id, ibv_wc_status_str(wc->status));
			_exit(1);
		}
		p->s[q].up = 0;
		return;
	}
	if (wc->wr_id % 4 == MESSAGE)
		p->s[q].waiting--;
	else if (wc->wr_id % 4 == ADD)
		added(p, q);
}

static void received(struct party *p, const struct ibv_wc *wc)
{
	int q = (int)wc->wr_id;
	struct stream *s = &p->s[q];
	char *at = p->e.buf + slot_at(q, s->received, 1);
	uint32_t i;

	if (wc->status != IBV_WC_SUCCESS) {
		die_unless(p->me >= 0 && q < VICTIMS);
		s->up = 0;
		return;
	}
	die_unless(wc->imm_data == s->received && wc->byte_len == length_of(s->received));
	for (i = 0; i < wc->byte_len; i++)
		die_unless(at[i] == (char)((s->received & 0x7f) + 1));
	die_unless(*(volatile uint32_t *)(p->e.buf + word_at(q)) >= s->received);
	receive_post(p, q, s->received);
	s->received++;
	atomic_fetch_add_explicit(&board->messages, 1, memory_order_relaxed);
}

static int complete(struct party *p)
{
	struct ibv_wc wc;
	int n = 0;

	for (; ibv_poll_cq(p->e.scq, 1, &wc) > 0; n++)
		send_ended(p, &wc);
	for (; ibv_poll_cq(p->e.rcq, 1, &wc) > 0; n++)
		received(p, &wc);
	return n;
}

static void party_open(struct party *p, int partners, int me)
{
	int q;

	*p = (struct party){ .n = partners, .me = me };
	end_open(&p->e, partners, SIZE);
	p->e.timeout = me < 0 ? 14 : 8;
	for (q = 0; q < partners; q++)
		qp_to_init(p->e.qp[q], ALL_ACCESS);
}

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
		if (!complete(&p))
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
	if (complete(p))
		return;
	r = poll(&fd, 1, ms);
	while (!ibv_get_cq_event(p->e.channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (!r && complete(p) && ms == PATIENCE)
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
		if (!complete(&p) && sleeps)
			wait_event(&p, awaited || stop ? 1 : PATIENCE);
		stop = atomic_load(&board->stop) != 0;
		if (stop && !told && !busy(&p))
			told = atomic_fetch_add(&board->idle, 1) + 1 > 0;
	}
	while (complete(&p))
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
	pid_t pid = fork();

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
