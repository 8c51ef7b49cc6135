/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process tree. Each process is forked by its old parent, with its old pid, and becomes the restorer when all are there.
 *
 * Sessions are inherited by fork and left by setsid only: a process first forks the children that stayed in the session it came
 * from, then leaves it, then forks the others. An orphan in the session of a process of the job is forked by that process
 * through a carrier, which ends at once. A session or group whose leader is not in the job is the one of `fermata restart`.
 *
 *   forks, setsid, own groups   | all are forked |  joins its group   | all have joined |  exec restorer
 *
 * A child that has ended and was not waited for is forked, too, and ends as it did. Its parent takes up its status as if it had been there all along.
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BARRIER_TIMEOUT_S 60
#define WALK_TIMEOUT_S 600 /* without a capsule: numbers are walked to */

static struct page {
	_Atomic uint32_t forked, joined, failed;
} *page;

struct restart_process *restart_tree_find(const struct restart *r, uint32_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].info->pid == pid)
			return &r->processes[i];
	return NULL;
}

/* Children of @p that have ended. */
const struct image_zombie *restart_tree_zombies(const struct restart_process *p, size_t *ret_count)
{
	struct image_note_view n;

	for (size_t cursor = 0; image_next_note(p->image, &cursor, &n);)
		if (n.type == IMAGE_NOTE_ZOMBIES) {
			*ret_count = n.length / sizeof(struct image_zombie);
			return n.data;
		}
	*ret_count = 0;
	return NULL;
}

static int compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Sorted ids of all threads of the job. */
static uint32_t *collect_ids(const struct restart *r, size_t *ret_count)
{
	uint32_t *ids = NULL;
	size_t count = 0;

	for (size_t p = 0; p < r->count; p++) {
		size_t n, dead;
		const struct image_thread *t = image_get_threads(r->processes[p].image, &n);
		const struct image_zombie *z = restart_tree_zombies(&r->processes[p], &dead);
		uint32_t *more = reallocarray(ids, count + n + dead + 1, sizeof(*ids));

		if (!more) {
			free(ids);
			return NULL;
		}
		ids = more;
		for (size_t i = 0; i < n; i++)
			ids[count++] = t[i].tid;
		for (size_t i = 0; i < dead; i++)
			ids[count++] = z[i].pid;
		ids[count++] = r->processes[p].info->pid; /* also where the leader has ended */
	}
	qsort(ids, count, sizeof(*ids), compare_ids);
	*ret_count = count;
	return ids;
}

/* The first of @want ids in a row that are not in @ids, from @from on. */
static uint32_t spare_ids(const uint32_t *ids, size_t count, uint32_t from, uint32_t want)
{
	for (size_t i = 0; i < count; i++)
		if (ids[i] >= from) {
			if (ids[i] >= from + want)
				break;
			from = ids[i] + 1;
		}
	return from;
}

int restart_tree_link(struct restart *r)
{
	uint32_t next = 2, *ids;
	size_t count;

	for (size_t i = 0; i < r->count; i++) {
		struct restart_process *p = &r->processes[i];

		p->parent = restart_tree_find(r, p->info->ppid);
		if (restart_tree_find(r, p->info->pid) != p) {
			warnx("%s: process %u has two images in this checkpoint", p->path, p->info->pid);
			return CLI_DAMAGED;
		}
	}
	ids = collect_ids(r, &count);
	if (!ids) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	if (count && ids[0] == 1) {
		warnx("a process of the job was pid 1 of its pid namespace; a restart has an init of its own there");
		free(ids);
		return CLI_CANNOT;
	}
	for (size_t i = 0; i < r->count; i++) {
		next = spare_ids(ids, count, next, PLAN_EAGER_MAX + 1);
		r->processes[i].helper_tid = next;
		r->processes[i].carrier_pid = next + PLAN_EAGER_MAX;
		next += PLAN_EAGER_MAX + 1;
	}
	free(ids);
	return 0;
}

/* ---- in the capsule ---- */

/* False: it timed out. */
static bool futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0) >= 0 || errno != ETIMEDOUT;
}

static _Noreturn void give_up(const struct restart *r)
{
	(void)!write(r->log_fd, "", 1);
	if (r->turns)
		restart_turns_give_up(r);
	atomic_store(&page->failed, 1);
	atomic_fetch_or(&page->forked, 0x80000000u); /* no waiter sleeps on */
	atomic_fetch_or(&page->joined, 0x80000000u);
	futex(&page->forked, FUTEX_WAKE, INT32_MAX, NULL);
	futex(&page->joined, FUTEX_WAKE, INT32_MAX, NULL);
	_exit(CLI_CANNOT);
}

/* 0, or -ECANCELED: somebody failed or does not come. */
static int await(_Atomic uint32_t *word, uint32_t want, const struct restart *r)
{
	struct timespec limit = { r->capsule ? BARRIER_TIMEOUT_S : WALK_TIMEOUT_S, 0 };

	for (uint32_t seen; (seen = atomic_load(word)) < want;) {
		if (!futex(word, FUTEX_WAIT, seen, &limit)) {
			warnx("the job's processes do not come together: %u of %u after %ld s", seen, want, (long)limit.tv_sec);
			atomic_store(&page->failed, 1);
		}
		if (atomic_load(&page->failed))
			return -ECANCELED;
	}
	return atomic_load(&page->failed) ? -ECANCELED : 0;
}

static void arrive(_Atomic uint32_t *word)
{
	atomic_fetch_add(word, 1);
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

static _Noreturn void die_as(uint32_t status)
{
	const struct rlimit no_core = { 0, 0 };
	sigset_t set;

	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	setrlimit(RLIMIT_CORE, &no_core);
	signal(WTERMSIG(status), SIG_DFL);
	sigfillset(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	kill(getpid(), WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

static int fork_zombies(const struct restart *r, const struct restart_process *p)
{
	size_t count;
	const struct image_zombie *z = restart_tree_zombies(p, &count);
	struct timespec now = { 0, 0 };
	siginfo_t info;
	sigset_t child;

	for (; count; z++, count--) {
		pid_t pid = fork_as(r, z->pid);

		if (pid == 0)
			die_as(z->status);
		if (pid < 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0) {
			warn("ended child %u of process %u", z->pid, p->info->pid);
			return -errno;
		}
	}
	sigemptyset(&child); /* the program has had their SIGCHLD, or it is among its pending ones */
	sigaddset(&child, SIGCHLD);
	while (sigtimedwait(&child, NULL, &now) > 0)
		;
	return 0;
}

static _Noreturn void run(const struct restart *r, const struct restart_process *p);

static int fork_one(const struct restart *r, const struct restart_process *p)
{
	pid_t pid = fork_as(r, p->info->pid);
	int err = pid < 0 ? -errno : 0;

	if (pid == 0)
		run(r, p);
	if (err && err != -ECANCELED)
		warnx("process %u cannot have its number back: %s", p->info->pid, strerror(-err));
	if (err == -EEXIST && !r->capsule)
		warnx("another process has taken it in this moment: run it again");
	if (err == -EPERM)
		warnx("exact process ids need Linux 5.9 or newer");
	return err;
}

/* @p's parent has ended, but its session's leader is the caller: a carrier forks it there, and init gets it. */
static int fork_orphan(const struct restart *r, const struct restart_process *p)
{
	pid_t carrier = r->capsule ? restart_fork_as(p->carrier_pid) : fork();
	int status;

	if (carrier == 0)
		_exit(fork_one(r, p) < 0 ? CLI_CANNOT : 0);
	if (carrier < 0 || waitpid(carrier, &status, 0) != carrier)
		return -errno;
	return status ? -ECANCELED : 0;
}

/* The process that has to fork @p so that it is born into its session; NULL: its parent. */
static const struct restart_process *session_of_orphan(const struct restart *r, const struct restart_process *p)
{
	if (p->parent || p->info->sid == p->info->pid)
		return NULL;
	return restart_tree_find(r, p->info->sid);
}

static bool came_before(const struct restart_process *parent, const struct restart_process *child)
{
	return parent->info->sid == parent->info->pid && child->info->sid != parent->info->pid &&
	       child->info->sid != child->info->pid;
}

bool restart_tree_forks(const struct restart *r, const struct restart_process *p, const struct restart_process *c, bool before)
{
	const struct restart_process *through = session_of_orphan(r, c);

	if (!p)
		return !before && !c->parent && !through;
	return c->parent == p ? came_before(p, c) == before : !before && through == p;
}

static int fork_children(const struct restart *r, const struct restart_process *p, bool before)
{
	int err = 0;

	for (size_t i = 0; i < r->count && !err; i++) {
		const struct restart_process *c = &r->processes[i];

		if (restart_tree_forks(r, p, c, before))
			err = c->parent == p ? fork_one(r, c) : fork_orphan(r, c);
	}
	return err;
}

static int enter_group(const struct restart *r, const struct restart_process *p)
{
	const struct restart_process *leader = restart_tree_find(r, p->info->pgid);

	if (!leader || leader == p || getpgrp() == (pid_t)p->info->pgid)
		return 0;
	if (setpgid(0, (pid_t)p->info->pgid) < 0) {
		warn("process %u cannot join process group %u", p->info->pid, p->info->pgid);
		return -errno;
	}
	return 0;
}

static int enter_session(const struct restart *r, const struct restart_process *p)
{
	int err = fork_children(r, p, true);

	if (err < 0)
		return err;
	if (p->info->sid == p->info->pid && setsid() < 0) {
		warn("process %u cannot lead its session", p->info->pid);
		return -errno;
	}
	err = fork_children(r, p, false);
	if (!err && p->info->pgid == p->info->pid && p->info->sid != p->info->pid && setpgid(0, 0) < 0) {
		warn("process %u cannot lead its process group", p->info->pid);
		return -errno;
	}
	return err;
}

static _Noreturn void run(const struct restart *r, const struct restart_process *p)
{
	if (enter_session(r, p) < 0 || fork_zombies(r, p) < 0)
		give_up(r);
	arrive(&page->forked);
	if (await(&page->forked, (uint32_t)r->count, r) < 0 || enter_group(r, p) < 0)
		give_up(r);
	arrive(&page->joined);
	if (await(&page->joined, (uint32_t)r->count, r) < 0)
		give_up(r);
	if (chdir(p->info->cwd) < 0) {
		warn("process %u: working directory %s", p->info->pid, p->info->cwd);
		give_up(r);
	}
	if (r->capsule && p->info->uid && !restart_raise_ambient())
		warn("process %u: rights in the capsule", p->info->pid);
	restart_exec(r, p);
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
		err = await(&page->joined, (uint32_t)r->count, r);
	return err;
}

/* What the kernel counts up to, or a number that it certainly can. */
static uint32_t greatest_pid(void)
{
	FILE *f = fopen("/proc/sys/kernel/pid_max", "re");
	uint32_t limit;

	if (!f || fscanf(f, "%u", &limit) != 1)
		limit = 32768;
	if (f)
		fclose(f);
	return limit;
}

void restart_tree_set_last_pid(const struct restart *r)
{
	uint32_t last = 0, limit = greatest_pid();
	char text[16];

	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].helper_tid > last)
			last = r->processes[i].helper_tid;
	last += 2 * PLAN_EAGER_MAX;
	if (r->parts && limit > last)
		last += (uint32_t)((limit - last) / r->parts * r->part_rank);
	snprintf(text, sizeof(text), "%u", last);
	(void)restart_write_text("/proc/sys/kernel/ns_last_pid", text);
}
