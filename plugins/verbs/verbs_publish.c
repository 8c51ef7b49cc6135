/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the fabric at a restart: what this process's old names mean now is published (what everybody's mean is learnt: verbs_names_make.c). Those of regions are
 * as soon as these are made (verbs_mr_restart.c). The program stands still.
 */
#include "plugins/verbs/verbs_internal.h"
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

/* The pid is the kernel's in this life, which softrdma's messages say; without namespaces the program has another one. */
static int publish_selves(const struct shadow_device *d)
{
	struct self_name self = { .pid = (uint32_t)raw_getpid(), .member = fermata_member() };
	int r = 0;

	for (unsigned int i = 1; !r && i <= d->ports; i++) {
		self.address = verbs_port_first(&d->port[i]);
		if (self.address)
			r = fermata_job_publish(NAME_SELF, sizeof(NAME_SELF), &self, sizeof(self));
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

void verbs_chunk_begin(struct mr_chunk *chunk, const struct shadow_context *c)
{
	*chunk = (struct mr_chunk){ .owner = owner_of(c), .device = device_of(c->device) };
}

int verbs_chunk_add(const char *name, size_t len, struct mr_chunk *chunk, uint32_t virtual, uint32_t real)
{
	chunk->mr[chunk->count].virtual = virtual;
	chunk->mr[chunk->count].real = real;
	return ++chunk->count == ARRAY_SIZE(chunk->mr) ? verbs_chunk_end(name, len, chunk) : 0;
}

int verbs_chunk_end(const char *name, size_t len, struct mr_chunk *chunk)
{
	int r = chunk->count ? fermata_job_publish(name, len, chunk, sizeof(*chunk)) : 0;

	chunk->count = 0;
	return r;
}

static int publish_windows(const struct shadow_context *c)
{
	struct mr_chunk chunk;
	struct shadow_mw *mw;
	int r = 0;

	verbs_chunk_begin(&chunk, c);
	list_each(mw, &c->mws, link)
		r = r ? r : verbs_chunk_add(NAME_MW, sizeof(NAME_MW), &chunk, verbs_mw_key_virtual(mw, mw->real->rkey), mw->real->rkey);
	return r ? r : verbs_chunk_end(NAME_MW, sizeof(NAME_MW), &chunk);
}

int verbs_fabric_publish(void)
{
	struct shadow_context *c;
	struct shadow_device *d;
	int r = 0;

	list_each(d, &verbs_devices, link)
		if (!r)
			r = publish_ports(d);
	list_each(d, &verbs_devices, link)
		if (!r)
			r = publish_selves(d);
	for_each_context(c) {
		if (!r)
			r = publish_qps(c);
		if (!r)
			r = publish_srqs(c);
		if (!r)
			r = publish_windows(c);
	}
	return r ? r : verbs_names_ask();
}
