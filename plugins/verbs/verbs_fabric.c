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
#include "plugins/verbs/verbs_table.h"

#define NOBODY 0xfffffeu /* a queue pair number that no device gives */

/* ---- addresses ---- */

uint64_t verbs_gid_address(const union ibv_gid *gid)
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
	return ah->dlid || !ah->is_global ? ah->dlid : verbs_gid_address(&ah->grh.dgid);
}

uint64_t verbs_port_address(const struct verbs_port *p, unsigned int gid_index)
{
	if (p->virtual_lid)
		return gid_index ? 0 : p->virtual_lid;
	return gid_index < VERBS_GIDS ? verbs_gid_address(&p->virtual_gid[gid_index]) : 0;
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

	table_each(e, verbs_lkeys, key)
		return (uint32_t)e->value;
	return key;
}

uint32_t verbs_rkey_real(const struct shadow_qp *qp, uint32_t key)
{
	struct entry *e;

	table_each(e, verbs_rkeys, key)
		if (!qp->peer_pid || e->pid == qp->peer_pid)
			return (uint32_t)e->value;
	return key;
}

/* ---- control path ---- */

int verbs_key_known(uint32_t lkey, uint32_t rkey)
{
	struct entry *e;

	table_each(e, verbs_lkeys, lkey)
		return 1;
	table_each(e, verbs_rkeys, rkey)
		if (e->pid == fermata_pid())
			return 1;
	return 0;
}

int verbs_qpn_known(uint32_t qpn)
{
	struct entry *e;

	table_each(e, verbs_qpns, qpn)
		return 1;
	return 0;
}

void verbs_peer_real(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, int old)
{
	struct ibv_ah_attr *ah = &attr->ah_attr;
	uint64_t address = verbs_address(mask & IBV_QP_AV ? ah : &qp->attr.ah_attr);
	struct entry *e, *found = NULL;

	if (mask & IBV_QP_DEST_QPN) {
		table_each(e, verbs_qpns, attr->dest_qp_num)
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
		table_each(e, verbs_ports, ah->dlid) {
			ah->dlid = ((const struct port_name *)(uintptr_t)e->value)->lid;
			break;
		}
	}
	if (ah->is_global) {
		table_each(e, verbs_ports, verbs_gid_address(&ah->grh.dgid)) {
			ah->grh.dgid = ((const struct port_name *)(uintptr_t)e->value)->gid;
			break;
		}
	}
}

void verbs_key_remove(uint32_t lkey)
{
	struct entry *e;

	table_each(e, verbs_lkeys, lkey)
		e->value = 0; /* the key that no region has */
}
