/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joining a job, or starting its coordinator. All of it happens under the start lock (coordinator/rundir.h): of two launches at
 * once one starts the coordinator and the other one finds it; and a coordinator that is about to leave cannot, because the
 * connection made here is there before the lock is let go.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "coordinator/rundir.h"

#define START_IN_USE_NS 2000000000u
#define START_LEAVING_NS 10000000000u

static int start_conflict(const char *job, const char *option, const char *has, const char *wanted)
{
	log_error("job %s is already running with %s %s, not %s: choose another --job, or leave the option out", job, option,
		  has, wanted);
	return -EEXIST;
}

static int start_check_text(const char *job, json_t *status, const char *key, const char *wanted)
{
	const char *has = json_string_value(json_object_get(status, key));
	char option[32];

	snprintf(option, sizeof(option), "--%s", key);
	for (char *p = option; *p; p++)
		*p = *p == '_' ? '-' : *p;
	return wanted && has && strcmp(has, wanted) ? start_conflict(job, option, has, wanted) : 0;
}

static int start_check_number(const char *job, json_t *status, const char *key, unsigned int wanted, bool given)
{
	json_int_t has = json_integer_value(json_object_get(status, key));
	char has_text[32], wanted_text[32], option[32];

	if (!given || has == (json_int_t)wanted)
		return 0;
	snprintf(option, sizeof(option), "--%s", key);
	snprintf(has_text, sizeof(has_text), "%lld", (long long)has);
	snprintf(wanted_text, sizeof(wanted_text), "%u", wanted);
	return start_conflict(job, option, has_text, wanted_text);
}

/* The same directories in the same order. */
static int start_check_with(const struct job_options *o, json_t *status)
{
	json_t *has = json_object_get(status, "with");
	bool same = o->with && json_array_size(has) == o->with->count;

	for (unsigned int i = 0; same && i < o->with->count; i++)
		same = !strcmp(json_string_value(json_array_get(has, i)), o->with->paths[i]);
	return !o->with || same ? 0 : start_conflict(o->name, "--with", json_array_size(has) ? "other directories" : "none", o->with->paths[0]);
}

/* The coordinator's status, or NULL after it has been said why not. */
static json_t *start_status(struct job *job)
{
	char *text = NULL;
	json_t *status;

	if (job_status(job, &text) < 0)
		return NULL;
	status = json_loads(text, 0, NULL);
	free(text);
	return status;
}

static bool start_is_ending(json_t *status)
{
	const char *phase = json_string_value(json_object_get(status, "phase"));

	return phase && !strcmp(phase, "ending");
}

/* Nobody can join what was restarted: -EBUSY. When its last process has ended its coordinator stays for a moment, and then the name is free: -EAGAIN. */
static int start_check_restarted(json_t *status)
{
	const char *phase = json_string_value(json_object_get(status, "phase"));

	if (!json_is_true(json_object_get(status, "restarted")))
		return 0;
	return json_array_size(json_object_get(status, "processes")) || !phase || strcmp(phase, "running") ? -EBUSY : -EAGAIN;
}

static void start_own_options(struct job *to, const struct job_options *o)
{
	char by_name[80];

	snprintf(by_name, sizeof(by_name), "fermata-%.63s", o->name);
	paths_absolute(o->dir ? o->dir : by_name, to->dir, sizeof(to->dir));
	snprintf(to->rdma, sizeof(to->rdma), "%s", o->rdma ? o->rdma : "auto");
	snprintf(to->on_signal, sizeof(to->on_signal), "%s", o->on_signal && strcmp(o->on_signal, "none") ? o->on_signal : "");
	to->on_failure = o->on_failure && !strcmp(o->on_failure, "restart");
	to->restarts = o->restarts_given ? o->restarts : OPTIONS_RESTARTS;
	to->joined = false;
}

static void start_take_options(struct job *to, json_t *status)
{
	const char *on_signal = json_string_value(json_object_get(status, "on_signal"));
	const char *on_failure = json_string_value(json_object_get(status, "on_failure"));
	const char *dir = json_string_value(json_object_get(status, "dir"));

	snprintf(to->rdma, sizeof(to->rdma), "%s", json_string_value(json_object_get(status, "rdma")));
	snprintf(to->on_signal, sizeof(to->on_signal), "%s", on_signal && strcmp(on_signal, "none") ? on_signal : "");
	snprintf(to->dir, sizeof(to->dir), "%s", dir ? dir : "");
	to->on_failure = on_failure && !strcmp(on_failure, "restart");
	to->joined = true;
	to->restarts = (unsigned int)json_integer_value(json_object_get(status, "restarts"));
}

/* A job that runs is joined with its own options; one that was given otherwise is an error, not ignored. -EAGAIN: it is ending. */
static int start_check_options(const struct job_options *o, struct job *job)
{
	json_t *status = start_status(job);
	int r = !status ? -EPROTO : start_is_ending(status) ? -EAGAIN : start_check_restarted(status);

	if (r == 0)
		r = start_check_text(o->name, status, "dir", o->dir);
	if (r == 0)
		r = start_check_text(o->name, status, "compress", o->compress);
	if (r == 0)
		r = start_check_text(o->name, status, "rdma", o->rdma);
	if (r == 0)
		r = start_check_text(o->name, status, "files", o->files);
	if (r == 0)
		r = start_check_with(o, status);
	if (r == 0)
		r = start_check_text(o->name, status, "external", o->external);
	if (r == 0)
		r = start_check_text(o->name, status, "text", o->text);
	if (r == 0)
		r = start_check_number(o->name, status, "interval", o->interval, o->interval_given);
	if (r == 0)
		r = start_check_number(o->name, status, "keep", o->keep, o->keep_given);
	if (r == 0)
		r = start_check_text(o->name, status, "on_signal", o->on_signal);
	if (r == 0)
		r = start_check_text(o->name, status, "on_failure", o->on_failure);
	if (r == 0)
		r = start_check_number(o->name, status, "restarts", o->restarts, o->restarts_given);
	if (r == 0)
		start_take_options(job, status);
	json_decref(status);
	return r;
}

static void start_pause(void)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL);
}

/* Processes that were killed a moment ago may still be on their way out: they get a shorter time than an empty job. */
static bool start_is_in_use(const char *name)
{
	json_t *status = NULL;
	struct job job = { .link.fd = -EBADF };
	bool in_use;

	if (job_try(name, &job) == 0)
		status = start_status(&job);
	in_use = status && !start_is_ending(status) && json_array_size(json_object_get(status, "processes"));
	json_decref(status);
	job_close(&job);
	return in_use;
}

static int start_in_use(const char *name)
{
	log_error("job %s is still running: end it first, or choose another job name", name);
	return -EEXIST;
}

/* A restart of that checkpoint is under way, which waits for the processes of other parts. */
static bool start_is_awaited(const struct job_options *o)
{
	const char *from, *phase;
	json_t *status = NULL;
	struct job job = { .link.fd = -EBADF };
	bool awaited;

	if (!o->part)
		return false;
	if (job_try(o->name, &job) == 0)
		status = start_status(&job);
	from = json_string_value(json_object_get(status, "restarted_from"));
	phase = json_string_value(json_object_get(status, "phase"));
	awaited = from && phase && !strcmp(from, o->restart) && !strcmp(phase, "RESTORE");
	json_decref(status);
	job_close(&job);
	return awaited;
}

/* Under the start lock: one that is just being started does not answer yet. */
static bool start_may_be_joined(const struct job_options *o)
{
	int lock = o->part ? rundir_lock(1) : -EBADF;
	bool awaited = start_is_awaited(o);

	if (lock >= 0)
		close(lock);
	return awaited;
}

/* A restart often follows right upon the end of its job, whose coordinator is then just leaving. */
static int start_wait_gone(const struct job_options *o)
{
	const char *name = o->name;
	uint64_t begin = raw_now_ns();
	char jobdir[RUNDIR_PATH_MAX];

	while (rundir_find(name, jobdir) == 0 && !start_may_be_joined(o)) {
		uint64_t patience = start_is_in_use(name) ? START_IN_USE_NS : START_LEAVING_NS;

		if (raw_now_ns() - begin > patience)
			return start_in_use(name);
		start_pause();
	}
	return 0;
}

/* Under the start lock. -EAGAIN: its coordinator is about to leave, which needs that lock. */
static int start_or_join(const struct job_options *o, struct job *ret)
{
	char jobdir[RUNDIR_PATH_MAX], address[128];
	int r;

	if (rundir_find(o->name, jobdir) < 0) {
		if (!o->coordinator)
			start_own_options(ret, o);
		r = start_coordinator(o);
		if (r < 0 || !o->coordinator)
			return r;
	}
	if (start_is_awaited(o))
		return 0;
	if (o->restart || o->linger)
		return start_in_use(o->name);
	r = job_connect(o->name, ret);
	if (r == 0)
		r = start_check_options(o, ret);
	if (r == 0 && o->listen)
		r = job_listen(ret, o->listen, address, sizeof(address));
	/* The question has made it a command's connection; a process needs one that is nobody's yet. */
	job_close(ret);
	return r;
}

/* The job is in the way, and may be about to go. */
static bool start_may_wait(int r, uint64_t begin)
{
	uint64_t patience = r == -EAGAIN ? START_LEAVING_NS : r == -EBUSY ? START_IN_USE_NS : 0;

	return raw_now_ns() - begin < patience;
}

int job_start(const struct job_options *o, struct job *ret)
{
	uint64_t begin = raw_now_ns();
	int r = o->restart || o->linger ? start_wait_gone(o) : 0, lock;

	*ret = (struct job){ .link.fd = -EBADF };
	if (r < 0)
		return r;
	for (;;) {
		lock = rundir_lock(1);
		if (lock < 0)
			return lock;
		r = start_or_join(o, ret);
		if (!start_may_wait(r, begin))
			break;
		close(lock);
		start_pause();
	}
	if (r == -EAGAIN)
		log_error("job %s is being ended, and its processes do not go: end them, or choose another --job", o->name);
	if (r == -EBUSY) {
		log_error("job %s was restarted: its processes have namespaces of their own, which other programs cannot join in "
			  "this version; choose another --job", o->name);
		r = -EEXIST;
	}
	if (r == 0)
		r = job_connect(o->name, ret);
	close(lock);
	if (r < 0)
		job_close(ret);
	return r;
}
