/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of the fabric: queue pair numbers, local and remote keys, LIDs and GIDs. In the first life the program's names are the
 * device's, and nothing here is used (verbs_moved is 0). At a restart each process publishes what its old names
 * mean now:
 *
 *   "verbs/port"  struct port_name[]   address -> LID and GID
 *   "verbs/qp"    struct qp_chunk      owner, {old number, number}[]
 *   "verbs/mr"    struct mr_chunk      owner, its device, {old remote key, remote key}[]
 *   "verbs/mw"    struct mr_chunk      the same of windows, one key of each: verbs_mw.c says what that means for its others
 *
 * and each learns all of it, as hash tables that the data path reads without a lock. Keys: verbs_fabric_keys.c.
 * A name that is in no table was made after the restart and is the device's own; therefore whatever is made then is drawn again until its name is none of the old ones.
 *
 * The tables change at a restart only, while the program stands still, but for one word: a released region's local key, of which nobody else knows, is made
 * to mean nothing.
 *
 * Every process learns the whole job's table, of which a host has one (verbs_names_make.c). A name can be told long before it is used, and then those who need it
 * cannot be foreseen: they may have no queue pair, no device open, not even have looked for one.
 *
 *      a   makes QP 7, tells 7                          | QP 7 is 9 now
 *      b   listens; 7 lies in its socket, or its memory | reads 7, opens a device, makes a QP, connects it to 7
 *
 * The number in b's hand is of a life before its first device. A listener of rdma_cm is such a b: librdmacm opens the device with the first request. Without the table
 * its sends would go to nobody, or to who has drawn 7 since, until their retries are used up. And what b makes must not be called 7 either. All that goes for a b
 * that is begun only now, too: the names are kept for it (fermata_common_map).
 *
 * One port may have become several: processes of one host came back on two (fermata restart --part). Their port has one name for the program, and which port is meant
 * is told by whose queue pair it leads to. Of a queue pair made only then nobody has published the number: there the name means the first of the ports.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_table.h"

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

#define DEFAULT_SUBNET 0xfe80000000000000ull /* InfiniBand Architecture Specification vol. 1, 4.1.1 */

/* Each subnet counts its LIDs from 1 on, and a host's devices may lie in several. */
uint64_t verbs_lid_address(const union ibv_gid *in_subnet, uint16_t lid)
{
	uint64_t prefix = __builtin_bswap64(in_subnet->global.subnet_prefix);

	if (!lid || !prefix || prefix == DEFAULT_SUBNET)
		return lid;
	return (prefix * 0x9e3779b97f4a7c15ull >> 17) << 16 | lid;
}

/* Of a LID: which path it goes by. All ports of a subnet are given as many (InfiniBand Architecture Specification vol. 1, 7.11.1). */
static uint16_t path_bits(uint8_t lmc)
{
	return (uint16_t)((1u << lmc) - 1);
}

uint64_t verbs_address(const struct verbs_port *own, const struct ibv_ah_attr *ah)
{
	const uint16_t base = (uint16_t)(ah->dlid & ~path_bits(own->virtual_lmc));

	return ah->dlid || !ah->is_global ? verbs_lid_address(&own->virtual_gid[0], base) : verbs_gid_address(&ah->grh.dgid);
}

uint64_t verbs_qp_address(const struct shadow_qp *qp)
{
	return verbs_address(verbs_qp_port(qp), &qp->attr.ah_attr);
}

uint64_t verbs_ah_address(const struct shadow_ah *ah)
{
	return verbs_address(verbs_port_at(ah->pub.context, ah->attr.port_num), &ah->attr);
}

uint64_t verbs_port_address(const struct verbs_port *p, unsigned int gid_index)
{
	if (p->virtual_lid)
		return gid_index ? 0 : verbs_lid_address(&p->virtual_gid[0], p->virtual_lid);
	return gid_index < VERBS_GIDS ? verbs_gid_address(&p->virtual_gid[gid_index]) : 0;
}

uint64_t verbs_port_first(const struct verbs_port *p)
{
	uint64_t first = 0;

	for (unsigned int g = 0; !first && g < VERBS_GIDS; g++)
		first = verbs_port_address(p, g);
	return first;
}

const struct verbs_port *verbs_port_at(struct ibv_context *context, unsigned int number)
{
	return &shadow_context(context)->device->port[number <= VERBS_PORTS ? number : 0];
}

const struct verbs_port *verbs_qp_port(const struct shadow_qp *qp)
{
	return verbs_port_at(qp->pub.context, qp->attr_mask & IBV_QP_PORT ? qp->attr.port_num : 1);
}

/* ---- ports ---- */

static const struct port_name *port_find(struct table *t, uint64_t address)
{
	struct entry *e;

	if (!address)
		return NULL;
	table_each(e, t, address)
		return port_name_of(e);
	return NULL;
}

const struct port_name *verbs_port_of(uint64_t address, uint32_t member)
{
	struct entry *e, *found = NULL;

	if (!address)
		return NULL;
	table_each(e, verbs_ports, address)
		if (e->owner.member ? e->owner.member == member : !found)
			found = e;
	return found ? port_name_of(found) : NULL;
}

uint64_t verbs_device_of(uint64_t address, uint32_t member)
{
	const struct port_name *name = verbs_port_of(address, member);

	return name ? name->device : 0;
}

uint64_t verbs_device_now(const struct shadow_device *d)
{
	uint64_t device = 0;

	for (unsigned int i = 1; !device && i <= d->ports; i++)
		device = verbs_device_of(verbs_port_first(&d->port[i]), verbs_self);
	return device;
}

static void gid_real(union ibv_gid *gid, uint32_t member)
{
	const struct port_name *name = verbs_port_of(verbs_gid_address(gid), member);

	if (name)
		*gid = name->gid;
	else
		verbs_gid_meant(gid);
}

void verbs_gid_real(union ibv_gid *gid)
{
	gid_real(gid, verbs_self);
}

uint64_t verbs_home(uint64_t address, uint32_t member)
{
	const struct port_name *name = verbs_port_of(address, member);

	return name ? name->home : 0;
}

int verbs_homes(uint64_t address, uint32_t *members, unsigned int room)
{
	unsigned int count = 0, known;
	struct entry *e;

	if (!address)
		return 0;
	table_each(e, verbs_ports, address) {
		for (known = 0; e->owner.member && known < count; known++)
			if (verbs_home(address, members[known]) == verbs_home(address, e->owner.member))
				break;
		if (!e->owner.member || known < count)
			continue;
		if (count == room)
			return -E2BIG;
		members[count++] = e->owner.member;
	}
	return (int)count;
}

/* A fabric with LIDs may become one without, and the other way round: what the port of this life has is what it is addressed by. */
void verbs_ah_real(const struct verbs_port *own, struct ibv_ah_attr *ah, uint32_t member)
{
	const struct port_name *name = verbs_port_of(verbs_address(own, ah), member);
	uint16_t path = ah->dlid & path_bits(own->virtual_lmc) & path_bits(own->real_lmc);

	ah->src_path_bits &= (uint8_t)path_bits(own->real_lmc);
	if (ah->is_global) {
		gid_real(&ah->grh.dgid, member);
		ah->grh.sgid_index = (uint8_t)verbs_gid_index_real(own, ah->grh.sgid_index);
	}
	if (!name) {
		path = ah->dlid & path_bits(own->virtual_lmc);
		ah->dlid = verbs_lid_meant(&own->virtual_gid[0], (uint16_t)(ah->dlid - path)) | path;
		return;
	}
	ah->dlid = name->lid ? name->lid | path : 0;
	if (!ah->dlid && !ah->is_global) {
		ah->is_global = 1;
		ah->grh = (struct ibv_global_route){ .dgid = name->gid, .hop_limit = 64 };
	}
}

uint16_t verbs_path_take(const struct verbs_port *own, uint16_t *lid)
{
	uint16_t path = *lid & path_bits(own->real_lmc);

	*lid = (uint16_t)(*lid - path);
	return path & path_bits(own->virtual_lmc);
}

int verbs_is_tied;

void verbs_told_by_chance(const union ibv_gid *in_subnet, uint16_t lid, const union ibv_gid *gid)
{
	uint64_t address = lid ? verbs_lid_address(in_subnet, lid) : verbs_gid_address(gid);
	const struct port_name *first = port_find(verbs_real_ports, address);
	struct entry *e;

	table_each(e, first && !verbs_is_tied ? verbs_real_ports : NULL, address)
		if (port_name_of(e)->port != first->port)
			verbs_is_tied = 1;
}

uint16_t verbs_lid_virtual(const union ibv_gid *in_subnet, uint16_t lid)
{
	const struct port_name *name = port_find(verbs_real_ports, verbs_lid_address(in_subnet, lid));

	return name ? name->virtual_lid : verbs_lid_named(in_subnet, lid);
}

static int same_port(const struct port_name *a, const struct port_name *b)
{
	return a->port == b->port && a->home == b->home;
}

/* Where there are LIDs no GID leads further than another. */
static unsigned int gid_rank(const struct port_name *name, const union ibv_gid *as)
{
	if (!as || (name->virtual_lid && memcmp(&name->virtual_gid, as, sizeof(*as))))
		return 1;
	return memcmp(&name->virtual_gid, as, sizeof(*as)) ? verbs_gid_reach(&name->virtual_gid) : UINT8_MAX;
}

const struct port_name *verbs_gid_name(const union ibv_gid *gid, const union ibv_gid *as, const struct port_name *port)
{
	const struct port_name *best = NULL;
	unsigned int rank, best_rank = 0;
	struct entry *e;

	table_each(e, verbs_real_ports, verbs_gid_address(gid)) {
		const struct port_name *name = port_name_of(e);

		rank = gid_rank(name, as);
		if (rank <= best_rank || (port && !same_port(name, port)) || (best && rank < UINT8_MAX && !same_port(name, best)))
			continue;
		best = name;
		best_rank = rank;
	}
	return best;
}

void verbs_gid_virtual_as(union ibv_gid *gid, const union ibv_gid *as)
{
	const struct port_name *name = verbs_gid_address(gid) ? verbs_gid_name(gid, as, NULL) : NULL;

	if (name)
		*gid = name->virtual_gid;
	else
		verbs_gid_named(gid);
}

void verbs_gid_virtual(union ibv_gid *gid)
{
	verbs_gid_virtual_as(gid, NULL);
}
