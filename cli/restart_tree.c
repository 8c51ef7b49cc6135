/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process tree. Each node (restart_family.c) is forked with its old pid, by its parent as a rule, and those that are to live become the restorer when all are there.
 *
 *   forks, setsid, own groups, carried ones  | all are forked |  joins its group  | all have joined |  moves, if it was to lead another one  | all have moved |
 *   exec restorer, or the end
 *
 * A child that had ended, and was not waited for, ends as it did; its parent waits until it can be waited for. The leaders that are gone end, too, and are waited for. Parents take up the statuses as if they had been there all
 * along.
 *
 * A carried node is made in three steps that all count (page.steps): its parent is to take orphans; its maker forks the carrier, which forks the node, and waits for the carrier's end; the parent takes none any more. Everybody does its
 * own forks before, and carried nodes in their order, each of which needs only earlier ones: so nobody waits for a step that waits for his.
 *
 * Who leads a group only until others have joined leaves a keeper there until all have moved: where it goes, there may be such leaders alone.
 *
 * The barriers are words of a page that all share. Whoever fails says why and marks the page; the others leave quietly.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BARRIER_TIMEOUT_S 60
#define WALK_TIMEOUT_S 600 /* without a capsule: numbers are walked to */
#define TRIES 8
#define TAKEN 100 /* exit status */

static struct page {
	_Atomic uint32_t forked, steps, joined, moved, failed;
} *page;

/* False: it timed out. */
static bool futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0) >= 0 || errno != ETIMEDOUT;
}

static _Noreturn void give_up(const struct restart *r)
{
	_Atomic uint32_t *words[] = { &page->forked, &page->steps, &page->joined, &page->moved };

	(void)!write(r->log_fd, "", 1);
	if (r->turns)
		restart_turns_give_up(r);
	atomic_store(&page->failed, 1);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		atomic_fetch_or(words[i], 0x80000000u); /* no waiter sleeps on */
		futex(words[i], FUTEX_WAKE, INT32_MAX, NULL);
	}
	_exit(CLI_CANNOT);
}

/* 0, or -ECANCELED: somebody failed, or for long nobody has come. */
static int await(_Atomic uint32_t *word, uint32_t want, const struct restart *r)
{
	struct timespec limit = { r->capsule ? BARRIER_TIMEOUT_S : WALK_TIMEOUT_S, 0 };

	for (uint32_t seen; (seen = atomic_load(word)) < want;) {
		if (!futex(word, FUTEX_WAIT, seen, &limit) && atomic_load(word) == seen) {
			warnx("the job's processes do not come together: %u of %u after %ld s", seen, want, (long)limit.tv_sec);
			atomic_store(&page->failed, 1);
		}
		if (atomic_load(&page->failed))
			return -ECANCELED;
	}
	return atomic_load(&page->failed) ? -ECANCELED : 0;
}

/* Who waits is woken for the @want-th alone. */
static void arrive(_Atomic uint32_t *word, size_t want)
{
	if (atomic_fetch_add(word, 1) + 1 >= want)
		futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}

pid_t restart_fork_as(uint32_t pid)
{
	pid_t want = (pid_t)pid;
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uint64_t)(uintptr_t)&want,
		.set_tid_size = 1,
	};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static pid_t fork_as(const struct restart *r, uint32_t pid)
{
	return r->capsule ? restart_fork_as(pid) : restart_turns_fork(r, pid);
}

static _Noreturn void run(const struct restart *r, const struct restart_node *n);

static int fork_one(const struct restart *r, const struct restart_node *n)
{
	pid_t pid = fork_as(r, n->pid);
	int err = pid < 0 ? -errno : 0;

	if (pid == 0)
		run(r, n);
	if (err && err != -ECANCELED)
		warnx("process %u cannot have its number back: %s", n->pid, strerror(-err));
	if (err == -EEXIST && !r->capsule)
		warnx("another process has taken it in this moment: run it again");
	if (err == -EPERM)
		warnx("exact process ids need Linux 5.9 or newer");
	return err;
}

/* A process of ours, which must have no number of the job. */
static pid_t fork_helper(const struct restart *r, const struct restart_node *n)
{
	pid_t pid;

	if (r->capsule)
		return restart_fork_as(n->spare_pid);
	if (restart_walk_past(r) < 0)
		return -1;
	pid = fork();
	if (pid == 0 && restart_walk_is_ours(r, (uint32_t)getpid()))
		_exit(TAKEN); /* somebody else has forked meanwhile */
	return pid;
}

/* Without a capsule it has to be @n's turn before: the carrier might take a number that others walk to. */
static int fork_carried(const struct restart *r, const struct restart_node *n)
{
	int status, tries = TRIES;

	if (!r->capsule && !restart_turns_await(r, n->pid))
		return -ECANCELED;
	do {
		pid_t carrier = fork_helper(r, n);

		if (carrier == 0)
			_exit(fork_one(r, n) < 0 ? CLI_CANNOT : 0);
		if (carrier < 0 || waitpid(carrier, &status, 0) != carrier) {
			warn("process %u: who carries it into its session", n->pid);
			return -errno;
		}
	} while (WIFEXITED(status) && WEXITSTATUS(status) == TAKEN && --tries);
	if (!tries)
		warnx("process %u: who carries it into its session gets no number that the job does not have: run it again", n->pid);
	return status ? -ECANCELED : 0;
}

/* @n NULL: init, which takes orphans as it is. */
static int make_carried(const struct restart *r, const struct restart_node *n)
{
	int err = 0;

	for (uint32_t i = 0; i < r->carried_count && !err; i++) {
		const struct restart_node *c = r->carried[i];

		if (c->parent == n) {
			err = await(&page->steps, 3 * i, r);
			if (!err && n)
				prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
			arrive(&page->steps, 0);
		}
		if (c->maker == n && !err) {
			err = await(&page->steps, 3 * i + 1, r);
			if (!err)
				err = fork_carried(r, c);
			arrive(&page->steps, 0);
		}
		if (c->parent == n && !err) {
			err = await(&page->steps, 3 * i + 2, r);
			if (n)
				prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
			arrive(&page->steps, 0);
		}
	}
	return err;
}

static int fork_children(const struct restart *r, const struct restart_node *n, bool before)
{
	int err = 0;

	for (size_t i = 0; i < r->node_count && !err; i++) {
		const struct restart_node *c = &r->nodes[i];

		if (c->maker == n && !c->carried && c->before == before)
			err = fork_one(r, c);
	}
	return err;
}

static int enter_session(const struct restart *r, const struct restart_node *n)
{
	int err = fork_children(r, n, true);

	if (err < 0)
		return err;
	if (n->sid == n->pid && setsid() < 0) {
		warn("process %u cannot lead its session", n->pid);
		return -errno;
	}
	if (n->sid == n->pid)
		restart_ptys_take(r, n->pid);
	err = fork_children(r, n, false);
	if (!err && n->leads && n->sid != n->pid && setpgid(0, 0) < 0) {
		warn("process %u cannot lead its process group", n->pid);
		return -errno;
	}
	return err ? err : make_carried(r, n);
}

static bool has_strayed(const struct restart_node *n)
{
	while (n && !n->strays)
		n = n->parent;
	return n != NULL;
}

static int enter_group(const struct restart_node *n)
{
	if (!n->pgid || getpgrp() == (pid_t)n->pgid || setpgid(0, (pid_t)n->pgid) == 0 || has_strayed(n))
		return 0;
	warn("process %u cannot join process group %u", n->pid, n->pgid);
	return -errno;
}

static pid_t fork_keeper(const struct restart *r, const struct restart_node *n)
{
	pid_t keeper = fork_helper(r, n);

	if (keeper == 0)
		_exit(await(&page->moved, (uint32_t)r->node_count, r) < 0);
	if (keeper < 0)
		warn("process group %u", n->pid);
	return keeper;
}

/* Into its group, when all others are in theirs. */
static int move(const struct restart *r, const struct restart_node *n)
{
	pid_t keeper = n->moves ? fork_keeper(r, n) : 0;

	if (keeper < 0 || (!n->moves && enter_group(n) < 0))
		return -errno;
	arrive(&page->joined, r->node_count);
	if (await(&page->joined, (uint32_t)r->node_count, r) < 0 || (n->moves && enter_group(n) < 0))
		return -ECANCELED;
	if (!r->moves)
		return 0;
	arrive(&page->moved, r->node_count);
	if (await(&page->moved, (uint32_t)r->node_count, r) < 0 || (keeper && waitpid(keeper, NULL, 0) != keeper))
		return -ECANCELED;
	return 0;
}

/* Its children that are not to live have ended, and the program has had their SIGCHLD, or it is among its pending ones. */
static int see_ends(const struct restart *r, const struct restart_node *n)
{
	struct timespec now = { 0, 0 };
	siginfo_t info;
	sigset_t child;

	for (size_t i = 0; i < r->node_count; i++) {
		const struct restart_node *c = &r->nodes[i];

		if (c->parent != n || c->kind == NODE_PROCESS)
			continue;
		if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | (c->kind == NODE_ENDED ? WNOWAIT : 0)) < 0) {
			warn("ended child %u of process %u", c->pid, n ? n->pid : (uint32_t)r->init);
			return -errno;
		}
		restart_ended_seen(r, c->pid, c->status, info.si_code == CLD_DUMPED);
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while (sigtimedwait(&child, NULL, &now) > 0)
		;
	return 0;
}

static void become(const struct restart *r, const struct restart_process *p)
{
	if (restart_enter_directory(p->info) < 0) {
		warn("process %u: working directory %s", p->info->pid, p->info->cwd);
		return;
	}
	if (r->capsule && p->info->uid && !restart_raise_ambient())
		warn("process %u: rights in the capsule", p->info->pid);
	restart_exec(r, p);
}

static _Noreturn void run(const struct restart *r, const struct restart_node *n)
{
	if (enter_session(r, n) < 0)
		give_up(r);
	arrive(&page->forked, r->node_count);
	if (await(&page->forked, (uint32_t)r->node_count, r) < 0 || move(r, n) < 0 || see_ends(r, n) < 0)
		give_up(r);
	if (!n->process)
		restart_end_as(r, n->pid, n->status);
	if (n->process->info->terminal == UINT32_MAX)
		restart_ptys_give_up(r, n->sid);
	become(r, n->process);
	give_up(r);
}

int restart_tree_fork(const struct restart *r)
{
	int err;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		warn("shared page of the capsule");
		return -errno;
	}
	err = fork_children(r, NULL, false);
	if (!err)
		err = make_carried(r, NULL);
	if (!err)
		err = await(r->moves ? &page->moved : &page->joined, (uint32_t)r->node_count, r);
	return err ? err : see_ends(r, NULL);
}
