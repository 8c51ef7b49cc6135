/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_things.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softrdma/device.h"

struct ibv_qp *things_qp(struct things *t, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = t->cq, .recv_cq = t->cq, .srq = srq, .qp_type = type,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
						  .max_recv_sge = 1 } };

	return ibv_create_qp(t->pd, &init);
}

/* Makes thing number @step. 0 or -errno. */
static int make(struct things *t, int step)
{
	struct ibv_srq_init_attr sia = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1, .grh.dgid = t->group };
	struct ibv_device **list = NULL;
	void *made = t;

	errno = 0;
	switch (step) {
	case 0:
		list = ibv_get_device_list(NULL);
		made = t->ctx = list ? ibv_open_device(list[0]) : NULL;
		step = errno;
		if (list)
			ibv_free_device_list(list);
		errno = step;
		break;
	case 1:
		made = t->channel = ibv_create_comp_channel(t->ctx);
		break;
	case 2:
		made = t->pd = ibv_alloc_pd(t->ctx);
		break;
	case 3:
		made = t->mr = ibv_reg_mr(t->pd, t->buf, THINGS_SIZE, ALL_ACCESS);
		break;
	case 4:
		made = t->cq = ibv_create_cq(t->ctx, 256, NULL, t->channel, 0);
		break;
	case 5:
		made = t->srq = ibv_create_srq(t->pd, &sia);
		break;
	case 6:
	case 7:
		made = t->qp[step - 6] = things_qp(t, IBV_QPT_RC, step == 7 ? t->srq : NULL);
		break;
	case 8:
		made = t->ud = things_qp(t, IBV_QPT_UD, NULL);
		break;
	case 9:
		made = t->mw = ibv_alloc_mw(t->pd, IBV_MW_TYPE_1);
		break;
	case 10:
		made = t->ah = ibv_create_ah(t->pd, &aa);
		break;
	case 11:
		t->joined = !(errno = ibv_attach_mcast(t->ud, &t->group, 0));
		made = t->joined ? t : NULL;
		break;
	case 12:
		return -ibv_resize_cq(t->cq, 1024);
	}
	return made ? 0 : -errno;
}

void things_unmake(struct things *t)
{
	if (t->joined)
		die_unless(!ibv_detach_mcast(t->ud, &t->group, 0));
	if (t->ah)
		die_unless(!ibv_destroy_ah(t->ah));
	if (t->mw)
		die_unless(!ibv_dealloc_mw(t->mw));
	if (t->ud)
		die_unless(!ibv_destroy_qp(t->ud));
	if (t->qp[0])
		die_unless(!ibv_destroy_qp(t->qp[0]));
	if (t->qp[1])
		die_unless(!ibv_destroy_qp(t->qp[1]));
	if (t->srq)
		die_unless(!ibv_destroy_srq(t->srq));
	if (t->cq)
		die_unless(!ibv_destroy_cq(t->cq));
	if (t->mr)
		die_unless(!ibv_dereg_mr(t->mr));
	if (t->pd)
		die_unless(!ibv_dealloc_pd(t->pd));
	if (t->channel)
		die_unless(!ibv_destroy_comp_channel(t->channel));
	if (t->ctx)
		die_unless(!ibv_close_device(t->ctx));
}

static void things_init(struct things *t)
{
	*t = (struct things){ .group.raw = { 0xff, 0x12, 1, 2, 3 } };
	t->buf = mmap(NULL, THINGS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	die_unless(t->buf != MAP_FAILED);
}

int things_make(struct things *t, int *ret_err)
{
	int step;

	things_init(t);
	*ret_err = 0;
	for (step = 0; step < THINGS && !*ret_err; step++)
		*ret_err = make(t, step);
	return *ret_err ? step - 1 : THINGS;
}

void things_message(struct things *t)
{
	struct ibv_port_attr port;
	struct end e = { .timeout = 8, .retry_cnt = 1, .rnr_retry = 7 };
	struct ibv_sge from = { (uintptr_t)t->buf, 3000, t->mr->lkey };
	struct ibv_sge to = { (uintptr_t)t->buf + 8192, 8192, t->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr rr = { .wr_id = 2, .sg_list = &to, .num_sge = 1 }, *bad_rr;

	die_unless(!sr_query_port(t->ctx, 1, &port, sizeof(port)));
	e.me.lid = port.lid;
	qp_to_init(t->qp[0], ALL_ACCESS);
	die_unless(!ibv_post_recv(t->qp[0], &rr, &bad_rr));
	qp_to_rts(t->qp[0], t->qp[0]->qp_num, &e);
	fill(t->buf, 3000, 9);
	die_unless(!ibv_post_send(t->qp[0], &wr, &bad));
	good_wc(t->cq, 2);
	good_wc(t->cq, 1);
	die_unless(filled(t->buf + 8192, 3000, 9));
}

int in_child(void (*fn)(void))
{
	pid_t pid = end_fork();

	die_unless(pid >= 0);
	if (!pid) {
		alarm(60);
		fn();
		_exit(0);
	}
	return reap(pid);
}
