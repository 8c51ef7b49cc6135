/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions, device memory, domains. */
#include "verbs_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- memory ---- */

static struct ibv_dm *dm;
static struct ibv_mr *mr;

/* Its bytes are written by hand and by the fabric, through a region of its middle. */
static void device_memory_make(void)
{
	struct ibv_alloc_dm_attr d = { .length = 3 * 4096 };

	connected(IBV_QPT_RC);
	fill(e.buf, 64, 7);
	die_unless((dm = ibv_alloc_dm(e.ctx, &d)) && !ibv_memcpy_to_dm(dm, 2 * 4096 + 1024, e.buf, 64));
	die_unless((mr = ibv_reg_dm_mr(e.pd, dm, 4096, 4096, IBV_ACCESS_ZERO_BASED | ALL_ACCESS)));
	die_unless(ibv_free_dm(dm)); /* not before its region */
	e.other.addr = 0;
	e.other.rkey = mr->rkey;
	fill(e.buf, 64, 8);
	die_unless(!post(&e, 0, 1, IBV_WR_RDMA_WRITE, 0, 64, 128, 0));
}

static void device_memory_check(void)
{
	die_unless(!ibv_memcpy_from_dm(e.buf + 4096, dm, 2 * 4096 + 1024, 64) && filled(e.buf + 4096, 64, 7));
	die_unless(!ibv_memcpy_from_dm(e.buf + 4096, dm, 4096 + 128, 64) && filled(e.buf + 4096, 64, 8));
	memset(e.buf, 0, 64);
	die_unless(!post(&e, 0, 2, IBV_WR_RDMA_READ, 0, 64, 128, IBV_SEND_SIGNALED));
	good_wc(e.scq, 2);
	die_unless(filled(e.buf, 64, 8));
	e.other = e.me;
	send_works();
}

static void device_memory_unmake(void)
{
	die_unless(!shadow_dm(dm)->copy && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
}

static void rereg_make(void)
{
	connected(IBV_QPT_RC);
	die_unless((mr = ibv_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_LOCAL_WRITE)));
	die_unless(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, e.buf + 8192, 128, ALL_ACCESS));
}

/* Writes 64 bytes to @to through the region's keys. */
static void through_region(size_t to)
{
	struct ibv_sge sge = { (uintptr_t)e.buf, 64, e.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = (uintptr_t)e.buf + to;
	wr.wr.rdma.rkey = mr->rkey;
	fill(e.buf, 64, (unsigned int)to);
	die_unless(!post_wr(&e, 0, &wr));
	good_wc(e.scq, 5);
	die_unless(filled(e.buf + to, 64, (unsigned int)to));
}

static void rereg_check(void)
{
	uint32_t rkey = mr->rkey;

	through_region(8192 + 64);
	die_unless(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, e.buf + 16384, 64, 0));
	die_unless(mr->addr == e.buf + 16384 && mr->length == 64);
	die_unless(mr->rkey == rkey || !verbs_key_known(shadow_context(mr->context), mr->lkey, mr->rkey));
	through_region(16384);
	send_works();
}

static void rereg_unmake(void)
{
	die_unless(!ibv_dereg_mr(mr));
}

/* ---- domains ---- */

static struct ibv_td *td;
static struct ibv_pd *parent;

/* A region and a queue pair belong to it. */
static void parent_make(void)
{
	struct ibv_td_init_attr t = { 0 };
	struct ibv_parent_domain_init_attr p = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

	end_open(&e, 1, SIZE);
	init.send_cq = e.scq;
	init.recv_cq = e.rcq;
	die_unless((td = ibv_alloc_td(e.ctx, &t)));
	p.pd = e.pd;
	p.td = td;
	die_unless((parent = ibv_alloc_parent_domain(e.ctx, &p)));
	die_unless(!ibv_destroy_qp(e.qp[0]) && !ibv_dereg_mr(e.mr));
	die_unless((e.mr = ibv_reg_mr(parent, e.buf, SIZE, ALL_ACCESS)) && (e.qp[0] = ibv_create_qp(parent, &init)));
	e.me.qpn[0] = e.qp[0]->qp_num;
	e.me.rkey = e.mr->rkey;
	end_connect_to(&e, &e.me);
}

static void parent_unmake(void)
{
	die_unless(!ibv_destroy_qp(e.qp[0]) && !ibv_dereg_mr(e.mr) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
}

const struct object memory_objects[] = {
	{ "device memory", NULL, device_memory_make, device_memory_check, device_memory_unmake },
	{ "changed region", NULL, rereg_make, rereg_check, rereg_unmake },
	{ "parent domain", NULL, parent_make, send_works, parent_unmake },
	{ 0 },
};
