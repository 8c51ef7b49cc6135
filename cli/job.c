/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands talk to a running job: find it, prove its key, ask. Owns the connection in struct job. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "cli/cli.h"
#include "coordinator/rundir.h"

#define JOB_BEGIN_NAPS 200 /* of 10 ms, for a coordinator that has only begun */

struct running {
	size_t count;
	char names[1024];
	char first[64];
};

static int job_collect(const char *job, const char *jobdir, void *arg)
{
	struct running *r = arg;
	size_t len = strlen(r->names);

	snprintf(r->names + len, sizeof(r->names) - len, "%s%s", r->count ? ", " : "", job);
	if (!r->count++)
		snprintf(r->first, sizeof(r->first), "%s", job);
	return 0;
}

static int job_choose(const char *name, struct job *ret)
{
	struct running running = { 0 };

	rundir_each(job_collect, &running);
	if (!name) {
		if (running.count == 1) {
			name = running.first;
		} else if (!running.count) {
			log_error("no job is running: start one with fermata launch");
			return -ENOENT;
		} else {
			log_error("several jobs are running, say which one: %s", running.names);
			return -EINVAL;
		}
	}
	if (rundir_job_check(name) < 0 || rundir_find(name, ret->jobdir) < 0) {
		log_error("job %s is not running%s%s", name, running.count ? "; these are: " : "; no job is", running.names);
		return -ENOENT;
	}
	snprintf(ret->name, sizeof(ret->name), "%.63s", name);
	return 0;
}

/* 0, -EBADMSG: not the coordinator's key, or -errno, of *@ret_what. */
static int job_dial(struct job *job, const char **ret_what)
{
	char path[JOB_PATH_MAX + 8];
	uint8_t key[PROTOCOL_KEY_SIZE];
	int r;

	*ret_what = "key";
	snprintf(path, sizeof(path), "%s/key", job->jobdir);
	r = link_read_key(path, key);
	if (r < 0)
		return r;
	*ret_what = "sock";
	snprintf(path, sizeof(path), "%s/sock", job->jobdir);
	r = link_dial(path);
	if (r < 0)
		return r;
	r = link_open(&job->link, r, key);
	return r == -EACCES ? -EBADMSG : r;
}

/* Its coordinator has taken the directory over, and not come to what we look for in it. */
static bool job_begins(const struct job *job, int r)
{
	char jobdir[sizeof(job->jobdir)];

	return (r == -ENOENT || r == -EINVAL || r == -ECONNREFUSED) && rundir_find(job->name, jobdir) == 0;
}

static int job_open(struct job *job, const char **ret_what)
{
	const struct timespec nap = { .tv_nsec = 10000000 };
	int r;

	job->link = (struct link){ .fd = -EBADF };
	r = job_dial(job, ret_what);
	for (unsigned int i = 0; i < JOB_BEGIN_NAPS && job_begins(job, r); i++) {
		nanosleep(&nap, NULL);
		r = job_dial(job, ret_what);
	}
	return r;
}

int job_try(const char *name, struct job *ret)
{
	const char *what;

	ret->link.fd = -EBADF;
	if (rundir_find(name, ret->jobdir) < 0)
		return -ENOENT;
	snprintf(ret->name, sizeof(ret->name), "%.63s", name);
	return job_open(ret, &what);
}

int job_connect(const char *name, struct job *job)
{
	const char *what;
	int r = job_choose(name, job);

	if (r < 0)
		return r;
	r = job_open(job, &what);
	if (r == -EBADMSG)
		log_error("job %s: wrong job key: %s/key is not the one that its coordinator started with", job->name, job->jobdir);
	else if (r < 0 && !strcmp(what, "key"))
		log_error("job %s: key %s/key: %s%s", job->name, job->jobdir, strerror(-r), r == -EPERM ? " (it must be a file of your own with mode 0600)" : "");
	else if (r < 0)
		log_error("job %s: its coordinator does not answer at %s/sock: %s", job->name, job->jobdir, strerror(-r));
	return r == -EBADMSG ? -EACCES : r;
}

void job_close(struct job *job)
{
	link_close(&job->link);
}

static int job_refused(const struct job *job, const struct link_message *m)
{
	struct msg_error e;

	if (m->type != MSG_ERROR || m->length < sizeof(e))
		return -EPROTO;
	memcpy(&e, m->data, sizeof(e));
	log_error("job %s: %.*s", job->name, (int)(m->length - sizeof(e)), (const char *)m->data + sizeof(e));
	return e.error < 0 ? e.error : -EPROTO;
}

int job_listen(struct job *job, const char *address, char *ret, size_t size)
{
	struct link_message m;
	int r = link_send(&job->link, MSG_LISTEN, address, strlen(address));

	if (r == 0)
		r = link_receive(&job->link, &m, 30000);
	if (r == 0 && m.type != MSG_LISTENING)
		return job_refused(job, &m);
	if (r < 0) {
		log_error("job %s: its coordinator does not answer: %s", job->name, strerror(-r));
		return r;
	}
	return snprintf(ret, size, "%.*s", (int)m.length, (const char *)m.data) < (int)size ? 0 : -ENAMETOOLONG;
}

int job_status(struct job *job, char **ret_text)
{
	struct link_message m;
	int r = link_send(&job->link, MSG_STATUS, NULL, 0);

	if (r == 0)
		r = link_receive(&job->link, &m, 30000);
	if (r == 0 && m.type != MSG_STATUS_REPLY)
		r = -EPROTO;
	if (r < 0) {
		log_error("job %s: no status from its coordinator: %s", job->name, strerror(-r));
		return r;
	}
	*ret_text = strndup((const char *)m.data, m.length);
	return *ret_text ? 0 : -ENOMEM;
}
