/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device and its contexts. There is one device, a constant; it lies in a larger block of zeros because callers
 * of vendor libraries look at a word behind struct ibv_device.
 *
 * Opening makes, by the libc's names: the context's arena, the segment (file and mapping), the map of the atomics'
 * locks, a waking socket, the asynchronous events' socket, a timer. Nothing of that is shared with another context
 * of the process, and nothing is assumed of one that was opened earlier: it may have vanished.
 *
 * Descriptors and mappings are made and ended by the libc's names, so that who interposes them sees them; other
 * system calls are raw: no cancellation point, no thread state of the libc, on any path but the two that sleep.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/freeable.h"
#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

#define DEVICE(name_)                                                                                           \
	{ .device = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = name_,                \
		      .dev_name = "uverbs_" name_, .dev_path = "/sys/class/infiniband_verbs/uverbs_" name_, \
		      .ibdev_path = "/sys/class/infiniband/" name_ } }

static const union device {
	struct ibv_device device;
	char room[1024];
} devices[SR_MAX_DEVICES] = { DEVICE("soft0"), DEVICE("soft1"), DEVICE("soft2"), DEVICE("soft3"),
			      DEVICE("soft4"), DEVICE("soft5"), DEVICE("soft6"), DEVICE("soft7") };

static uint32_t number_of(const struct ibv_device *device)
{
	return (uint32_t)((const union device *)(const void *)device - devices);
}

struct sr_memory sr_memory = { mmap, munmap };

EXPORT void softrdma_memory(void *(*map)(void *, size_t, int, int, int, off_t), int (*unmap)(void *, size_t))
{
	sr_memory = (struct sr_memory){ map, unmap };
}

static void *map_memory(size_t len)
{
	void *p = sr_memory.map(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	uint32_t n = sr_devices(), i;
	struct ibv_device **list = freeable_alloc((n + 1) * sizeof(*list), map_memory);

	if (num_devices)
		*num_devices = list ? (int)n : 0;
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	for (i = 0; i < n; i++)
		list[i] = (struct ibv_device *)&devices[i].device;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	freeable_free(list, sr_memory.unmap);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return __builtin_bswap64(sr_device_guid(number_of(device)));
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)number_of(device);
}

static void ops_fill(struct sr_context *ctx)
{
	struct verbs_context *v = &ctx->verbs;
	struct ibv_context_ops *ops = &v->context.ops;

	v->sz = sizeof(*v);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->query_port = sr_query_port;
	v->query_device_ex = sr_query_device_ex;
	v->create_qp_ex = sr_create_qp_ex;
	v->create_srq_ex = sr_create_srq_ex;
	sr_unsupported_fill(v);
	sr_windows_fill(v);
	sr_domains_fill(v);
	sr_device_memory_fill(v);
	sr_xrc_fill(v);
	sr_cq_ex_fill(v);
	sr_moderation_fill(v);
	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = ibv_query_port;
	ops->poll_cq = sr_poll_cq;
	ops->req_notify_cq = sr_req_notify_cq;
	ops->post_srq_recv = sr_post_srq_recv;
	ops->post_send = sr_post_send;
	ops->post_recv = sr_post_recv;
}

static int descriptors_open(struct sr_context *ctx)
{
	ctx->wake_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ctx->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (ctx->wake_fd < 0 || ctx->timer_fd < 0)
		return -errno;
	ctx->async_sock = sr_wake_socket(ctx, 0);
	return ctx->async_sock < 0 ? ctx->async_sock : 0;
}

/* So many regions are made before an index comes back, and no more: the table of keys takes memory by its highest index. */
#define MRS_REST 4096

static int tables_init(struct sr_context *ctx)
{
	int err = sr_ids_init(ctx, &ctx->mrs, SR_MAX_MR, 0, MRS_REST);

	if (!err)
		err = sr_ids_init(ctx, &ctx->qps, SR_MAX_QP, (uint32_t)sr_random(ctx), SR_MAX_QP);
	if (!err)
		err = sr_ids_init(ctx, &ctx->cqs, SR_MAX_QP, 0, SR_MAX_QP);
	if (!err)
		err = sr_ids_init(ctx, &ctx->srqs, SR_MAX_SRQ, (uint32_t)sr_random(ctx), SR_MAX_SRQ);
	if (!err)
		err = sr_ids_init(ctx, &ctx->channels, SR_MAX_CHANNEL, 0, SR_MAX_CHANNEL);
	return err;
}

static void ids_done(struct sr_context *ctx, struct sr_ids *ids)
{
	arena_free(&ctx->arena, ids->ring);
	arena_free(&ctx->arena, ids->object);
}

static void context_free(struct sr_context *ctx)
{
	/* In a child its sockets and their epoll sets are the parent's too. */
	if (!ctx->seg || ctx->seg->pid == raw_getpid())
		sr_net_close(ctx);
	if (ctx->seg)
		sr_segment_destroy(ctx);
	if (ctx->groups)
		sr_memory.unmap(ctx->groups, sizeof(*ctx->groups));
	if (ctx->atomics)
		sr_memory.unmap(ctx->atomics, FM_PAGE_SIZE);
	sr_wakes_close(ctx);
	if (ctx->wake_fd >= 0)
		close(ctx->wake_fd);
	if (ctx->timer_fd >= 0)
		close(ctx->timer_fd);
	if (ctx->async_sock >= 0)
		close(ctx->async_sock);
	ids_done(ctx, &ctx->mrs);
	ids_done(ctx, &ctx->qps);
	ids_done(ctx, &ctx->cqs);
	ids_done(ctx, &ctx->srqs);
	ids_done(ctx, &ctx->channels);
	arena_done(&ctx->arena);
	sr_memory.unmap(ctx, sizeof(*ctx));
}

static int context_init(struct sr_context *ctx)
{
	int err;

	ctx->wake_fd = ctx->timer_fd = ctx->async_sock = ctx->seg_fd = -1;
	ctx->arena.map = map_memory;
	ctx->arena.unmap = sr_memory.unmap;
	list_init(&ctx->peers);
	list_init(&ctx->stalled);
	if (RAW3(SYS_getrandom, &ctx->rng, sizeof(ctx->rng), 0) != sizeof(ctx->rng) || !ctx->rng)
		return -EIO;
	/* Where Yama restricts tracing to children, peers may reach our memory all the same; elsewhere: refused. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	sr_net_open(ctx);
	err = sr_segment_create(ctx);
	if (!err)
		err = sr_shared_map(ctx, "atomics", FM_PAGE_SIZE, (void **)&ctx->atomics);
	if (!err)
		err = tables_init(ctx);
	if (!err)
		err = descriptors_open(ctx);
	if (err)
		return err;
	sr_ports_fill(ctx);
	sr_peer_self(ctx);
	atomic_store(&ctx->seg->ready, SR_READY);
	return 0;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct sr_context *ctx = map_memory(sizeof(*ctx));
	int err;

	log_name = "softrdma";
	if (ctx)
		ctx->device = number_of(device);
	err = ctx ? context_init(ctx) : -ENOMEM;
	if (err) {
		if (ctx)
			context_free(ctx);
		log_error("cannot open %s: error %d", device->name, -err);
		errno = -err;
		return NULL;
	}
	ops_fill(ctx);
	ctx->verbs.context.device = device;
	ctx->verbs.context.cmd_fd = ctx->seg_fd;
	ctx->verbs.context.async_fd = ctx->async_sock;
	ctx->verbs.context.num_comp_vectors = 1;
	return &ctx->verbs.context;
}

/* After this no executor touches our memory any more, whatever the program has left undestroyed. */
static void peers_shut_out(struct sr_context *ctx)
{
	uint32_t i;

	sr_groups_leave(ctx);
	atomic_store(&ctx->seg->ready, SR_CLOSED);
	for (i = 0; i < ctx->qps.fresh; i++) {
		struct sr_qp *qp = sr_ids_at(&ctx->qps, i);

		if (!qp)
			continue;
		sr_rx_lock(ctx, &ctx->self, qp->shm);
		atomic_store(&qp->shm->state, IBV_QPS_ERR);
		rlock_release(&qp->shm->rx_lock);
		sr_sq_lock(ctx, &ctx->self, qp->shm);
		rlock_release(&qp->shm->sq_lock);
	}
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_peer *p;

	/* A child's copy goes, what it stands for is the parent's. */
	if (ctx->seg->pid == raw_getpid()) {
		if (ctx->net)
			sr_net_stop(ctx);
		peers_shut_out(ctx);
	}
	list_each_safe(p, &ctx->peers, link) {
		sr_memory.unmap(p->seg, SR_SEG_SIZE);
		if (p->mem_fd >= 0)
			close(p->mem_fd);
	}
	context_free(ctx);
	return 0;
}
