/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. A restart registers the same address, length and access again (verbs_mr_restart.c); the keys that the program knows stay, and
 * verbs_fabric_keys.c translates them. A region registered after a restart is told with the device's own keys: so these must be
 * none that the program knows already, and are drawn again if they are.
 */
#include "plugins/verbs/verbs_internal.h"

#define MR_HUGE ((size_t)2 << 20) /* from here on a region may have whole huge pages */
#define MR_DRAWS 64 /* of a change of a region, where none can be held */

static _Atomic int any_iova; /* a region has an address of its own, or starts at 0 */

enum mr_kind { MR_PLAIN, MR_IOVA, MR_IOVA2, MR_DEVICE /* memory */ };

static struct ibv_mr *real_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access,
				    enum mr_kind kind)
{
	struct verbs_backend *b = &verbs_backend;

	if (kind == MR_PLAIN && b->ibv_reg_mr)
		return b->ibv_reg_mr(pd, addr, length, (int)access);
	if (b->ibv_reg_mr_iova2)
		return b->ibv_reg_mr_iova2(pd, addr, length, kind == MR_PLAIN ? (uintptr_t)addr : iova, access);
	/* the bits of IBV_ACCESS_OPTIONAL_RANGE are hints that an older interface does not know */
	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (b->ibv_reg_mr_iova && kind != MR_PLAIN && iova != (uintptr_t)addr)
		return b->ibv_reg_mr_iova(pd, addr, length, iova, (int)access);
	return b->ibv_reg_mr ? b->ibv_reg_mr(pd, addr, length, (int)access) : verbs_unsupported();
}

int verbs_mr_deregister(void *real)
{
	return verbs_backend.ibv_dereg_mr(real);
}

/* One whose keys are none that the program, or a peer, may still know for another. */
static struct ibv_mr *register_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access,
				   enum mr_kind kind)
{
	struct verbs_draws draws = { 0 };
	struct ibv_mr *mr;

	do
		mr = real_register(shadow_pd(pd)->real, addr, length, iova, access, kind);
	while (mr && verbs_moved && verbs_draws_hold(&draws, verbs_key_known(shadow_context(pd->context), mr->lkey, mr->rkey), mr));
	return verbs_draws_end(&draws, mr, verbs_mr_deregister);
}

/* @dm: the region lies there, from @iova on. */
static struct ibv_mr *mr_register(struct ibv_pd *p, void *addr, size_t length, uint64_t iova, unsigned int access,
				  enum mr_kind kind, struct ibv_dm *dm)
{
	struct shadow_pd *pd = shadow_pd(p);
	struct shadow_mr *mr;

	fermata_device_enter();
	mr = fermata_alloc(sizeof(*mr));
	if (!mr)
		errno = ENOMEM;
	else if (dm)
		mr->real = verbs_reg_dm_mr(pd->real, dm, iova, length, access);
	else
		mr->real = register_new(p, addr, length, iova, access, kind);
	if (mr && mr->real) {
		mr->pub = *mr->real;
		mr->pub.context = p->context;
		mr->pub.pd = p;
		mr->pub.addr = addr;
		mr->pub.length = length;
		mr->offset = iova;
		mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : kind == MR_PLAIN ? (uintptr_t)addr : iova;
		any_iova |= !dm && mr->iova != (uintptr_t)addr;
		mr->access = access;
		mr->kind = kind;
		mr->dm = dm;
		verbs_list_add(&shadow_context(p->context)->mrs, &mr->link);
	} else {
		fermata_free(mr);
		mr = NULL;
	}
	fermata_device_leave();
	return mr ? &mr->pub : NULL;
}

/*
 * softrdma pins nothing: it looks whether memory is there, a system call a region, and puts large regions into huge pages. Whether this memory was there has been
 * looked at in the life before; a region without a huge page is registered as one on demand, which is the same but for that look.
 */
static unsigned int access_again(const struct shadow_mr *mr)
{
	return verbs_backend.soft && mr->pub.length < MR_HUGE ? mr->access | IBV_ACCESS_ON_DEMAND : mr->access;
}

struct ibv_mr *verbs_mr_real(const struct shadow_mr *mr)
{
	struct ibv_pd *pd = shadow_pd(mr->pub.pd)->real;

	return mr->dm ? verbs_reg_dm_mr(pd, mr->dm, mr->offset, mr->pub.length, mr->access) :
			real_register(pd, mr->pub.addr, mr->pub.length, mr->iova, access_again(mr), (enum mr_kind)mr->kind);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	VERBS_PASS(ibv_reg_mr, NULL, pd, addr, length, access);
	return mr_register(pd, addr, length, 0, (unsigned int)access, MR_PLAIN, NULL);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (fermata_in_device())
		return verbs_backend.ibv_reg_mr_iova(pd, addr, length, iova, access);
	return mr_register(pd, addr, length, iova, (unsigned int)access, MR_IOVA, NULL);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (fermata_in_device())
		return verbs_backend.ibv_reg_mr_iova2(pd, addr, length, iova, access);
	return mr_register(pd, addr, length, iova, access, MR_IOVA2, NULL);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access)
{
	VERBS_PASS(ibv_reg_dmabuf_mr, NULL, pd, offset, length, iova, fd, access);
	return verbs_unsupported();
}

/* What a change of the region has changed. */
static void mr_take(struct shadow_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, unsigned int access)
{
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		m->pub.addr = addr;
		m->pub.length = length;
		m->iova = (uintptr_t)addr;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		m->pub.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = access;
}

/*
 * Keys that the device leaves as they were stay what the program knows. New ones the program is told, so they must be none that it knows: then the device
 * is asked again, as at a registration.
 */
static int real_rereg(struct shadow_mr *m, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	uint32_t lkey = m->real->lkey, rkey = m->real->rkey;
	uint32_t draws = 0;
	int r;

	do
		r = verbs_backend.ibv_rereg_mr(m->real, flags, pd ? shadow_pd(pd)->real : NULL, addr, length, access);
	while (!r && verbs_moved && (m->real->lkey != lkey || m->real->rkey != rkey) &&
	       verbs_name_is_bad(verbs_key_known(shadow_context(m->pub.context), m->real->lkey, m->real->rkey), draws) && ++draws < MR_DRAWS);
	if (r || (m->real->lkey == lkey && m->real->rkey == rkey))
		return r;
	if (verbs_moved)
		verbs_key_remove(shadow_context(m->pub.context), m->pub.lkey);
	m->pub.lkey = m->real->lkey;
	m->pub.rkey = m->real->rkey;
	return 0;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct shadow_mr *m = shadow_mr(mr);
	int r;

	VERBS_PASS(ibv_rereg_mr, IBV_REREG_MR_ERR_INPUT, mr, flags, pd, addr, length, access);
	if (m->kind == MR_DEVICE) {
		errno = EOPNOTSUPP;
		return IBV_REREG_MR_ERR_INPUT;
	}
	fermata_device_enter();
	r = real_rereg(m, flags, pd, addr, length, access);
	if (!r)
		mr_take(m, flags, pd, addr, length, (unsigned int)access);
	fermata_device_leave();
	return r;
}

char *verbs_memory_at(struct ibv_context *context, uint32_t lkey, uint64_t addr)
{
	struct shadow_mr *mr;
	char *at = (char *)(uintptr_t)addr;

	if (likely(!any_iova))
		return at;
	lock_acquire(&verbs_lock);
	list_each(mr, &shadow_context(context)->mrs, link)
		if (mr->pub.lkey == lkey && mr->iova != (uintptr_t)mr->pub.addr)
			at = (char *)mr->pub.addr + (addr - mr->iova);
	lock_release(&verbs_lock);
	return at;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	return mr_register(pd, NULL, length, offset, access, MR_DEVICE, dm);
}

void verbs_mr_fill(struct verbs_context *v)
{
	v->reg_dm_mr = reg_dm_mr;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *m)
{
	struct shadow_mr *mr = shadow_mr(m);
	int r;

	VERBS_PASS(ibv_dereg_mr, EOPNOTSUPP, m);
	fermata_device_enter();
	r = verbs_backend.ibv_dereg_mr(mr->real);
	if (!r) {
		if (verbs_moved)
			verbs_key_remove(shadow_context(mr->pub.context), mr->pub.lkey);
		if (mr->windows)
			verbs_mw_region_gone(mr);
		verbs_list_del(&mr->link);
		fermata_free(mr);
	}
	fermata_device_leave();
	return r;
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	VERBS_PASS(ibv_import_mr, NULL, pd, handle);
	return verbs_unsupported();
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (fermata_in_device())
		verbs_backend.ibv_unimport_mr(mr);
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	VERBS_PASS(ibv_import_dm, NULL, context, handle);
	return verbs_unsupported();
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (fermata_in_device())
		verbs_backend.ibv_unimport_dm(dm);
}
