/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains: nothing but their existence is kept. Thread domains, and parent domains, which stand in the list behind the domain that they are made of.
 */
#include "plugins/verbs/verbs_internal.h"

static struct shadow_td *shadow_td(struct ibv_td *p)
{
	return container_of(p, struct shadow_td, pub);
}

static struct ibv_pd *real_parent(struct ibv_context *real, const struct ibv_parent_domain_init_attr *of)
{
	struct ibv_pd *(*alloc)(struct ibv_context *, struct ibv_parent_domain_init_attr *) =
		VERBS_REAL_OP(real, alloc_parent_domain);
	struct ibv_parent_domain_init_attr a = *of;

	if (a.pd)
		a.pd = shadow_pd(a.pd)->real;
	if (a.td)
		a.td = shadow_td(a.td)->real;
	return alloc ? alloc(real, &a) : verbs_unsupported();
}

/* @of: what a parent domain is made of; NULL: an ordinary one. */
static struct ibv_pd *real_pd(struct shadow_context *c, const struct ibv_parent_domain_init_attr *of)
{
	return of ? real_parent(c->real, of) : verbs_backend.ibv_alloc_pd(c->real);
}

static struct ibv_pd *pd_alloc(struct ibv_context *context, const struct ibv_parent_domain_init_attr *of)
{
	struct shadow_context *c = shadow_context(context);
	struct shadow_pd *pd;

	fermata_device_enter();
	pd = fermata_alloc(sizeof(*pd));
	if (!pd)
		errno = ENOMEM;
	else
		pd->real = real_pd(c, of);
	if (pd && pd->real) {
		pd->pub = (struct ibv_pd){ .context = context, .handle = pd->real->handle };
		pd->parent = of != NULL;
		if (of)
			pd->of = *of;
		verbs_list_add(&c->pds, &pd->link);
	} else {
		fermata_free(pd);
		pd = NULL;
	}
	fermata_device_leave();
	return pd ? &pd->pub : NULL;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	VERBS_PASS(ibv_alloc_pd, NULL, context);
	return pd_alloc(context, NULL);
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	return pd_alloc(context, attr);
}

int verbs_pd_recreate(struct shadow_context *c, struct shadow_pd *pd)
{
	pd->real = VERBS_DEVICE(real_pd(c, pd->parent ? &pd->of : NULL));
	return pd->real ? 0 : fermata_fail(-errno, "a protection domain on %s cannot be made again (error %d)",
					   c->device->pub.name, errno);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *p)
{
	struct shadow_pd *pd = shadow_pd(p);
	int r;

	VERBS_PASS(ibv_dealloc_pd, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_dealloc_pd(pd->real);
	if (!r) {
		verbs_list_del(&pd->link);
		fermata_free(pd);
	}
	fermata_device_leave();
	return r;
}

static struct ibv_td *real_domain(struct ibv_context *real, struct ibv_td_init_attr *attr)
{
	struct ibv_td *(*alloc)(struct ibv_context *, struct ibv_td_init_attr *) = VERBS_REAL_OP(real, alloc_td);

	return alloc ? alloc(real, attr) : verbs_unsupported();
}

int verbs_td_recreate(struct shadow_context *c, struct shadow_td *td)
{
	td->real = VERBS_DEVICE(real_domain(c->real, &td->attr));
	return td->real ? 0 : fermata_fail(-errno, "a thread domain on %s cannot be made again (error %d)", c->device->pub.name, errno);
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct shadow_td *td;

	fermata_device_enter();
	td = fermata_alloc(sizeof(*td));
	if (!td)
		errno = ENOMEM;
	else
		td->real = real_domain(shadow_context(context)->real, attr);
	if (td && td->real) {
		td->pub.context = context;
		td->attr = *attr;
		verbs_list_add(&shadow_context(context)->tds, &td->link);
	} else {
		fermata_free(td);
		td = NULL;
	}
	fermata_device_leave();
	return td ? &td->pub : NULL;
}

static int dealloc_td(struct ibv_td *p)
{
	struct shadow_td *td = shadow_td(p);
	int (*dealloc)(struct ibv_td *);
	int r;

	fermata_device_enter();
	dealloc = VERBS_REAL_OP(td->real->context, dealloc_td);
	r = dealloc ? dealloc(td->real) : EOPNOTSUPP;
	if (!r) {
		verbs_list_del(&td->link);
		fermata_free(td);
	}
	fermata_device_leave();
	return r;
}

void verbs_domain_fill(struct verbs_context *v)
{
	v->alloc_parent_domain = alloc_parent_domain;
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	VERBS_PASS(ibv_import_pd, NULL, context, handle);
	return verbs_unsupported();
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (fermata_in_device())
		verbs_backend.ibv_unimport_pd(pd);
}
