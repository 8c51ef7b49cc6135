/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of the fabric: queue pair numbers, local and remote keys, LIDs and GIDs. In the first life the program's names are the
 * device's, and nothing here is used (verbs_moved is 0). At a restart each process publishes what its old names
 * mean now:
 *
 *   "verbs/port"  struct port_name[]   address -> LID and GID
 *   "verbs/qp"    struct qp_chunk      pid, {old number, number}[]
 *   "verbs/mr"    struct mr_chunk      pid, {old remote key, remote key}[]
 *
 * and each learns all of it, into hash tables that the data path reads without a lock. A key is looked up with the pid of the
 * connection's peer, because two processes may hold equal keys. A name that is in no table was made after the restart and
 * is the device's own; therefore whatever is made then is drawn again until its name is none of the old ones.
 *
 * The tables change at a restart only, while the program stands still, but for one word: a released region's local key is made
 * to mean nothing.
 *
 * Every process learns the whole job's table: 8 bytes a region and 16 a queue pair. Names of queue pairs that are not connected yet are
 * needed by processes that cannot be foreseen.
 */
#include "plugins/verbs/verbs_internal.h"

#define NOBODY 0xfffffeu /* a queue pair number that no device gives */

struct entry {
	uint64_t key; /* + 1; 0: free */
	uint64_t value;
	uint64_t address;
	uint32_t pid;
	uint32_t reserved;
};

struct table {
	uint32_t mask, count;
	struct entry entries[];
};

static struct table *lkeys, *rkeys, *qpns, *ports;

struct port_name {
	uint64_t address;
	uint16_t lid;
	uint16_t reserved[3];
	union ibv_gid gid;
};

struct qp_chunk {
	uint32_t pid, count;
	struct {
		uint32_t virtual, real;
		uint64_t address;
	} qp[63];
};

struct mr_chunk {
	uint32_t pid, count;
	struct {
		uint32_t virtual, real;
	} mr[127];
};
_Static_assert(sizeof(struct qp_chunk) <= 1024 && sizeof(struct mr_chunk) <= 1024, "a name's value");

static const char name_port[] = "verbs/port", name_qp[] = "verbs/qp", name_mr[] = "verbs/mr";

static uint32_t slot_of(const struct table *t, uint64_t key)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & t->mask;
}

static void table_insert(struct table *t, const struct entry *e)
{
	uint32_t at = slot_of(t, e->key - 1);

	while (t->entries[at].key)
		at = (at + 1) & t->mask;
	t->entries[at] = *e;
	t->count++;
}

/* Adds, growing when it is half full. 0 or -ENOMEM. */
static int table_add(struct table **where, uint64_t key, uint64_t value, uint64_t address, uint32_t pid)
{
	struct entry e = { .key = key + 1, .value = value, .address = address, .pid = pid };
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

/* The next entry of @key from position *@at on, which moves behind it. */
static inline struct entry *table_next(struct table *t, uint64_t key, uint32_t *at)
{
	while (t && t->entries[*at & t->mask].key) {
		struct entry *e = &t->entries[(*at)++ & t->mask];

		if (e->key == key + 1)
			return e;
	}
	return NULL;
}

/* All entries of @wanted in @t, one after another. */
#define table_each(e, t, wanted)                                                          \
	for (uint32_t at_ = (t) ? slot_of(t, wanted) : 0; (e = table_next(t, wanted, &at_));)

/* ---- addresses ---- */

static uint64_t gid_address(const union ibv_gid *gid)
{
	uint64_t h = 14695981039346656037ull; /* FNV-1a */

	if (!gid->global.interface_id)
		return 0;
	for (int i = 0; i < 16; i++)
		h = (h ^ gid->raw[i]) * 1099511628211ull;
	return h | 1ull << 63;
}

uint64_t verbs_address(const struct ibv_ah_attr *ah)
{
	return ah->dlid || !ah->is_global ? ah->dlid : gid_address(&ah->grh.dgid);
}

uint64_t verbs_port_address(const struct verbs_port *p, unsigned int gid_index)
{
	if (p->virtual_lid)
		return gid_index ? 0 : p->virtual_lid;
	return gid_index < VERBS_GIDS ? gid_address(&p->virtual_gid[gid_index]) : 0;
}

const struct verbs_port *verbs_qp_port(const struct shadow_qp *qp)
{
	const struct shadow_device *d = shadow_context(qp->pub.context)->device;
	unsigned int port = qp->attr_mask & IBV_QP_PORT ? qp->attr.port_num : 1;

	return &d->port[port <= VERBS_PORTS ? port : 0];
}

/* ---- the data path's look-ups ---- */

uint32_t verbs_lkey_real(uint32_t key)
{
	struct entry *e;

	table_each(e, lkeys, key)
		return (uint32_t)e->value;
	return key;
}

uint32_t verbs_rkey_real(const struct shadow_qp *qp, uint32_t key)
{
	struct entry *e;

	table_each(e, rkeys, key)
		if (!qp->peer_pid || e->pid == qp->peer_pid)
			return (uint32_t)e->value;
	return key;
}

/* ---- control path ---- */

int verbs_key_known(uint32_t lkey, uint32_t rkey)
{
	struct entry *e;

	table_each(e, lkeys, lkey)
		return 1;
	table_each(e, rkeys, rkey)
		if (e->pid == fermata_pid())
			return 1;
	return 0;
}

int verbs_qpn_known(uint32_t qpn)
{
	struct entry *e;

	table_each(e, qpns, qpn)
		return 1;
	return 0;
}

void verbs_peer_real(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, int old)
{
	struct ibv_ah_attr *ah = &attr->ah_attr;
	uint64_t address = verbs_address(mask & IBV_QP_AV ? ah : &qp->attr.ah_attr);
	struct entry *e, *found = NULL;

	if (mask & IBV_QP_DEST_QPN) {
		table_each(e, qpns, attr->dest_qp_num)
			if (!found || e->address == address)
				found = e;
		qp->peer_pid = found ? found->pid : 0;
		attr->dest_qp_num = found ? (uint32_t)found->value : old ? NOBODY : attr->dest_qp_num;
	}
	if (mask & IBV_QP_AV)
		verbs_ah_real(ah);
}

void verbs_ah_real(struct ibv_ah_attr *ah)
{
	struct entry *e;

	if (ah->dlid) {
		table_each(e, ports, ah->dlid) {
			ah->dlid = ((const struct port_name *)(uintptr_t)e->value)->lid;
			break;
		}
	}
	if (ah->is_global) {
		table_each(e, ports, gid_address(&ah->grh.dgid)) {
			ah->grh.dgid = ((const struct port_name *)(uintptr_t)e->value)->gid;
			break;
		}
	}
}

/* ---- restart ---- */

static int publish_ports(const struct shadow_device *d)
{
	int r = 0;

	for (unsigned int i = 1; !r && i <= d->ports; i++) {
		const struct verbs_port *p = &d->port[i];
		struct port_name name = { .lid = p->real_lid, .gid = p->real_gid[0], .address = p->virtual_lid };

		if (name.address)
			r = fermata_publish(name_port, sizeof(name_port), &name, sizeof(name));
		for (unsigned int g = 0; !r && g < VERBS_GIDS; g++) {
			name.address = gid_address(&p->virtual_gid[g]);
			name.gid = p->real_gid[g];
			if (name.address)
				r = fermata_publish(name_port, sizeof(name_port), &name, sizeof(name));
		}
	}
	return r;
}

static int publish_qps(const struct shadow_context *c)
{
	struct qp_chunk chunk = { .pid = fermata_pid() };
	struct shadow_qp *qp;
	int r = 0;

	list_each(qp, &c->qps, link) {
		unsigned int gid = qp->attr_mask & IBV_QP_AV ? qp->attr.ah_attr.grh.sgid_index : 0;
		const struct verbs_port *port = verbs_qp_port(qp);

		chunk.qp[chunk.count].virtual = qp->pub.qp_num;
		chunk.qp[chunk.count].real = qp->real->qp_num;
		chunk.qp[chunk.count].address = verbs_port_address(port, port->virtual_lid ? 0 : gid);
		if (++chunk.count < ARRAY_SIZE(chunk.qp))
			continue;
		r = fermata_publish(name_qp, sizeof(name_qp), &chunk, sizeof(chunk));
		chunk.count = 0;
		if (r)
			return r;
	}
	return chunk.count ? fermata_publish(name_qp, sizeof(name_qp), &chunk, sizeof(chunk)) : 0;
}

static int publish_mrs(const struct shadow_context *c)
{
	struct mr_chunk chunk = { .pid = fermata_pid() };
	struct shadow_mr *mr;
	int r = 0;

	list_each(mr, &c->mrs, link) {
		chunk.mr[chunk.count].virtual = mr->pub.rkey;
		chunk.mr[chunk.count].real = mr->real->rkey;
		if (++chunk.count < ARRAY_SIZE(chunk.mr))
			continue;
		r = fermata_publish(name_mr, sizeof(name_mr), &chunk, sizeof(chunk));
		chunk.count = 0;
		if (r)
			return r;
	}
	return chunk.count ? fermata_publish(name_mr, sizeof(name_mr), &chunk, sizeof(chunk)) : 0;
}

static int lkeys_renew(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	int r = 0;

	fermata_free(lkeys);
	lkeys = NULL;
	for_each_context(c)
		list_each(mr, &c->mrs, link)
			if (!r)
				r = table_add(&lkeys, mr->pub.lkey, mr->real->lkey, 0, 0);
	return r;
}

int verbs_fabric_publish(void)
{
	struct shadow_context *c;
	struct shadow_device *d;
	int r = lkeys_renew();

	if (r)
		return fermata_fail(r, "no memory for the table of local keys");
	list_each(d, &verbs_devices, link)
		if (!r)
			r = publish_ports(d);
	for_each_context(c) {
		if (!r)
			r = publish_qps(c);
		if (!r)
			r = publish_mrs(c);
	}
	if (!r)
		r = fermata_ask(name_port, sizeof(name_port));
	if (!r)
		r = fermata_ask(name_qp, sizeof(name_qp));
	if (!r)
		r = fermata_ask(name_mr, sizeof(name_mr));
	return r;
}

static int learn_ports(void)
{
	const struct port_name *name;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; !r && (name = fermata_resolve(name_port, sizeof(name_port), i, &len)); i++) {
		struct port_name *kept;
		struct entry *e, *known = NULL;

		table_each(e, ports, name->address)
			known = e;
		if (known || len != sizeof(*name)) /* all processes of a host say the same */
			continue;
		kept = fermata_alloc(sizeof(*kept));
		if (!kept)
			return -ENOMEM;
		*kept = *name;
		r = table_add(&ports, name->address, (uintptr_t)kept, 0, 0);
	}
	return r;
}

static int learn_qps(void)
{
	const struct qp_chunk *chunk;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; (chunk = fermata_resolve(name_qp, sizeof(name_qp), i, &len)); i++)
		for (uint32_t q = 0; !r && len == sizeof(*chunk) && q < chunk->count && q < ARRAY_SIZE(chunk->qp); q++)
			r = table_add(&qpns, chunk->qp[q].virtual, chunk->qp[q].real, chunk->qp[q].address, chunk->pid);
	return r;
}

static int learn_mrs(void)
{
	const struct mr_chunk *chunk;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; (chunk = fermata_resolve(name_mr, sizeof(name_mr), i, &len)); i++)
		for (uint32_t m = 0; !r && len == sizeof(*chunk) && m < chunk->count && m < ARRAY_SIZE(chunk->mr); m++)
			r = table_add(&rkeys, chunk->mr[m].virtual, chunk->mr[m].real, 0, chunk->pid);
	return r;
}

static void ports_free(void)
{
	for (uint32_t i = 0; ports && i <= ports->mask; i++)
		if (ports->entries[i].key)
			fermata_free((void *)(uintptr_t)ports->entries[i].value);
	fermata_free(ports);
	ports = NULL;
}

int verbs_fabric_learn(void)
{
	int r;

	ports_free();
	fermata_free(qpns);
	fermata_free(rkeys);
	qpns = rkeys = NULL;
	r = learn_ports();
	if (!r)
		r = learn_qps();
	if (!r)
		r = learn_mrs();
	return r ? fermata_fail(r, "no memory for the names of the fabric") : 0;
}

void verbs_key_remove(uint32_t lkey)
{
	struct entry *e;

	table_each(e, lkeys, lkey)
		e->value = 0; /* the key that no region has */
}
