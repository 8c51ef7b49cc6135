/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does the context that signs its locks with a token live? Who is told no takes the lock from it, so "no" must be
 * sure, and whatever keeps us from seeing (no descriptor left, memory out of reach) counts as life. In turn:
 *
 *   its segment's file is gone, or another's       dead: a file goes behind the last use of a lock, or after a death
 *   its cookie lies in its memory                  alive; something else there, or no process: dead
 *   we may not look there, or its pid counts in    the lock on its file. A child that inherited the descriptor holds
 *   another namespace                              that too: the locks of its dead parent are kept until it ends
 *
 * Of a context that is mapped already no descriptor is needed to ask its memory.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/vm.h"

enum life { DEAD, ALIVE, UNKNOWN };

/* What the beginning of a segment says of its owner. */
struct owner {
	uint32_t token, pid_ns;
	int32_t pid;
	uint64_t cookie, cookie_addr;
};

#define TAKE(field) memcpy(&o->field, head + offsetof(struct sr_seg, field), sizeof(o->field))

static void owner_fill(struct owner *o, const char *head)
{
	TAKE(token);
	TAKE(pid_ns);
	TAKE(pid);
	TAKE(cookie);
	TAKE(cookie_addr);
}

/* From a mapping that is there. */
static int owner_mapped(struct sr_context *ctx, uint32_t token, struct owner *o)
{
	struct sr_peer *p;

	lock_acquire(&ctx->peers_lock);
	p = ctx->route[token % SR_MAX_CTX];
	if (p && p->token == token)
		owner_fill(o, (const char *)p->seg);
	lock_release(&ctx->peers_lock);
	return p && o->token == token;
}

/* From the file. ALIVE: *o is filled. */
static enum life owner_read(int fd, uint32_t token, struct owner *o)
{
	char head[offsetof(struct sr_seg, async_lock)];
	long n = raw_pread(fd, head, sizeof(head), 0);

	if (n < 0)
		return UNKNOWN;
	if (n != sizeof(head))
		return DEAD;
	owner_fill(o, head);
	return o->token == token ? ALIVE : DEAD;
}

static enum life by_memory(const struct owner *o)
{
	uint64_t cookie = 0;
	struct iovec here = { &cookie, sizeof(cookie) }, there = { (void *)(uintptr_t)o->cookie_addr, sizeof(cookie) };
	long n = sr_vm_copy(o->pid, 0, &here, 1, &there, 1);

	if (n == sizeof(cookie))
		return cookie == o->cookie ? ALIVE : DEAD;
	return n == -ESRCH || n == -EFAULT ? DEAD : UNKNOWN;
}

static enum life by_lock(int fd)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_GETLK, &fl))
		return UNKNOWN;
	return fl.l_type == F_UNLCK ? DEAD : ALIVE;
}

static enum life look(struct sr_context *ctx, uint32_t token)
{
	struct owner o = { 0 };
	enum life life = UNKNOWN;
	int fd;

	if (owner_mapped(ctx, token, &o) && o.pid_ns == ctx->seg->pid_ns)
		life = by_memory(&o);
	if (life != UNKNOWN)
		return life;
	fd = sr_segment_open(ctx, token % SR_MAX_CTX);
	if (fd < 0)
		return fd == -ENOENT ? DEAD : UNKNOWN;
	life = owner_read(fd, token, &o);
	if (life == ALIVE) {
		life = o.pid_ns == ctx->seg->pid_ns ? by_memory(&o) : UNKNOWN;
		if (life == UNKNOWN)
			life = by_lock(fd);
	}
	close(fd);
	return life;
}

int sr_token_alive(struct sr_context *ctx, uint32_t token)
{
	return token == ctx->self.token || look(ctx, token) != DEAD;
}
