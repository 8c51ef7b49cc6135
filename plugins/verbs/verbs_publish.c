/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the fabric at a restart: what this process's old names mean now is published (what everybody's mean is learnt: verbs_names_make.c). Also our own local keys, which
 * nobody else is told. The program stands still.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

/* A port of this life; 0: it has no address now. */
static uint64_t home_of(const struct verbs_port *p)
{
	uint64_t home = verbs_lid_address(&p->real_gid[0], p->real_lid);

	for (unsigned int g = 0; !home && g < VERBS_GIDS; g++)
		home = verbs_gid_address(&p->real_gid[g]);
	return home;
}

static uint64_t device_of(const struct shadow_device *d)
{
	uint64_t first = 0;

	for (unsigned int i = 1; !first && i <= d->ports; i++)
		first = home_of(&d->port[i]);
	return first;
}

static struct verbs_owner owner_of(const struct shadow_context *c)
{
	return (struct verbs_owner){ fermata_member(), c->number };
}

static int publish_ports(const struct shadow_device *d)
{
	int r = 0;

	for (unsigned int i = 1; !r && i <= d->ports; i++) {
		const struct verbs_port *p = &d->port[i];
		struct port_name name = { .lid = p->real_lid, .virtual_lid = p->virtual_lid, .gid = p->real_gid[0], .member = fermata_member(),
					  .port = verbs_port_first(p), .home = home_of(p), .device = device_of(d), .mtu = p->real_mtu };

		name.address = p->virtual_lid ? name.port : 0;
		if (name.address)
			r = fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name));
		for (unsigned int g = 0; !r && g < VERBS_GIDS; g++) {
			name.address = verbs_gid_address(&p->virtual_gid[g]);
			name.gid = p->real_gid[verbs_gid_index_real(p, g)];
			name.virtual_gid = p->virtual_gid[g];
			if (name.address)
				r = fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name));
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
	struct qp_chunk chunk = { .owner = owner_of(c) };
	struct shadow_qp *qp;
	int r = 0;

	list_each(qp, &c->qps, link)
		if (!r && !qp->opened)
			r = number_publish(NAME_QP, sizeof(NAME_QP), &chunk, qp->pub.qp_num, qp->real->qp_num, verbs_port_first(verbs_qp_port(qp)));
	return !r && chunk.count ? fermata_job_publish(NAME_QP, sizeof(NAME_QP), &chunk, sizeof(chunk)) : r;
}

/* At each port of the device: a shared queue belongs to none. */
static int publish_srqs(const struct shadow_context *c)
{
	struct qp_chunk chunk = { .owner = owner_of(c) };
	struct shadow_srq *srq;
	uint32_t real;
	int r = 0;

	list_each(srq, &c->srqs, link) {
		if (!srq->xrcd)
			continue;
		r = r ? r : -verbs_srq_number(srq, &real);
		for (unsigned int port = 1; !r && port <= c->device->ports; port++)
			r = number_publish(NAME_SRQ, sizeof(NAME_SRQ), &chunk, srq->number, real, verbs_port_first(&c->device->port[port]));
	}
	return !r && chunk.count ? fermata_job_publish(NAME_SRQ, sizeof(NAME_SRQ), &chunk, sizeof(chunk)) : r;
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
	struct mr_chunk chunk = { .owner = owner_of(c), .device = device_of(c->device) };
	struct shadow_mr *mr;
	struct shadow_mw *mw;
	int r = 0;

	list_each(mr, &c->mrs, link)
		r = r || !mr->pub.rkey ? r : key_publish(NAME_MR, sizeof(NAME_MR), &chunk, mr->pub.rkey, mr->real->rkey);
	if (!r && chunk.count)
		r = fermata_job_publish(NAME_MR, sizeof(NAME_MR), &chunk, sizeof(chunk));
	chunk.count = 0;
	list_each(mw, &c->mws, link)
		r = r ? r : key_publish(NAME_MW, sizeof(NAME_MW), &chunk, verbs_mw_key_virtual(mw, mw->real->rkey), mw->real->rkey);
	if (!r && chunk.count)
		r = fermata_job_publish(NAME_MW, sizeof(NAME_MW), &chunk, sizeof(chunk));
	return r;
}

static int lkeys_renew(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	uint32_t count = 0, number = 0;
	int r;

	for_each_context(c) {
		c->number = ++number;
		list_each(mr, &c->mrs, link)
			count++;
	}
	r = verbs_keys_make(&verbs_lkeys, count);
	for_each_context(c)
		list_each(mr, &c->mrs, link)
			r = r ? r : verbs_keys_add(&verbs_lkeys, mr->pub.lkey, mr->real->lkey, (struct verbs_owner){ 0, c->number });
	return r;
}

/* Does @mr have in this life the key that the program knows another region of @c by? */
static int key_hides_another(const struct shadow_context *c, const struct shadow_mr *mr)
{
	struct key_entry *found;

	keys_each(found, verbs_lkeys, mr->real->lkey)
		if (found->owner.context == c->number && found->real != mr->real->lkey)
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
			if (!r && verbs_backend.softrdma_key_alias && key_hides_another(c, mr)) {
				r = verbs_mr_redraw(c, mr);
				again = 1;
			}
	return r || !again ? r : lkeys_renew();
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
	return r ? r : verbs_names_ask();
}
