/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ports of a context: what is in their tables, and the verbs that ask. What there is follows from the environment:
 *
 *   SOFTRDMA_DEVICES  1 to 8, 1        SOFTRDMA_PORTS  1 or 2, 1      SOFTRDMA_LINK  infiniband, roce
 *   SOFTRDMA_PKEYS    up to 16, 0xffff SOFTRDMA_GIDS   1 to 16 on each InfiniBand port, 1
 *
 * On InfiniBand a port has a LID and GIDs fe80:: and its GUID, those beyond the first with alias GUIDs. On RoCE it has no LID;
 * its GIDs are fe80:: and its MAC's, and on the first port of the first device the host's IPv4 addresses, each
 * twice, as RoCE v1 and v2. No state but what is written into the context at its opening.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softrdma/export.h"
#include "softrdma/name.h"

#define PORT_ATTR_OLD 48 /* bytes that the exported ibv_query_port may write */
#define WIDTH_4X 2
#define SPEED_EDR 32
#define PHYS_LINK_UP 5
#define CAP_IP_BASED_GIDS (1u << 26)

/* What ibv_query_gid_type tells. */
enum { SYSFS_IB_ROCE_V1, SYSFS_ROCE_V2 };

/* ---- what the environment says ---- */

static uint32_t digit(char c)
{
	if (c >= '0' && c <= '9')
		return (uint32_t)(c - '0');
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10) : 16;
}

/* Decimal or 0x; the libc's reading of numbers asks for the thread's locale. Moves *s behind it. */
static uint32_t parse(const char **s)
{
	uint32_t base = 10, v = 0;

	if ((*s)[0] == '0' && ((*s)[1] | 0x20) == 'x') {
		base = 16;
		*s += 2;
	}
	for (; digit(**s) < base && v <= 0xffff; ++*s)
		v = v * base + digit(**s);
	return v;
}

/* One is there always, so that no port is without. */
static void pkeys_read(struct sr_context *ctx)
{
	const char *s = getenv("SOFTRDMA_PKEYS");

	while (s && *s && ctx->pkeys < SR_MAX_PKEYS) {
		uint32_t key = parse(&s);

		if (key > 0xffff || !(key & 0x7fff) || (*s && *s != ','))
			break;
		ctx->pkey[ctx->pkeys++] = (uint16_t)key;
		s += *s == ',';
	}
	if (!ctx->pkeys)
		ctx->pkey[ctx->pkeys++] = 0xffff;
}

/* ---- the ports of a context ---- */

static void gid_add(struct sr_port *p, uint64_t prefix, uint64_t id, int type)
{
	if (p->gids == SR_MAX_GIDS)
		return;
	p->gid[p->gids].global.subnet_prefix = htobe64(prefix);
	p->gid[p->gids].global.interface_id = htobe64(id);
	p->gid_type[p->gids++] = (uint8_t)type;
}

static void roce_gid_add(struct sr_port *p, uint64_t prefix, uint64_t id)
{
	gid_add(p, prefix, id, SYSFS_IB_ROCE_V1);
	gid_add(p, prefix, id, SYSFS_ROCE_V2);
}

static int address_add(struct sr_port *p, const uint8_t ip[16])
{
	union ibv_gid gid;

	memcpy(gid.raw, ip, sizeof(gid.raw));
	roce_gid_add(p, be64toh(gid.global.subnet_prefix), be64toh(gid.global.interface_id));
	return 0;
}

static void port_fill(struct sr_context *ctx, uint32_t number)
{
	struct sr_port *p = &ctx->port[number - 1];
	uint64_t i, n = sr_name_number("SOFTRDMA_GIDS", SR_MAX_GIDS);

	if (!ctx->ethernet) {
		p->lid = sr_name_lid(&ctx->host, ctx->device, number);
		for (i = 0; i < n; i++)
			gid_add(p, SR_SUBNET, sr_name_port_guid(&ctx->host, ctx->device, number) ^ i << SR_ALIAS_SHIFT, SYSFS_IB_ROCE_V1);
		return;
	}
	roce_gid_add(p, SR_SUBNET, sr_name_mac_id(&ctx->host, ctx->device, number));
	if (!ctx->device && number == 1)
		sr_name_addresses(&ctx->host, address_add, p);
}

void sr_ports_fill(struct sr_context *ctx)
{
	uint32_t i;

	ctx->ethernet = sr_name_is_roce();
	ctx->host = sr_name_host();
	if (!ctx->net)
		ctx->host.address = 0;
	ctx->ports = sr_name_number("SOFTRDMA_PORTS", SR_MAX_PORTS);
	ctx->seg->device = ctx->device;
	ctx->seg->host_name = ctx->host.name;
	ctx->seg->host_address = ctx->host.address;
	ctx->seg->host_mask = ctx->host.mask;
	pkeys_read(ctx);
	for (i = 1; i <= ctx->ports; i++)
		port_fill(ctx, i);
}

/* ---- the verbs ---- */

int sr_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	const struct sr_context *ctx = sr_context(context);
	struct ibv_port_attr a = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.max_msg_sz = SR_MAX_MSG,
		.pkey_tbl_len = (uint16_t)ctx->pkeys,
		.max_vl_num = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = PHYS_LINK_UP,
		.link_layer = ctx->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
		.port_cap_flags = ctx->ethernet ? CAP_IP_BASED_GIDS : 0,
		.flags = ctx->ethernet ? IBV_QPF_GRH_REQUIRED : 0,
	};

	if (!sr_port_is(ctx, port))
		return EINVAL;
	a.gid_tbl_len = ctx->port[port - 1].gids;
	a.lid = a.sm_lid = ctx->port[port - 1].lid;
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return sr_query_port(context, port, (struct ibv_port_attr *)attr, PORT_ATTR_OLD);
}

static const struct sr_port *gid_port(struct ibv_context *context, uint32_t port, unsigned int index)
{
	const struct sr_context *ctx = sr_context(context);

	if (sr_port_is(ctx, port) && index < ctx->port[port - 1].gids)
		return &ctx->port[port - 1];
	errno = EINVAL;
	return NULL;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	const struct sr_port *p = gid_port(context, port, (unsigned int)index);

	if (!p)
		return -1;
	*gid = p->gid[index];
	return 0;
}

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	const struct sr_port *p = gid_port(context, port, index);

	if (!p)
		return -1;
	*type = p->gid_type[index];
	return 0;
}

static void gid_entry(const struct sr_context *ctx, uint32_t port, uint32_t index, void *to, size_t size)
{
	const struct sr_port *p = &ctx->port[port - 1];
	struct ibv_gid_entry e = { .gid = p->gid[index], .gid_index = index, .port_num = port,
				   .gid_type = IBV_GID_TYPE_IB };

	if (ctx->ethernet)
		e.gid_type = p->gid_type[index] == SYSFS_ROCE_V2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	memset(to, 0, size);
	memcpy(to, &e, size < sizeof(e) ? size : sizeof(e));
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	if (!sr_port_is(sr_context(context), port) || flags)
		return EINVAL;
	if (!gid_port(context, port, index))
		return ENODATA;
	gid_entry(sr_context(context), port, index, entry, size);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	const struct sr_context *ctx = sr_context(context);
	uint32_t port, i;
	size_t n = 0;

	if (flags)
		return -EINVAL;
	for (port = 1; port <= ctx->ports; port++)
		for (i = 0; i < ctx->port[port - 1].gids; i++) {
			if (n == max)
				return -EINVAL;
			gid_entry(ctx, port, i, (char *)entries + n++ * size, size);
		}
	return (ssize_t)n;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	const struct sr_context *ctx = sr_context(context);

	if (!sr_port_is(ctx, port) || (uint32_t)index >= ctx->pkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(ctx->pkey[index]);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	const struct sr_context *ctx = sr_context(context);
	int i;

	for (i = 0; sr_port_is(ctx, port) && i < (int)ctx->pkeys; i++)
		if (ctx->pkey[i] == be16toh(pkey))
			return i;
	errno = EINVAL;
	return -1;
}

/* RoCE: the MAC that a GID stands for. */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vid)
{
	const struct sr_context *ctx = sr_context(context);
	uint16_t site = sr_site_find(ctx, attr), n;
	struct sr_host h = ctx->host;

	if (!ctx->ethernet)
		return EOPNOTSUPP;
	if (!site)
		h.address = sr_host_find(ctx, attr, &site);
	if (!site)
		return EHOSTUNREACH;
	n = (uint16_t)((site & 0xff) - 1);
	sr_name_mac(&h, n / SR_MAX_PORTS, n % SR_MAX_PORTS + 1, mac);
	*vid = 0xffff; /* no VLAN */
	return 0;
}
