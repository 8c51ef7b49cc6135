/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts: what a program opens a device to. The shadow is a whole verbs_context with our operations, so that the inline verbs of
 * any header version dispatch to us; an operation that is not here is NULL, which those inlines answer with EOPNOTSUPP.
 */
#include <fcntl.h>
#include <unistd.h>

#include "plugins/verbs/verbs_internal.h"

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

static void context_init(struct shadow_context *c, struct shadow_device *d, struct ibv_context *real)
{
	struct ibv_context *pub = &c->ex.context;

	c->ex.sz = sizeof(c->ex);
	c->ex.query_port = verbs_query_port;
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

static int open_error(void)
{
	return errno ? -errno : -ENODEV;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct shadow_context *c;
	struct ibv_context *real = NULL;
	int r;

	VERBS_PASS(ibv_open_device, NULL, device);
	fermata_device_enter();
	if (shadow_device(device)->real)
		real = verbs_backend.ibv_open_device(shadow_device(device)->real);
	else
		errno = ENODEV; /* listed before a restart to a host without it */
	if (real)
		descriptors_note(real);
	c = real ? fermata_alloc(sizeof(*c)) : NULL;
	r = !real ? open_error() : !c ? -ENOMEM : verbs_ports_read(shadow_device(device), real, 0);
	if (!r) {
		context_init(c, shadow_device(device), real);
		verbs_list_add(&verbs_contexts, &c->link);
	} else {
		if (real)
			verbs_backend.ibv_close_device(real);
		fermata_free(c);
		c = NULL;
		errno = -r;
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
	if (c->real)
		descriptors_note(c->real);
	r = c->real ? verbs_ports_read(c->device, c->real, 1) : open_error();
	fermata_device_leave();
	if (r)
		return fermata_fail(c->real ? r : -ENODEV, "RDMA device %s cannot be opened (error %d)", c->device->pub.name, -r);
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
