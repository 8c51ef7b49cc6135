/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What stays with a job, and the job's coordinator. Owns the connection: a command's, on which the coordinator says why it ends the job
 * before it does, so who sees the program dead knows by then whether that was asked for, once it has read what is there (protect_drain()). Its end without such a word means that the
 * coordinator was killed: the job is unharmed, and cannot be checkpointed any more.
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/protect.h"
#include "coordinator/rundir.h"

#define PROTECT_MESSAGE_MS 5000 /* for the rest of a message that has begun */
#define PROTECT_GONE_MS 10000

void protect_watch(struct protect *p)
{
	const struct msg_watch watch = { .flags = p->on_failure && p->keeps ? MSG_WATCH_KEEPER : 0 };

	p->coordinator.link.fd = -EBADF;
	if (job_connect(p->job, &p->coordinator) < 0)
		return;
	if (link_send(&p->coordinator.link, MSG_WATCH, &watch, sizeof(watch)) < 0)
		job_close(&p->coordinator);
}

void protect_ask(struct protect *p)
{
	const struct msg_checkpoint request = { .flags = MSG_CHECKPOINT_STOP | MSG_CHECKPOINT_REQUEUE };

	if (p->asked || p->requeue)
		return;
	if (p->coordinator.link.fd < 0 || link_send(&p->coordinator.link, MSG_CHECKPOINT, &request, sizeof(request)) < 0) {
		warnx("job %s: %s: no checkpoint can be taken, the job goes on: its coordinator is gone", p->job, p->on_signal);
		return;
	}
	p->asked = true;
}

void protect_tell_failed(struct protect *p, const char *what)
{
	if (p->coordinator.link.fd >= 0)
		link_send(&p->coordinator.link, MSG_FAILED, what, strlen(what));
}

static void hear_result(struct protect *p, const struct link_message *m)
{
	struct msg_checkpoint_result r;

	memcpy(&r, m->data, sizeof(r));
	if (r.error)
		warnx("job %s: %s: the checkpoint failed, the job goes on: %.*s", p->job, p->on_signal, (int)r.text_length,
		      (const char *)m->data + sizeof(r) + r.path_length);
	p->asked = false;
}

static void hear_ending(struct protect *p, const struct link_message *m)
{
	struct msg_ending e;

	memcpy(&e, m->data, sizeof(e));
	p->ending = e.reason;
	if (e.reason == MSG_ENDING_FAILED && p->keeps)
		snprintf(p->failed, sizeof(p->failed), "%.*s", (int)e.text_length, (const char *)m->data + sizeof(e));
	else if (e.reason == MSG_ENDING_FAILED)
		warnx("job %s: %.*s; the fermata launch that has started the job brings it back", p->job, (int)e.text_length,
		      (const char *)m->data + sizeof(e));
	if (e.reason != MSG_ENDING_REQUEUED || !p->signal || p->requeue)
		return;
	p->requeue = true;
	warnx("job %s is ended at checkpoint %u, to be requeued: fermata restart %.*s", p->job, e.checkpoint, (int)e.text_length,
	      (const char *)m->data + sizeof(e));
}

static void hear_end(struct protect *p)
{
	job_close(&p->coordinator);
	if (p->asked)
		warnx("job %s: %s: no checkpoint, the job goes on: its coordinator is gone", p->job, p->on_signal);
	else if (!p->ended && !p->ending)
		warnx("job %s: its coordinator is gone: the job goes on without checkpoints", p->job);
	p->asked = false;
}

void protect_hear(struct protect *p)
{
	struct link_message m;

	if (link_receive(&p->coordinator.link, &m, PROTECT_MESSAGE_MS) < 0) {
		hear_end(p);
	} else if (m.type == MSG_CHECKPOINT_RESULT) {
		hear_result(p, &m);
	} else if (m.type == MSG_ENDING) {
		hear_ending(p, &m);
	} else if (m.type == MSG_ERROR && p->asked) {
		warnx("job %s: %s: no checkpoint: %.*s", p->job, p->on_signal, (int)(m.length - sizeof(struct msg_error)),
		      (const char *)m.data + sizeof(struct msg_error));
		p->asked = false;
	}
}

static bool has_come(const struct protect *p, int ms)
{
	struct pollfd f = { .fd = p->coordinator.link.fd, .events = POLLIN };

	return f.fd >= 0 && poll(&f, 1, ms) > 0;
}

void protect_drain(struct protect *p)
{
	while (has_come(p, 0))
		protect_hear(p);
}

/* Its connection ends a moment before its name is free. */
void protect_wait_gone(struct protect *p)
{
	char jobdir[RUNDIR_PATH_MAX];

	while (has_come(p, PROTECT_GONE_MS))
		protect_hear(p);
	for (int ms = 0; ms < PROTECT_GONE_MS && rundir_find(p->job, jobdir) == 0; ms += 5)
		poll(NULL, 0, 5);
}
