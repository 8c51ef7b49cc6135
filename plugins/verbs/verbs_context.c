/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts: what a program opens a device to. The shadow is a whole verbs_context with our operations, so that the inline verbs of
 * any header version dispatch to us; an operation that is not here is NULL, which those inlines answer with EOPNOTSUPP.
 *
 * Owns the virtual LID and GIDs of the device's ports too: what the program was told first stays what it is told. In a job that has moved already it is told what
 * the others were: what a port is called by one (rdma_cm, the sender of a datagram) is what its own process publishes at the next checkpoint.
 */
#include <fcntl.h>
#include <unistd.h>

#include "plugins/verbs/verbs_internal.h"

#define COMPAT_PORT_ATTR 48 /* bytes of the port attributes that the exported ibv_query_port may write */

static int real_query_port(struct ibv_context *real, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct verbs_context *v = verbs_get_ctx_op(real, query_port);

	if (v)
		return v->query_port(real, port, attr, len);
	if (!verbs_backend.ibv_query_port)
		return EOPNOTSUPP;
	memset(attr, 0, len);
	return verbs_backend.ibv_query_port(real, port, (struct _compat_ibv_port_attr *)attr);
}

static struct verbs_port *port_of(struct ibv_context *context, uint32_t port)
{
	struct shadow_device *d = shadow_context(context)->device;

	return port >= 1 && port <= d->ports ? &d->port[port] : NULL;
}

static int context_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct verbs_port *p = port_of(context, port);
	int r = VERBS_DEVICE(real_query_port(shadow_context(context)->real, port, attr, len));

	if (r || !verbs_moved || !p)
		return r;
	attr->lid = p->virtual_lid;
	attr->gid_tbl_len = p->gid_count;
	if (len > offsetof(struct ibv_port_attr, link_layer))
		attr->link_layer = p->link_layer;
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr whole;
	int r;

	VERBS_PASS(ibv_query_port, EOPNOTSUPP, context, port, attr);
	memset(&whole, 0, sizeof(whole));
	r = context_query_port(context, port, &whole, sizeof(whole));
	if (!r)
		memcpy(attr, &whole, COMPAT_PORT_ATTR);
	return r;
}

static int real_query_device_ex(struct ibv_context *real, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
				size_t size)
{
	struct verbs_context *v = verbs_get_ctx_op(real, query_device_ex);

	return v ? v->query_device_ex(real, input, attr, size) : EOPNOTSUPP;
}

static int context_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
				   struct ibv_device_attr_ex *attr, size_t size)
{
	return VERBS_DEVICE(real_query_device_ex(shadow_context(context)->real, input, attr, size));
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	VERBS_PASS(ibv_query_device, EOPNOTSUPP, context, attr);
	return VERBS_DEVICE(verbs_backend.ibv_query_device(shadow_context(context)->real, attr));
}

static const union ibv_gid *virtual_gid(struct ibv_context *context, uint32_t port, uint32_t index)
{
	struct verbs_port *p = verbs_moved ? port_of(context, port) : NULL;

	return p && index < VERBS_GIDS && p->virtual_gid[index].global.interface_id ? &p->virtual_gid[index] : NULL;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	const union ibv_gid *v = virtual_gid(context, port, (uint32_t)index);

	if (!v)
		return verbs_backend.ibv_query_gid(shadow_context(context)->real, port, index, gid);
	*gid = *v;
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	VERBS_PASS(ibv_query_gid, -1, context, port, index, gid);
	return VERBS_DEVICE(query_gid(context, port, index, gid));
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	const union ibv_gid *v;
	int r;

	VERBS_PASS(_ibv_query_gid_ex, EOPNOTSUPP, context, port, index, entry, flags, size);
	r = VERBS_DEVICE(verbs_backend._ibv_query_gid_ex(shadow_context(context)->real, port, index, entry, flags, size));
	v = r ? NULL : virtual_gid(context, port, index);
	if (v)
		entry->gid = *v;
	return r;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	ssize_t n;

	VERBS_PASS(_ibv_query_gid_table, -EOPNOTSUPP, context, entries, max, flags, size);
	n = VERBS_DEVICE(verbs_backend._ibv_query_gid_table(shadow_context(context)->real, entries, max, flags, size));
	for (ssize_t i = 0; i < n; i++) {
		struct ibv_gid_entry *e = (struct ibv_gid_entry *)((char *)entries + (size_t)i * size);
		const union ibv_gid *v = virtual_gid(context, e->port_num, e->gid_index);

		if (v)
			e->gid = *v;
	}
	return n;
}

/* Declared in libibverbs' private header only, but ibv_devinfo calls it. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	if (fermata_in_device())
		return verbs_backend.ibv_query_gid_type(context, port, index, type);
	*type = 0; /* InfiniBand or RoCE v1 */
	if (!verbs_backend.ibv_query_gid_type)
		return 0;
	return VERBS_DEVICE(verbs_backend.ibv_query_gid_type(shadow_context(context)->real, port, index, type));
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	VERBS_PASS(ibv_query_pkey, -1, context, port, index, pkey);
	return VERBS_DEVICE(verbs_backend.ibv_query_pkey(shadow_context(context)->real, port, index, pkey));
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	VERBS_PASS(ibv_get_pkey_index, -1, context, port, pkey);
	return VERBS_DEVICE(verbs_backend.ibv_get_pkey_index(shadow_context(context)->real, port, pkey));
}

static void port_read(struct ibv_context *real, uint8_t number, struct verbs_port *p, struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	memset(p->real_gid, 0, sizeof(p->real_gid));
	if (real_query_port(real, number, attr, sizeof(*attr)))
		return;
	p->real_lid = attr->lid;
	for (int i = 0; i < VERBS_GIDS && i < attr->gid_tbl_len; i++)
		if (!verbs_backend.ibv_query_gid || verbs_backend.ibv_query_gid(real, number, i, &p->real_gid[i]))
			break;
}

/* What the port is called: the job may know it by older names already, from other processes. */
static void port_name(struct verbs_port *p)
{
	uint16_t lid = verbs_lid_virtual(&p->real_gid[0], p->real_lid);

	p->virtual_lid = lid ? lid : p->real_lid; /* 0: there were no LIDs */
	memcpy(p->virtual_gid, p->real_gid, sizeof(p->virtual_gid));
	for (int i = 0; i < VERBS_GIDS; i++)
		verbs_gid_virtual(&p->virtual_gid[i]);
}

/* The names of the ports: the first look settles the virtual ones, each later life has real ones of its own. */
static void ports_read(struct shadow_device *d, struct ibv_context *real, int restarted)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	memset(&attr, 0, sizeof(attr));
	if (!verbs_backend.ibv_query_device || verbs_backend.ibv_query_device(real, &attr))
		return;
	d->reads_in = (uint8_t)(attr.max_qp_rd_atom < UINT8_MAX ? attr.max_qp_rd_atom : UINT8_MAX);
	d->reads_out = (uint8_t)(attr.max_qp_init_rd_atom < UINT8_MAX ? attr.max_qp_init_rd_atom : UINT8_MAX);
	for (uint8_t i = 1; i <= attr.phys_port_cnt && i <= VERBS_PORTS; i++) {
		struct verbs_port *p = &d->port[i];

		port_read(real, i, p, &port);
		if (i <= d->ports || restarted)
			continue;
		p->link_layer = port.link_layer;
		p->gid_count = port.gid_tbl_len;
		port_name(p);
		d->ports = i;
	}
}

static void context_init(struct shadow_context *c, struct shadow_device *d, struct ibv_context *real)
{
	struct ibv_context *pub = &c->ex.context;

	c->ex.sz = sizeof(c->ex);
	c->ex.query_port = context_query_port;
	c->ex.query_device_ex = context_query_device_ex;
	verbs_plain_fill(&c->ex);
	pub->device = &d->pub;
	pub->ops._compat_query_device = ibv_query_device;
	pub->ops._compat_query_port = ibv_query_port;
	pub->ops.poll_cq = verbs_poll_cq;
	pub->ops.req_notify_cq = verbs_req_notify_cq;
	pub->ops.post_send = verbs_post_send;
	pub->ops.post_recv = verbs_post_recv;
	pub->ops.post_srq_recv = verbs_post_srq_recv;
	pub->ops.alloc_mw = verbs_alloc_mw;
	pub->ops.bind_mw = verbs_bind_mw;
	pub->ops.dealloc_mw = verbs_dealloc_mw;
	pub->cmd_fd = real->cmd_fd;
	pub->async_fd = real->async_fd;
	pub->num_comp_vectors = real->num_comp_vectors;
	pub->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->real = real;
	c->device = d;
	list_init(&c->pds);
	list_init(&c->tds);
	list_init(&c->xrcds);
	list_init(&c->dms);
	list_init(&c->mrs);
	list_init(&c->mws);
	list_init(&c->channels);
	list_init(&c->cqs);
	list_init(&c->srqs);
	list_init(&c->qps);
	list_init(&c->ahs);
}

/* That of the events, and a channel's, a kernel device makes in the answer to an ioctl. */
static void descriptors_note(const struct ibv_context *real)
{
	fermata_device_fd_note(real->cmd_fd);
	fermata_device_fd_note(real->async_fd);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct shadow_context *c;
	struct ibv_context *real = NULL;

	VERBS_PASS(ibv_open_device, NULL, device);
	fermata_device_enter();
	if (shadow_device(device)->real)
		real = verbs_backend.ibv_open_device(shadow_device(device)->real);
	else
		errno = ENODEV; /* listed before a restart to a host without it */
	c = real ? fermata_alloc(sizeof(*c)) : NULL;
	if (real)
		descriptors_note(real);
	if (c) {
		context_init(c, shadow_device(device), real);
		ports_read(c->device, real, 0);
		verbs_list_add(&verbs_contexts, &c->link);
	} else if (real) {
		verbs_backend.ibv_close_device(real);
		errno = ENOMEM;
	}
	fermata_device_leave();
	return c ? &c->ex.context : NULL;
}

/*
 * Gives what is behind the device's new descriptor @fd the number @want that the program knows, too. The device keeps its
 * own: it may hold that number in places that we do not see. In or outside a device call.
 */
int verbs_fd_number(int fd, int want)
{
	int r, copy;

	if (fd < 0 || want < 0 || fd == want)
		return 0;
	fermata_device_enter();
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	r = copy < 0 ? -errno : fermata_device_fd_move(copy, want);
	fermata_device_leave();
	return r;
}

/* Restart: the device is opened anew. */
int verbs_context_recreate(struct shadow_context *c)
{
	struct ibv_context *pub = &c->ex.context;
	int r;

	fermata_device_enter();
	c->real = verbs_backend.ibv_open_device(c->device->real);
	if (c->real) {
		descriptors_note(c->real);
		ports_read(c->device, c->real, 1);
	}
	fermata_device_leave();
	if (!c->real)
		return fermata_fail(-ENODEV, "RDMA device %s cannot be opened (error %d)", c->device->pub.name, errno);
	r = verbs_fd_number(c->real->async_fd, pub->async_fd);
	if (!r)
		r = verbs_fd_number(c->real->cmd_fd, pub->cmd_fd);
	if (!r && c->status >= 0 && pub->async_fd >= 0)
		r = raw_fcntl(pub->async_fd, F_SETFL, c->status);
	return r ? fermata_fail(r, "the descriptors of RDMA device %s cannot get their numbers %d and %d",
				c->device->pub.name, pub->async_fd, pub->cmd_fd) : 0;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct shadow_context *c = shadow_context(context);
	int r, async_fd, cmd_fd;

	VERBS_PASS(ibv_close_device, -1, context);
	fermata_device_enter();
	async_fd = c->real->async_fd;
	cmd_fd = c->real->cmd_fd;
	r = verbs_backend.ibv_close_device(c->real);
	if (!r) {
		if (context->async_fd != async_fd)
			close(context->async_fd);
		if (context->cmd_fd != cmd_fd)
			close(context->cmd_fd);
		verbs_list_del(&c->link);
		fermata_free(c->events);
		fermata_free(c);
	}
	fermata_device_leave();
	return r;
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	VERBS_PASS(ibv_import_device, NULL, cmd_fd);
	return verbs_unsupported();
}
