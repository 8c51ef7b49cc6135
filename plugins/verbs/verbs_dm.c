/* SPDX-License-Identifier: BSD-2-Clause */
/* Device memory and regions in it: passed through, and not saved yet. */
#include "plugins/verbs/verbs_internal.h"

static struct shadow_dm *shadow_dm(struct ibv_dm *p)
{
	return container_of(p, struct shadow_dm, pub);
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	struct ibv_dm *real = shadow_dm(dm)->real;

	return VERBS_DEVICE(real->memcpy_to_dm(real, offset, from, length));
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	struct ibv_dm *real = shadow_dm(dm)->real;

	return VERBS_DEVICE(real->memcpy_from_dm(to, real, offset, length));
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct ibv_context *real = shadow_context(context)->real;
	struct ibv_dm *(*alloc)(struct ibv_context *, struct ibv_alloc_dm_attr *) = VERBS_REAL_OP(real, alloc_dm);
	struct shadow_dm *dm;

	if (!alloc)
		return verbs_unsupported();
	fermata_device_enter();
	dm = fermata_alloc(sizeof(*dm));
	if (!dm)
		errno = ENOMEM;
	else
		dm->real = alloc(real, attr);
	if (dm && dm->real) {
		dm->pub = *dm->real;
		dm->pub.context = context;
		dm->pub.memcpy_to_dm = copy_to;
		dm->pub.memcpy_from_dm = copy_from;
		verbs_unsaved_add(context, UNSAVED_DM, 1);
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
	int (*release)(struct ibv_dm *) = VERBS_REAL_OP(dm->real->context, free_dm);
	int r = release ? VERBS_DEVICE(release(dm->real)) : EOPNOTSUPP;

	if (!r) {
		verbs_unsaved_add(p->context, UNSAVED_DM, -1);
		fermata_free(dm);
	}
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
