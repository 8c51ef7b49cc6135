/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of queue pairs and shared receive queues after a restart, as verbs_names.c has learnt them. Devices of several hosts give the same numbers, so whose is meant is told by
 * the address that goes with it, and who sent a datagram by the names of its port.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_table.h"

/* Would one of @d with this number be taken for that of @e: of the same device now, or of a port that has the name of one of its? */
static int is_taken_for(const struct shadow_device *d, uint64_t device, const struct entry *e)
{
	if (!device || verbs_device_of(e->address, e->owner.member) == device)
		return 1;
	for (unsigned int i = 1; i <= d->ports; i++)
		if (e->address == verbs_port_first(&d->port[i]))
			return 1;
	return 0;
}

static enum name_known number_known(const struct shadow_device *d, struct table *t, uint32_t number)
{
	struct entry *e;

	table_each(e, t, number)
		if (is_taken_for(d, verbs_device_now(d), e))
			return NAME_OWN;
	return NAME_NEW;
}

enum name_known verbs_qpn_known(const struct shadow_device *d, uint32_t qpn)
{
	enum name_known known = number_known(d, verbs_qpns, qpn);

	/* the old one that had it may be gone, but is still looked up by it */
	return known == NAME_NEW ? number_known(d, verbs_real_qpns, qpn) : known;
}

/* Which of those with a number is meant: that of a port, or else of another port of its device, where nobody had said yet which it is to use. */
static const struct entry *qpn_at(struct table *t, uint32_t qpn, uint64_t port, uint64_t device)
{
	struct entry *e;

	table_each(e, t, qpn)
		if (device ? verbs_device_of(e->address, e->owner.member) == device : e->address == port)
			return e;
	return NULL;
}

/* By an address that is nobody's (one of many paths to a port, say): if one only has the number. */
static const struct entry *qpn_alone(struct table *t, uint32_t qpn)
{
	struct entry *e, *found = NULL;

	table_each(e, t, qpn) {
		if (found)
			return NULL;
		found = e;
	}
	return found;
}

static const struct entry *qpn_find(struct table *t, uint32_t qpn, uint64_t address)
{
	const struct entry *found = qpn_at(t, qpn, address, 0);
	const struct port_name *name;

	if (found)
		return found;
	name = verbs_port_of(address, 0);
	if (!name)
		return qpn_alone(t, qpn);
	found = qpn_at(t, qpn, name->port, 0);
	return found || !name->device ? found : qpn_at(t, qpn, 0, name->device);
}

uint32_t verbs_qpn_real(uint32_t qpn, uint64_t address, uint32_t *ret_member)
{
	const struct entry *e = qpn_find(verbs_qpns, qpn, address);

	if (e)
		*ret_member = e->owner.member;
	return e ? (uint32_t)e->value : qpn;
}

int verbs_qpn_find(uint32_t qpn, uint64_t address, uint32_t *ret_real)
{
	const struct entry *e = qpn_find(verbs_qpns, qpn, address);

	if (e)
		*ret_real = (uint32_t)e->value;
	return e != NULL;
}

uint32_t verbs_srqn_real(uint32_t number, uint64_t address, struct verbs_owner *ret_owner)
{
	const struct entry *e = qpn_find(verbs_srqns, number, address);

	if (e)
		*ret_owner = e->owner;
	return e ? (uint32_t)e->value : number;
}

enum name_known verbs_srqn_known(const struct shadow_device *d, uint32_t number)
{
	return number_known(d, verbs_srqns, number);
}

uint32_t verbs_qpn_virtual(uint32_t qpn, uint64_t address)
{
	const struct entry *found;
	struct entry *e;

	table_each(e, verbs_real_qpns, qpn)
		if (e->address == address && e->owner.member == verbs_self)
			return (uint32_t)e->value;
	found = qpn_find(verbs_real_qpns, qpn, address);
	return found ? (uint32_t)found->value : qpn;
}

void verbs_peer_real(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, int old)
{
	struct ibv_ah_attr *ah = &attr->ah_attr;
	uint64_t address = verbs_address(verbs_qp_port(qp), mask & IBV_QP_AV ? ah : &qp->attr.ah_attr);
	const struct port_name *name;
	const struct entry *found;

	if (mask & IBV_QP_DEST_QPN) {
		found = qpn_find(verbs_qpns, attr->dest_qp_num, address);
		qp->peer_owner = found ? found->owner : (struct verbs_owner){ 0 };
		attr->dest_qp_num = found ? (uint32_t)found->value : old ? VERBS_NOBODY : attr->dest_qp_num;
	}
	if (mask & IBV_QP_AV) {
		name = verbs_port_of(address, qp->peer_owner.member);
		qp->peer_device = name ? name->device : 0;
		if (mask & IBV_QP_PATH_MTU && name && name->mtu && (uint32_t)attr->path_mtu > name->mtu) /* what is longer does not get there */
			attr->path_mtu = (enum ibv_mtu)name->mtu;
		verbs_ah_real(verbs_qp_port(qp), ah, qp->peer_owner.member);
	}
}

/* Whether that is one of the program's names of a port: a program may have one header for many datagrams, which was turned into these with the first. */
static int is_called(const struct port_name *port, const union ibv_gid *gid)
{
	struct entry *e;

	table_each(e, verbs_ports, verbs_gid_address(gid))
		if (port_name_of(e)->port == port->port && port_name_of(e)->home == port->home)
			return 1;
	return 0;
}

/* Of the queue pairs that have the number now, is it the one of @e? It gets the names of its port. */
static int sender_is(const struct entry *e, uint16_t *lid, union ibv_gid *gid)
{
	const struct port_name *home = verbs_port_of(e->address, e->owner.member), *name = NULL;

	if (!home)
		return 0;
	if (gid)
		name = verbs_gid_name(gid, NULL, home);
	if (gid ? !name && !is_called(home, gid) : verbs_port_of(home->port, e->owner.member)->lid != *lid)
		return 0;
	if (name)
		*gid = name->virtual_gid;
	*lid = home->virtual_lid;
	return 1;
}

void verbs_sender_virtual(const struct verbs_port *own, uint32_t *number, uint16_t *lid, union ibv_gid *gid)
{
	static const union ibv_gid nobody;
	uint16_t path = verbs_path_take(own, lid);
	struct entry *e;

	table_each(e, verbs_real_qpns, *number)
		if (sender_is(e, lid, gid)) {
			*number = (uint32_t)e->value;
			*lid |= path;
			return;
		}
	verbs_told_by_chance(&own->real_gid[0], *lid, gid ? gid : &nobody);
	*lid = verbs_lid_virtual(&own->real_gid[0], *lid) | path;
	if (gid)
		verbs_gid_virtual(gid);
}

int verbs_peer_virtual(uint32_t pid, uint16_t *ret_lid, union ibv_gid *gid, const union ibv_gid *as)
{
	const struct port_name *home, *name;
	struct entry *e;

	table_each(e, pid ? verbs_selves : NULL, pid) {
		home = verbs_port_of(e->address, e->owner.member);
		name = home ? verbs_gid_name(gid, as, home) : NULL;
		if (!name)
			continue;
		*gid = name->virtual_gid;
		*ret_lid = home->virtual_lid;
		return 1;
	}
	return 0;
}
