/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_stream.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 8
#define SLOT 16384u
#define SIG IBV_SEND_SIGNALED

struct board *board;

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

void stream_start(struct party *p, int q, const struct end_name *other, uint32_t qpn)
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

void stream_send(struct party *p, int q)
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

int party_complete(struct party *p)
{
	struct ibv_wc wc;
	int n = 0;

	for (; ibv_poll_cq(p->e.scq, 1, &wc) > 0; n++)
		send_ended(p, &wc);
	for (; ibv_poll_cq(p->e.rcq, 1, &wc) > 0; n++)
		received(p, &wc);
	return n;
}

void party_open(struct party *p, int partners, int me)
{
	int q;

	*p = (struct party){ .n = partners, .me = me };
	end_open(&p->e, partners, SIZE);
	p->e.timeout = me < 0 ? 14 : 8;
	for (q = 0; q < partners; q++)
		qp_to_init(p->e.qp[q], ALL_ACCESS);
}
