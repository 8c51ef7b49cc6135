/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of rdma_cm: IPv4, IPv6, and InfiniBand's own (AF_IB: a GID and a service). Every IP address of this host is
 * the device's. Which those are the kernel says: a datagram socket can be bound to them and to no other; such sockets
 * live within one call and are made raw. But a host whose address on the network is one of the loopback's many shares these with
 * other such hosts: its own, and 127.0.0.1, are its only ones there. After a restart other hosts' may be this one's, and its own another's (cm_here.c). No state.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define SID_PS_MASK 0xffffffffffff0000ull
#define SID_PS(ps) ((uint64_t)(ps) << 16)

static const uint8_t zeros[16];
static const uint8_t loopback6[16] = { [15] = 1 };

static uint64_t be64(uint64_t v) { return __builtin_bswap64(v); }

size_t cm_address_len(const union cm_addr *a)
{
	switch (a->family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	case AF_IB:
		return sizeof(a->ib);
	default:
		return 0;
	}
}

/* 0 or -EINVAL; an empty one is family 0 and no error. */
int cm_address_take(union cm_addr *to, const void *from, size_t len)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, len < sizeof(*to) ? len : sizeof(*to));
	if (!to->family)
		return 0;
	return cm_address_len(to) && len >= cm_address_len(to) ? 0 : -EINVAL;
}

void cm_gid(uint8_t gid[16])
{
	sr_first_gid(gid);
}

void cm_address_gid(const union cm_addr *a, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (a->family == AF_INET) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &a->in.sin_addr, 4);
	} else {
		memcpy(gid, a->family == AF_IB ? a->ib.addr : a->in6.sin6_addr.s6_addr, 16);
	}
}

static int is_mapped(const union cm_addr *a)
{
	return a->family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
}

static const void *bytes(const union cm_addr *a, size_t *ret_len)
{
	*ret_len = a->family == AF_INET || is_mapped(a) ? 4 : 16;
	if (a->family == AF_INET)
		return &a->in.sin_addr;
	return a->family == AF_IB ? (const void *)a->ib.addr : a->in6.sin6_addr.s6_addr + (is_mapped(a) ? 12 : 0);
}

int cm_address_any(const union cm_addr *a)
{
	size_t n;
	const void *p = bytes(a, &n);

	return !memcmp(p, zeros, n);
}

int cm_address_same_host(const union cm_addr *a, const union cm_addr *b)
{
	size_t n, m;
	const void *p = bytes(a, &n), *q = bytes(b, &m);

	return n == m && (a->family == AF_IB) == (b->family == AF_IB) && !memcmp(p, q, n);
}

uint64_t cm_address_hash(const union cm_addr *a)
{
	uint64_t h = 0xcbf29ce484222325ull;
	size_t n, i;
	const uint8_t *p = bytes(a, &n);

	for (i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	h = (h ^ (a->family == AF_IB ? 0x1b : n)) * 0x100000001b3ull;
	return h ^ h >> 29;
}

uint16_t cm_address_port(const union cm_addr *a)
{
	switch (a->family) {
	case AF_INET:
		return __builtin_bswap16(a->in.sin_port);
	case AF_INET6:
		return __builtin_bswap16(a->in6.sin6_port);
	case AF_IB:
		return (uint16_t)(be64(a->ib.sid) & be64(a->ib.sid_mask));
	default:
		return 0;
	}
}

void cm_address_set_port(union cm_addr *a, uint16_t port)
{
	if (a->family == AF_INET)
		a->in.sin_port = __builtin_bswap16(port);
	else if (a->family == AF_INET6)
		a->in6.sin6_port = __builtin_bswap16(port);
	else if (a->family == AF_IB) {
		a->ib.sid = be64((be64(a->ib.sid) & be64(a->ib.sid_mask) & SID_PS_MASK) | port);
		a->ib.sid_mask = UINT64_MAX;
	}
}

uint16_t cm_address_service_ps(struct cm_id *id, union cm_addr *a)
{
	static const uint16_t known[] = { RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP };
	uint64_t mask = be64(a->ib.sid_mask) & SID_PS_MASK, sid = be64(a->ib.sid) & mask;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(known); i++) {
		if ((id->ps != RDMA_PS_IB && id->ps != known[i]) || sid != (SID_PS(known[i]) & mask))
			continue;
		a->ib.sid = be64(SID_PS(known[i]) | (be64(a->ib.sid) & be64(a->ib.sid_mask) & 0xffff));
		a->ib.sid_mask = be64(be64(a->ib.sid_mask) | SID_PS_MASK);
		return known[i];
	}
	return 0;
}

static long raw_socket(const union cm_addr *a)
{
	return RAW3(SYS_socket, a->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static int ib_local(const union cm_addr *a)
{
	uint8_t gid[16];

	cm_gid(gid);
	return !memcmp(a->ib.addr, gid, 16) || !memcmp(a->ib.addr, loopback6, 16);
}

/* An address of the loopback's that is another host's. */
static int is_others_loopback(const union cm_addr *a)
{
	uint32_t address, own;
	struct sr_host host;
	size_t n;

	memcpy(&address, bytes(a, &n), sizeof(address));
	address = __builtin_bswap32(address);
	if (n != sizeof(address) || address >> 24 != IN_LOOPBACKNET || address == INADDR_LOOPBACK)
		return 0;
	own = sr_net_address(&host);
	return own >> 24 == IN_LOOPBACKNET && own != address;
}

/* The device has it, whatever the name leads to. */
static int is_own(const union cm_addr *a)
{
	union cm_addr try = *a;
	long fd, r;

	if (a->family == AF_IB)
		return ib_local(a);
	if (is_others_loopback(a))
		return 0;
	cm_address_set_port(&try, 0);
	fd = raw_socket(a);
	if (fd < 0)
		return 0;
	r = RAW3(SYS_bind, fd, &try, cm_address_len(&try));
	raw_close((int)fd);
	return r == 0;
}

int cm_address_local(const union cm_addr *a)
{
	union cm_addr now;

	return cm_here(a) || (!cm_there(a, &now) && is_own(a));
}

int cm_address_bindable(const union cm_addr *a)
{
	return cm_here(a) || is_own(a);
}

/* The address that the kernel would speak to @dst from, by the name that the job has for it; its port is 0. 0 or -errno. */
int cm_address_source(const union cm_addr *dst, union cm_addr *src)
{
	union cm_addr to = *dst, now;
	unsigned int len = sizeof(*src);
	long fd, r;

	memset(src, 0, sizeof(*src));
	if (dst->family == AF_IB) {
		src->family = AF_IB;
		src->ib.pkey = 0xffff;
		cm_gid(src->ib.addr);
		return 0;
	}
	if (cm_there(dst, &now) && now.family == dst->family)
		to = now;
	if (!cm_address_port(&to))
		cm_address_set_port(&to, 9);
	fd = raw_socket(dst);
	if (fd < 0)
		return (int)fd;
	r = RAW3(SYS_connect, fd, &to, cm_address_len(&to));
	if (!r)
		r = RAW3(SYS_getsockname, fd, src, &len);
	raw_close((int)fd);
	if (r && cm_here(dst)) { /* as to any address of one's own */
		*src = *dst;
		r = 0;
	}
	if (!r && cm_there(src, &now))
		cm_here_name(src);
	cm_address_set_port(src, 0);
	return (int)r;
}

/* 16 bytes, of IPv4 mapped ones. */
void cm_address_of_ip(const uint8_t ip[16], uint16_t port, union cm_addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)ip)) {
		ret->family = AF_INET;
		memcpy(&ret->in.sin_addr, ip + 12, 4);
	} else {
		ret->family = AF_INET6;
		memcpy(&ret->in6.sin6_addr, ip, 16);
	}
	cm_address_set_port(ret, port);
}

void cm_address_to_wire(const union cm_addr *a, struct cm_wire_addr *w)
{
	memset(w, 0, sizeof(*w));
	w->family = a->family;
	if (a->family == AF_INET) {
		w->port = a->in.sin_port;
		memcpy(w->addr, &a->in.sin_addr, 4);
	} else if (a->family == AF_INET6) {
		w->port = a->in6.sin6_port;
		w->scope = a->in6.sin6_scope_id;
		memcpy(w->addr, &a->in6.sin6_addr, 16);
	} else if (a->family == AF_IB) {
		w->port = __builtin_bswap16(cm_address_port(a));
		w->sid = a->ib.sid;
		memcpy(w->addr, a->ib.addr, 16);
	}
}

void cm_address_from_wire(const struct cm_wire_addr *w, union cm_addr *a)
{
	memset(a, 0, sizeof(*a));
	a->family = w->family;
	if (w->family == AF_INET) {
		a->in.sin_port = w->port;
		memcpy(&a->in.sin_addr, w->addr, 4);
	} else if (w->family == AF_INET6) {
		a->in6.sin6_port = w->port;
		a->in6.sin6_scope_id = w->scope;
		memcpy(&a->in6.sin6_addr, w->addr, 16);
	} else if (w->family == AF_IB) {
		a->ib.pkey = 0xffff;
		a->ib.sid = w->sid;
		a->ib.sid_mask = UINT64_MAX;
		memcpy(a->ib.addr, w->addr, 16);
	}
}
