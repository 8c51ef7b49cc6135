/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains, memory regions, and the check of keys.
 *
 * An entry of the key table is filled first and its key stored last; a key is an index between 16 random bits, so one
 * of a region that is gone does not fit the next region of the same index, and none can be guessed from another.
 * Deregistration takes the key away, then passes through the locks of every queue pair of the context: an executor
 * that had read the key before has finished its move when that is done.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

#define ACCESS_KNOWN (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

#define HUGE_PAGE (2u << 20)
#define HUGE_BUDGET_NS 200000000u
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_pd *pd = arena_alloc(&ctx->arena, sizeof(*pd) + SR_SLACK);

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	lock_acquire(&ctx->lock);
	pd->number = ++ctx->next_pd;
	lock_release(&ctx->lock);
	pd->pd.context = context;
	pd->pd.handle = pd->number;
	return &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	if (atomic_load(&sr_pd(ibpd)->users))
		return EBUSY;
	arena_free(&sr_context(ibpd->context)->arena, sr_pd(ibpd));
	return 0;
}

int sr_key_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		 uint64_t *ret_va)
{
	struct sr_key *k = &seg->key[sr_key_index(key)];

	if (!len) {
		*ret_va = addr;
		return 0;
	}
	if (!key || atomic_load_explicit(&k->key, memory_order_acquire) != key || k->pd != pd)
		return -EINVAL;
	if (addr < k->iova || len > k->len || addr - k->iova > k->len - len)
		return -EINVAL;
	if ((k->access & access) != access)
		return -EACCES;
	*ret_va = k->addr + (addr - k->iova);
	return 0;
}

int sr_rkey_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		  uint32_t qpn, uint64_t *ret_va)
{
	return sr_key_check(seg, key, addr, len, access, pd, ret_va);
}

static int key_publish(struct sr_context *ctx, struct sr_mr *mr, uint64_t iova, int access)
{
	struct sr_key *k = &ctx->seg->key[mr->index];
	uint32_t tag;

	do
		tag = (uint32_t)(sr_random(ctx) >> 32) & 0xff0000ffu;
	while (!tag);
	if (sr_shm_reserve(ctx, (uint64_t)((char *)k - (char *)ctx->seg), sizeof(*k)))
		return -ENOMEM;
	k->access = (uint32_t)access;
	k->pd = sr_pd(mr->mr.pd)->number;
	k->iova = iova;
	k->len = mr->mr.length;
	k->addr = (uintptr_t)mr->mr.addr;
	mr->mr.lkey = mr->mr.rkey = tag | mr->index << 8;
	mr->mr.handle = mr->index;
	atomic_store(&k->key, mr->mr.lkey);
	return 0;
}

/* Registering memory that is not there fails, as pinning would. */
static int mapped(const void *addr, size_t length)
{
	uintptr_t from = ALIGN_DOWN((uintptr_t)addr, (uintptr_t)FM_PAGE_SIZE);
	uintptr_t to = (uintptr_t)addr + length;

	if (to < (uintptr_t)addr)
		return 0;
	/* MS_ASYNC does nothing but look whether all of it is mapped. */
	return !length || !RAW3(SYS_msync, from, to - from, MS_ASYNC);
}

/*
 * Whole huge pages of memory in use are put together now: a crossing into them costs a fraction. That takes 0.5 ms
 * each, ten times that where the host must find the memory first, so a context spends no more than HUGE_BUDGET_NS
 * on it in its life. Where the kernel cannot (before 6.1) or will not (shared memory, files): as well.
 */
static void make_huge(struct sr_context *ctx, uintptr_t addr, size_t length)
{
	uintptr_t at = ALIGN_UP(addr, (uintptr_t)HUGE_PAGE), end = ALIGN_DOWN(addr + length, (uintptr_t)HUGE_PAGE);
	uint64_t start = at < end ? raw_now_ns() : 0;

	if (at < addr || !start)
		return;
	lock_acquire(&ctx->lock);
	for (; at < end && ctx->huge_ns < HUGE_BUDGET_NS; at += HUGE_PAGE) {
		uint64_t now;

		if (RAW3(SYS_madvise, at, HUGE_PAGE, MADV_COLLAPSE) == -EINVAL)
			break;
		now = raw_now_ns();
		ctx->huge_ns += now - start;
		start = now;
	}
	lock_release(&ctx->lock);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_mr *mr = NULL;
	int err = -EINVAL;

	if (access & ~(unsigned int)ACCESS_KNOWN) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		goto err_none;
	err = -EFAULT;
	if (!mapped(addr, length))
		goto err_none;
	err = -ENOMEM;
	mr = arena_alloc(&ctx->arena, sizeof(*mr) + SR_SLACK);
	if (!mr)
		goto err_none;
	mr->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length };
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->mrs, mr, &mr->index);
	if (!err) {
		err = key_publish(ctx, mr, iova, (int)access);
		if (err)
			sr_ids_give(&ctx->mrs, mr->index);
	}
	lock_release(&ctx->lock);
	if (err)
		goto err_none;
	make_huge(ctx, (uintptr_t)addr, length);
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	return &mr->mr;
err_none:
	arena_free(&ctx->arena, mr);
	errno = -err;
	return NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct sr_context *ctx = sr_context(ibmr->context);
	struct sr_mr *mr = container_of(ibmr, struct sr_mr, mr);
	uint32_t i;

	lock_acquire(&ctx->lock);
	atomic_store(&ctx->seg->key[mr->index].key, 0);
	for (i = 0; i < SR_MAX_QP; i++) {
		struct sr_qp *qp = ctx->qps.object[i];

		if (!qp)
			continue;
		sr_rx_lock(ctx, &ctx->self, qp->shm);
		rlock_release(&qp->shm->rx_lock);
	}
	sr_ids_give(&ctx->mrs, mr->index);
	lock_release(&ctx->lock);
	atomic_fetch_sub(&sr_pd(ibmr->pd)->users, 1);
	arena_free(&ctx->arena, mr);
	return 0;
}
