/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which process leads a description, where kcmp is refused: it takes the others' descriptors and looks for a mark on them (fd_mark.c), beginning
 * with the lowest pid of those that can tell all of it: the first that has it leads. Only the leader looks further, for those of whom it does not know that they are standard streams. All that
 * runs in a child that has our memory and a table of its own: what has been taken is closed again, and a process that closes any descriptor of a file lets go
 * its POSIX locks on it, and of a message queue what it has registered there. No state.
 */
#include "agent/fd_share.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agent/fd_mark.h"
#include "base/arch/x86_64/thread.h"
#include "base/fdpass.h"
#include "base/log.h"
#include "base/macro.h"

#define STACK_SIZE (64u << 10)

static bool is_before(const struct share_holders *l, const struct share_holder *a, const struct share_holder *b)
{
	if (a->partial != b->partial)
		return !a->partial;
	return a->pid < b->pid || (a->pid == b->pid && a->fd == l->fd);
}

/* In the order in which they may lead; of one process first those under our number. */
static int holders_add(struct share_holders *l, const struct share_holder *h)
{
	uint32_t i = l->count;
	int r = fd_share_append(l, h);

	if (r)
		return r;
	for (; i && is_before(l, h, &l->all[i - 1]); i--)
		l->all[i] = l->all[i - 1];
	l->all[i] = *h;
	return 0;
}

static int holders_find(const struct fd_entry *e, struct share_holders *ret)
{
	uint32_t self = fermata_pid(), kind = fd_share_kind(e), id = fd_share_eventfd(e);
	struct share_holder h;
	int r;

	for (unsigned int i = 0; (r = fd_share_holder_at(e, i, &h)) > 0; i++)
		if (h.pid != self && h.kind == kind && (!h.id || !id || h.id == id) && fd_mark_possible(e->desc.status, h.status)) {
			r = holders_add(ret, &h);
			if (r)
				return r;
		}
	return r;
}

/* 1: @other has the same description; 0: not; or -errno. */
static int has_same(const struct fd_entry *e, const struct share_holder *other)
{
	struct fd_mark m;
	int theirs = fdpass_take((int)other->pid, other->fd), r;

	if (theirs < 0)
		return fd_share_refused(e, other, theirs);
	r = fd_mark_begin(&m, e->desc.fd, &e->desc.st, e->desc.status);
	if (!r) {
		r = fd_mark_is_on(&m, theirs);
		fd_mark_end(&m);
	} else {
		fd_share_refused(e, other, r);
	}
	raw_close(theirs);
	return r;
}

static int resolve_marked(struct fd_entry *e)
{
	struct share_holders l = { .fd = e->desc.fd };
	int r = holders_find(e, &l), same;

	for (uint32_t i = 0; i < l.count && !r; i++) {
		const struct share_holder *h = &l.all[i];

		if (!fd_share_is_before(e, h) && !(h->stdio_mask & ~e->stdio_mask))
			continue;
		same = has_same(e, h);
		r = same < 0 ? same : 0;
		if (same <= 0)
			continue;
		e->stdio_mask |= h->stdio_mask;
		if (!fd_share_is_before(e, h))
			continue;
		fd_share_lead(e, h);
		break;
	}
	fermata_free(l.all);
	return r;
}

/* It has a session of its own, so that no signal of a terminal ends it, and dies with us. */
static void resolve_all_marked(void *ret_result)
{
	int r = 0;

	RAW0(SYS_setsid);
	RAW2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	fdpass_ask_begin();
	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		if (fd_table.entries[i]->plugin)
			r = resolve_marked(fd_table.entries[i]);
	fdpass_ask_end();
	*(int *)ret_result = r;
}

int fd_share_resolve_apart(void)
{
	char *stack = raw_mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int result = -EINTR;
	uint32_t unused = 0;
	long pid, r;

	if (raw_is_error(stack))
		return fermata_fail(-ENOMEM, "no memory to compare descriptors");
	r = pid = arch_thread_clone(CLONE_VM | CLONE_FS, stack + STACK_SIZE, &unused, &unused, NULL, resolve_all_marked, &result);
	while (pid > 0 && (r = RAW4(SYS_wait4, pid, NULL, __WALL, NULL)) == -EINTR)
		;
	raw_munmap(stack, STACK_SIZE);
	if (r < 0)
		result = (int)r;
	return result ? fermata_fail(result, "the descriptors of process %u cannot be compared (errno %d)", fermata_pid(), -result) : 0;
}
