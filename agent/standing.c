/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nobody goes on from a checkpoint that fails while another one is still at it. What a process touches others of its host may have, too: unread input of a terminal is taken out and put back, messages of a queue are, flags
 * of a description change for a moment. The checkpoint may fail just then, or the coordinator die. So each attempt has a directory on each host, RUNDIR/JOB/standing-HOST-ATTEMPT, and who may be at something has an entry in it:
 *
 *   SUSPEND                         makes the directory
 *   QUIESCE                         makes its entry. Is the directory gone: somebody runs, so nothing is touched, and the phase fails
 *   RESUME with a reason, no link   takes its entry away, and goes on when the directory is gone: it, or another one, could remove it
 *   RESUME                          the same, but nobody waits: all have said that they are through
 *
 * Only an empty directory can be removed. So when it went nobody was at anything, and nobody begins to be: it is not made again, for who has got QUIESCE knows that all have answered SUSPEND. (One that comes late to SUSPEND
 * may make it again where the attempt has failed in that phase. Nobody has an entry then, nor will have.)
 *
 * An entry is a pid, behind a number of its pid namespace; that of one which was killed those take away who wait, if they have that namespace, too. Nobody waits for longer than 10 s, nor after a time-out: one that hangs
 * does not keep the others from their work. Where the directory cannot be made (no room) the job goes on without it.
 *
 * Owns what this process has of it. The coordinator removes, at its end and before its begin, what is left of processes that were killed.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/host_id.h"

#define WAIT_NS 10000000000u
#define LOOK_AGAIN_NS 1000000u

static char directory[sizeof(agent.jobdir) + 48]; /* "": there is none */
static bool entered;

static void entry_path(char *path, size_t size, const char *name)
{
	fm_format(path, size, "%s/%s", directory, name);
}

static void own_entry(char *path, size_t size)
{
	char name[32];

	fm_format(name, sizeof(name), "%016lx-%u", (unsigned long)agent.where, agent.pid);
	entry_path(path, size, name);
}

void standing_begin(void)
{
	int r;

	fm_format(directory, sizeof(directory), "%s/standing-%u-%u", agent.jobdir, agent.place, agent.attempt);
	r = (int)RAW3(SYS_mkdirat, AT_FDCWD, directory, 0700);
	if (!r)
		r = (int)RAW3(SYS_fchmodat, AT_FDCWD, directory, 0700); /* whatever the program's umask is */
	if (r && r != -EEXIST)
		directory[0] = 0;
}

int standing_enter(void)
{
	char path[sizeof(directory) + 32];
	int r;

	if (!directory[0])
		return 0;
	own_entry(path, sizeof(path));
	r = (int)RAW4(SYS_mknodat, AT_FDCWD, path, S_IFREG | 0600, 0);
	entered = !r || r == -EEXIST; /* of one that had our number, and was killed */
	return r == -ENOENT ? fermata_fail(-ECANCELED, "another process of the job goes on already") : 0;
}

/* Its threads, too: the first one may have ended before the others. */
static bool has_ended(const char *pid)
{
	char path[64], text[1024];
	const char *state, *threads;
	long n;

	fm_format(path, sizeof(path), "/proc/%s/stat", pid);
	n = raw_read_file(path, text, sizeof(text));
	if (n < 0)
		return n == -ENOENT;
	state = raw_process_field(text, 3);
	threads = raw_process_field(text, 20);
	return state && threads && (*state == 'Z' || *state == 'X') && !strncmp(threads, "1 ", 2);
}

/* In the directory's listing: an entry whose process, one of this pid namespace, is no more. */
static int sweep(const char *name, void *arg)
{
	char path[sizeof(directory) + 64];
	uint64_t where;
	const char *pid = host_id_digits(name, &where);

	(void)arg;
	if (!pid || where != agent.where || *pid != '-' || !has_ended(pid + 1))
		return 0;
	entry_path(path, sizeof(path), name);
	RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
	return 0;
}

static void await_all(void)
{
	const uint64_t limit = raw_now_ns() + WAIT_NS;
	struct timespec t = { .tv_nsec = LOOK_AGAIN_NS };

	while (RAW3(SYS_unlinkat, AT_FDCWD, directory, AT_REMOVEDIR) == -ENOTEMPTY && raw_now_ns() < limit) {
		RAW2(SYS_nanosleep, &t, NULL);
		raw_dir_each(directory, sweep, NULL);
	}
}

void standing_end(int reason)
{
	char path[sizeof(directory) + 32];

	if (!directory[0])
		return;
	if (entered) {
		own_entry(path, sizeof(path));
		RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
	}
	if (reason && reason != -ETIMEDOUT)
		await_all();
	else
		RAW3(SYS_unlinkat, AT_FDCWD, directory, AT_REMOVEDIR);
	standing_forget();
}

void standing_forget(void)
{
	entered = false;
	directory[0] = 0;
}
