/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Restart without a capsule, where a host refuses namespaces (default containers, hardened sites): the job stands in the namespaces of `fermata restart`,
 * and its ids come back since one waits for them: base/pid_walk.h. What only a namespace of its own can give is checked before: clocks that do
 * not run backwards, no System V objects and message queues, numbers that nobody has.
 *
 *   processes: each is forked by its old parent  |  restorers, which read the memory  |  threads: each is cloned by its process
 *
 * restart_turns.c says in which order.
 *
 * Processes of fermata itself must not stand on a number of the job: before any is made, the next ones are led to where none is. So are those of anybody
 * while the memory is read and the threads have not got their numbers yet, and at the end, should the job have to come back again. They keep off
 * the numbers of other jobs that are about to come back, too (restart_wanted.c).
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/pid_walk.h"
#include "plugins/ipc/ipc_record.h"
#include "plugins/mqueue/mqueue_record.h"

#define ASIDE 64u	  /* numbers that processes of fermata take, and the margin of a walk */
#define LEAVING_MS 5000	  /* the old job may be about to end */
#define LOCK_MS 120000
#define NS_PER_S 1000000000ull
#define LOCK_PATH "/dev/shm/fermata-walk"

/* ---- can it be done? ---- */

static int check_clocks(const struct restart *r)
{
	struct timespec now;
	uint64_t most = 0, is;

	clock_gettime(CLOCK_MONOTONIC, &now);
	is = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].info->monotonic_ns > most)
			most = r->processes[i].info->monotonic_ns;
	if (most <= is)
		return 0;
	warnx("the clocks of the job (CLOCK_MONOTONIC) would run backwards by %llu s: this host has not been up for so long; without namespaces"
	      " they cannot be set", (unsigned long long)((most - is) / NS_PER_S + 1));
	return CLI_CANNOT;
}

/* A record that has more than its head, or a descriptor. */
static bool is_ipc(const struct image_note_view *n)
{
	const struct image_resource *r = n->data;

	if (n->type != IMAGE_NOTE_RESOURCE)
		return false;
	if (!strcmp(r->plugin, "ipc"))
		return r->length > sizeof(struct ipc_record);
	return !strcmp(r->plugin, "mqueue") && (r->kind == IMAGE_RESOURCE_DESC || r->length > sizeof(struct mqueue_record));
}

/* Objects whose ids, and whose names, an IPC namespace has. */
static int check_ipc(const struct restart *r)
{
	struct image_note_view n;
	int code = 0;

	for (size_t i = 0; i < r->sysv_count; i++) {
		warnx("System V shared memory %d cannot have its id back without namespaces", r->sysv[i].segment.id);
		code = CLI_CANNOT;
	}
	for (size_t i = 0; i < r->count; i++)
		for (size_t cursor = 0; image_next_note(r->processes[i].image, &cursor, &n);)
			if (is_ipc(&n)) {
				warnx("process %u has message queues or System V semaphores: they cannot come back without namespaces",
				      r->processes[i].info->pid);
				code = CLI_CANNOT;
				break;
			}
	return code;
}

int restart_walk_choose(struct restart *r)
{
	const char *wanted = r->capsule_wanted ? r->capsule_wanted : "auto";
	int err = strcmp(wanted, "auto") ? 0 : restart_capsule_probe();

	r->capsule = strcmp(wanted, "no") && !err;
	if ((r->part || r->several) && !r->capsule) {
		warnx("%s: only with namespaces%s%s", r->part ? "--part" : "a job of several hosts", err ? ", which are refused here: " : "", err ? strerror(-err) : "");
		return CLI_CANNOT;
	}
	if (paths_lib(r->capsule ? "fermata/restorer" : "fermata/restorer.so", r->restorer, sizeof(r->restorer)) < 0)
		return CLI_CANNOT;
	if (err)
		warnx("no namespaces here (%s): the job comes back among the other processes of this host", strerror(-err));
	return 0;
}

/* ---- one at a time ---- */

/*
 * Two who walk at a time pass each other's numbers: a lock for all restarts of this host, by any user. It is not what makes the ids right; who cannot
 * have it goes without.
 */
static int lock_open(void)
{
	int fd = open(LOCK_PATH, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 || errno != ENOENT ? fd : open(LOCK_PATH, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
}

void restart_walk_lock(struct restart *r, void (*keep_alive)(void *arg), void *arg)
{
	struct timespec nap = { 0, 10000000 };

	for (int left = LOCK_MS / 10; !r->capsule && left > 0; left--) {
		if (flock(r->walk_lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
			return;
		if (keep_alive)
			keep_alive(arg);
		nanosleep(&nap, NULL);
	}
}

void restart_walk_unlock(struct restart *r)
{
	if (!r->capsule)
		flock(r->walk_lock, LOCK_UN);
}

/* ---- preparation ---- */

static bool is_of_the_job(const struct plan_turns *t, uint32_t id)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (t->ids[i] == id)
			return true;
	return false;
}

static const char *who_has(uint32_t id, char text[160])
{
	char path[48], comm[32] = "somebody", state = 0;
	int parent = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/stat", id);
	f = fopen(path, "re");
	if (f && fscanf(f, "%*d (%31[^)]) %c %d", comm, &state, &parent) == 3 && state == 'Z')
		snprintf(text, 160, "%s; it has ended, but its parent, process %d, does not wait for it: a container wants a first process that does so (docker run --init)",
			 comm, parent);
	else
		snprintf(text, 160, "%s", comm);
	if (f)
		fclose(f);
	return text;
}

/* Numbers in use, but for those whose owners just end; each is said. */
static int check_free(const struct plan_turns *t)
{
	struct timespec nap = { 0, 10000000 };
	char text[160];
	int used = 0, left = LEAVING_MS / 10;

	for (uint32_t i = 0; i < t->count; i++) {
		while (pid_walk_is_used(t->ids[i]) && left > 0 && t->ids[i] != (uint32_t)getpid()) {
			nanosleep(&nap, NULL);
			left--;
		}
		if (!pid_walk_is_used(t->ids[i]))
			continue;
		warnx("process id %u is in use (%s)", t->ids[i],
		      t->ids[i] == (uint32_t)getpid() ? "this command itself: run it again" : who_has(t->ids[i], text));
		used = 1;
	}
	if (used)
		warnx("without namespaces the job needs its old ids on this host: end what has them, or restart it on another one");
	return used ? CLI_CANNOT : 0;
}

/* The first numbers from @from on that no process of the job has, nor, @others, of one that waits. */
static uint32_t gap_after(const struct restart *r, uint32_t from, uint32_t end, bool others)
{
	for (uint32_t id = from; id < from + ASIDE && id < end; id++)
		if ((others && restart_wanted_by_others(r, id)) || is_of_the_job(r->turns, id))
			from = id + 1;
	return from;
}

/* The same behind the last number, or from the beginning, or, if there are none, without regard to others. */
static uint32_t find_gap(const struct restart *r, uint32_t from, uint32_t end)
{
	uint32_t gap = gap_after(r, from, end, true);

	if (gap == from || gap + ASIDE < end)
		return gap;
	gap = gap_after(r, PID_WALK_RESERVED + 1, end, true);
	if (gap + ASIDE < end)
		return gap;
	gap = gap_after(r, from, end, false);
	return gap + ASIDE < end ? gap : gap_after(r, PID_WALK_RESERVED + 1, end, false);
}

int restart_walk_aside(const struct restart *r)
{
	long last = pid_walk_last(), end = pid_walk_end();
	uint32_t gap;

	if (last < 0 || end < 0)
		return (int)(last < 0 ? last : end);
	restart_wanted_look(r);
	gap = find_gap(r, (uint32_t)last + 1, (uint32_t)end);
	return gap == (uint32_t)last + 1 ? 0 : pid_walk_near(gap + PID_WALK_MARGIN, -1, 0);
}

bool restart_walk_is_ours(const struct restart *r, uint32_t id)
{
	return is_of_the_job(r->turns, id);
}

int restart_walk_past(const struct restart *r)
{
	long last = pid_walk_last();

	if (last < 0)
		return (int)last;
	return is_of_the_job(r->turns, (uint32_t)last + 1) ? restart_walk_aside(r) : 0;
}

int restart_walk_prepare(struct restart *r)
{
	int err, code;

	if (r->capsule)
		return 0;
	code = check_clocks(r);
	code = check_ipc(r) || code ? CLI_CANNOT : 0;
	if (code)
		return code;
	err = restart_turns_create(r);
	r->walk_lock = lock_open();
	if (!err)
		restart_wanted_publish(r);
	if (!err)
		restart_walk_lock(r, NULL, NULL); /* until the processes are made */
	code = err ? 0 : check_free(r->turns);
	if (code)
		return code;
	if (!err)
		err = restart_walk_aside(r);
	if (err)
		warnx("the way to the job's old process ids: %s", strerror(-err));
	return err ? CLI_CANNOT : 0;
}

void restart_walk_free(struct restart *r)
{
	if (!r->turns)
		return;
	restart_walk_aside(r);
	restart_wanted_withdraw(r);
	restart_walk_unlock(r); /* the descriptor is shared with init */
	close(r->walk_lock);
	munmap(r->turns, plan_turns_size(r->turns->count));
	close(r->turns_fd);
	free(r->wanted);
	r->wanted = NULL;
	r->turns = NULL;
}
