/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: their making, and the completions kept from draining. Polling is in verbs_poll.c, arming in verbs_notify.c.
 *
 * The device's queue has room for VERBS_CQ_ROOM completions more than the program asked for, for those that the drain causes.
 */
#include "plugins/verbs/verbs_internal.h"

static struct ibv_cq *real_create(struct shadow_context *c, struct shadow_cq *cq)
{
	struct ibv_comp_channel *channel = cq->pub.channel ? shadow_channel(cq->pub.channel)->real : NULL;

	if (cq->more) {
		struct ibv_cq_ex *(*create)(struct ibv_context *, struct ibv_cq_init_attr_ex *) =
			VERBS_REAL_OP(c->real, create_cq_ex);
		struct ibv_cq_init_attr_ex x = { .cqe = cq->asked_cqe + cq->room_cqe, .cq_context = cq, .channel = channel,
						 .comp_vector = (uint32_t)cq->vector, .wc_flags = cq->wc_flags,
						 .comp_mask = cq->more & ~VERBS_CQ_EX, .flags = cq->create_flags };

		if (x.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
			x.parent_domain = shadow_pd(cq->parent)->real;
		return create ? (struct ibv_cq *)create(c->real, &x) : verbs_unsupported();
	}
	return verbs_backend.ibv_create_cq(c->real, (int)(cq->asked_cqe + cq->room_cqe), cq, channel, cq->vector);
}

static void cq_init(struct shadow_cq *cq, struct ibv_context *context, void *cq_context,
		    struct ibv_comp_channel *channel, int vector)
{
	cq->pub.context = context;
	cq->pub.cq_context = cq_context;
	cq->pub.channel = channel;
	cq->pub.handle = cq->real->handle;
	cq->pub.cqe = cq->real->cqe - (int)cq->room_cqe;
	pthread_mutex_init(&cq->pub.mutex, NULL);
	pthread_cond_init(&cq->pub.cond, NULL);
	if (channel)
		__atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_RELAXED);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	VERBS_PASS(ibv_create_cq, NULL, context, cqe, cq_context, channel, vector);
	return verbs_cq_create(context, cqe, cq_context, channel, vector, NULL);
}

struct ibv_cq *verbs_cq_create(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			       int vector, struct ibv_cq_init_attr_ex *ex)
{
	struct shadow_context *c = shadow_context(context);
	struct shadow_cq *cq;

	if (cqe <= 0) {
		errno = EINVAL;
		return NULL;
	}
	fermata_device_enter();
	cq = fermata_alloc(sizeof(*cq));
	if (cq) {
		cq->pub.channel = channel;
		cq->asked_cqe = (uint32_t)cqe;
		cq->room_cqe = VERBS_CQ_ROOM;
		cq->vector = vector;
		if (ex) {
			cq->more = ex->comp_mask | VERBS_CQ_EX;
			cq->wc_flags = ex->wc_flags;
			cq->create_flags = ex->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? ex->flags : 0;
			cq->parent = ex->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? ex->parent_domain : NULL;
		}
		cq->real = real_create(c, cq);
		if (!cq->real) { /* as large as the device can */
			cq->room_cqe = 0;
			cq->real = real_create(c, cq);
		}
	} else {
		errno = ENOMEM;
	}
	if (cq && cq->real) {
		cq_init(cq, context, cq_context, channel, vector);
		verbs_list_add(&c->cqs, &cq->link);
	} else {
		fermata_free(cq);
		cq = NULL;
	}
	fermata_device_leave();
	return cq ? &cq->pub : NULL;
}

static int real_modify(struct shadow_cq *cq, struct ibv_modify_cq_attr *attr)
{
	int (*modify)(struct ibv_cq *, struct ibv_modify_cq_attr *) = VERBS_REAL_OP(cq->real->context, modify_cq);

	return modify ? modify(cq->real, attr) : EOPNOTSUPP;
}

int verbs_modify_cq(struct ibv_cq *p, struct ibv_modify_cq_attr *attr)
{
	struct shadow_cq *cq = shadow_cq(p);
	int r;

	fermata_device_enter();
	r = real_modify(cq, attr);
	if (!r && attr->attr_mask)
		cq->moderation = *attr;
	fermata_device_leave();
	return r;
}

int verbs_cq_recreate(struct shadow_context *c, struct shadow_cq *cq)
{
	cq->real = VERBS_DEVICE(real_create(c, cq));
	if (cq->real && cq->moderation.attr_mask)
		VERBS_DEVICE(real_modify(cq, &cq->moderation));
	return cq->real ? 0 : fermata_fail(-errno, "a completion queue of %d entries on %s cannot be made again (error "
					   "%d)", cq->pub.cqe, c->device->pub.name, errno);
}

EXPORT int ibv_resize_cq(struct ibv_cq *p, int cqe)
{
	struct shadow_cq *cq = shadow_cq(p);
	int r, held;

	VERBS_PASS(ibv_resize_cq, EOPNOTSUPP, p, cqe);
	fermata_device_enter();
	held = verbs_lock_acquire(&cq->lock);
	/* Of what waits only we can say that it is too much: the device's queue has room for more. */
	if (cqe < cq->pub.cqe && verbs_cq_keep(cq) < 0)
		r = ENOMEM;
	else if (cqe <= 0 || (uint32_t)cqe < cq->kept_count)
		r = EINVAL;
	else
		r = verbs_backend.ibv_resize_cq(cq->real, cqe + (int)cq->room_cqe);
	if (!r) {
		cq->asked_cqe = (uint32_t)cqe;
		cq->pub.cqe = cq->real->cqe - (int)cq->room_cqe;
	}
	verbs_lock_release(&cq->lock, held);
	fermata_device_leave();
	return r;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *p)
{
	struct shadow_cq *cq = shadow_cq(p);
	int r;

	VERBS_PASS(ibv_destroy_cq, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_destroy_cq(cq->real);
	if (!r) {
		if (p->channel)
			__atomic_sub_fetch(&p->channel->refcnt, 1, __ATOMIC_RELAXED);
		verbs_list_del(&cq->link);
		fermata_free(cq->kept);
		fermata_free(cq->stamps);
		verbs_reader_free(cq);
		fermata_free(cq);
	}
	fermata_device_leave();
	return r;
}

/* The kept completions as a row without a gap, with room for @more. */
static int kept_room(struct shadow_cq *cq, uint32_t more)
{
	uint32_t size = cq->kept_size ? cq->kept_size : 64;
	struct verbs_stamps *stamps = NULL;
	struct ibv_wc *kept;

	if (cq->kept_first) {
		memmove(cq->kept, cq->kept + cq->kept_first, cq->kept_count * sizeof(*cq->kept));
		if (cq->stamps)
			memmove(cq->stamps, cq->stamps + cq->kept_first, cq->kept_count * sizeof(*cq->stamps));
		cq->kept_first = 0;
	}
	if (cq->kept_count + more <= cq->kept_size)
		return 0;
	while (size < cq->kept_count + more)
		size *= 2;
	kept = fermata_alloc(size * sizeof(*kept));
	if (cq->wc_flags & VERBS_STAMPS)
		stamps = fermata_alloc(size * sizeof(*stamps));
	if (!kept || (cq->wc_flags & VERBS_STAMPS && !stamps)) {
		fermata_free(kept);
		return -ENOMEM;
	}
	if (cq->kept_count)
		memcpy(kept, cq->kept, cq->kept_count * sizeof(*kept));
	if (cq->kept_count && stamps)
		memcpy(stamps, cq->stamps, cq->kept_count * sizeof(*stamps));
	fermata_free(cq->kept);
	fermata_free(cq->stamps);
	cq->kept = kept;
	cq->stamps = stamps;
	cq->kept_size = size;
	return 0;
}

int verbs_cq_keep(struct shadow_cq *cq)
{
	const int batch = 32;
	int n, got = 0, hidden;

	do {
		int r = kept_room(cq, (uint32_t)batch);

		if (r)
			return fermata_fail(r, "no memory for the completions of a queue");
		if (cq->stamps)
			n = VERBS_DEVICE(verbs_cq_take_stamped(cq, cq->kept + cq->kept_count, cq->stamps + cq->kept_count));
		else
			n = VERBS_DEVICE(cq->real->context->ops.poll_cq(cq->real, batch, cq->kept + cq->kept_count));
		if (n < 0) /* overrun: the program will be told by its own poll */
			break;
		hidden = n - verbs_complete(cq, cq->kept + cq->kept_count, n);
		cq->kept_count += (uint32_t)(n - hidden);
		cq->untold |= n > hidden;
		got += n;
	} while (n > 0);
	return got;
}

int verbs_cq_kept_take(struct shadow_cq *cq, struct ibv_wc *wc, struct verbs_stamps *stamps)
{
	if (!cq->kept_count)
		return 0;
	*wc = cq->kept[cq->kept_first];
	*stamps = cq->stamps[cq->kept_first];
	cq->kept_first = --cq->kept_count ? cq->kept_first + 1 : 0;
	return 1;
}

void verbs_cq_purge(struct shadow_cq *cq, uint32_t qp_num)
{
	int held = verbs_lock_acquire(&cq->lock);
	uint32_t to = 0;

	for (uint32_t i = 0; i < cq->kept_count; i++) {
		if (cq->kept[cq->kept_first + i].qp_num == qp_num)
			continue;
		if (cq->stamps)
			cq->stamps[to] = cq->stamps[cq->kept_first + i];
		cq->kept[to++] = cq->kept[cq->kept_first + i];
	}
	cq->kept_first = 0;
	cq->kept_count = to;
	verbs_lock_release(&cq->lock, held);
}
