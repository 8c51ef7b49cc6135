/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports that get their first name after a restart, from a process that opens its first device only then. Such a port is called what it is. But that may be the name of another one, which had this
 * address in a life before: where hosts have been exchanged, or where a program is begun on a host that the job has left. Names are told at a restart only, so this one's comes of its address by a rule,
 * and with the names that all have learnt everybody can tell by the rule which port is meant:
 *
 *      the port of before, with address A     is at B now, and called A
 *      a port with address A now              has no name yet, and A is the other's: so it is called A', one of VARIANTS that is nobody's name
 *      whoever is told A'                     finds no such name, but that A has one that is not its own, and would be called A'
 *
 * The next restart tells A' like any other name. Between, a port that really has the address A' and comes to the job only now, too, would be taken for that one: it would be called A' as well. The rule changes bits
 * that hosts of a job seldom differ in, and leaves an IPv4 address one, of the same network if that is a large one.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_table.h"

#define VARIANTS 8 /* and the first is what the port is */
#define LID_SHIFT 13
#define GID_BYTE 14
#define GID_SHIFT 5
#define MULTICAST_LIDS 0xc000u /* InfiniBand Architecture Specification vol. 1, 4.1.3: from here on */

struct place {
	union ibv_gid gid; /* or any of its subnet, with a LID */
	uint16_t lid;
	int by_lid;
};

static struct place variant(struct place p, unsigned int n)
{
	if (p.by_lid)
		p.lid ^= (uint16_t)(n << LID_SHIFT);
	else
		p.gid.raw[GID_BYTE] ^= (uint8_t)(n << GID_SHIFT);
	return p;
}

/* 0: it is no port's. */
static uint64_t address_of(const struct place *p)
{
	if (!p->by_lid)
		return verbs_gid_address(&p->gid);
	return p->lid < MULTICAST_LIDS ? verbs_lid_address(&p->gid, p->lid) : 0;
}

static int is_in(struct table *t, uint64_t address)
{
	struct entry *e;

	table_each(e, t, address)
		return 1;
	return 0;
}

static struct place named(struct place p)
{
	for (unsigned int n = 0; address_of(&p) && n < VARIANTS; n++) {
		const struct place v = variant(p, n);
		const uint64_t address = address_of(&v);

		if (address && !is_in(verbs_ports, address))
			return v;
	}
	return p;
}

static struct place meant(struct place p)
{
	for (unsigned int n = 1; n < VARIANTS; n++) {
		const struct place v = variant(p, n);
		const uint64_t address = address_of(&v);
		struct place name;

		if (!address || !is_in(verbs_ports, address) || is_in(verbs_real_ports, address))
			continue;
		name = named(v);
		if (address_of(&name) == address_of(&p))
			return v;
	}
	return p;
}

uint16_t verbs_lid_named(const union ibv_gid *in_subnet, uint16_t lid)
{
	return named((struct place){ *in_subnet, lid, 1 }).lid;
}

uint16_t verbs_lid_meant(const union ibv_gid *in_subnet, uint16_t lid)
{
	return meant((struct place){ *in_subnet, lid, 1 }).lid;
}

void verbs_gid_named(union ibv_gid *gid)
{
	*gid = named((struct place){ .gid = *gid }).gid;
}

void verbs_gid_meant(union ibv_gid *gid)
{
	*gid = meant((struct place){ .gid = *gid }).gid;
}
