/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places in a port's table of GIDs. What lies at a place differs from host to host (how many addresses they have, for RoCE: of which kinds). Both ends of a connection have to be
 * of one kind, so the second GID of a kind that the program was told means, in this life, the second of that kind. Each datagram after a restart asks for it, so where a place
 * leads is kept beside the two tables (struct verbs_port), found anew when one of them changes. No other state.
 */
#include "plugins/verbs/verbs_internal.h"

#define FAMILIES 3u

/* How far each family leads: of the link, IPv4, IPv6. */
static const uint8_t reach[FAMILIES] = { 1, 3, 2 };

static uint32_t family_of(const union ibv_gid *gid)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };

	return gid->raw[0] == 0xfe && gid->raw[1] == 0x80 ? 0 : !memcmp(gid->raw, ipv4, sizeof(ipv4)) ? 1 : 2;
}

unsigned int verbs_gid_reach(const union ibv_gid *gid)
{
	return reach[family_of(gid)];
}

uint8_t verbs_gid_kind(const union ibv_gid *gid, uint32_t type)
{
	return (uint8_t)(1 + type % 80 * FAMILIES + family_of(gid));
}

uint32_t verbs_gid_type(const struct verbs_port *own, unsigned int index)
{
	return (own->virtual_kind[index] - 1u) / FAMILIES;
}

int verbs_gid_is_v2(const struct verbs_port *own, unsigned int index)
{
	return own->virtual_kind[index] && verbs_gid_type(own, index) == IBV_GID_TYPE_ROCE_V2;
}

/* Where the port has none of the kind: what leads furthest, RoCE v2 before v1, over IPv4, IPv6, the link; then what comes first. */
static unsigned int rank_of(uint8_t kind)
{
	unsigned int type = kind ? (kind - 1u) / FAMILIES : 0;

	return type == IBV_GID_TYPE_IB ? !!kind : type * FAMILIES + reach[(kind - 1u) % FAMILIES];
}

static unsigned int place_find(const struct verbs_port *own, unsigned int index, unsigned int best)
{
	uint8_t kind = own->virtual_kind[index];
	unsigned int before = 0, first = VERBS_GIDS;

	for (unsigned int g = 0; g < index; g++)
		before += own->virtual_kind[g] == kind;
	for (unsigned int g = 0; g < VERBS_GIDS; g++) {
		if (own->real_kind[g] != kind)
			continue;
		if (!before--)
			return g;
		first = g < first ? g : first;
	}
	if (first < VERBS_GIDS)
		return first;
	return rank_of(own->real_kind[index]) == rank_of(own->real_kind[best]) ? index : best;
}

void verbs_gid_places(struct verbs_port *own)
{
	unsigned int best = 0, places = 0;

	for (unsigned int g = 0; g < VERBS_GIDS; g++)
		best = rank_of(own->real_kind[g]) > rank_of(own->real_kind[best]) ? g : best;
	for (unsigned int g = 0; g < VERBS_GIDS; g++) {
		if (!own->virtual_kind[g])
			continue;
		own->real_place[g] = (uint8_t)place_find(own, g, best);
		places = g + 1;
	}
	own->places = (uint16_t)places;
}
_Static_assert(VERBS_GIDS <= UINT8_MAX + 1, "a place is a byte");

unsigned int verbs_gid_index_real(const struct verbs_port *own, unsigned int index)
{
	return index < own->places && own->virtual_kind[index] ? own->real_place[index] : 0;
}

unsigned int verbs_gid_index_virtual(const struct verbs_port *own, unsigned int index, const union ibv_gid *as)
{
	unsigned int best = index, best_rank = 0, rank;

	for (unsigned int g = 0; g < own->places; g++) {
		if (!own->virtual_kind[g] || own->real_place[g] != index)
			continue;
		rank = rank_of(own->virtual_kind[g]) + (memcmp(&own->virtual_gid[g], as, sizeof(*as)) ? 0 : UINT8_MAX);
		if (rank > best_rank) {
			best = g;
			best_rank = rank;
		}
	}
	return best;
}

int verbs_gid_index_of(const struct verbs_port *own, const union ibv_gid *gid, int v2)
{
	int other = -1;

	for (unsigned int g = 0; g < own->places; g++) {
		if (!own->virtual_kind[g] || memcmp(&own->virtual_gid[g], gid, sizeof(*gid)))
			continue;
		if (verbs_gid_is_v2(own, g) == !!v2)
			return (int)g;
		other = other < 0 ? (int)g : other;
	}
	return other;
}
