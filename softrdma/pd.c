/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains; thread and parent domains, which are names here: every lock of the device is cheap when one
 * thread alone uses what it guards, and queues lie in shared memory whatever allocator a parent domain brings.
 */
#include <errno.h>

#include "softrdma/export.h"

static struct sr_pd *pd_new(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_pd *pd = NULL;

	if (!sr_count(&ctx->pds, SR_MAX_PD)) {
		pd = arena_alloc(&ctx->arena, sizeof(*pd) + SR_SLACK);
		if (!pd)
			atomic_fetch_sub(&ctx->pds, 1);
	}
	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->pd.context = context;
	return pd;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_pd *pd = pd_new(context);

	if (!pd)
		return NULL;
	lock_acquire(&ctx->lock);
	pd->number = ++ctx->next_pd;
	lock_release(&ctx->lock);
	pd->pd.handle = pd->number;
	return &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct sr_pd *pd = sr_pd(ibpd);

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->parent)
		atomic_fetch_sub(&pd->parent->users, 1);
	if (pd->td)
		atomic_fetch_sub(&pd->td->users, 1);
	atomic_fetch_sub(&sr_context(ibpd->context)->pds, 1);
	arena_free(&sr_context(ibpd->context)->arena, pd);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct sr_pd *pd = NULL;

	if (!attr->pd || (attr->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
							IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)))
		errno = EINVAL;
	else
		pd = pd_new(context);
	if (!pd)
		return NULL;
	pd->parent = sr_pd(attr->pd);
	pd->number = pd->parent->number;
	pd->pd.handle = attr->pd->handle;
	atomic_fetch_add(&pd->parent->users, 1);
	if (attr->td) {
		pd->td = container_of(attr->td, struct sr_td, td);
		atomic_fetch_add(&pd->td->users, 1);
	}
	return &pd->pd;
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct sr_td *td = NULL;

	if (attr->comp_mask)
		errno = EINVAL;
	else if (!(td = arena_alloc(&sr_context(context)->arena, sizeof(*td))))
		errno = ENOMEM;
	if (!td)
		return NULL;
	td->td.context = context;
	return &td->td;
}

static int dealloc_td(struct ibv_td *ibtd)
{
	struct sr_td *td = container_of(ibtd, struct sr_td, td);

	if (atomic_load(&td->users))
		return EBUSY;
	arena_free(&sr_context(ibtd->context)->arena, td);
	return 0;
}

void sr_domains_fill(struct verbs_context *v)
{
	v->alloc_parent_domain = alloc_parent_domain;
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;
}
