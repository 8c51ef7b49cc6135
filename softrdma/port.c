/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of devices and ports: GUIDs, LIDs, GIDs, partition keys. What there is follows from the environment:
 *
 *   SOFTRDMA_DEVICES  1 to 8, 1        SOFTRDMA_PORTS  1 or 2, 1      SOFTRDMA_LINK  infiniband, roce
 *   SOFTRDMA_PKEYS    up to 16, 0xffff SOFTRDMA_GIDS   1 to 16 on each InfiniBand port, 1
 *
 * All names follow from the host's name, the device's number and the port's, so processes of a host agree on them
 * without a word, and one with two devices knows of the third of another. With a network (net.c) they follow from the host's
 * address there in place of its name, so that a name leads to its host: the address is the lower half of GUIDs and the last
 * four bytes of MACs, and its last bits are in LIDs.
 *
 * On InfiniBand a port has a LID and GIDs fe80:: and its GUID, those beyond the first with alias GUIDs. On RoCE it has no LID;
 * its GIDs are fe80:: and its MAC's, and on the first port of the first device the host's IPv4 addresses, each
 * twice, as RoCE v1 and v2.
 *
 * A site is a port of this host as a number: its link layer, device and port; 0 is none. Requests lead from site to
 * site: a queue pair is not found at another port than its own. No state but what is written into the context at its opening.
 */
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "base/sys.h"
#include "softrdma/export.h"

#define PORT_ATTR_OLD 48 /* bytes that the exported ibv_query_port may write */
#define WIDTH_4X 2
#define SPEED_EDR 32
#define PHYS_LINK_UP 5
#define CAP_IP_BASED_GIDS (1u << 26)
#define GUID_BASE 0x0253524400000000ull
#define ALIAS_SHIFT 58 /* of a GID's number in its alias GUID */
#define LID_STRIDE 0x511u
#define LIDS 0xbfffu
#define LID_HOST_BITS 11 /* of the address; the 16 ports have their numbers above */
#define SUBNET 0xfe80000000000000ull

/* What ibv_query_gid_type tells. */
enum { SYSFS_IB_ROCE_V1, SYSFS_ROCE_V2 };

static uint64_t host_hash(void)
{
	struct utsname u;
	uint64_t h = 0xcbf29ce484222325ull;
	const char *s;

	if (uname(&u))
		return h;
	for (s = u.nodename; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

static struct sr_host host_find(void)
{
	struct sr_host h = { .name = host_hash() };

	h.address = sr_net_address(&h.mask);
	h.mask |= ~((1u << LID_HOST_BITS) - 1);
	return h;
}

static uint32_t host_id(const struct sr_host *h)
{
	return h->address ? h->address : (uint32_t)h->name;
}

static uint64_t device_guid(const struct sr_host *h, uint32_t device)
{
	return GUID_BASE + ((uint64_t)device << 32 | host_id(h));
}

uint64_t sr_device_guid(uint32_t device)
{
	const struct sr_host h = host_find();

	return device_guid(&h, device);
}

static uint64_t port_guid(const struct sr_host *h, uint32_t device, uint32_t port)
{
	return device_guid(h, device) + ((uint64_t)(port - 1) << 40);
}

static uint16_t port_lid(const struct sr_host *h, uint32_t device, uint32_t port)
{
	uint32_t n = device * SR_MAX_PORTS + port - 1;

	if (h->address)
		return (uint16_t)(1 + (n << LID_HOST_BITS | (h->address & ~h->mask)));
	return (uint16_t)(1 + (h->name + n * LID_STRIDE) % LIDS);
}

uint64_t sr_guid(void)
{
	return sr_device_guid(0);
}

uint16_t sr_lid(void)
{
	const struct sr_host h = host_find();

	return port_lid(&h, 0, 1);
}

/* A MAC of the locally administered ones. */
static void port_mac(const struct sr_host *host, uint32_t device, uint32_t port, uint8_t mac[6])
{
	uint32_t h = htobe32(host_id(host));

	mac[0] = 0x02;
	mac[1] = (uint8_t)(device * SR_MAX_PORTS + port - 1);
	memcpy(mac + 2, &h, sizeof(h));
}

/* ---- what the environment says ---- */

static uint32_t number_of(const char *name, uint32_t max)
{
	const char *s = getenv(name);
	uint32_t n = 0;

	for (; s && *s >= '0' && *s <= '9' && n <= max; s++)
		n = n * 10 + (uint32_t)(*s - '0');
	return n < 1 ? 1 : n > max ? max : n;
}

uint32_t sr_devices(void)
{
	return number_of("SOFTRDMA_DEVICES", SR_MAX_DEVICES);
}

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

static uint64_t mac_id(const struct sr_host *h, uint32_t device, uint32_t port)
{
	uint8_t m[6], id[8];
	uint64_t v;

	port_mac(h, device, port, m);
	memcpy(id, (uint8_t[]){ m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5] }, sizeof(id));
	memcpy(&v, id, sizeof(v));
	return be64toh(v);
}

static int is_roce(void)
{
	const char *link = getenv("SOFTRDMA_LINK");

	return link && !strcmp(link, "roce");
}

void sr_first_gid(uint8_t gid[16])
{
	const struct sr_host h = host_find();
	uint64_t half[2] = { htobe64(SUBNET), htobe64(is_roce() ? mac_id(&h, 0, 1) : device_guid(&h, 0)) };

	memcpy(gid, half, sizeof(half));
}

static void roce_gid_add(struct sr_port *p, uint64_t prefix, uint64_t id)
{
	gid_add(p, prefix, id, SYSFS_IB_ROCE_V1);
	gid_add(p, prefix, id, SYSFS_ROCE_V2);
}

/*
 * Calls @fn with each IPv4 address of this host but the loopback's, in the host's order, until it answers non-zero. With a
 * network there is only the one that others find it at.
 */
static int host_addresses(const struct sr_host *h, int (*fn)(struct sr_port *p, uint32_t address), struct sr_port *p)
{
	struct ifreq req[32];
	struct ifconf conf = { .ifc_len = sizeof(req), .ifc_req = req };
	int fd, found = 0;
	size_t i;

	if (h->address)
		return fn(p, h->address);
	fd = (int)RAW3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	if (RAW3(SYS_ioctl, fd, SIOCGIFCONF, &conf))
		conf.ifc_len = 0;
	raw_close(fd);
	for (i = 0; !found && i < (size_t)conf.ifc_len / sizeof(*req); i++) {
		struct sockaddr_in sin;

		memcpy(&sin, &req[i].ifr_addr, sizeof(sin));
		if (sin.sin_family == AF_INET && be32toh(sin.sin_addr.s_addr) >> 24 != 127)
			found = fn(p, be32toh(sin.sin_addr.s_addr));
	}
	return found;
}

static int address_add(struct sr_port *p, uint32_t address)
{
	roce_gid_add(p, 0, 0xffff00000000ull | address);
	return 0;
}

static void port_fill(struct sr_context *ctx, uint32_t number)
{
	struct sr_port *p = &ctx->port[number - 1];
	uint64_t i, n = number_of("SOFTRDMA_GIDS", SR_MAX_GIDS);

	if (!ctx->ethernet) {
		p->lid = port_lid(&ctx->host, ctx->device, number);
		for (i = 0; i < n; i++)
			gid_add(p, SUBNET, port_guid(&ctx->host, ctx->device, number) ^ i << ALIAS_SHIFT, SYSFS_IB_ROCE_V1);
		return;
	}
	roce_gid_add(p, SUBNET, mac_id(&ctx->host, ctx->device, number));
	if (!ctx->device && number == 1)
		host_addresses(&ctx->host, address_add, p);
}

void sr_ports_fill(struct sr_context *ctx)
{
	uint32_t i;

	ctx->ethernet = is_roce();
	ctx->host = host_find();
	if (!ctx->net)
		ctx->host.address = 0;
	ctx->ports = number_of("SOFTRDMA_PORTS", SR_MAX_PORTS);
	ctx->seg->device = ctx->device;
	pkeys_read(ctx);
	for (i = 1; i <= ctx->ports; i++)
		port_fill(ctx, i);
}

/* ---- sites ---- */

static uint16_t site_of(const struct sr_context *ctx, uint32_t device, uint32_t port)
{
	return (uint16_t)((ctx->ethernet ? 0x100u : 0u) + 1 + device * SR_MAX_PORTS + port - 1);
}

uint16_t sr_own_site(const struct sr_context *ctx, uint32_t port)
{
	return site_of(ctx, ctx->device, port);
}

static int address_is(struct sr_port *p, uint32_t address)
{
	return p->gid[0].global.interface_id == htobe64(0xffff00000000ull | address);
}

static int gid_leads(const struct sr_context *ctx, const struct sr_host *h, const union ibv_gid *gid, uint32_t device,
		     uint32_t port)
{
	uint64_t id = be64toh(gid->global.interface_id);

	if (be64toh(gid->global.subnet_prefix) != SUBNET)
		return 0;
	if (ctx->ethernet)
		return id == mac_id(h, device, port);
	return !((id ^ port_guid(h, device, port)) & ((1ull << ALIAS_SHIFT) - 1)) &&
	       (id ^ port_guid(h, device, port)) >> ALIAS_SHIFT < SR_MAX_GIDS;
}

static uint16_t site_on(const struct sr_context *ctx, const struct sr_host *h, const struct ibv_ah_attr *a)
{
	struct sr_port wanted = { .gid[0] = a->grh.dgid };
	uint32_t d, p;

	for (d = 0; d < SR_MAX_DEVICES; d++)
		for (p = 1; p <= SR_MAX_PORTS; p++)
			if (a->is_global ? gid_leads(ctx, h, &a->grh.dgid, d, p) : a->dlid == port_lid(h, d, p))
				return site_of(ctx, d, p);
	if (ctx->ethernet && a->is_global && !a->grh.dgid.global.subnet_prefix && host_addresses(h, address_is, &wanted))
		return site_of(ctx, 0, 1);
	return 0;
}

/* Where the address leads to on this host; 0: elsewhere, or nowhere. */
uint16_t sr_site_find(const struct sr_context *ctx, const struct ibv_ah_attr *a)
{
	return site_on(ctx, &ctx->host, a);
}

/* The host that it would be, whose name is then looked for as that of this one is. */
uint32_t sr_host_find(const struct sr_context *ctx, const struct ibv_ah_attr *a, uint16_t *ret_site)
{
	struct sr_host h = ctx->host;
	uint64_t id = be64toh(a->grh.dgid.global.interface_id);

	if (!h.address)
		return 0;
	if (!a->is_global)
		h.address = (h.address & h.mask) | ((a->dlid - 1u) & ((1u << LID_HOST_BITS) - 1));
	else if (ctx->ethernet && a->grh.dgid.global.subnet_prefix) /* a MAC's, with ff:fe in its middle */
		h.address = (uint32_t)(id >> 40 & 0xff) << 24 | (uint32_t)(id & 0xffffff);
	else
		h.address = (uint32_t)id;
	*ret_site = site_on(ctx, &h, a);
	return *ret_site ? h.address : 0;
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
	port_mac(&h, n / SR_MAX_PORTS, n % SR_MAX_PORTS + 1, mac);
	*vid = 0xffff; /* no VLAN */
	return 0;
}
