/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands: what librdmacm writes to a channel, <rdma/rdma_user_cm.h>. A command is its header and a struct whose
 * length the header says; an older library's is shorter, a newer one's may be longer. Answers go where pointers in
 * the struct say, as much as its writer has room for. All under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define OPTION_ID_MAX 64

/* As much of the answer as there is room for; @least of it has to fit. */
static int answer(uint64_t to, size_t room, const void *data, size_t len, size_t least)
{
	if (room < least)
		return -ENOSPC;
	if (!to)
		return -EFAULT;
	memcpy((void *)(uintptr_t)to, data, room < len ? room : len);
	return 0;
}

#define ANSWER(cmd, room, resp, least) answer((cmd)->response, room, resp, sizeof(*(resp)), least)

static int create_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_create_id *c = in;
	struct rdma_ucm_create_id_resp r = { 0 };
	uint8_t type = c->qp_type;
	struct cm_id *id;
	int err;

	if (c->ps == RDMA_PS_TCP)
		type = IBV_QPT_RC;
	else if (c->ps == RDMA_PS_UDP || c->ps == RDMA_PS_IPOIB)
		type = IBV_QPT_UD;
	else if (c->ps != RDMA_PS_IB)
		return -EINVAL;
	id = cm_id_create(ch, c->ps, type);
	if (!id)
		return -ENOMEM;
	id->uid = c->uid;
	r.id = id->handle;
	err = ANSWER(c, room, &r, sizeof(r));
	if (err)
		cm_id_destroy(id);
	return err;
}

static int destroy_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_destroy_id *c = in;
	struct rdma_ucm_destroy_id_resp r = { 0 };
	struct cm_id *id = cm_id_find(ch, c->id);

	if (room < sizeof(r))
		return -ENOSPC;
	if (!id)
		return -ENOENT;
	r.events_reported = id->events_reported;
	cm_id_destroy(id);
	return ANSWER(c, room, &r, sizeof(r));
}

/* Finds the id of a command, or leaves with the kernel's error. */
#define ID_OF(ch, c)                                      \
	struct cm_id *id = cm_id_find(ch, (c)->id);       \
	if (!id)                                          \
		return -ENOENT

static int bind_ip(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_bind_ip *c = in;
	union cm_addr a;
	int err = cm_address_take(&a, &c->addr, sizeof(c->addr));

	ID_OF(ch, c);
	return err ? err : cm_port_bind(id, &a);
}

static int bind_any(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_bind *c = in;
	union cm_addr a;
	int err = cm_address_take(&a, &c->addr, c->addr_size);

	ID_OF(ch, c);
	return err ? err : cm_port_bind(id, &a);
}

static int resolve_ip(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_resolve_ip *c = in;
	union cm_addr src, dst;
	int err = cm_address_take(&src, &c->src_addr, sizeof(c->src_addr));

	ID_OF(ch, c);
	err = err ? err : cm_address_take(&dst, &c->dst_addr, sizeof(c->dst_addr));
	return err ? err : cm_resolve_addr(id, &src, &dst, c->timeout_ms);
}

static int resolve_any(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_resolve_addr *c = in;
	union cm_addr src, dst;
	int err = cm_address_take(&src, &c->src_addr, c->src_size);

	ID_OF(ch, c);
	err = err ? err : cm_address_take(&dst, &c->dst_addr, c->dst_size);
	return err ? err : cm_resolve_addr(id, &src, &dst, c->timeout_ms);
}

static int resolve_route(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_resolve_route *c = in;

	ID_OF(ch, c);
	return cm_resolve_route(id);
}

static int query_route(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_query *c = in;
	struct rdma_ucm_query_route_resp r = { 0 };
	int err;

	ID_OF(ch, c);
	err = cm_query_route(id, &r);
	return err ? err : ANSWER(c, room, &r, offsetof(struct rdma_ucm_query_route_resp, ibdev_index));
}

static int query_path(const struct rdma_ucm_query *c, struct cm_id *id, size_t room)
{
	char space[sizeof(struct rdma_ucm_query_path_resp) + sizeof(struct ib_path_rec_data)] = { 0 };
	struct rdma_ucm_query_path_resp *r = (void *)space;
	size_t len = sizeof(*r);

	cm_query_path(id, r, room);
	if (r->num_paths)
		len = sizeof(space);
	return answer(c->response, room, r, len, sizeof(*r));
}

static int query(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_query *c = in;
	struct rdma_ucm_query_addr_resp r = { 0 };
	int err;

	ID_OF(ch, c);
	if (c->option == RDMA_USER_CM_QUERY_PATH)
		return query_path(c, id, room);
	if (c->option == RDMA_USER_CM_QUERY_ADDR)
		err = cm_query_addr(id, &r);
	else if (c->option == RDMA_USER_CM_QUERY_GID)
		err = cm_query_gid(id, &r);
	else
		return -ENOSYS;
	return err ? err : ANSWER(c, room, &r, offsetof(struct rdma_ucm_query_addr_resp, ibdev_index));
}

static int connect_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_connect *c = in;

	ID_OF(ch, c);
	return c->conn_param.valid ? cm_connect(id, &c->conn_param, &c->ece) : -EINVAL;
}

static int listen_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_listen *c = in;

	ID_OF(ch, c);
	return cm_port_listen(id, c->backlog);
}

static int accept_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_accept *c = in;

	ID_OF(ch, c);
	return cm_accept(id, c->uid, &c->conn_param, &c->ece);
}

static int reject_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_reject *c = in;

	ID_OF(ch, c);
	return cm_reject(id, c);
}

static int disconnect_id(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_disconnect *c = in;

	ID_OF(ch, c);
	return cm_disconnect(id);
}

static int init_qp_attr(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_init_qp_attr *c = in;
	struct ib_uverbs_qp_attr r = { 0 };
	int err;

	ID_OF(ch, c);
	err = c->qp_state > IBV_QPS_ERR ? -EINVAL : cm_init_qp_attr(id, c->qp_state, &r);
	return err ? err : ANSWER(c, room, &r, sizeof(r));
}

static int get_event(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_get_event *c = in;
	struct rdma_ucm_event_resp r;
	int err;

	if (room < offsetof(struct rdma_ucm_event_resp, reserved))
		return -ENOSPC;
	if (!c->response)
		return -EFAULT;
	err = cm_event_next(ch, &r);
	return err ? err : ANSWER(c, room, &r, 0);
}

static int option_id(struct cm_id *id, uint32_t name, const uint8_t *value, size_t len)
{
	int v = 0;

	if (name == RDMA_OPTION_ID_TOS)
		return len == 1 ? 0 : -EINVAL;
	if (name == RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (len != 1 || value[0] > 31)
			return -EINVAL;
		id->ack_timeout = value[0];
		return 0;
	}
	if (len != sizeof(v))
		return -EINVAL;
	memcpy(&v, value, sizeof(v));
	if (name == RDMA_OPTION_ID_REUSEADDR && (id->state == CM_IDLE || (!v && id->state != CM_LISTENING))) {
		id->reuse = v != 0;
		return 0;
	}
	if (name == RDMA_OPTION_ID_AFONLY && id->state == CM_IDLE) {
		id->afonly = v != 0;
		return 0;
	}
	return name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY ? -EINVAL : -ENOSYS;
}

static int set_option(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_set_option *c = in;
	const uint8_t *value = (const uint8_t *)(uintptr_t)c->optval;

	ID_OF(ch, c);
	if (!c->optlen || c->optlen > FM_PAGE_SIZE || !value)
		return -EINVAL;
	if (c->level == RDMA_OPTION_ID)
		return option_id(id, c->optname, value, c->optlen);
	/* A path that the program has found by itself: there is only one. */
	if (c->level == RDMA_OPTION_IB && c->optname == RDMA_OPTION_IB_PATH)
		return c->optlen % sizeof(struct ib_path_rec_data) ? -EINVAL : cm_resolve_route(id);
	return -ENOSYS;
}

static int notify(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_notify *c = in;

	ID_OF(ch, c);
	return cm_notify(id, c->event);
}

static int join_to(struct cm_channel *ch, uint32_t handle, uint64_t uid, const union cm_addr *a, uint64_t to,
		   size_t room)
{
	struct rdma_ucm_create_id_resp r;
	struct cm_id *id = cm_id_find(ch, handle);
	int err;

	if (room < sizeof(r))
		return -ENOSPC;
	if (!id || !cm_address_len(a))
		return id ? -EINVAL : -ENOENT;
	err = cm_join(id, a, uid, &r.id);
	return err ? err : answer(to, room, &r, sizeof(r), sizeof(r));
}

static int join_ip(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_join_ip_mcast *c = in;
	union cm_addr a;
	int err = cm_address_take(&a, &c->addr, sizeof(c->addr));

	return err ? err : join_to(ch, c->id, c->uid, &a, c->response, room);
}

static int join_any(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_join_mcast *c = in;
	union cm_addr a;
	int err = cm_address_take(&a, &c->addr, c->addr_size);

	if (c->join_flags > RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
		return -EINVAL;
	return err ? err : join_to(ch, c->id, c->uid, &a, c->response, room);
}

static int leave(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_destroy_id *c = in;
	struct rdma_ucm_destroy_id_resp r = { 0 };
	int err;

	if (room < sizeof(r))
		return -ENOSPC;
	err = cm_leave(ch, c->id, &r.events_reported);
	return err ? err : ANSWER(c, room, &r, sizeof(r));
}

/* Written to the new channel; the old one is named by its descriptor. */
static int migrate(struct cm_channel *ch, const void *in, size_t room)
{
	const struct rdma_ucm_migrate_id *c = in;
	struct rdma_ucm_migrate_resp r = { 0 };
	struct cm_channel *from = cm_channel_find((int)c->fd);
	struct cm_id *id = from ? cm_id_find(from, c->id) : NULL;

	if (room < sizeof(r))
		return -ENOSPC;
	if (!id)
		return from ? -ENOENT : -EINVAL;
	if (from != ch)
		cm_id_migrate(id, ch);
	r.events_reported = id->events_reported;
	return ANSWER(c, room, &r, sizeof(r));
}

#define COMMAND(fn, type, last) { fn, sizeof(type), offsetof(type, last) + sizeof(((type *)0)->last) }

static const struct {
	int (*run)(struct cm_channel *ch, const void *in, size_t room);
	size_t size, least;
} commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = COMMAND(create_id, struct rdma_ucm_create_id, qp_type),
	[RDMA_USER_CM_CMD_DESTROY_ID] = COMMAND(destroy_id, struct rdma_ucm_destroy_id, id),
	[RDMA_USER_CM_CMD_BIND_IP] = COMMAND(bind_ip, struct rdma_ucm_bind_ip, id),
	[RDMA_USER_CM_CMD_RESOLVE_IP] = COMMAND(resolve_ip, struct rdma_ucm_resolve_ip, timeout_ms),
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = COMMAND(resolve_route, struct rdma_ucm_resolve_route, timeout_ms),
	[RDMA_USER_CM_CMD_QUERY_ROUTE] = COMMAND(query_route, struct rdma_ucm_query, id),
	[RDMA_USER_CM_CMD_CONNECT] = COMMAND(connect_id, struct rdma_ucm_connect, reserved),
	[RDMA_USER_CM_CMD_LISTEN] = COMMAND(listen_id, struct rdma_ucm_listen, backlog),
	[RDMA_USER_CM_CMD_ACCEPT] = COMMAND(accept_id, struct rdma_ucm_accept, reserved),
	[RDMA_USER_CM_CMD_REJECT] = COMMAND(reject_id, struct rdma_ucm_reject, private_data),
	[RDMA_USER_CM_CMD_DISCONNECT] = COMMAND(disconnect_id, struct rdma_ucm_disconnect, id),
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = COMMAND(init_qp_attr, struct rdma_ucm_init_qp_attr, qp_state),
	[RDMA_USER_CM_CMD_GET_EVENT] = COMMAND(get_event, struct rdma_ucm_get_event, response),
	[RDMA_USER_CM_CMD_SET_OPTION] = COMMAND(set_option, struct rdma_ucm_set_option, optlen),
	[RDMA_USER_CM_CMD_NOTIFY] = COMMAND(notify, struct rdma_ucm_notify, event),
	[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = COMMAND(join_ip, struct rdma_ucm_join_ip_mcast, id),
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = COMMAND(leave, struct rdma_ucm_destroy_id, id),
	[RDMA_USER_CM_CMD_MIGRATE_ID] = COMMAND(migrate, struct rdma_ucm_migrate_id, fd),
	[RDMA_USER_CM_CMD_QUERY] = COMMAND(query, struct rdma_ucm_query, option),
	[RDMA_USER_CM_CMD_BIND] = COMMAND(bind_any, struct rdma_ucm_bind, addr),
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = COMMAND(resolve_any, struct rdma_ucm_resolve_addr, dst_addr),
	[RDMA_USER_CM_CMD_JOIN_MCAST] = COMMAND(join_any, struct rdma_ucm_join_mcast, addr),
};

/* @n, as write(2) answers, or -errno. */
long cm_command(struct cm_channel *ch, const void *buf, size_t n)
{
	uint64_t in[96] = { 0 }; /* the longest struct, aligned */
	struct rdma_ucm_cmd_hdr h;
	int err;

	if (n < sizeof(h))
		return -EINVAL;
	memcpy(&h, buf, sizeof(h));
	if (h.cmd >= ARRAY_SIZE(commands) || h.in + sizeof(h) > n)
		return -EINVAL;
	if (!commands[h.cmd].run)
		return -ENOSYS;
	if (h.in < commands[h.cmd].least)
		return -EINVAL;
	memcpy(in, (const char *)buf + sizeof(h), h.in < commands[h.cmd].size ? h.in : commands[h.cmd].size);
	err = commands[h.cmd].run(ch, in, h.out);
	return err ? err : (long)n;
}

_Static_assert(sizeof(struct rdma_ucm_accept) <= 96 * 8 && sizeof(struct rdma_ucm_resolve_addr) <= 96 * 8 &&
	       sizeof(struct rdma_ucm_reject) <= 96 * 8, "room for the longest command");
