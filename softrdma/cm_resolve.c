/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From an address to a device and a path. Which those are cm_place.c says; other hosts are reached through them if there is a network. The answers come as events, as if they had been asked for on a wire.
 *
 * Another host is asked whether it is there, as its hardware address would be asked for: by dialling the first port where it may listen.
 * That it refuses is an answer as well. The socket of that is watched for its end alone, which is one event. A dial that gets no answer is done anew after a quarter
 * of a second, then after twice as long each: TCP's own second try comes after a second, so that programs that give two had two packets to lose.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define QUERY_FIRST_MS 250

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

static int unreachable(struct cm_id *id, int err)
{
	cm_id_hang_up(id);
	cm_move(id, CM_BOUND);
	return cm_event_tell(id, CM_EVENT_ADDR_ERROR, err);
}

/* No device's has the address that leads there: the kernel says that at the same moment. */
static int resolved(struct cm_id *id)
{
	struct cm_place p;
	int err = cm_place_find(&id->src, &p);

	if (err)
		return unreachable(id, err);
	cm_move(id, CM_ADDR_RESOLVED);
	id->has_device = 1;
	return cm_event_tell(id, CM_EVENT_ADDR_RESOLVED, 0);
}

static int query_dial(struct cm_id *id)
{
	union cm_addr to;
	socklen_t len = cm_net_here() ? cm_net_address(id->ps, &id->dst, 0, &to) : 0;
	int err;

	if (!len) {
		cm_place_no_network();
		return unreachable(id, -EHOSTUNREACH);
	}
	cm_place_far(id, &to);
	id->is_far = 1;
	id->sock = sr_socket(to.family, SOCK_STREAM);
	if (id->sock < 0)
		return id->sock;
	err = (int)RAW3(SYS_connect, id->sock, &to, len);
	if (!err || err == -EINPROGRESS)
		err = cm_watch_dial(id->channel, id->sock, id->handle);
	if (err) {
		cm_id_hang_up(id);
		return err == -ECONNREFUSED ? resolved(id) : unreachable(id, err);
	}
	id->watched = 1;
	cm_move(id, CM_ADDR_QUERY);
	return 0;
}

static int query_next(struct cm_id *id)
{
	uint32_t ms = id->query_try_ms ? id->query_try_ms * 2 : QUERY_FIRST_MS;

	id->query_try_ms = ms < id->query_ms ? ms : id->query_ms;
	id->query_ms -= id->query_try_ms;
	return query_dial(id);
}

static int query(struct cm_id *id, uint32_t timeout_ms)
{
	id->query_try_ms = 0;
	id->query_ms = timeout_ms ? timeout_ms : 1;
	return query_next(id);
}

void cm_resolve_unanswered(struct cm_id *id)
{
	cm_id_hang_up(id);
	if (!id->query_ms || query_next(id) < 0)
		unreachable(id, -ETIMEDOUT);
}

void cm_resolve_answered(struct cm_id *id)
{
	int err = 0;
	socklen_t len = sizeof(err);

	RAW5(SYS_getsockopt, id->sock, SOL_SOCKET, SO_ERROR, &err, &len);
	cm_id_hang_up(id);
	if (!err || err == ECONNREFUSED)
		resolved(id);
	else
		unreachable(id, -err);
}

int cm_resolve_addr(struct cm_id *id, const union cm_addr *src, const union cm_addr *to, uint32_t timeout_ms)
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
	id->is_far = 0;
	if (!is_multicast(&dst) && !cm_address_local(&dst))
		return query(id, timeout_ms);
	cm_place_remote(id);
	return resolved(id);
}

int cm_resolve_again(struct cm_id *id)
{
	uint64_t deadline = id->deadline_ns;
	int err;

	cm_move(id, CM_BOUND);
	if (!cm_address_local(&id->dst)) {
		err = query_dial(id);
		if (err || id->state != CM_ADDR_QUERY)
			return err;
		cm_timer_stop(id);
		id->deadline_ns = deadline;
		cm_timer_again(id);
		return 0;
	}
	cm_place_remote(id);
	return resolved(id);
}

int cm_resolve_route(struct cm_id *id)
{
	if (id->state != CM_ADDR_RESOLVED)
		return -EINVAL;
	cm_move(id, CM_ROUTE_RESOLVED);
	return cm_event_tell(id, CM_EVENT_ROUTE_RESOLVED, 0);
}
