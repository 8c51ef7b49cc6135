/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose turn it is to get its number, in a restart without a capsule (restart_walk.c): struct plan_turns has all numbers of the job, first those of the processes, then
 * those of the threads, in an order in which they can be had: a process forks what it forks in restart_tree.c's order, and nothing before it is there itself. Of those that may
 * be next it is always the least: that goes round as rarely as can be. Numbers are walked to one after the other, so nobody walks past one that another waits for.
 *
 * Owns the shared list. Who is to give an id waits until it is ids[turn], and goes on to the next. Whoever fails marks the list, and nobody waits any more; a restorer
 * that waits (restorer/thread.c) is ended with the whole restart.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/pid_walk.h"
#include "cli/restart.h"

struct sequence { /* ids that one process gives, in this order */
	uint32_t *ids;
	size_t count, next;
	bool ready;
};

static bool push(struct sequence *s, uint32_t id)
{
	uint32_t *more = reallocarray(s->ids, s->count + 1, sizeof(*s->ids));

	if (!more)
		return false;
	s->ids = more;
	s->ids[s->count++] = id;
	return true;
}

/* @n NULL: init's. */
static bool collect_forks(const struct restart *r, const struct restart_node *n, struct sequence *s)
{
	bool ok = true;

	for (int before = 1; before >= 0; before--)
		for (size_t i = 0; i < r->node_count && ok; i++)
			if (r->nodes[i].maker == n && !r->nodes[i].carried && r->nodes[i].before == before)
				ok = push(s, r->nodes[i].pid);
	return ok;
}

static bool collect_carried(const struct restart *r, struct sequence *s)
{
	bool ok = true;

	for (size_t i = 0; i < r->carried_count && ok; i++)
		ok = push(s, r->carried[i]->pid);
	return ok;
}

static bool collect_threads(const struct restart_process *p, struct sequence *s)
{
	size_t n;
	const struct image_thread *t = image_get_threads(p->image, &n);
	bool ok = true;

	s->ready = true;
	for (size_t i = 0; i < n && ok; i++)
		if (!(t[i].flags & IMAGE_THREAD_LEADER))
			ok = push(s, t[i].tid);
	return ok;
}

static struct sequence *sequence_of(const struct restart *r, struct sequence *all, const struct restart_node *n)
{
	return n ? &all[1 + (n - r->nodes)] : &all[0];
}

static bool is_through(const struct sequence *s)
{
	return s->ready && s->next == s->count;
}

/* The next of those that are carried is made when its parent and its maker have made all of their own. */
static void look_at_carried(const struct restart *r, struct sequence *all)
{
	struct sequence *s = &all[1 + r->node_count];
	const struct restart_node *n = s->next < s->count ? r->carried[s->next] : NULL;

	s->ready = n && is_through(sequence_of(r, all, n->parent)) && is_through(sequence_of(r, all, n->maker));
}

/* Appends the sequences to @to, the least next id first. A process that has been made makes its own. */
static bool merge(const struct restart *r, struct sequence *all, struct sequence *to)
{
	for (;;) {
		struct sequence *least = NULL;
		struct restart_node *made;
		uint32_t id;

		look_at_carried(r, all);
		for (size_t i = 0; i < r->node_count + 2; i++)
			if (all[i].ready && all[i].next < all[i].count &&
			    (!least || all[i].ids[all[i].next] < least->ids[least->next]))
				least = &all[i];
		if (!least)
			return true;
		id = least->ids[least->next++];
		if (!push(to, id))
			return false;
		made = restart_family_find(r, id);
		if (made)
			sequence_of(r, all, made)->ready = true;
	}
}

/* Of init, of each node, and of those that are carried. */
static bool collect(const struct restart *r, bool threads, struct sequence *to)
{
	struct sequence *all = calloc(r->node_count + 2, sizeof(*all));
	bool ok = all != NULL;

	if (ok && !threads) {
		all[0].ready = true;
		ok = collect_forks(r, NULL, &all[0]) && collect_carried(r, &all[1 + r->node_count]);
	}
	for (size_t i = 0; i < r->node_count && ok; i++) {
		const struct restart_node *n = &r->nodes[i];

		if (!threads)
			ok = collect_forks(r, n, sequence_of(r, all, n));
		else if (n->process)
			ok = collect_threads(n->process, sequence_of(r, all, n));
	}
	ok = ok && merge(r, all, to);
	for (size_t i = 0; all && i < r->node_count + 2; i++)
		free(all[i].ids);
	free(all);
	return ok;
}

static int share(struct restart *r, const struct sequence *s)
{
	uint32_t size = plan_turns_size((uint32_t)s->count);
	struct plan_turns *t;

	r->turns_fd = memfd_create("turns", MFD_CLOEXEC);
	if (r->turns_fd < 0 || ftruncate(r->turns_fd, size) < 0)
		return -errno;
	t = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, r->turns_fd, 0);
	if (t == MAP_FAILED)
		return -errno;
	t->count = (uint32_t)s->count;
	memcpy(t->ids, s->ids, s->count * sizeof(*s->ids));
	r->turns = t;
	return 0;
}

int restart_turns_create(struct restart *r)
{
	struct sequence all = { 0 };
	int err = collect(r, false, &all) && collect(r, true, &all) ? share(r, &all) : -ENOMEM;

	free(all.ids);
	return err;
}

static void wake(struct plan_turns *t)
{
	RAW6(SYS_futex, &t->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void restart_turns_give_up(const struct restart *r)
{
	__atomic_store_n(&r->turns->failed, 1, __ATOMIC_RELEASE);
	__atomic_fetch_or(&r->turns->turn, 0x80000000u, __ATOMIC_ACQ_REL); /* no waiter sleeps on */
	wake(r->turns);
}

static bool await_turn(struct plan_turns *t, uint32_t pid)
{
	for (;;) {
		uint32_t seen = __atomic_load_n(&t->turn, __ATOMIC_ACQUIRE);

		if (__atomic_load_n(&t->failed, __ATOMIC_ACQUIRE))
			return false;
		if (seen < t->count && t->ids[seen] == pid)
			return true;
		RAW6(SYS_futex, &t->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
	}
}

/* A child that got another number has ended, and its signal must not come to the program. */
static void forget_child(pid_t pid)
{
	struct timespec now = { 0, 0 };
	sigset_t child;

	waitpid(pid, NULL, __WALL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while (sigtimedwait(&child, NULL, &now) > 0)
		;
}

/* -EEXIST: it went past. */
static pid_t fork_until(uint32_t pid)
{
	pid_t got;

	do {
		got = (pid_t)RAW5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (got == 0 && getpid() != (pid_t)pid)
			_exit(0);
		if (got <= 0 || got == (pid_t)pid)
			return got;
		forget_child(got);
	} while (got < (pid_t)pid);
	return -EEXIST;
}

bool restart_turns_await(const struct restart *r, uint32_t pid)
{
	return await_turn(r->turns, pid);
}

pid_t restart_turns_fork(const struct restart *r, uint32_t pid)
{
	char mark = PLAN_PROGRESS;
	pid_t got = -EEXIST;

	if (!await_turn(r->turns, pid)) {
		errno = ECANCELED;
		return -1;
	}
	for (unsigned int i = 0; i < PID_WALK_TRIES && got == -EEXIST; i++) {
		got = pid_walk_near(pid, r->log_fd, PLAN_PROGRESS);
		if (!got)
			got = fork_until(pid);
	}
	if (got == 0)
		return 0;
	(void)!write(r->log_fd, &mark, 1);
	if (got < 0) {
		errno = -got;
		return -1;
	}
	__atomic_fetch_add(&r->turns->turn, 1, __ATOMIC_ACQ_REL);
	wake(r->turns);
	return got;
}
