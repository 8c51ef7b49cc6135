/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What everybody's old names mean now, as all have published it (verbs_publish.c), put together once for all processes of a host: one of them asks for it, builds the
 * tables in one piece, and writes it where the others map it (fermata_common_write). So a restart of n processes with m names each moves n * m names to a host and
 * has them there once, however many of the processes are on it. The tables are as large as what has come may need, and do not grow.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

static int leads;
static char *base; /* of what is being made */

static const char *const asked[] = { NAME_PORT, NAME_QP, NAME_SRQ, NAME_MR, NAME_MW, NAME_HOST, NAME_PART, NAME_DOOR, NAME_SELF, NAME_LIFE };

int verbs_names_ask(void)
{
	int r = leads = fermata_common_lead("names");

	for (unsigned int i = 0; leads > 0 && r >= 0 && i < ARRAY_SIZE(asked); i++)
		r = fermata_job_ask(asked[i], strlen(asked[i]) + 1);
	return r < 0 ? r : 0;
}

struct walk {
	unsigned int index;
	size_t len;
};

/* All values of the name, one after another; those of another size are none. */
#define each_value(v, name)                                                                                               \
	for (struct walk w_ = { 0, 0 }; ((v) = fermata_job_resolve(name, sizeof(name), w_.index, &w_.len)); w_.index++) \
		if (w_.len == sizeof(*(v)))

/* ---- where each part lies ---- */

struct counts {
	uint32_t ports, qps, srqs, keys, windows, owners, hosts, parts, doors, selves;
};

static uint32_t qps_in(const struct qp_chunk *chunk)
{
	return chunk->count < ARRAY_SIZE(chunk->qp) ? chunk->count : ARRAY_SIZE(chunk->qp);
}

static uint32_t keys_in(const struct mr_chunk *chunk)
{
	return chunk->count < ARRAY_SIZE(chunk->mr) ? chunk->count : ARRAY_SIZE(chunk->mr);
}

static struct counts count(void)
{
	const struct port_name *port;
	const struct host_name *host;
	const struct qp_chunk *q;
	const struct mr_chunk *m;
	const struct door_name *door;
	const struct self_name *self;
	const uint64_t *part;
	struct counts n = { 0 };

	each_value(port, NAME_PORT)
		n.ports++;
	each_value(q, NAME_QP)
		n.qps += qps_in(q);
	each_value(q, NAME_SRQ)
		n.srqs += qps_in(q);
	each_value(m, NAME_MR) {
		n.keys += keys_in(m);
		n.owners++;
	}
	each_value(m, NAME_MW) {
		n.windows += keys_in(m);
		n.owners++;
	}
	each_value(host, NAME_HOST)
		n.hosts++;
	each_value(part, NAME_PART)
		n.parts++;
	each_value(door, NAME_DOOR)
		n.doors++;
	each_value(self, NAME_SELF)
		n.selves++;
	return n;
}

static uint64_t place(uint64_t *size, uint64_t bytes)
{
	uint64_t offset = *size;

	*size += ALIGN_UP(bytes, (uint64_t)64);
	return bytes ? offset : 0;
}

static uint64_t place_table(uint64_t *size, uint32_t count)
{
	return place(size, count ? sizeof(struct table) + verbs_slots_for(count) * sizeof(struct entry) : 0);
}

static struct names lay_out(const struct counts *n)
{
	struct names names = { .magic = NAMES_MAGIC };
	uint64_t size = ALIGN_UP(sizeof(names), (size_t)64);

	names.port_names = place(&size, n->ports * sizeof(struct port_name));
	names.ports = place_table(&size, n->ports);
	names.real_ports = place_table(&size, 2 * n->ports);
	names.qpns = place_table(&size, n->qps);
	names.real_qpns = place_table(&size, n->qps);
	names.srqns = place_table(&size, n->srqs);
	names.windows = place_table(&size, n->windows);
	names.owners = place_table(&size, n->owners);
	names.selves = place_table(&size, n->selves);
	names.hosts = place(&size, n->hosts * sizeof(struct host_name));
	names.parts = place(&size, n->parts * sizeof(uint64_t));
	names.doors = place(&size, n->doors * sizeof(struct door_name));
	names.keys = place(&size, n->keys ? verbs_keys_size(n->keys, 1) : 0); /* last: make_keys */
	names.size = size;
	return names;
}

static struct table *table_begin(uint64_t offset, uint32_t count)
{
	struct table *t = offset ? (struct table *)(base + offset) : NULL;

	if (t)
		t->mask = verbs_slots_for(count) - 1;
	return t;
}

static void table_add(struct table *t, uint64_t key, uint64_t value, uint64_t address, struct verbs_owner owner)
{
	uint32_t at = slot_of(t, key);

	while (t->entries[at].key)
		at = (at + 1) & t->mask;
	t->entries[at] = (struct entry){ .key = key + 1, .value = value, .address = address, .owner = owner };
	t->count++;
}

/* ---- what is in them ---- */

struct ports {
	struct table *by_name, *by_real;
	struct port_name *kept;
	uint32_t count;
};

/* What is called @real in this life is called so by the program. */
static int real_is_known(const struct ports *p, uint64_t real, const struct port_name *name)
{
	struct entry *e;

	table_each(e, p->by_real, real)
		if (p->kept[e->value].address == name->address && p->kept[e->value].home == name->home)
			return 1;
	return 0;
}

/* @member: who has that port under the name, others having another one; 0: whoever has no other. */
static void port_add(struct ports *p, const struct port_name *name, uint32_t member)
{
	const struct verbs_owner nobody = { 0 }, owner = { member, 0 };
	uint64_t lid = verbs_lid_address(&name->gid, name->lid), real = name->address >> 63 ? verbs_gid_address(&name->gid) : lid;
	int again = real_is_known(p, real, name);

	p->kept[p->count] = *name;
	table_add(p->by_name, name->address, p->count, 0, owner);
	if (!again)
		table_add(p->by_real, real, p->count, 0, nobody);
	if (!again && name->lid && !name->virtual_lid) /* a LID that the program never had */
		table_add(p->by_real, lid, p->count, 0, nobody);
	p->count++;
}

static void make_ports(const struct names *n, const struct counts *c)
{
	struct ports p = { table_begin(n->ports, c->ports), table_begin(n->real_ports, 2 * c->ports), (void *)(base + n->port_names), 0 };
	const struct port_name *name;

	each_value(name, NAME_PORT) {
		struct entry *e;
		int known = 0, same = 0;

		table_each(e, p.by_name, name->address) {
			known = 1;
			same |= p.kept[e->value].home == name->home && (!e->owner.member || e->owner.member == name->member);
		}
		if (!same) /* all processes of a host say the same */
			port_add(&p, name, known ? name->member : 0);
	}
}

static void make_numbers(const struct names *n, const struct counts *c)
{
	struct table *qpns = table_begin(n->qpns, c->qps), *back = table_begin(n->real_qpns, c->qps), *srqns = table_begin(n->srqns, c->srqs);
	const struct qp_chunk *chunk;

	each_value(chunk, NAME_QP)
		for (uint32_t q = 0; q < qps_in(chunk); q++) {
			table_add(qpns, chunk->qp[q].virtual, chunk->qp[q].real, chunk->qp[q].address, chunk->owner);
			table_add(back, chunk->qp[q].real, chunk->qp[q].virtual, chunk->qp[q].address, chunk->owner);
		}
	each_value(chunk, NAME_SRQ)
		for (uint32_t q = 0; q < qps_in(chunk); q++)
			table_add(srqns, chunk->qp[q].virtual, chunk->qp[q].real, chunk->qp[q].address, chunk->owner);
}

static void owner_add(struct table *owners, const struct mr_chunk *chunk)
{
	uint64_t key = verbs_owner_key(chunk->owner);
	uint32_t at = slot_of(owners, key);

	if (chunk->device && !table_next(owners, key, &at))
		table_add(owners, key, chunk->device, 0, chunk->owner);
}

/* There is room for a scattered table, which is the larger one. */
static void make_keys(struct names *n, const struct counts *c, int scattered)
{
	struct keys *keys = (struct keys *)(base + n->keys);
	const struct mr_chunk *chunk;

	if (!n->keys)
		return;
	if (scattered) /* for the second time */
		memset(keys, 0, verbs_keys_size(c->keys, 1));
	verbs_keys_place(keys, c->keys, scattered);
	n->size = n->keys + verbs_keys_size(c->keys, scattered);
	each_value(chunk, NAME_MR)
		for (uint32_t m = 0; m < keys_in(chunk) && !verbs_keys_are_crowded(keys); m++)
			verbs_keys_put(keys, (struct key_entry){ chunk->mr[m].virtual, chunk->mr[m].real, chunk->owner });
	if (verbs_keys_are_crowded(keys))
		make_keys(n, c, 1);
}

static void make_windows(const struct names *n, const struct counts *c)
{
	struct table *windows = table_begin(n->windows, c->windows), *owners = table_begin(n->owners, c->owners);
	const struct mr_chunk *chunk;

	each_value(chunk, NAME_MR)
		owner_add(owners, chunk);
	each_value(chunk, NAME_MW) {
		owner_add(owners, chunk);
		for (uint32_t m = 0; m < keys_in(chunk); m++)
			table_add(windows, chunk->mr[m].virtual >> 8, (uint64_t)chunk->mr[m].virtual << 32 | chunk->mr[m].real, 0, chunk->owner);
	}
}

/* Each once: there are as many as hosts, which all of a host's processes tell. */
static void value_add(void *values, uint32_t *count, const void *value, size_t size)
{
	for (uint32_t i = 0; i < *count; i++)
		if (!memcmp((char *)values + i * size, value, size))
			return;
	memcpy((char *)values + (*count)++ * size, value, size);
}

static void make_hosts(struct names *n)
{
	const struct host_name *host;
	const struct door_name *door;
	const uint64_t *part, *life;

	each_value(life, NAME_LIFE)
		n->life = *life > n->life ? (uint32_t)*life : n->life;
	each_value(host, NAME_HOST)
		value_add(base + n->hosts, &n->host_count, host, sizeof(*host));
	each_value(part, NAME_PART)
		value_add(base + n->parts, &n->part_count, part, sizeof(*part));
	each_value(door, NAME_DOOR)
		((struct door_name *)(base + n->doors))[n->door_count++] = *door;
}

static void make_selves(const struct names *n, const struct counts *c)
{
	struct table *selves = table_begin(n->selves, c->selves);
	const struct self_name *self;

	each_value(self, NAME_SELF)
		table_add(selves, self->pid, 0, self->address, (struct verbs_owner){ self->member, 0 });
}

static int make(void)
{
	struct counts c = count();
	struct names head = lay_out(&c), *n = fermata_alloc(head.size);
	int r;

	if (!n)
		return fermata_fail(-ENOMEM, "no memory for the names of the fabric, %lu MiB", (unsigned long)(head.size >> 20));
	base = (char *)n;
	*n = head;
	make_ports(n, &c);
	make_numbers(n, &c);
	make_keys(n, &c, 0);
	make_windows(n, &c);
	make_hosts(n);
	make_selves(n, &c);
	r = fermata_common_write("names", n, n->size);
	fermata_free(n);
	return r;
}

int verbs_names_make(void)
{
	return leads > 0 ? make() : 0;
}
