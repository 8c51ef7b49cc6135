/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the fabric at a restart: what everybody's old names mean now, as they have published it (verbs_publish.c), is learnt into the tables that verbs_fabric.c
 * and verbs_fabric_keys.c read. Owns the tables. The program stands still; or it has been begun after the restart and looks for its first device: then
 * it learns what the others have kept for it, verbs_devices_lock held.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

#include "base/log.h"

struct keys *verbs_lkeys, *verbs_rkeys;
struct table *verbs_qpns, *verbs_ports, *verbs_real_qpns, *verbs_real_ports;
struct table *verbs_windows, *verbs_srqns, *verbs_owners;
uint32_t verbs_self;

static void table_insert(struct table *t, const struct entry *e)
{
	uint32_t at = slot_of(t, e->key - 1);

	while (t->entries[at].key)
		at = (at + 1) & t->mask;
	t->entries[at] = *e;
	t->count++;
}

/* Adds, growing when it is half full. 0 or -ENOMEM. */
static int table_add(struct table **where, uint64_t key, uint64_t value, uint64_t address, struct verbs_owner owner)
{
	struct entry e = { .key = key + 1, .value = value, .address = address, .owner = owner };
	struct table *t = *where, *more;

	if (!t || t->count * 2 > t->mask) {
		uint32_t size = t ? (t->mask + 1) * 2 : 64;

		more = fermata_alloc(sizeof(*more) + size * sizeof(e));
		if (!more)
			return -ENOMEM;
		more->mask = size - 1;
		for (uint32_t i = 0; t && i <= t->mask; i++)
			if (t->entries[i].key)
				table_insert(more, &t->entries[i]);
		fermata_free(t);
		*where = t = more;
	}
	table_insert(t, &e);
	return 0;
}

/* What is called @real in this life is called so by the program. */
static int real_is_known(uint64_t real, const struct port_name *name)
{
	struct entry *e;

	table_each(e, verbs_real_ports, real) {
		const struct port_name *known = (const struct port_name *)(uintptr_t)e->value;

		if (known->address == name->address && known->home == name->home)
			return 1;
	}
	return 0;
}

/* @member: who has that port under the name, others having another one; 0: whoever has no other. */
static int port_learn(const struct port_name *name, uint32_t member)
{
	struct port_name *kept = fermata_alloc(sizeof(*kept));
	const struct verbs_owner nobody = { 0 }, owner = { member, 0 };
	uint64_t real = name->address >> 63 ? verbs_gid_address(&name->gid) : verbs_lid_address(&name->gid, name->lid);
	int r, again = real_is_known(real, name);

	if (!kept)
		return -ENOMEM;
	*kept = *name;
	r = table_add(&verbs_ports, name->address, (uintptr_t)kept, 0, owner);
	if (again)
		return r;
	if (!r)
		r = table_add(&verbs_real_ports, real, (uintptr_t)kept, 0, nobody);
	if (!r && name->lid && !name->virtual_lid) /* a LID that the program never had */
		r = table_add(&verbs_real_ports, verbs_lid_address(&name->gid, name->lid), (uintptr_t)kept, 0, nobody);
	return r;
}

static int learn_ports(void)
{
	const struct port_name *name;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; !r && (name = fermata_job_resolve(NAME_PORT, sizeof(NAME_PORT), i, &len)); i++) {
		struct entry *e;
		int known = 0, same = 0;

		if (len != sizeof(*name))
			continue;
		table_each(e, verbs_ports, name->address) {
			known = 1;
			same |= ((const struct port_name *)(uintptr_t)e->value)->home == name->home && (!e->owner.member || e->owner.member == name->member);
		}
		if (!same) /* all processes of a host say the same */
			r = port_learn(name, known ? name->member : 0);
	}
	return r;
}

/* @back: by the names of this life, who has a use for that; or NULL. */
static int learn_chunk(const struct qp_chunk *chunk, struct table **into, struct table **back)
{
	int r = 0;

	if (!chunk->seen && chunk->owner.member != verbs_self)
		back = NULL;
	for (uint32_t q = 0; !r && q < chunk->count && q < ARRAY_SIZE(chunk->qp); q++) {
		r = table_add(into, chunk->qp[q].virtual, chunk->qp[q].real, chunk->qp[q].address, chunk->owner);
		if (!r && back)
			r = table_add(back, chunk->qp[q].real, chunk->qp[q].virtual, chunk->qp[q].address, chunk->owner);
	}
	return r;
}

static int learn_numbers(const char *name, size_t name_len, struct table **into, struct table **back)
{
	const struct qp_chunk *chunk;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; !r && (chunk = fermata_job_resolve(name, name_len, i, &len)); i++)
		if (len == sizeof(*chunk))
			r = learn_chunk(chunk, into, back);
	return r;
}

/* All values of the name, one after another; those of another size are none. */
#define each_chunk(chunk, name, len)                                                                                     \
	for (unsigned int i_ = 0; ((chunk) = fermata_job_resolve(name, sizeof(name), i_, &(len))); i_++)                 \
		if ((len) == sizeof(*(chunk)) && (chunk)->count <= ARRAY_SIZE((chunk)->mr))

static int learn_owner(const struct mr_chunk *chunk)
{
	struct entry *e;

	table_each(e, verbs_owners, verbs_owner_key(chunk->owner))
		return 0;
	return chunk->device ? table_add(&verbs_owners, verbs_owner_key(chunk->owner), chunk->device, 0, chunk->owner) : 0;
}

static int learn_keys(void)
{
	const struct mr_chunk *chunk;
	uint32_t count = 0;
	size_t len;
	int r;

	each_chunk(chunk, NAME_MR, len)
		count += chunk->count;
	r = verbs_keys_make(&verbs_rkeys, count);
	each_chunk(chunk, NAME_MR, len) {
		r = r ? r : learn_owner(chunk);
		for (uint32_t m = 0; !r && m < chunk->count; m++)
			r = verbs_keys_add(&verbs_rkeys, chunk->mr[m].virtual, chunk->mr[m].real, chunk->owner);
	}
	return r;
}

static int learn_windows(void)
{
	const struct mr_chunk *chunk;
	size_t len;
	int r = 0;

	each_chunk(chunk, NAME_MW, len) {
		r = r ? r : learn_owner(chunk);
		for (uint32_t m = 0; !r && m < chunk->count; m++)
			r = table_add(&verbs_windows, chunk->mr[m].virtual >> 8, (uint64_t)chunk->mr[m].virtual << 32 | chunk->mr[m].real, 0,
				      chunk->owner);
	}
	return r;
}

/* Keys that others have, too, are told to the device: it is asked by them where nobody can tell whose they are. */
static void keys_alias(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	int r = 0;

	for_each_context(c)
		list_each(mr, &c->mrs, link)
			if (!r && verbs_backend.softrdma_key_alias && mr->real->rkey != mr->pub.rkey && verbs_key_is_ambiguous(mr->pub.rkey))
				r = VERBS_DEVICE(verbs_backend.softrdma_key_alias(mr->real, mr->pub.rkey));
	if (r)
		log_error("process %u has more keys that others have, too, than the device takes note of: a new connection that uses one may fail", fermata_member());
}

static void ports_free(void)
{
	for (uint32_t i = 0; verbs_ports && i <= verbs_ports->mask; i++)
		if (verbs_ports->entries[i].key)
			fermata_free((void *)(uintptr_t)verbs_ports->entries[i].value);
	fermata_free(verbs_ports);
	fermata_free(verbs_real_ports);
	verbs_ports = verbs_real_ports = NULL;
}

static int learn_all(void)
{
	int r;

	ports_free();
	fermata_free(verbs_qpns);
	fermata_free(verbs_real_qpns);
	fermata_free(verbs_windows);
	fermata_free(verbs_srqns);
	fermata_free(verbs_owners);
	verbs_qpns = verbs_real_qpns = verbs_windows = verbs_srqns = verbs_owners = NULL;
	verbs_self = fermata_member();
	r = learn_ports();
	if (!r)
		r = learn_numbers(NAME_QP, sizeof(NAME_QP), &verbs_qpns, &verbs_real_qpns);
	if (!r)
		r = learn_numbers(NAME_SRQ, sizeof(NAME_SRQ), &verbs_srqns, NULL);
	if (!r)
		r = learn_keys();
	if (!r)
		keys_alias();
	if (!r)
		r = learn_windows();
	return r ? r : verbs_cm_hosts_learn();
}

int verbs_fabric_learn(void)
{
	int r = learn_all();

	if (r)
		return fermata_fail(r, "no memory for the names of the fabric");
	return fermata_names_keep("verbs/");
}

int verbs_fabric_learn_kept(void)
{
	int r;

	if (verbs_moved)
		return 0;
	r = fermata_names_kept();
	if (r > 0) {
		r = learn_all();
		verbs_moved = !r;
	}
	fermata_names_done();
	return r;
}
