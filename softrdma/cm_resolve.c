/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From an address to a device and a path. There is one device and one port, and every address of this host is reached
 * through it; other hosts are not reached yet. The answers come as events, as if they had been asked for on a wire.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "softrdma/device.h"

/* @id gets the address that it speaks from: @src if the caller has one, else what the way to @dst says. */
static int source_take(struct cm_id *id, const union cm_addr *src, const union cm_addr *dst)
{
	union cm_addr way, from;
	uint16_t port;
	int err;

	if (id->state == CM_IDLE) {
		from = *src;
		if (!from.family) {
			memset(&from, 0, sizeof(from));
			from.family = dst->family;
			if (dst->family == AF_IB)
				from.ib = (struct cm_sockaddr_ib){ .family = AF_IB, .pkey = 0xffff,
								   .sid = dst->ib.sid, .sid_mask = 0xffffffffffffull };
			cm_address_set_port(&from, 0);
		}
		err = cm_port_bind(id, &from);
		if (err)
			return err;
	}
	if (id->src.family != dst->family)
		return -EINVAL;
	if (!cm_address_any(&id->src))
		return 0;
	err = cm_address_source(dst, &way);
	port = cm_address_port(&id->src);
	if (err)
		return err;
	if (dst->family == AF_IB) {
		memcpy(id->src.ib.addr, way.ib.addr, 16);
		return 0;
	}
	/* The port stays taken for every address. */
	id->src = way;
	cm_address_set_port(&id->src, port);
	return 0;
}

/* "Any" as a destination is this host, as with sockets. */
static void destination_take(union cm_addr *dst)
{
	if (!cm_address_any(dst))
		return;
	if (dst->family == AF_INET)
		dst->in.sin_addr.s_addr = __builtin_bswap32(INADDR_LOOPBACK);
	else if (dst->family == AF_INET6)
		dst->in6.sin6_addr = in6addr_loopback;
	else
		cm_gid(dst->ib.addr);
}

static int is_multicast(const union cm_addr *a)
{
	if (a->family == AF_INET)
		return IN_MULTICAST(__builtin_bswap32(a->in.sin_addr.s_addr));
	return a->family == AF_INET6 ? IN6_IS_ADDR_MULTICAST(&a->in6.sin6_addr) : a->ib.addr[0] == 0xff;
}

int cm_resolve_addr(struct cm_id *id, const union cm_addr *src, const union cm_addr *to)
{
	union cm_addr dst = *to;
	int err;

	if (!cm_address_len(&dst) || (id->state != CM_IDLE && id->state != CM_BOUND))
		return -EINVAL;
	if (dst.family == AF_IB && !cm_address_service_ps(id, &dst))
		return -EPROTONOSUPPORT;
	destination_take(&dst);
	err = source_take(id, src, &dst);
	if (err)
		return err;
	id->dst = dst;
	if (!is_multicast(&dst) && !cm_address_local(&dst))
		return cm_event_tell(id, CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	id->has_device = 1;
	id->conn.remote_lid = sr_lid();
	cm_gid(id->conn.remote_gid);
	cm_move(id, CM_ADDR_RESOLVED);
	return cm_event_tell(id, CM_EVENT_ADDR_RESOLVED, 0);
}

int cm_resolve_route(struct cm_id *id)
{
	if (id->state != CM_ADDR_RESOLVED)
		return -EINVAL;
	cm_move(id, CM_ROUTE_RESOLVED);
	return cm_event_tell(id, CM_EVENT_ROUTE_RESOLVED, 0);
}
