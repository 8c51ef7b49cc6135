/* SPDX-License-Identifier: BSD-2-Clause */
/* A restart's side to its job's coordinator: starts it, keeps it waiting, hears how the restart has ended. Owns the session's link. */
#include <err.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/streams.h"
#include "cli/cli.h"
#include "cli/restart_session.h"

#define PROGRESS_MS 200

int session_start_coordinator(struct session *s)
{
	struct restart *r = s->restart;
	struct job_options options = {
		.name = r->job,
		.dir = r->dir,
		.compress = r->compress,
		.rdma = r->rdma,
		.on_failure = r->on_failure ? "restart" : "none",
		.on_signal = r->on_signal,
		.restarts = r->restarts,
		.restarts_given = true,
		.files = r->manifest->files[0] ? r->manifest->files : NULL,
		.external = r->manifest->external[0] ? r->manifest->external : NULL,
		.text = r->manifest->text[0] ? r->manifest->text : NULL,
		/* Checkpoints of a job in the debugger would push out, by --keep, the one that is looked at. */
		.interval = r->pause_all || r->pause_text || r->debug_text ? 0 : r->interval_s,
		.keep = r->keep,
		.timeout = r->timeout_ms / 1000,
		.interval_given = true,
		.keep_given = true,
		.timeout_given = r->timeout_ms >= 1000,
		.with = r->with.count ? &r->with : NULL,
		.restart = r->checkpoint,
		.listen = r->hosts_file ? NULL : r->listen, /* there restart_hosts.c says where */
		.coordinator = r->coordinator,
		.part = r->part || r->several,
	};
	struct job job;
	int err = job_start(&options, &job);

	if (err < 0)
		return err == -EEXIST ? CLI_USAGE : CLI_CANNOT;
	s->link = job.link;
	if (strlen(job.jobdir) >= sizeof(r->rundir)) {
		warnx("%s: the path is too long", job.jobdir);
		return CLI_CANNOT;
	}
	strcpy(r->rundir, job.jobdir);
	streams_note(job.jobdir);
	err = link_send(&s->link, MSG_WAIT_RESTART, NULL, 0);
	if (err < 0)
		warnx("the coordinator of job %s: %s", r->job, strerror(-err));
	return err < 0 ? CLI_CANNOT : 0;
}

void session_keep_alive(void *arg)
{
	struct session *s = arg;

	if (session_now() - s->progress_told < PROGRESS_MS / 1000.0)
		return;
	s->progress_told = session_now();
	link_send(&s->link, MSG_WAIT_RESTART, NULL, 0);
}

void session_hear_coordinator(struct session *s)
{
	const struct msg_restart_result *result;
	struct link_message m;
	int err = link_receive(&s->link, &m, 5000);

	s->watch[WATCH_LINK].fd = -1;
	if (err < 0) {
		warnx("the coordinator of job %s is gone", s->restart->job);
		s->failed = true;
		return;
	}
	result = (const void *)m.data;
	if (m.type != MSG_RESTART_RESULT || m.length < sizeof(*result)) {
		warnx("the coordinator of job %s gives an unknown answer (%u)", s->restart->job, m.type);
		s->failed = true;
	} else if (result->error) {
		size_t length = m.length - sizeof(*result);

		if (length > result->text_length)
			length = result->text_length;
		if (!s->failed && !s->restart->conducted)
			warnx("%.*s", (int)length, (const char *)(result + 1));
		s->failed = true;
		s->gate.damaged |= result->error == -EBADMSG;
	} else {
		s->complete = true;
		if (s->restart->ready_fd >= 0)
			(void)!write(s->restart->ready_fd, "", 1);
	}
}
