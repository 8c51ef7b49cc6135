/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_survivor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "softrdma/device.h"

#define RECEIVES 6
#define RING 16 /* of the receive CQ: soon gone round */
#define SIG IBV_SEND_SIGNALED

static void check_wc(struct survivor *s, const struct ibv_wc *wc)
{
	int shared = scene->flags & SHARED, grh = scene->type == IBV_QPT_UD ? SR_GRH : 0;
	char *at = s->e.buf + wc->wr_id * SCENE_SLOT;

	if (wc->qp_num == s->e.me.qpn[2] && wc->status == IBV_WC_SUCCESS) {
		s->loops++;
		if (!shared)
			return;
	}
	die_unless(wc->wr_id >= 1 && wc->wr_id <= s->posted && !(s->seen >> wc->wr_id & 1));
	s->seen |= 1u << wc->wr_id;
	if (wc->qp_num == s->e.me.qpn[2])
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		die_unless(wc->status == IBV_WC_WR_FLUSH_ERR);
		s->flushed++;
		return;
	}
	/* In order: none succeeds behind a flushed one. */
	die_unless(shared || (!s->flushed && wc->wr_id == s->succeeded + 1));
	s->succeeded++;
	if (scene->op == IBV_WR_SEND)
		die_unless(wc->byte_len == scene->len + (uint32_t)grh && filled(at + grh, scene->len, 3));
	else
		die_unless(wc->imm_data == 7 && filled(s->e.buf + SCENE_SIZE - SCENE_SLOT, scene->len, 3));
}

static void drain(struct survivor *s)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->e.rcq, 1, &wc) > 0)
		check_wc(s, &wc);
}

static void receives_post(struct survivor *s)
{
	uint32_t i;

	for (i = 1; i <= RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)s->e.buf + i * SCENE_SLOT, SCENE_SLOT, s->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		die_unless(!(s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->e.qp[0], &wr, &bad)));
	}
	s->posted = RECEIVES;
}

/* What the child ran of ours: it completes once. */
static void own_send_ended(struct survivor *s, const struct ibv_wc *wc)
{
	die_unless(wc->wr_id == 5 && (wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_RETRY_EXC_ERR));
	die_unless(!s->sent++);
}

/* Another's message, through the same queues; its event must come. */
static void other_message(struct survivor *s)
{
	struct ibv_sge sge = { (uintptr_t)s->e.buf, 64, s->e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = SIG };
	uint32_t before = s->loops;
	struct ibv_wc wc;

	if (s->domain)
		wr.qp_type.xrc.remote_srqn = s->e.me.qpn[SRQ_NUMBER];
	if (!s->srq)
		die_unless(!post_recv(&s->e, 2, 20, SCENE_SLOT / 2, 64));
	die_unless(!post_wr(&s->e, 1, &wr));
	for (wc = next_wc(s->e.scq); wc.wr_id != 9; wc = next_wc(s->e.scq))
		own_send_ended(s, &wc);
	die_unless(wc.status == IBV_WC_SUCCESS);
	drain(s);
	die_unless(s->loops == before + 1);
}

static void event_comes(struct survivor *s)
{
	struct pollfd p = { .fd = s->e.rcq->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	die_unless(poll(&p, 1, 5000) == 1);
	die_unless(!ibv_get_cq_event(s->e.rcq->channel, &cq, &context) && cq == s->e.rcq);
	ibv_ack_cq_events(cq, 1);
}

static struct ibv_xrcd *domain_open(struct ibv_context *ctx, int fd)
{
	struct ibv_xrcd_init_attr a = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = O_CREAT };
	struct ibv_xrcd *x = ibv_open_xrcd(ctx, &a);

	die_unless(x);
	return x;
}

/* In the domain that the targets are in, too: nobody else's, or a file's. */
static struct ibv_srq *xrc_queue(struct survivor *s, struct end *at)
{
	struct ibv_srq_init_attr_ex a = { .attr = { .max_wr = 8, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = at->pd, .cq = s->e.rcq,
					  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
						       IBV_SRQ_INIT_ATTR_PD };
	int fd = at == &s->e ? -1 : memfd_create("domain", 0);
	struct ibv_srq *srq;

	s->domain = domain_open(s->e.ctx, fd);
	s->away_domain = fd < 0 ? NULL : domain_open(at->ctx, fd);
	a.xrcd = fd < 0 ? s->domain : s->away_domain;
	srq = ibv_create_srq_ex(at->ctx, &a);
	if (fd >= 0)
		close(fd);
	die_unless(srq && !ibv_get_srq_num(srq, &s->e.me.qpn[SRQ_NUMBER]));
	return srq;
}

static struct ibv_srq *plain_queue(struct survivor *s)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(s->e.pd, &a);

	die_unless(srq);
	return srq;
}

/* QP number @i: 0 and 2 receive, 1 sends. */
static struct ibv_qp *survivor_qp(struct survivor *s, int i)
{
	struct ibv_qp_init_attr_ex a = { .send_cq = s->e.scq, .recv_cq = s->e.rcq, .srq = s->srq, .pd = s->e.pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD, .qp_type = i ? IBV_QPT_RC : scene->type,
					 .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 } };

	if (s->domain) {
		a.srq = NULL;
		a.qp_type = i == 1 ? IBV_QPT_XRC_SEND : IBV_QPT_XRC_RECV;
		a.xrcd = s->domain;
		a.comp_mask = i == 1 ? IBV_QP_INIT_ATTR_PD : IBV_QP_INIT_ATTR_XRCD;
	}
	return ibv_create_qp_ex(s->e.ctx, &a);
}

void survivor_open(struct survivor *s)
{
	struct end *at = scene->flags & AWAY ? &s->away : &s->e;
	int i;

	*s = (struct survivor){ 0 };
	end_open_as(&s->e, 0, SCENE_SIZE, scene->type);
	s->e.timeout = 5;
	s->e.retry_cnt = 1;
	die_unless(!ibv_destroy_cq(s->e.rcq));
	if (scene->flags & AWAY)
		end_open(&s->away, 0, SCENE_SIZE);
	s->e.rcq = ibv_create_cq(at->ctx, RING, NULL, at->channel, 0);
	s->mr = ibv_reg_mr(at->pd, s->e.buf, SCENE_SIZE, IBV_ACCESS_LOCAL_WRITE);
	die_unless(s->e.rcq && s->mr);
	if (scene->flags & SHARED)
		s->srq = scene->flags & XRC ? xrc_queue(s, at) : plain_queue(s);
	for (i = 0; i < 3; i++) {
		s->e.qp[i] = survivor_qp(s, i);
		die_unless(s->e.qp[i]);
		s->e.me.qpn[i] = s->e.qp[i]->qp_num;
		qp_to_init(s->e.qp[i], ALL_ACCESS);
	}
	s->e.nqp = 3;
	s->e.other = s->e.me;
	qp_to_rts(s->e.qp[1], s->e.me.qpn[2], &s->e);
	qp_to_rts(s->e.qp[2], s->e.me.qpn[1], &s->e);
}

void survivor_close(struct survivor *s)
{
	int i;

	for (i = 0; i < 3; i++)
		die_unless(!ibv_destroy_qp(s->e.qp[i]));
	s->e.nqp = 0;
	if (s->srq)
		die_unless(!ibv_destroy_srq(s->srq));
	if (s->domain)
		die_unless(!ibv_close_xrcd(s->domain));
	if (s->away_domain)
		die_unless(!ibv_close_xrcd(s->away_domain));
	die_unless(!ibv_dereg_mr(s->mr));
	end_close(&s->e);
	if (scene->flags & AWAY)
		end_close(&s->away);
}

void survivor_meet(struct survivor *s, int sock)
{
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES - 1 };
	struct end_name other;
	int i;

	die_unless(write(sock, &s->e.me, sizeof(s->e.me)) == sizeof(s->e.me));
	die_unless(recv(sock, &other, sizeof(other), MSG_WAITALL) == sizeof(other));
	receives_post(s);
	qp_to_rts(s->e.qp[0], other.qpn[0], &s->e);
	meet(sock);
	if (scene->flags & KICK)
		die_unless(!post(&s->e, 0, 5, IBV_WR_SEND, 0, scene->len, 0, SIG));
	meet(sock); /* its whole message has come */
	drain(s);
	/* The ring has been round: its next place has an old entry. */
	for (i = 0; !s->srq && i < RING + 3; i++)
		other_message(s);
	if (scene->flags & LIMIT)
		die_unless(!ibv_modify_srq(s->srq, &limit, IBV_SRQ_LIMIT));
	die_unless(!ibv_req_notify_cq(s->e.rcq, 0));
}

static void limit_is_told(struct survivor *s)
{
	struct pollfd p = { .fd = s->e.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	do {
		die_unless(poll(&p, 1, 5000) == 1);
		die_unless(!ibv_get_async_event(s->e.ctx, &ev));
		ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_SRQ_LIMIT_REACHED);
}

/* A flush that was begun goes on to its end by itself. */
static void flush_ends(struct survivor *s)
{
	struct ibv_wc wc;

	drain(s);
	while (s->flushed && s->flushed + s->succeeded < RECEIVES) {
		wc = next_wc(s->e.rcq);
		check_wc(s, &wc);
	}
}

static void counter_is_exact(struct survivor *s)
{
	uint64_t before = *(volatile uint64_t *)s->e.buf;
	struct ibv_sge sge = { (uintptr_t)s->e.buf + 64, 8, s->e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = SIG };

	die_unless(before == 1 || before == 2);
	wr.wr.atomic.remote_addr = (uintptr_t)s->e.buf;
	wr.wr.atomic.rkey = s->e.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	die_unless(!post_wr(&s->e, 1, &wr));
	good_wc(s->e.scq, 9);
	die_unless(*(volatile uint64_t *)s->e.buf == before + 1);
}

void survivor_check(struct survivor *s, int ended)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	uint32_t i, before = scene->flags & (BAD | KICK | ADD) ? 0 : 1;

	if (scene->flags & BAD)
		flush_ends(s);
	other_message(s);
	if (!(scene->flags & BAD))
		event_comes(s);
	if (scene->flags & LIMIT)
		limit_is_told(s);
	for (i = 0; (scene->flags & LAP) && !s->srq && i < 3 * RING; i++)
		other_message(s);
	if ((scene->flags & KICK) && !s->sent) {
		struct ibv_wc wc = next_wc(s->e.scq);

		own_send_ended(s, &wc);
	}
	if (scene->flags & ADD)
		counter_is_exact(s);
	die_unless(!ibv_modify_qp(s->e.qp[0], &a, IBV_QP_STATE));
	drain(s);
	/* The rest of a shared queue goes to the other. */
	while (s->srq && __builtin_popcount(s->seen) < RECEIVES)
		other_message(s);
	die_unless(__builtin_popcount(s->seen) == RECEIVES && s->succeeded >= before && s->succeeded <= before + 1);
	die_unless(!ended || (scene->flags & (BAD | KICK | ADD)) || s->succeeded == before + 1);
}
