/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows (IBA 10.6.7.2). A window is an entry of the key table that stands for a part of a region:
 *
 *   type 1    bound by ibv_bind_mw, open to all queue pairs of its domain; a new binding takes the place of the old
 *   type 2B   bound by a request, open to the queue pair that bound it; ended by a local or a remote invalidation
 *
 * The upper 24 bits of a window's key are the device's, the lowest 8 the binder's: each binding has another key. A
 * binding is changed under the segment's window lock: key 0, then the rest, then the new key. Readers take no lock; they
 * copy the entry and look at the key once more. So a holder of the lock that dies leaves a window that is unbound,
 * or bound as a whole; a bind that is run again after its executor's death finds its own binding and is done.
 *
 * An invalidation passes through the rx_lock of its queue pair: nothing that was let in before is still moving.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/engine.h"

#define TYPE_2 0x80000000u /* among the rights of an entry */
/* A window is for others: what it says of local access is heard and does nothing. */
#define MW_RIGHTS                                                                                        \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | \
	 IBV_ACCESS_LOCAL_WRITE)

/* ---- control ---- */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_mw *mw;
	int err;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = EINVAL;
		return NULL;
	}
	mw = arena_alloc(&ctx->arena, sizeof(*mw));
	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	mw->mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .type = type };
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->mrs, mw, &mw->index);
	if (!err) {
		struct sr_key *k = &ctx->seg->key[mw->index];

		err = sr_key_reserve(ctx, mw->index);
		if (err) {
			sr_ids_give(&ctx->mrs, mw->index);
		} else {
			*k = (struct sr_key){ .window_pd = sr_pd(pd)->number,
					      .access = type == IBV_MW_TYPE_2 ? TYPE_2 : 0 };
			mw->mw.rkey = sr_key_make(ctx, mw->index);
			mw->mw.handle = mw->index;
			ctx->windows++;
		}
	}
	lock_release(&ctx->lock);
	if (err) {
		arena_free(&ctx->arena, mw);
		errno = ENOMEM;
		return NULL;
	}
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	return &mw->mw;
}

static int dealloc_mw(struct ibv_mw *ibmw)
{
	struct sr_context *ctx = sr_context(ibmw->context);
	struct sr_mw *mw = container_of(ibmw, struct sr_mw, mw);

	lock_acquire(&ctx->lock);
	rlock_acquire(ctx, &ctx->seg->window_lock, ctx->self.token);
	atomic_store(&ctx->seg->key[mw->index].key, 0);
	ctx->seg->key[mw->index].window_pd = 0; /* a binding may still wait in a queue */
	rlock_release(&ctx->seg->window_lock);
	sr_keys_settle(ctx);
	ctx->windows--;
	sr_ids_give(&ctx->mrs, mw->index);
	lock_release(&ctx->lock);
	atomic_fetch_sub(&sr_pd(ibmw->pd)->users, 1);
	arena_free(&ctx->arena, mw);
	return 0;
}

/* Type 1: the new key is known when the request is posted. */
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = { .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags };
	int err;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	err = sr_post_bind(qp, &wr);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}

void sr_windows_fill(struct verbs_context *v)
{
	v->context.ops.alloc_mw = alloc_mw;
	v->context.ops.dealloc_mw = dealloc_mw;
	v->context.ops.bind_mw = bind_mw;
}

int sr_bind_check(const struct sr_qp *qp, const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		  enum ibv_mw_type type)
{
	if (!mw || mw->type != type || (rkey ^ mw->rkey) >> 8)
		return EINVAL;
	if ((info->mw_access_flags & ~(unsigned int)MW_RIGHTS) || (info->length && !info->mr))
		return EINVAL;
	return mw->pd == qp->qp.pd ? 0 : EPERM;
}

void sr_wqe_bind(struct sr_wqe *w, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	w->remote_addr = info->addr;
	w->compare_add = info->length;
	w->swap = (uint64_t)(info->mr ? info->mr->lkey : 0) << 32 | info->mw_access_flags;
	w->rkey = rkey;
}

/* With ctx->lock held. */
int sr_region_is_bound(struct sr_context *ctx, uint32_t key)
{
	uint32_t i;

	for (i = 0; ctx->windows && i < ctx->mrs.fresh; i++) {
		struct sr_key *k = &ctx->seg->key[i];

		if (ctx->mrs.object[i] && !k->pd && atomic_load(&k->key) && k->region == key)
			return 1;
	}
	return 0;
}

/* ---- in the engine ---- */

/* May @w make a window of its region? */
static int region_allows(struct sr_seg *seg, const struct sr_wqe *w, uint32_t pd, uint64_t *ret_va)
{
	uint32_t region = (uint32_t)(w->swap >> 32), rights = (uint32_t)w->swap;

	return !sr_key_check(seg, region, w->remote_addr, w->compare_add,
			     IBV_ACCESS_MW_BIND | (rights & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
							   ? IBV_ACCESS_LOCAL_WRITE
							   : 0),
			     pd, ret_va);
}

static void window_set(struct sr_key *k, const struct sr_wqe *w, uint32_t qpn, uint64_t va)
{
	uint32_t rights = (uint32_t)w->swap;

	atomic_store(&k->key, 0);
	k->access = (k->access & TYPE_2) | (rights & ~(uint32_t)IBV_ACCESS_ZERO_BASED);
	k->iova = rights & IBV_ACCESS_ZERO_BASED ? 0 : w->remote_addr;
	k->len = w->compare_add;
	k->addr = va;
	k->qpn = k->access & TYPE_2 ? qpn : 0;
	k->region = (uint32_t)(w->swap >> 32);
	if (w->compare_add)
		atomic_store(&k->key, w->rkey);
}

/* The window lock held. */
static int bind_locked(struct sr_run *r, struct sr_wqe *w)
{
	struct sr_key *k = sr_key_at(r->src->seg, w->rkey);
	uint64_t va = 0;

	if (k->pd || k->window_pd != r->q->pd)
		return IBV_WC_MW_BIND_ERR;
	if (w->compare_add && !region_allows(r->src->seg, w, r->q->pd, &va))
		return IBV_WC_MW_BIND_ERR;
	if (k->access & TYPE_2) {
		if (atomic_load(&k->key) == w->rkey && k->qpn == r->q->qpn && k->addr == va && k->len == w->compare_add)
			return IBV_WC_SUCCESS;
		if (atomic_load(&k->key) || !w->compare_add)
			return IBV_WC_MW_BIND_ERR;
	}
	window_set(k, w, r->q->qpn, va);
	return IBV_WC_SUCCESS;
}

int sr_window_invalidate(struct sr_context *ctx, struct sr_seg *seg, uint32_t key, uint32_t pd, uint32_t qpn)
{
	struct sr_key *k = sr_key_at(seg, key);
	int fits;

	rlock_acquire(ctx, &seg->window_lock, ctx->self.token);
	fits = key && atomic_load(&k->key) == key && !k->pd && (k->access & TYPE_2) && k->window_pd == pd &&
	       k->qpn == qpn;
	if (fits)
		atomic_store(&k->key, 0);
	rlock_release(&seg->window_lock);
	return fits ? 0 : -EINVAL;
}

int sr_window_request(struct sr_run *r, struct sr_wqe *w)
{
	struct sr_seg *seg = r->src->seg;
	int status;

	if (w->opcode == IBV_WR_BIND_MW) {
		rlock_acquire(r->ctx, &seg->window_lock, r->ctx->self.token);
		status = bind_locked(r, w);
		rlock_release(&seg->window_lock);
		return status;
	}
	sr_rx_lock(r->ctx, r->src, r->q);
	status = sr_window_invalidate(r->ctx, seg, w->imm, r->q->pd, r->q->qpn) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
	rlock_release(&r->q->rx_lock);
	return status;
}

int sr_window_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		    uint32_t qpn, uint64_t *ret_va)
{
	struct sr_key *k = sr_key_at(seg, key), seen;

	if (!key || atomic_load_explicit(&k->key, memory_order_acquire) != key)
		return -EINVAL;
	memcpy(&seen, k, sizeof(seen));
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&k->key, memory_order_relaxed) != key)
		return -EINVAL;
	if (seen.pd || seen.window_pd != pd || (seen.qpn && seen.qpn != qpn))
		return -EINVAL;
	if (addr < seen.iova || len > seen.len || addr - seen.iova > seen.len - len)
		return -EINVAL;
	if ((seen.access & access) != access)
		return -EACCES;
	*ret_va = seen.addr + (addr - seen.iova);
	return 0;
}
