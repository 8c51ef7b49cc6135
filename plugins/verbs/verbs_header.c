/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The 40 bytes before a datagram's data: a global route header (IBA 8.3), or, for RoCE v2 over IPv4, an IPv4 header in the last 20 of them (annex A17.4.5.2). Which one it is they
 * say themselves: the version of one and the header checksum of the other, as a packet of version 6 may by chance hold a 4 there. After a restart the fabric may
 * have the other form; the program is given that of the port which it knows. No state.
 */
#include "plugins/verbs/verbs_header.h"

#define IPV4_VERSION_AND_LENGTH 0x45
#define DONT_FRAGMENT 0x4000
#define NEXT_IBA 0x1b
#define NEXT_UDP 17
#define HALF 20 /* bytes before an IPv4 header */

struct ipv4 {
	uint8_t version_length, tos;
	uint16_t length, id, fragment; /* network order, as all of it */
	uint8_t ttl, protocol;
	uint16_t checksum;
	uint8_t from[4], to[4];
};
_Static_assert(sizeof(struct ipv4) == HALF && sizeof(struct ibv_grh) == 2 * HALF, "RFC 791, IBA 8.3");

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

static uint16_t checksum_of(struct ipv4 ip)
{
	uint16_t words[HALF / 2];
	uint32_t sum = 0;

	ip.checksum = 0;
	memcpy(words, &ip, sizeof(words));
	for (size_t i = 0; i < HALF / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~(sum + (sum >> 16));
}

static int is_mapped(const union ibv_gid *gid)
{
	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static void gid_of(union ibv_gid *gid, const uint8_t address[4])
{
	memcpy(gid->raw, mapped, sizeof(mapped));
	memcpy(gid->raw + sizeof(mapped), address, 4);
}

void verbs_header_read(const void *bytes, struct verbs_header *ret)
{
	struct ibv_grh grh;
	struct ipv4 ip;
	uint32_t first;

	memcpy(&grh, bytes, sizeof(grh));
	memcpy(&ip, (const char *)bytes + HALF, sizeof(ip));
	first = be32toh(grh.version_tclass_flow);
	*ret = (struct verbs_header){ .ipv4 = ip.version_length == IPV4_VERSION_AND_LENGTH && (first >> 28 != 6 || ip.checksum == checksum_of(ip)) };
	if (ret->ipv4) {
		gid_of(&ret->from, ip.from);
		gid_of(&ret->to, ip.to);
		ret->traffic_class = ip.tos;
		ret->hop_limit = ip.ttl;
		ret->length = (uint16_t)(be16toh(ip.length) - HALF);
		ret->next = ip.protocol;
		return;
	}
	ret->from = grh.sgid;
	ret->to = grh.dgid;
	ret->traffic_class = (uint8_t)(first >> 20);
	ret->flow_label = first & 0xfffff;
	ret->hop_limit = grh.hop_limit;
	ret->length = be16toh(grh.paylen);
	ret->next = grh.next_hdr;
}

static void ipv4_write(const struct verbs_header *h, char *bytes)
{
	struct ipv4 ip = { .version_length = IPV4_VERSION_AND_LENGTH, .tos = h->traffic_class, .length = htobe16((uint16_t)(h->length + HALF)),
			   .fragment = htobe16(DONT_FRAGMENT), .ttl = h->hop_limit, .protocol = NEXT_UDP };

	memcpy(ip.from, h->from.raw + sizeof(mapped), 4);
	memcpy(ip.to, h->to.raw + sizeof(mapped), 4);
	ip.checksum = checksum_of(ip);
	memset(bytes, 0, HALF);
	memcpy(bytes + HALF, &ip, sizeof(ip));
}

void verbs_header_write(const struct verbs_header *h, void *bytes)
{
	struct ibv_grh grh = { .version_tclass_flow = htobe32(6u << 28 | (uint32_t)h->traffic_class << 20 | h->flow_label), .paylen = htobe16(h->length),
			       .next_hdr = h->next, .hop_limit = h->hop_limit, .sgid = h->from, .dgid = h->to };

	if (h->ipv4)
		ipv4_write(h, bytes);
	else
		memcpy(bytes, &grh, sizeof(grh));
}

/* A group's address, of RoCE v2 over IPv4 if it is one of IPv4 as it stands. */
static int is_ipv4_group(const union ibv_gid *gid)
{
	return is_mapped(gid) && gid->raw[12] >> 4 == 0xe;
}

/* An address of our own port's, of this life; that of a group stays. */
static void own_virtual(const struct verbs_port *port, union ibv_gid *gid)
{
	for (unsigned int g = 0; g < port->places && gid->raw[0] != 0xff && !is_ipv4_group(gid); g++)
		if (port->virtual_kind[g] && !memcmp(gid, &port->real_gid[port->real_place[g]], sizeof(*gid))) {
			*gid = port->virtual_gid[g];
			return;
		}
}

static int is_at_v2(const struct verbs_port *port, const union ibv_gid *gid)
{
	int index = verbs_gid_index_of(port, gid, 1);

	return index >= 0 && verbs_gid_is_v2(port, (unsigned int)index);
}

int verbs_header_is_virtual(const struct verbs_port *port, const struct verbs_header *h)
{
	for (unsigned int g = 0; g < VERBS_GIDS; g++)
		if (!memcmp(&h->to, &port->real_gid[g], sizeof(h->to)))
			return 0;
	return h->to.raw[0] != 0xff && verbs_gid_index_of(port, &h->to, 0) >= 0;
}

void verbs_header_virtual(const struct verbs_port *port, struct verbs_header *h)
{
	int was = h->ipv4;

	own_virtual(port, &h->to);
	h->ipv4 = is_mapped(&h->from) && is_mapped(&h->to) && (is_ipv4_group(&h->to) || is_at_v2(port, &h->to));
	if (was && !h->ipv4)
		h->next = NEXT_IBA;
}

/* A program may have one buffer for all: then the header of a datagram whose completion has not been polled may be over it, in the names of this life. */
static int own_index(const struct verbs_port *port, struct verbs_header *h)
{
	const int v2 = h->ipv4 || h->next == NEXT_UDP;
	int own = verbs_gid_index_of(port, &h->to, v2);

	if (own >= 0)
		return own;
	own_virtual(port, &h->to);
	verbs_gid_virtual(&h->from);
	return verbs_gid_index_of(port, &h->to, v2);
}

int verbs_header_answer(const struct verbs_port *port, const void *bytes, struct ibv_global_route *ret)
{
	struct verbs_header h;
	int own = 0;

	verbs_header_read(bytes, &h);
	if (h.to.raw[0] != 0xff)
		own = own_index(port, &h);
	if (own < 0)
		return -ENOENT;
	*ret = (struct ibv_global_route){ .dgid = h.from, .flow_label = h.flow_label, .sgid_index = (uint8_t)own, .hop_limit = 0xff,
					   .traffic_class = h.traffic_class };
	return 0;
}
