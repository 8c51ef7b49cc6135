/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: their making, and the table that finds them by their keys. What they are bound to is in verbs_mw_state.c, the restart in
 * verbs_mw_restart.c.
 *
 * A window's key changes with each binding: its upper 24 bits are the device's and the same for ever, the lowest 8 the binder's. So a key that the
 * program has is turned into the device's by its upper part, and the lowest 8 bits move by a constant:
 *
 *      the program's   | 24 bits of its window        | low         |
 *      the device's    | 24 bits of the one made now  | low - shift |
 *
 * shift is 0 for type 2, where the program names the key of each binding, and before a restart; for type 1, where each binding counts the key up, it is what
 * makes the newest keys of both fit. A key of a former binding thus becomes a key of no binding, which the device refuses as it did.
 *
 * A window that the program has given back stays in memory while a binding of it is in a queue. All under verbs_lock.
 */
#include "plugins/verbs/verbs_internal.h"

#define BUCKETS 4096u

static struct shadow_mw *by_key[BUCKETS], *by_real[BUCKETS];
static bool has_any; /* there may be one in them */

static struct shadow_mw **bucket(struct shadow_mw **table, uint32_t key)
{
	return &table[(key >> 8) * 0x9e3779b1u >> 20];
}

void verbs_mw_insert(struct shadow_mw *mw)
{
	struct shadow_mw **key = bucket(by_key, mw->key), **real = bucket(by_real, mw->real->rkey);

	has_any = true;
	mw->by_key = *key;
	*key = mw;
	mw->by_real = *real;
	*real = mw;
}

void verbs_mw_remove(struct shadow_mw *mw)
{
	struct shadow_mw **key = bucket(by_key, mw->key), **real = bucket(by_real, mw->real->rkey);

	while (*key != mw)
		key = &(*key)->by_key;
	*key = mw->by_key;
	while (*real != mw)
		real = &(*real)->by_real;
	*real = mw->by_real;
}

void verbs_mw_forget_all(void)
{
	if (!has_any)
		return; /* nor is there memory behind them yet */
	memset(by_key, 0, sizeof(by_key));
	memset(by_real, 0, sizeof(by_real));
	has_any = false;
}

struct shadow_mw *verbs_mw_find(struct ibv_context *context, uint32_t key)
{
	struct shadow_mw *mw = *bucket(by_key, key);

	while (mw && ((mw->key ^ key) >> 8 || mw->pub.context != context))
		mw = mw->by_key;
	return mw;
}

struct shadow_mw *verbs_mw_find_real(struct ibv_context *context, uint32_t key)
{
	struct shadow_mw *mw = *bucket(by_real, key);

	while (mw && ((mw->real->rkey ^ key) >> 8 || mw->pub.context != context))
		mw = mw->by_real;
	return mw;
}

uint32_t verbs_mw_key_real(const struct shadow_mw *mw, uint32_t key)
{
	if ((key ^ mw->key) >> 8) /* not this window's: let it not be the new one's either */
		return mw->real->rkey ^ 0x100;
	return (mw->real->rkey & ~0xffu) | ((key - mw->shift) & 0xff);
}

uint32_t verbs_mw_key_virtual(const struct shadow_mw *mw, uint32_t real)
{
	return (mw->key & ~0xffu) | ((real + mw->shift) & 0xff);
}

uint32_t verbs_mw_own_real(struct ibv_context *context, uint32_t key)
{
	struct shadow_mw *mw;

	lock_acquire(&verbs_lock);
	mw = verbs_mw_find(context, key);
	if (mw)
		key = verbs_mw_key_real(mw, key);
	lock_release(&verbs_lock);
	return key;
}

static int dealloc(void *real)
{
	struct ibv_mw *mw = real;

	return mw->context->ops.dealloc_mw(mw);
}

/* A window whose keys are none that a peer may still have for another thing. */
static struct ibv_mw *alloc_new(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_pd *real = shadow_pd(pd)->real;
	struct verbs_draws draws = { 0 };
	struct ibv_mw *mw;

	if (!real->context->ops.alloc_mw)
		return verbs_unsupported();
	do
		mw = real->context->ops.alloc_mw(real, type);
	while (mw && verbs_moved && verbs_draws_hold(&draws, verbs_window_known(shadow_context(pd->context), mw->rkey), mw));
	return verbs_draws_end(&draws, mw, dealloc);
}

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct shadow_mw *mw;

	fermata_device_enter();
	mw = fermata_alloc(sizeof(*mw));
	if (!mw)
		errno = ENOMEM;
	else
		mw->real = alloc_new(pd, type);
	if (mw && mw->real) {
		mw->key = mw->real->rkey;
		mw->pub = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = mw->key, .handle = mw->real->handle, .type = type };
		lock_acquire(&verbs_lock);
		verbs_mw_insert(mw);
		list_add_tail(&shadow_context(pd->context)->mws, &mw->link);
		lock_release(&verbs_lock);
	} else {
		fermata_free(mw);
		mw = NULL;
	}
	fermata_device_leave();
	return mw ? &mw->pub : NULL;
}

int verbs_dealloc_mw(struct ibv_mw *p)
{
	struct shadow_mw *mw = shadow_mw(p);
	struct ibv_mw *real;
	int r;

	fermata_device_enter();
	real = mw->real;
	lock_acquire(&verbs_lock);
	verbs_mw_remove(mw); /* first: the device may give its key to another at once */
	lock_release(&verbs_lock);
	r = real->context->ops.dealloc_mw(real);
	lock_acquire(&verbs_lock);
	if (r) {
		verbs_mw_insert(mw);
	} else {
		mw->real = NULL;
		list_del(&mw->link);
		if (!mw->users)
			fermata_free(mw);
	}
	lock_release(&verbs_lock);
	fermata_device_leave();
	return r;
}

int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *p, struct ibv_mw_bind *bind)
{
	return verbs_post_bind(shadow_qp(qp), shadow_mw(p), bind);
}
