/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: a mapping of the context's own, outside the program's heap. Regions in it begin at address 0, as
 * the verbs say; peers reach it as they reach all memory.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "softrdma/device.h"

static size_t mapping(size_t length)
{
	return ALIGN_UP(length, (size_t)FM_PAGE_SIZE);
}

static struct sr_dm *sr_dm(struct ibv_dm *dm)
{
	return container_of(dm, struct sr_dm, dm);
}

static int inside(const struct sr_dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->length && length <= dm->length - offset;
}

/* The program reaches it by words, as it would on a device. */
static int reachable(const struct sr_dm *dm, uint64_t offset, size_t length)
{
	return !(offset % 4) && !(length % 4) && inside(dm, offset, length);
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	if (!reachable(sr_dm(dm), offset, length))
		return EFAULT;
	memcpy(sr_dm(dm)->memory + offset, from, length);
	return 0;
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	if (!reachable(sr_dm(dm), offset, length))
		return EFAULT;
	memcpy(to, sr_dm(dm)->memory + offset, length);
	return 0;
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_dm *dm;

	if (attr->comp_mask || !attr->length || attr->length > SR_MAX_DM || 1ull << attr->log_align_req > FM_PAGE_SIZE) {
		errno = attr->length > SR_MAX_DM ? ENOMEM : EINVAL;
		return NULL;
	}
	dm = arena_alloc(&ctx->arena, sizeof(*dm));
	if (dm)
		dm->memory = ctx->arena.map(mapping(attr->length));
	if (!dm || !dm->memory) {
		arena_free(&ctx->arena, dm);
		errno = ENOMEM;
		return NULL;
	}
	dm->length = attr->length;
	dm->dm = (struct ibv_dm){ .context = context, .memcpy_to_dm = copy_to, .memcpy_from_dm = copy_from };
	return &dm->dm;
}

static int free_dm(struct ibv_dm *ibdm)
{
	struct sr_context *ctx = sr_context(ibdm->context);
	struct sr_dm *dm = sr_dm(ibdm);

	if (atomic_load(&dm->users))
		return EBUSY;
	sr_memory.unmap(dm->memory, mapping(dm->length));
	arena_free(&ctx->arena, dm);
	return 0;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm, uint64_t offset, size_t length,
				unsigned int access)
{
	struct sr_dm *dm = sr_dm(ibdm);
	struct ibv_mr *mr;
	int err = sr_access_check(access);

	if (!(access & IBV_ACCESS_ZERO_BASED) || !inside(dm, offset, length))
		err = -EINVAL;
	if (err) {
		errno = -err;
		return NULL;
	}
	mr = sr_mr_create(pd, dm->memory + offset, length, 0, access);
	if (!mr)
		return NULL;
	mr->addr = NULL;
	container_of(mr, struct sr_mr, mr)->dm = dm;
	atomic_fetch_add(&dm->users, 1);
	return mr;
}

void sr_device_memory_fill(struct verbs_context *v)
{
	v->alloc_dm = alloc_dm;
	v->free_dm = free_dm;
	v->reg_dm_mr = reg_dm_mr;
}
