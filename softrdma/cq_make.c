/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creation, end and size of completion queues. The queue and its first ring are one block of the segment, a longer ring is
 * another block; the numbers are under ctx->lock, a channel's list of queues under the channel's. A ring changes under all of
 * the queue's locks: the pollers' and the producers'.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

/* A ring fills its page: as far as that it can be made longer later. */
#define CQ_MIN_SLOTS 16u
_Static_assert(offsetof(struct sr_shm_cq, first_ring) + CQ_MIN_SLOTS * sizeof(struct sr_cqe) <= FM_PAGE_SIZE, "one page");

static int cq_shm_create(struct sr_context *ctx, struct sr_cq *cq, int cqe)
{
	uint32_t slots = CQ_MIN_SLOTS;

	while (slots < (uint32_t)cqe)
		slots <<= 1;
	cq->shm = sr_shm_alloc(ctx, sizeof(*cq->shm) + (size_t)slots * sizeof(struct sr_cqe));
	if (!cq->shm)
		return -ENOMEM;
	cq->shm->mask = cq->mask = cq->first_mask = slots - 1;
	cq->shm->cap = (uint32_t)cqe;
	cq->shm->ring = offsetof(struct sr_shm_cq, first_ring);
	cq->ring = cq->shm->first_ring;
	return 0;
}

static size_t ring_size(uint32_t mask)
{
	return (size_t)(mask + 1) * sizeof(struct sr_cqe);
}

/* ctx->lock held. */
static void cq_shm_free(struct sr_context *ctx, struct sr_cq *cq)
{
	if (cq->ring != cq->shm->first_ring)
		sr_shm_free(ctx, cq->ring, ring_size(cq->mask));
	sr_shm_free(ctx, cq->shm, sizeof(*cq->shm) + ring_size(cq->first_mask));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_channel *ch = channel ? container_of(channel, struct sr_channel, channel) : NULL;
	struct sr_cq *cq;
	int err;

	if (cqe < 1 || cqe > (int)SR_MAX_CQE || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = arena_alloc(&ctx->arena, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	lock_acquire(&ctx->lock);
	err = cq_shm_create(ctx, cq, cqe);
	if (!err) {
		err = sr_ids_take(&ctx->cqs, cq, &cq->number);
		if (err)
			cq_shm_free(ctx, cq);
	}
	lock_release(&ctx->lock);
	if (err) {
		arena_free(&ctx->arena, cq);
		errno = -err;
		return NULL;
	}
	cq->spins = 64;
	cq->cq = (struct ibv_cq){ .context = context, .channel = channel, .cq_context = cq_context,
				  .handle = cq->number, .cqe = cqe };
	cq->shm->number = cq->number;
	cq->shm->owner = ctx->seg->index;
	cq->shm->place = (uint64_t)((char *)cq->shm - (char *)ctx->seg);
	list_init(&cq->link);
	if (ch) {
		cq->shm->channel = ch->number + 1;
		lock_acquire(&ch->lock);
		list_add_tail(&ch->cqs, &cq->link);
		channel->refcnt++;
		lock_release(&ch->lock);
	}
	return &cq->cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct sr_cq *cq = sr_cq(ibcq);
	struct sr_context *ctx = sr_context(ibcq->context);
	struct sr_channel *ch = ibcq->channel ? container_of(ibcq->channel, struct sr_channel, channel) : NULL;
	uint32_t acked;

	if (atomic_load(&cq->users))
		return EBUSY;
	if (ch) {
		lock_acquire(&ch->lock);
		list_del(&cq->link);
		ibcq->channel->refcnt--;
		lock_release(&ch->lock);
	}
	/* The verbs say so: it waits until every event handed out has been acknowledged. */
	atomic_store(&cq->ending, 1);
	while ((acked = atomic_load(&cq->acked)) != cq->taken)
		raw_futex((uint32_t *)&cq->acked, FUTEX_WAIT, acked, NULL, 0);
	lock_acquire(&ctx->lock);
	sr_ids_give(&ctx->cqs, cq->number);
	cq_shm_free(ctx, cq);
	lock_release(&ctx->lock);
	arena_free(&ctx->arena, cq);
	return 0;
}

/*
 * What stands in the ring, and what was polled lately (sr_cq_contains), moves along. Returns the ring that is no longer
 * used, for the caller to free. All of its locks held.
 */
static struct sr_cqe *ring_move(struct sr_cq *cq, struct sr_cqe *ring, uint32_t mask)
{
	uint32_t tail = atomic_load(&cq->shm->tail), i;
	struct sr_cqe *old = cq->ring;

	for (i = 1; i <= cq->mask + 1; i++)
		memcpy(&ring[(tail - i) & mask], &old[(tail - i) & cq->mask], sizeof(*ring));
	cq->ring = ring;
	cq->mask = cq->shm->mask = mask;
	cq->shm->ring = (uint64_t)((char *)ring - (char *)cq->shm);
	return old == cq->shm->first_ring ? NULL : old;
}

static struct sr_cqe *ring_alloc(struct sr_context *ctx, uint32_t mask)
{
	struct sr_cqe *ring;

	lock_acquire(&ctx->lock);
	ring = sr_shm_alloc(ctx, ring_size(mask));
	lock_release(&ctx->lock);
	return ring;
}

EXPORT int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct sr_cq *cq = sr_cq(ibcq);
	struct sr_context *ctx = sr_context(ibcq->context);
	uint32_t mask = CQ_MIN_SLOTS - 1, unused;
	struct sr_cqe *ring;
	int err = 0;

	if (cqe < 1 || cqe > (int)SR_MAX_CQE)
		return EINVAL;
	while (mask + 1 < (uint32_t)cqe)
		mask = mask << 1 | 1;
	unused = mask;
	ring = ring_alloc(ctx, mask);
	if (!ring)
		return ENOMEM;
	sr_thread_lock(&cq->poll);
	sr_cq_lock(ctx, cq->shm);
	if ((uint32_t)cqe < atomic_load(&cq->shm->tail) - atomic_load(&cq->shm->head))
		err = EINVAL;
	else
		cq->shm->cap = (uint32_t)cqe;
	if (!err && mask > cq->mask) {
		unused = cq->mask;
		ring = ring_move(cq, ring, mask);
	}
	rlock_release(&cq->shm->lock);
	sr_thread_unlock(&cq->poll);
	lock_acquire(&ctx->lock);
	sr_shm_free(ctx, ring, ring_size(unused));
	lock_release(&ctx->lock);
	/* One who armed it meanwhile may have looked at the old ring. */
	sr_cq_catch_up(ctx, cq->shm);
	if (!err)
		ibcq->cqe = cqe;
	return err;
}
