/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the job has failed: from which checkpoint the job comes back, and the end of what is left of it.
 *
 * Owns the count of restarts: at most so many in all, and three from one checkpoint. A job that fails again and again before it has a newer one will not get further from there: the
 * checkpoint may have been taken while the job was failing already (a rank had crashed, and mpirun not ended the others yet). So it is passed over for the one before it, as is one that turns
 * out to be damaged. Only checkpoints of this job's life count, or the one that it was restarted from: in its directory there may be those of an earlier one.
 *
 * Who is left is ended by the coordinator, which knows all. What it does not, because it was killed itself, is below us: we are the subreaper of
 * all that our child has made.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/protect.h"
#include "image/manifest.h"

#define PROTECT_SAME_MAX 3
#define PROTECT_KILL_MS 10000

static bool asked_for(int sig)
{
	return sig == SIGHUP || sig == SIGINT || sig == SIGTERM;
}

bool protect_is_failure(int status)
{
	if (WIFSIGNALED(status))
		return !asked_for(WTERMSIG(status));
	return WEXITSTATUS(status) && !asked_for(WEXITSTATUS(status) - 128);
}

void protect_describe(int status, char *buf, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(buf, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(buf, size, "ended with status %d", WEXITSTATUS(status));
}

/* ---- which checkpoint ---- */

/* 0: there is none. */
static uint64_t open_checkpoint(const char *path, char ret_path[PATH_MAX])
{
	struct image_error error;
	struct manifest *m;
	uint64_t number;

	if (manifest_open(path, &m, &error) < 0)
		return 0;
	number = m->checkpoint;
	snprintf(ret_path, PATH_MAX, "%s", m->path);
	manifest_free(m);
	return number;
}

void protect_remember(struct protect *p)
{
	char path[PATH_MAX];

	p->floor = open_checkpoint(p->dir, path);
	if (p->from)
		p->number = open_checkpoint(p->from, p->checkpoint);
}

static bool is_passed(const struct protect *p, uint64_t number)
{
	for (unsigned int i = 0; i < p->passed_count; i++)
		if (p->passed[i] == number)
			return true;
	return false;
}

static void pass_over(struct protect *p, uint64_t number)
{
	if (p->passed_count < PROTECT_PASSED_MAX)
		p->passed[p->passed_count++] = number;
}

/* The newest of this life that is not passed over, else the one that it began with. 0: there is none. */
static uint64_t choose(const struct protect *p, char ret_path[PATH_MAX])
{
	uint64_t n = open_checkpoint(p->dir, ret_path);
	char path[PATH_MAX + 24];

	if (n > p->floor && !is_passed(p, n))
		return n;
	while (n > p->floor && --n > p->floor) {
		snprintf(path, sizeof(path), "%s/%llu", p->dir, (unsigned long long)n);
		if (!is_passed(p, n) && open_checkpoint(path, ret_path))
			return n;
	}
	n = p->from ? open_checkpoint(p->from, ret_path) : 0;
	return is_passed(p, n) ? 0 : n;
}

/* It has come back from @n too often: from the one before it, if there is one. */
static uint64_t choose_before(struct protect *p, uint64_t n, char path[PATH_MAX])
{
	char before[PATH_MAX];
	uint64_t next;

	pass_over(p, n);
	next = p->passed_count < PROTECT_PASSED_MAX ? choose(p, before) : 0;
	if (!next) {
		warnx("job %s has come back %u times from checkpoint %llu without a newer one, and is given up; it is %s", p->job, p->same, (unsigned long long)n, path);
		return 0;
	}
	warnx("job %s has come back %u times from checkpoint %llu without a newer one: the one before it is taken", p->job, p->same, (unsigned long long)n);
	strcpy(path, before);
	return next;
}

static bool choose_next(struct protect *p)
{
	char path[PATH_MAX];
	uint64_t n = choose(p, path);

	if (!n) {
		warnx("job %s: there is no checkpoint yet that it could come back from", p->job);
		return false;
	}
	if (p->done >= p->restarts) {
		warnx("job %s has come back %u time%s, and is given up; its newest checkpoint is %s", p->job, p->done,
		      p->done == 1 ? "" : "s", path);
		return false;
	}
	if (p->same >= PROTECT_SAME_MAX && n == p->number)
		n = choose_before(p, n, path);
	if (!n)
		return false;
	p->same = n == p->number ? p->same + 1 : 1;
	p->number = n;
	p->done++;
	strcpy(p->checkpoint, path);
	return true;
}

/* ---- what is left of the job ---- */

static void kill_children(void)
{
	char path[64];
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &child) == 1)
		kill(child, SIGKILL);
	if (f)
		fclose(f);
}

/* The children of the killed become ours, until there are no more. */
static void end_descendants(void)
{
	for (int ms = 0; ms < PROTECT_KILL_MS; ms += 10) {
		pid_t pid;

		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0 && errno == ECHILD)
			return;
		kill_children();
		poll(NULL, 0, 10);
	}
}

/* Which program it was. False: the job has not run, and a restart has said why. */
static bool say_what(struct protect *p, char *what, size_t size)
{
	bool damaged = !p->runs && WIFEXITED(p->status) && WEXITSTATUS(p->status) == CLI_DAMAGED && p->number;
	char how[80];

	protect_describe(p->status, how, sizeof(how));
	if (p->failed[0])
		snprintf(what, size, "%s", p->failed);
	else
		snprintf(what, size, "%s (pid %d) %s", p->program ? p->program : "a restarted program", (int)p->child, how);
	if (p->runs)
		warnx("job %s: %s", p->job, what);
	if (damaged)
		pass_over(p, p->number);
	return p->runs || damaged;
}

bool protect_return(struct protect *p)
{
	char what[sizeof(p->failed)];

	if (!p->keeps && p->ending)
		return false; /* another's failure, which has been said */
	if (!say_what(p, what, sizeof(what)))
		return false;
	if (!p->keeps) {
		protect_tell_failed(p, what);
		return false;
	}
	if (!choose_next(p))
		return false;
	protect_tell_failed(p, what);
	protect_wait_gone(p);
	job_close(&p->coordinator);
	end_descendants();
	warnx("job %s: restart %u of %u, from checkpoint %llu (%s)", p->job, p->done, p->restarts, (unsigned long long)p->number,
	      p->checkpoint);
	return true;
}
