/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the fabric at a restart: what this process's old names mean now is published, and what everybody's mean is learnt, into the
 * tables that verbs_fabric.c reads. Owns the tables. The program stands still; or it has been begun after the restart and looks for its first device: then
 * it learns what the others have kept for it, verbs_devices_lock held.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

#include "base/log.h"

struct keys *verbs_lkeys, *verbs_rkeys;
struct table *verbs_qpns, *verbs_ports, *verbs_real_qpns, *verbs_real_ports;
struct table *verbs_windows, *verbs_srqns;
uint32_t verbs_self;

struct mr_chunk {
	uint32_t member, count;
	struct {
		uint32_t virtual, real;
	} mr[127];
};
_Static_assert(sizeof(struct qp_chunk) <= 1024 && sizeof(struct mr_chunk) <= 1024, "a name's value");

static const char name_port[] = "verbs/port", name_qp[] = "verbs/qp", name_mr[] = "verbs/mr", name_mw[] = "verbs/mw", name_srq[] = "verbs/srq";

static void table_insert(struct table *t, const struct entry *e)
{
	uint32_t at = slot_of(t, e->key - 1);

	while (t->entries[at].key)
		at = (at + 1) & t->mask;
	t->entries[at] = *e;
	t->count++;
}

/* Adds, growing when it is half full. 0 or -ENOMEM. */
static int table_add(struct table **where, uint64_t key, uint64_t value, uint64_t address, uint32_t member)
{
	struct entry e = { .key = key + 1, .value = value, .address = address, .member = member };
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

static int publish_ports(const struct shadow_device *d)
{
	int r = 0;

	for (unsigned int i = 1; !r && i <= d->ports; i++) {
		const struct verbs_port *p = &d->port[i];
		struct port_name name = { .lid = p->real_lid, .virtual_lid = p->virtual_lid, .gid = p->real_gid[0], .member = fermata_member(),
					  .address = p->virtual_lid, .port = verbs_port_address(p, 0),
					  .home = p->real_lid ? p->real_lid : verbs_gid_address(&p->real_gid[0]) };

		if (name.address)
			r = fermata_job_publish(name_port, sizeof(name_port), &name, sizeof(name));
		for (unsigned int g = 0; !r && g < VERBS_GIDS; g++) {
			name.address = verbs_gid_address(&p->virtual_gid[g]);
			name.gid = p->real_gid[verbs_gid_index_real(p, g)];
			name.virtual_gid = p->virtual_gid[g];
			if (name.address)
				r = fermata_job_publish(name_port, sizeof(name_port), &name, sizeof(name));
		}
	}
	return r;
}

static int number_publish(const char *name, size_t len, struct qp_chunk *chunk, uint32_t virtual, uint32_t real, uint64_t address)
{
	int r = 0;

	chunk->qp[chunk->count].virtual = virtual;
	chunk->qp[chunk->count].real = real;
	chunk->qp[chunk->count].address = address;
	if (++chunk->count == ARRAY_SIZE(chunk->qp)) {
		r = fermata_job_publish(name, len, chunk, sizeof(*chunk));
		chunk->count = 0;
	}
	return r;
}

static int publish_qps(const struct shadow_context *c)
{
	struct qp_chunk chunk = { .member = fermata_member() };
	struct shadow_qp *qp;
	int r = 0;

	list_each(qp, &c->qps, link) {
		unsigned int gid = qp->attr_mask & IBV_QP_AV ? qp->attr.ah_attr.grh.sgid_index : 0;
		const struct verbs_port *port = verbs_qp_port(qp);

		if (!r && !qp->opened)
			r = number_publish(name_qp, sizeof(name_qp), &chunk, qp->pub.qp_num, qp->real->qp_num,
					   verbs_port_address(port, port->virtual_lid ? 0 : gid));
	}
	return !r && chunk.count ? fermata_job_publish(name_qp, sizeof(name_qp), &chunk, sizeof(chunk)) : r;
}

/* At each port of the device: a shared queue belongs to none. */
static int publish_srqs(const struct shadow_context *c)
{
	struct qp_chunk chunk = { .member = fermata_member() };
	struct shadow_srq *srq;
	uint32_t real;
	int r = 0;

	list_each(srq, &c->srqs, link) {
		if (!srq->xrcd)
			continue;
		r = r ? r : -verbs_srq_number(srq, &real);
		for (unsigned int port = 1; !r && port <= c->device->ports; port++)
			r = number_publish(name_srq, sizeof(name_srq), &chunk, srq->number, real, verbs_port_address(&c->device->port[port], 0));
	}
	return !r && chunk.count ? fermata_job_publish(name_srq, sizeof(name_srq), &chunk, sizeof(chunk)) : r;
}

static int key_publish(const char *name, size_t len, struct mr_chunk *chunk, uint32_t virtual, uint32_t real)
{
	int r = 0;

	chunk->mr[chunk->count].virtual = virtual;
	chunk->mr[chunk->count].real = real;
	if (++chunk->count == ARRAY_SIZE(chunk->mr)) {
		r = fermata_job_publish(name, len, chunk, sizeof(*chunk));
		chunk->count = 0;
	}
	return r;
}

static int publish_keys(const struct shadow_context *c)
{
	struct mr_chunk chunk = { .member = fermata_member() };
	struct shadow_mr *mr;
	struct shadow_mw *mw;
	int r = 0;

	list_each(mr, &c->mrs, link)
		r = r || !mr->pub.rkey ? r : key_publish(name_mr, sizeof(name_mr), &chunk, mr->pub.rkey, mr->real->rkey);
	if (!r && chunk.count)
		r = fermata_job_publish(name_mr, sizeof(name_mr), &chunk, sizeof(chunk));
	chunk.count = 0;
	list_each(mw, &c->mws, link)
		r = r ? r : key_publish(name_mw, sizeof(name_mw), &chunk, verbs_mw_key_virtual(mw, mw->real->rkey), mw->real->rkey);
	if (!r && chunk.count)
		r = fermata_job_publish(name_mw, sizeof(name_mw), &chunk, sizeof(chunk));
	return r;
}

static int lkeys_renew(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	uint32_t count = 0;
	int r;

	for_each_context(c)
		list_each(mr, &c->mrs, link)
			count++;
	r = verbs_keys_make(&verbs_lkeys, count);
	for_each_context(c)
		list_each(mr, &c->mrs, link)
			r = r ? r : verbs_keys_add(&verbs_lkeys, mr->pub.lkey, mr->real->lkey, 0);
	return r;
}

/* Does @mr have in this life the key that the program knows another of our regions by? */
static int key_hides_another(const struct shadow_mr *mr)
{
	struct key_entry *found;

	keys_each(found, verbs_lkeys, mr->real->lkey)
		if (found->real != mr->real->lkey)
			return 1;
	return 0;
}

/* So that each of the program's keys can be an alias of its region (keys_alias). Another draw is as unlikely to be one of them as this was. */
static int lkeys_make(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	int r = lkeys_renew(), again = 0;

	for_each_context(c)
		list_each(mr, &c->mrs, link)
			if (!r && verbs_backend.softrdma_key_alias && key_hides_another(mr)) {
				r = verbs_mr_redraw(c, mr);
				again = 1;
			}
	return r || !again ? r : lkeys_renew();
}

/* Keys that other processes have, too, are told to the device: it is asked by them where nobody can tell whose they are. */
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
		log_error("process %u has more keys that other processes have, too, than the device takes note of: a new connection that uses one may fail", fermata_member());
}

int verbs_fabric_publish(void)
{
	struct shadow_context *c;
	struct shadow_device *d;
	int r = lkeys_make();

	if (r)
		return fermata_fail(r, "no memory for the table of local keys");
	list_each(d, &verbs_devices, link)
		if (!r)
			r = publish_ports(d);
	for_each_context(c) {
		if (!r)
			r = publish_qps(c);
		if (!r)
			r = publish_srqs(c);
		if (!r)
			r = publish_keys(c);
	}
	if (!r)
		r = fermata_job_ask(name_port, sizeof(name_port));
	if (!r)
		r = fermata_job_ask(name_qp, sizeof(name_qp));
	if (!r)
		r = fermata_job_ask(name_srq, sizeof(name_srq));
	if (!r)
		r = fermata_job_ask(name_mr, sizeof(name_mr));
	if (!r)
		r = fermata_job_ask(name_mw, sizeof(name_mw));
	return r;
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
	uint64_t real = name->address >> 63 ? verbs_gid_address(&name->gid) : name->lid;
	int r, again = real_is_known(real, name);

	if (!kept)
		return -ENOMEM;
	*kept = *name;
	r = table_add(&verbs_ports, name->address, (uintptr_t)kept, 0, member);
	if (again)
		return r;
	if (!r)
		r = table_add(&verbs_real_ports, real, (uintptr_t)kept, 0, 0);
	if (!r && name->lid && !name->virtual_lid) /* a LID that the program never had */
		r = table_add(&verbs_real_ports, name->lid, (uintptr_t)kept, 0, 0);
	return r;
}

static int learn_ports(void)
{
	const struct port_name *name;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; !r && (name = fermata_job_resolve(name_port, sizeof(name_port), i, &len)); i++) {
		struct entry *e;
		int known = 0, same = 0;

		if (len != sizeof(*name))
			continue;
		table_each(e, verbs_ports, name->address) {
			known = 1;
			same |= ((const struct port_name *)(uintptr_t)e->value)->home == name->home && (!e->member || e->member == name->member);
		}
		if (!same) /* all processes of a host say the same */
			r = port_learn(name, known ? name->member : 0);
	}
	return r;
}

/* @back: by the names of this life; or NULL. */
static int learn_numbers(const char *name, size_t name_len, struct table **into, struct table **back)
{
	const struct qp_chunk *chunk;
	size_t len;
	int r = 0;

	for (unsigned int i = 0; (chunk = fermata_job_resolve(name, name_len, i, &len)); i++)
		for (uint32_t q = 0; !r && len == sizeof(*chunk) && q < chunk->count && q < ARRAY_SIZE(chunk->qp); q++) {
			r = table_add(into, chunk->qp[q].virtual, chunk->qp[q].real, chunk->qp[q].address, chunk->member);
			if (!r && back)
				r = table_add(back, chunk->qp[q].real, chunk->qp[q].virtual, chunk->qp[q].address, chunk->member);
		}
	return r;
}

/* All values of the name, one after another; those of another size are none. */
#define each_chunk(chunk, name, len)                                                                                     \
	for (unsigned int i_ = 0; ((chunk) = fermata_job_resolve(name, sizeof(name), i_, &(len))); i_++)                 \
		if ((len) == sizeof(*(chunk)) && (chunk)->count <= ARRAY_SIZE((chunk)->mr))

static int learn_keys(void)
{
	const struct mr_chunk *chunk;
	uint32_t count = 0;
	size_t len;
	int r;

	each_chunk(chunk, name_mr, len)
		count += chunk->count;
	r = verbs_keys_make(&verbs_rkeys, count);
	each_chunk(chunk, name_mr, len)
		for (uint32_t m = 0; !r && m < chunk->count; m++)
			r = verbs_keys_add(&verbs_rkeys, chunk->mr[m].virtual, chunk->mr[m].real, chunk->member);
	return r;
}

static int learn_windows(void)
{
	const struct mr_chunk *chunk;
	size_t len;
	int r = 0;

	each_chunk(chunk, name_mw, len)
		for (uint32_t m = 0; !r && m < chunk->count; m++)
			r = table_add(&verbs_windows, chunk->mr[m].virtual >> 8, (uint64_t)chunk->mr[m].virtual << 32 | chunk->mr[m].real, 0,
				      chunk->member);
	return r;
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
	verbs_qpns = verbs_real_qpns = verbs_windows = verbs_srqns = NULL;
	verbs_self = fermata_member();
	r = learn_ports();
	if (!r)
		r = learn_numbers(name_qp, sizeof(name_qp), &verbs_qpns, &verbs_real_qpns);
	if (!r)
		r = learn_numbers(name_srq, sizeof(name_srq), &verbs_srqns, NULL);
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
