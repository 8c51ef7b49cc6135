/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups. DIR/groups, a page table of all contexts of the user, says for each group's GID which contexts
 * have members; a context's own segment says which of its queue pairs they are. A sender looks at both without a
 * lock, and trusts the GID beside the member only: a slot that was given to another group meanwhile, or a context's
 * bit that its death has left, leads to no member and does no harm.
 *
 *   attach:  member into the own segment (ctx->lock), then the context's bit, under the groups' lock
 *   detach:  the member out; the bit too, if it was the last one of its group
 *
 * A slot is a group's as long as it has bits. Bits of the dead are swept when no slot is free. The groups' lock is
 * robust; what a dead holder leaves is a slot with a GID and no bits, which is a free one, or a bit too many.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/export.h"

int sr_groups_map(struct sr_context *ctx)
{
	int err = 0;

	lock_acquire(&ctx->lock);
	if (!ctx->groups)
		err = sr_shared_map(ctx, "groups", sizeof(struct sr_groups), (void **)&ctx->groups);
	lock_release(&ctx->lock);
	return err;
}

static int is_empty(const struct sr_group *g)
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(g->contexts); i++)
		if (atomic_load(&g->contexts[i]))
			return 0;
	return 1;
}

struct sr_group *sr_group_find(struct sr_context *ctx, const uint8_t *gid, uint32_t *hint)
{
	struct sr_group *g;
	uint32_t i;

	if (!ctx->groups)
		return NULL;
	g = &ctx->groups->group[*hint % SR_MAX_GROUP];
	if (likely(!memcmp(g->gid, gid, sizeof(g->gid))))
		return g;
	for (i = 0; i < SR_MAX_GROUP; i++) {
		g = &ctx->groups->group[i];
		if (!memcmp(g->gid, gid, sizeof(g->gid))) {
			*hint = i;
			return g;
		}
	}
	return NULL;
}

/* ---- members in the own segment; ctx->lock held ---- */

static struct sr_member *member_find(struct sr_context *ctx, const uint8_t *gid, uint32_t number)
{
	uint32_t i, n = atomic_load(&ctx->seg->members);

	for (i = 0; i < n; i++) {
		struct sr_member *m = &ctx->seg->member[i];
		uint32_t has = atomic_load(&m->number);

		if (has && (!number || has == number) && (!gid || !memcmp(m->gid, gid, sizeof(m->gid))))
			return m;
	}
	return NULL;
}

static int member_add(struct sr_context *ctx, const uint8_t *gid, uint32_t number)
{
	uint32_t i, n = atomic_load(&ctx->seg->members);

	for (i = 0; i < n && atomic_load(&ctx->seg->member[i].number); i++)
		;
	if (i == SR_MAX_MEMBER)
		return ENOMEM;
	memcpy(ctx->seg->member[i].gid, gid, sizeof(ctx->seg->member[i].gid));
	atomic_store(&ctx->seg->member[i].number, number);
	if (i == n)
		atomic_store(&ctx->seg->members, n + 1);
	return 0;
}

int sr_qp_is_member(struct sr_context *ctx, uint32_t number)
{
	return member_find(ctx, NULL, number + 1) != NULL;
}

/* ---- the groups ---- */

static int has_member(struct sr_context *ctx, uint32_t index, const uint8_t *gid)
{
	struct sr_peer *p = sr_peer_get(ctx, index);
	uint32_t i, n = p && sr_peer_alive(ctx, p) ? atomic_load(&p->seg->members) : 0;
	int found = 0;

	for (i = 0; i < n && !found; i++)
		found = atomic_load(&p->seg->member[i].number) &&
			!memcmp(p->seg->member[i].gid, gid, sizeof(p->seg->member[i].gid));
	sr_peer_put(ctx, p);
	return found;
}

/* Takes out the bits that the dead have left. The own ones are right, whatever ctx->lock hides. */
static void sweep(struct sr_context *ctx, struct sr_group *g)
{
	uint32_t word, index;
	uint64_t bits;

	for (word = 0; word < ARRAY_SIZE(g->contexts); word++) {
		for (bits = atomic_load(&g->contexts[word]); bits; bits &= bits - 1) {
			index = word * 64 + (uint32_t)__builtin_ctzll(bits);
			if (!has_member(ctx, index, g->gid))
				atomic_fetch_and(&g->contexts[word], ~(bits & -bits));
		}
	}
}

static struct sr_group *slot_free(struct sr_context *ctx)
{
	int pass;
	uint32_t i;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < SR_MAX_GROUP; i++) {
			struct sr_group *g = &ctx->groups->group[i];

			if (pass)
				sweep(ctx, g);
			if (is_empty(g))
				return g;
		}
	}
	return NULL;
}

/* Sets or takes away the context's bit. */
static int group_mark(struct sr_context *ctx, const uint8_t *gid, int present)
{
	uint64_t bit = 1ull << ctx->seg->index % 64;
	uint32_t word = ctx->seg->index / 64, hint = 0;
	struct sr_group *g;

	rlock_acquire(ctx, &ctx->groups->lock, ctx->self.token);
	g = sr_group_find(ctx, gid, &hint);
	if (!g && present) {
		g = slot_free(ctx);
		if (g)
			memcpy(g->gid, gid, sizeof(g->gid));
	}
	if (g && present)
		atomic_fetch_or(&g->contexts[word], bit);
	else if (g)
		atomic_fetch_and(&g->contexts[word], ~bit);
	rlock_release(&ctx->groups->lock);
	return g ? 0 : ENOMEM;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct sr_context *ctx = sr_context(qp->context);
	uint32_t number = sr_qp(qp)->number + 1;
	int err;

	if (qp->qp_type != IBV_QPT_UD || !sr_gid_is_group(gid->raw))
		return EINVAL;
	err = -sr_groups_map(ctx);
	if (err)
		return err;
	lock_acquire(&ctx->lock);
	if (!member_find(ctx, gid->raw, number)) {
		err = member_add(ctx, gid->raw, number);
		if (!err)
			err = group_mark(ctx, gid->raw, 1);
		if (err && member_find(ctx, gid->raw, number))
			atomic_store(&member_find(ctx, gid->raw, number)->number, 0);
		if (!err)
			sr_net_group_join(ctx, gid->raw);
	}
	lock_release(&ctx->lock);
	return err;
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct sr_context *ctx = sr_context(qp->context);
	struct sr_member *m;

	lock_acquire(&ctx->lock);
	m = member_find(ctx, gid->raw, sr_qp(qp)->number + 1);
	if (m) {
		atomic_store(&m->number, 0);
		if (!member_find(ctx, gid->raw, 0))
			group_mark(ctx, gid->raw, 0);
		sr_net_group_leave(ctx, gid->raw);
	}
	lock_release(&ctx->lock);
	return m ? 0 : EINVAL;
}

/* A context that is closed leaves all groups; those on the network with its socket. */
void sr_groups_leave(struct sr_context *ctx)
{
	uint32_t i, n = atomic_load(&ctx->seg->members);

	for (i = 0; i < n; i++)
		if (atomic_exchange(&ctx->seg->member[i].number, 0))
			group_mark(ctx, ctx->seg->member[i].gid, 0);
}
