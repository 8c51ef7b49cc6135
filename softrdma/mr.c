/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions, and the check of keys.
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
		      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |           \
		      IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

#define HUGE_PAGE (2u << 20)
#define HUGE_BUDGET_NS 200000000u
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

int sr_key_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		 uint64_t *ret_va)
{
	struct sr_key *k = sr_key_at(seg, key);

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

/* 0: there is none, which is no key. */
static uint32_t alias_of(const struct sr_seg *seg, uint32_t key)
{
	uint32_t n = atomic_load_explicit(&seg->aliases, memory_order_relaxed);

	for (uint32_t i = 0; i < n && i < SR_MAX_ALIAS; i++)
		if (seg->alias[i].key == key)
			return seg->alias[i].real;
	return 0;
}

int sr_rkey_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		  uint32_t qpn, uint64_t *ret_va)
{
	int err = sr_key_check(seg, key, addr, len, access, pd, ret_va);

	if (unlikely(err == -EINVAL && !sr_key_at(seg, key)->pd))
		err = sr_window_check(seg, key, addr, len, access, pd, qpn, ret_va);
	if (unlikely(err == -EINVAL && atomic_load_explicit(&seg->aliases, memory_order_acquire)))
		err = sr_key_check(seg, alias_of(seg, key), addr, len, access, pd, ret_va);
	return err;
}

EXPORT int softrdma_key_alias(struct ibv_mr *mr, uint32_t key)
{
	struct sr_context *ctx = sr_context(mr->context);
	uint32_t at;

	lock_acquire(&ctx->lock);
	at = atomic_load(&ctx->seg->aliases);
	if (at < SR_MAX_ALIAS) {
		ctx->seg->alias[at] = (struct sr_alias){ key, mr->rkey };
		atomic_store_explicit(&ctx->seg->aliases, at + 1, memory_order_release);
	}
	lock_release(&ctx->lock);
	return at < SR_MAX_ALIAS ? 0 : -ENOSPC;
}

uint32_t sr_key_make(struct sr_context *ctx, uint32_t index)
{
	uint32_t tag;

	do
		tag = (uint32_t)(sr_random(ctx) >> 32) & SR_KEY_TAG;
	while (!(tag >> 25));
	return tag | index << 8;
}

void sr_keys_settle(struct sr_context *ctx)
{
	uint32_t i, left = ctx->qps.used;

	for (i = 0; left && i < ctx->qps.fresh; i++) {
		struct sr_qp *qp = sr_ids_at(&ctx->qps, i);

		if (!qp)
			continue;
		left--;
		sr_rx_lock(ctx, &ctx->self, qp->shm);
		rlock_release(&qp->shm->rx_lock);
	}
}

/* Memory for the entries of the table up to @index: some at a time, or what there is. */
int sr_key_reserve(struct sr_context *ctx, uint32_t index)
{
	const uint32_t step = 16 * FM_PAGE_SIZE / sizeof(struct sr_key);
	uint32_t have = atomic_load(&ctx->seg->keys), want = ALIGN_DOWN(index, step) + step;
	uint64_t from = offsetof(struct sr_seg, key[have]);

	if (index < have)
		return 0;
	want = want > SR_MAX_MR ? SR_MAX_MR : want;
	if (sr_shm_reserve(ctx, from, offsetof(struct sr_seg, key[want]) - from)) {
		want = index + 1;
		if (sr_shm_reserve(ctx, from, offsetof(struct sr_seg, key[want]) - from))
			return -ENOMEM;
	}
	atomic_store_explicit(&ctx->seg->keys, want, memory_order_release);
	return 0;
}

static int key_publish(struct sr_context *ctx, struct sr_mr *mr, uint64_t iova, uint32_t access)
{
	struct sr_key *k = &ctx->seg->key[mr->index];

	if (sr_key_reserve(ctx, mr->index))
		return -ENOMEM;
	k->access = access;
	k->pd = sr_pd(mr->mr.pd)->number;
	k->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	k->len = mr->mr.length;
	k->addr = (uintptr_t)mr->mr.addr;
	mr->mr.lkey = mr->mr.rkey = sr_key_make(ctx, mr->index);
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

int sr_access_check(uint32_t access)
{
	if (access & ~(uint32_t)ACCESS_KNOWN)
		return -EOPNOTSUPP;
	/* Whom others may write, the owner may (IBA 10.6.3.1). */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static int memory_check(const void *addr, size_t length, uint32_t access)
{
	int err = sr_access_check(access);

	/* On demand: what is there counts when it is used. */
	if (!err && !(access & IBV_ACCESS_ON_DEMAND) && !mapped(addr, length))
		err = -EFAULT;
	return err;
}

struct ibv_mr *sr_mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, uint32_t access)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_mr *mr = arena_alloc(&ctx->arena, sizeof(*mr));
	int err = -ENOMEM;

	if (!mr)
		goto err_none;
	mr->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length };
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->mrs, mr, &mr->index);
	if (!err) {
		err = key_publish(ctx, mr, iova, access);
		if (err)
			sr_ids_give(&ctx->mrs, mr->index);
	}
	lock_release(&ctx->lock);
	if (err)
		goto err_none;
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	return &mr->mr;
err_none:
	arena_free(&ctx->arena, mr);
	errno = -err;
	return NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	int err = memory_check(addr, length, access);
	struct ibv_mr *mr;

	if (err) {
		errno = -err;
		return NULL;
	}
	mr = sr_mr_create(pd, addr, length, iova, access);
	if (mr && !(access & IBV_ACCESS_ON_DEMAND))
		make_huge(sr_context(pd->context), (uintptr_t)addr, length);
	return mr;
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

	lock_acquire(&ctx->lock);
	if (sr_region_is_bound(ctx, ibmr->lkey)) {
		lock_release(&ctx->lock);
		return EBUSY;
	}
	atomic_store(&ctx->seg->key[mr->index].key, 0);
	sr_keys_settle(ctx);
	sr_ids_give(&ctx->mrs, mr->index);
	if (mr->dm)
		atomic_fetch_sub(&mr->dm->users, 1);
	lock_release(&ctx->lock);
	atomic_fetch_sub(&sr_pd(ibmr->pd)->users, 1);
	arena_free(&ctx->arena, mr);
	return 0;
}

/* ctx->lock held. Requests that come meanwhile find no key. */
static void key_change(struct sr_context *ctx, struct sr_mr *mr, int flags, struct ibv_pd *pd, uint32_t access)
{
	struct sr_key *k = &ctx->seg->key[mr->index];

	atomic_store(&k->key, 0);
	sr_keys_settle(ctx);
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		k->iova = k->access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)mr->mr.addr;
		k->addr = (uintptr_t)mr->mr.addr;
		k->len = mr->mr.length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		k->access = access;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		k->pd = sr_pd(pd)->number;
	atomic_store(&k->key, mr->mr.lkey);
}

/*
 * Changes a region and keeps its keys (IBA 11.2.8.8 lets a device give new ones or the old). One that windows lie in stays as
 * it is.
 */
EXPORT int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct sr_context *ctx = sr_context(ibmr->context);
	struct sr_mr *mr = container_of(ibmr, struct sr_mr, mr);
	int err = 0;

	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || mr->dm ||
	    ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length)) ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		err = sr_access_check((uint32_t)access);
	if (!err && (flags & IBV_REREG_MR_CHANGE_TRANSLATION) && !mapped(addr, length))
		err = -EFAULT;
	lock_acquire(&ctx->lock);
	if (!err && sr_region_is_bound(ctx, ibmr->lkey))
		err = -EBUSY;
	if (!err) {
		if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
			ibmr->addr = addr;
			ibmr->length = length;
		}
		key_change(ctx, mr, flags, pd, (uint32_t)access);
	}
	lock_release(&ctx->lock);
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&sr_pd(ibmr->pd)->users, 1);
		atomic_fetch_add(&sr_pd(pd)->users, 1);
		ibmr->pd = pd;
	}
	return 0;
}
