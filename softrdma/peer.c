/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the mappings of other contexts' segments, and the knowledge whether their processes live. (Whose locks may be
 * taken over is asked more strictly: life.c.)
 *
 * A process is known by a cookie: 8 random bytes that lie in its segment and in its private memory. Reading them
 * from its memory, through /proc/PID/mem opened once (which stays with that memory, whatever becomes of the
 * number) or process_vm_readv, proves at once that the pid is the one we mean in our own pid namespace, that we
 * may touch its memory, and that it lives: the memory of a process is gone as soon as it is killed, by exec too,
 * and no child that inherited its descriptors can stand in for it.
 *
 * Peers are counted and on ctx->peers, under ctx->peers_lock, which may be taken while ctx->lock is held; a dead
 * one stays dead. ctx->route[] leads from an index to the newest. Whom datagrams go to is kept mapped from one to the
 * next, until its index is found to be another's, or the context is closed.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/vm.h"

#define LATELY_NS 4000000

static int cookie_by_mem(struct sr_peer *p, int fd)
{
	uint64_t cookie = 0;

	return raw_pread(fd, &cookie, sizeof(cookie), p->seg->cookie_addr) == sizeof(cookie) &&
	       cookie == p->seg->cookie;
}

static int cookie_by_vm(struct sr_peer *p)
{
	uint64_t cookie = 0;
	struct iovec here = { &cookie, sizeof(cookie) };
	struct iovec there = { (void *)(uintptr_t)p->seg->cookie_addr, sizeof(cookie) };

	long n = sr_vm_copy(p->pid, 0, &here, 1, &there, 1);

	errno = n < 0 ? (int)-n : 0;
	return n == sizeof(cookie) && cookie == p->seg->cookie;
}

static int mem_open(struct sr_peer *p)
{
	char path[32];
	int fd, tid;

	fm_format(path, sizeof(path), "/proc/%d/mem", p->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !cookie_by_mem(p, fd) && (tid = sr_vm_thread(p->pid)) != 0) { /* its first thread has ended */
		close(fd);
		fm_format(path, sizeof(path), "/proc/%d/mem", tid);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (fd >= 0 && !cookie_by_mem(p, fd)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static struct sr_peer *peer_new(struct sr_context *ctx, uint32_t index)
{
	struct sr_seg *seg = sr_segment_map(ctx, index);
	struct sr_peer *p = seg ? arena_alloc(&ctx->arena, sizeof(*p)) : NULL;

	int refused;

	if (!p) {
		if (seg)
			sr_memory.unmap(seg, SR_SEG_SIZE);
		return NULL;
	}
	p->seg = seg;
	p->token = seg->token;
	p->pid = seg->pid;
	p->mem_fd = mem_open(p);
	errno = 0;
	p->no_vm = !cookie_by_vm(p);
	refused = errno == EPERM;
	p->local = p->pid == raw_getpid() && !p->no_vm;
	p->dead = p->mem_fd < 0 && p->no_vm;
	p->apart = p->dead && seg->pid_ns != ctx->seg->pid_ns;
	if (p->dead && refused && !p->apart)
		log_error("the memory of process %d is out of reach: it must be of this user and user namespace, "
			  "dumpable, and traceable (/proc/sys/kernel/yama/ptrace_scope at most 1)", p->pid);
	list_add_tail(&ctx->peers, &p->link);
	return p;
}

/* peers_lock held. */
static void peer_drop(struct sr_context *ctx, struct sr_peer *p)
{
	if (--p->refs)
		return;
	if (ctx->route[p->seg->index] == p)
		ctx->route[p->seg->index] = NULL;
	list_del(&p->link);
	sr_memory.unmap(p->seg, SR_SEG_SIZE);
	if (p->mem_fd >= 0)
		close(p->mem_fd);
	arena_free(&ctx->arena, p);
}

static struct sr_peer *route_renew(struct sr_context *ctx, uint32_t index)
{
	struct sr_peer *old = ctx->route[index];

	ctx->route[index] = NULL;
	if (old && old->kept) {
		old->kept = 0;
		peer_drop(ctx, old);
	}
	ctx->route[index] = peer_new(ctx, index);
	return ctx->route[index];
}

/* The context of @index, mapped; NULL: there is none now. */
struct sr_peer *sr_peer_get(struct sr_context *ctx, uint32_t index)
{
	struct sr_peer *p;

	if (index == ctx->seg->index)
		return &ctx->self;
	lock_acquire(&ctx->peers_lock);
	p = ctx->route[index];
	if (!p || (p->dead && !p->apart) || atomic_load(&p->seg->ready) != SR_READY)
		p = route_renew(ctx, index);
	if (p)
		p->refs++;
	lock_release(&ctx->peers_lock);
	return p;
}

void sr_peer_keep(struct sr_context *ctx, struct sr_peer *p)
{
	if (p == &ctx->self || p->kept)
		return;
	lock_acquire(&ctx->peers_lock);
	if (!p->kept && ctx->route[p->seg->index] == p) {
		p->kept = 1;
		p->refs++;
	}
	lock_release(&ctx->peers_lock);
}

void sr_peer_put(struct sr_context *ctx, struct sr_peer *p)
{
	if (!p || p == &ctx->self)
		return;
	lock_acquire(&ctx->peers_lock);
	peer_drop(ctx, p);
	lock_release(&ctx->peers_lock);
}

void sr_peer_self(struct sr_context *ctx)
{
	ctx->self = (struct sr_peer){ .seg = ctx->seg, .token = ctx->seg->token, .local = 1, .pid = ctx->seg->pid,
				      .mem_fd = -1, .refs = 1 };
	list_init(&ctx->self.link);
}

int sr_peer_alive(struct sr_context *ctx, struct sr_peer *p)
{
	int alive;

	if (p == &ctx->self || p->known)
		return 1;
	if (p->dead)
		return 0;
	if (atomic_load(&p->seg->ready) != SR_READY)
		alive = 0;
	else if (p->local)
		alive = 1;
	else
		alive = p->mem_fd >= 0 ? cookie_by_mem(p, p->mem_fd) : cookie_by_vm(p);
	if (!alive)
		p->dead = 1;
	return alive;
}

int sr_peer_alive_lately(struct sr_context *ctx, struct sr_peer *p)
{
	struct timespec ts;
	uint64_t now;

	if (p->known || (p->local && atomic_load_explicit(&p->seg->ready, memory_order_relaxed) == SR_READY))
		return 1;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	if (!p->dead && now - p->checked_ns < LATELY_NS)
		return 1;
	p->checked_ns = now;
	return sr_peer_alive(ctx, p);
}
