/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_pair.h"

#include <poll.h>

void pair_open(struct pair *p, size_t size)
{
	pair_open_as(p, IBV_QPT_RC, size);
}

void pair_open_as(struct pair *p, enum ibv_qp_type type, size_t size)
{
	end_open_as(&p->a, 1, size, type);
	end_open_as(&p->b, 1, size, type);
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

void pair_open_with(struct pair *p, size_t size, int access, int rnr_retry)
{
	end_open(&p->a, 1, size);
	end_open(&p->b, 1, size);
	p->b.access = access;
	p->a.rnr_retry = rnr_retry;
	end_connect_to(&p->a, &p->b.me);
	end_connect_to(&p->b, &p->a.me);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

enum ibv_qp_state qp_state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	die_unless(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

void expect_async(struct end *e, enum ibv_event_type type)
{
	struct pollfd p = { .fd = e->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	die_unless(poll(&p, 1, 1000) == 1);
	die_unless(!ibv_get_async_event(e->ctx, &ev));
	die_unless(ev.event_type == type && ev.element.qp == e->qp[0]);
	ibv_ack_async_event(&ev);
	die_unless(!poll(&p, 1, 0));
}
