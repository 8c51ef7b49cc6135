/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves data between two processes' memory, once, straight from the source's pages to the target's. The executor
 * is one of the two.
 *
 *   both here          memcpy
 *   short, one piece   pread/pwrite of /proc/PID/mem: the cheapest crossing; it cannot hit another process that
 *                      got the same number
 *   else               process_vm_readv/writev, many pieces a call; that the pid is still the peer's was seen not
 *                      longer ago than a number takes to be given out again
 *
 * Order: pieces go in order, and the caller cuts off the last bytes as a piece of their own where the target may
 * watch for them; a piece of up to 8 bytes is one store of the kernel's copy.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/vm.h"

#define MEM_MAX 4096 /* up to this many bytes /proc/PID/mem is faster */
#define BATCH 16

static void advance(struct iovec **v, size_t n)
{
	while (n) {
		size_t part = n < (*v)->iov_len ? n : (*v)->iov_len;

		(*v)->iov_base = (char *)(*v)->iov_base + part;
		(*v)->iov_len -= part;
		n -= part;
		if (!(*v)->iov_len)
			(*v)++;
	}
}

static size_t first_piece(struct iovec **d, struct iovec **s, uint64_t left)
{
	size_t n;

	while (!(*d)->iov_len)
		(*d)++;
	while (!(*s)->iov_len)
		(*s)++;
	n = (*d)->iov_len < (*s)->iov_len ? (*d)->iov_len : (*s)->iov_len;
	return n < left ? n : (size_t)left;
}

static int copy_here(struct iovec *d, struct iovec *s, uint64_t len)
{
	if (likely(d->iov_len >= len && s->iov_len >= len)) {
		memmove(d->iov_base, s->iov_base, len);
		return 0;
	}
	while (len) {
		size_t n = first_piece(&d, &s, len);

		memmove(d->iov_base, s->iov_base, n);
		advance(&d, n);
		advance(&s, n);
		len -= n;
	}
	return 0;
}

/* As many pieces of @v as make up @len, at most BATCH; the last one cut. */
static int batch(struct iovec *out, struct iovec *v, uint64_t len)
{
	int n = 0;

	for (; len && n < BATCH; v++) {
		if (!v->iov_len)
			continue;
		out[n] = *v;
		if (out[n].iov_len > len)
			out[n].iov_len = len;
		len -= out[n++].iov_len;
	}
	return n;
}

/* One stretch of the peer's, which may be several pieces here. */
static long move_mem(struct sr_peer *p, int out, struct iovec *here, struct iovec *there, uint64_t len)
{
	uint64_t at = (uintptr_t)there->iov_base, n = there->iov_len < len ? there->iov_len : len;
	struct iovec v[BATCH];
	int pieces;

	if (here->iov_len >= n)
		return out ? raw_pwrite(p->mem_fd, here->iov_base, n, at) : raw_pread(p->mem_fd, here->iov_base, n, at);
	pieces = batch(v, here, n);
	return out ? RAW5(SYS_pwritev, p->mem_fd, v, pieces, at, 0) : RAW5(SYS_preadv, p->mem_fd, v, pieces, at, 0);
}

static int copy_mem(struct sr_context *ctx, struct sr_peer *p, int out, struct iovec *d, struct iovec *s, uint64_t len)
{
	while (len) {
		long got;

		first_piece(&d, &s, len);
		got = out ? move_mem(p, out, s, d, len) : move_mem(p, out, d, s, len);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			return sr_peer_alive(ctx, p) ? -EFAULT : -ESRCH;
		advance(&d, (size_t)got);
		advance(&s, (size_t)got);
		len -= (uint64_t)got;
	}
	return 0;
}

static int copy_vm(struct sr_context *ctx, struct sr_peer *p, int out, struct iovec *d, struct iovec *s, uint64_t len)
{
	struct iovec to[BATCH], from[BATCH];

	if (!sr_peer_alive_lately(ctx, p))
		return -ESRCH;
	while (len) {
		int nd = batch(to, d, len), ns = batch(from, s, len);
		long got = out ? sr_vm_copy(p->pid, out, from, (unsigned long)ns, to, (unsigned long)nd)
			       : sr_vm_copy(p->pid, out, to, (unsigned long)nd, from, (unsigned long)ns);

		if (got == -EINTR)
			continue;
		if (got == -EPERM && p->mem_fd >= 0) {
			p->no_vm = 1;
			return copy_mem(ctx, p, out, d, s, len);
		}
		if (got <= 0)
			return sr_peer_alive(ctx, p) ? -EFAULT : -ESRCH;
		advance(&d, (size_t)got);
		advance(&s, (size_t)got);
		len -= (uint64_t)got;
	}
	return 0;
}

int sr_copy(struct sr_context *ctx, struct sr_peer *dst, struct iovec *d, struct sr_peer *src, struct iovec *s,
	    uint64_t len)
{
	int out = src->local;
	struct sr_peer *p = out ? dst : src;

	if (!len)
		return 0;
	if (dst->local && src->local)
		return copy_here(d, s, len);
	if (p->mem_fd >= 0 && (p->no_vm || (len <= MEM_MAX && d->iov_len >= len && s->iov_len >= len)))
		return copy_mem(ctx, p, out, d, s, len);
	if (p->no_vm)
		return -ESRCH;
	return copy_vm(ctx, p, out, d, s, len);
}
