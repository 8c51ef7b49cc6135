/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory. No mapping of it is in the image, so its bytes are copied out at the dump, into memory that is, and back by a restart. Owns that copy, which goes when the job
 * goes on.
 */
#include "plugins/verbs/verbs_internal.h"

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	return VERBS_DEVICE(shadow_dm(dm)->real->memcpy_to_dm(shadow_dm(dm)->real, offset, from, length));
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return VERBS_DEVICE(shadow_dm(dm)->real->memcpy_from_dm(to, shadow_dm(dm)->real, offset, length));
}

static struct ibv_dm *real_alloc(struct ibv_context *real, struct ibv_alloc_dm_attr *attr)
{
	struct ibv_dm *(*alloc)(struct ibv_context *, struct ibv_alloc_dm_attr *) = VERBS_REAL_OP(real, alloc_dm);

	return alloc ? alloc(real, attr) : verbs_unsupported();
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct shadow_dm *dm;

	fermata_device_enter();
	dm = fermata_alloc(sizeof(*dm));
	if (!dm)
		errno = ENOMEM;
	else
		dm->real = real_alloc(shadow_context(context)->real, attr);
	if (dm && dm->real) {
		dm->pub = *dm->real;
		dm->pub.context = context;
		dm->pub.memcpy_to_dm = copy_to;
		dm->pub.memcpy_from_dm = copy_from;
		dm->attr = *attr;
		verbs_list_add(&shadow_context(context)->dms, &dm->link);
	} else {
		fermata_free(dm);
		dm = NULL;
	}
	fermata_device_leave();
	return dm ? &dm->pub : NULL;
}

static int free_dm(struct ibv_dm *p)
{
	struct shadow_dm *dm = shadow_dm(p);
	int (*release)(struct ibv_dm *);
	int r;

	fermata_device_enter();
	release = VERBS_REAL_OP(dm->real->context, free_dm);
	r = release ? release(dm->real) : EOPNOTSUPP;
	if (!r) {
		verbs_list_del(&dm->link);
		fermata_free(dm->copy);
		fermata_free(dm);
	}
	fermata_device_leave();
	return r;
}

struct ibv_mr *verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	struct ibv_dm *real = shadow_dm(dm)->real;
	struct ibv_mr *(*reg)(struct ibv_pd *, struct ibv_dm *, uint64_t, size_t, unsigned int) =
		VERBS_REAL_OP(real->context, reg_dm_mr);

	return reg ? reg(pd, real, offset, length, access) : verbs_unsupported();
}

void verbs_dm_fill(struct verbs_context *v)
{
	v->alloc_dm = alloc_dm;
	v->free_dm = free_dm;
}

/* At the dump: everything is at rest. */
int verbs_dm_settle(struct shadow_dm *dm)
{
	int r;

	if (!dm->copy)
		dm->copy = fermata_alloc(dm->attr.length);
	if (!dm->copy)
		return fermata_fail(-ENOMEM, "no memory for the %zu bytes of a piece of device memory", dm->attr.length);
	r = copy_from(dm->copy, &dm->pub, 0, dm->attr.length);
	return r ? fermata_fail(-r, "device memory of %zu bytes cannot be read (error %d)", dm->attr.length, r) : 0;
}

void verbs_dm_resume(void)
{
	struct shadow_context *c;
	struct shadow_dm *dm;

	for_each_context(c)
		list_each(dm, &c->dms, link) {
			fermata_free(dm->copy);
			dm->copy = NULL;
		}
}

int verbs_dm_recreate(struct shadow_context *c, struct shadow_dm *dm)
{
	int r;

	dm->real = VERBS_DEVICE(real_alloc(c->real, &dm->attr));
	if (!dm->real)
		return fermata_fail(-errno, "%zu bytes of device memory on %s cannot be had again (error %d)", dm->attr.length,
				    c->device->pub.name, errno);
	r = copy_to(&dm->pub, 0, dm->copy, dm->attr.length);
	return r ? fermata_fail(-r, "device memory of %zu bytes cannot be written (error %d)", dm->attr.length, r) : 0;
}
