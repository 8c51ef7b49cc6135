/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of commands: checkpoint, status, quit, and the wait of `fermata restart`. Owns conn.wait: a request that comes while
 * a checkpoint is under way waits for the next one (WAIT_NEXT), whose cut is certainly after it; all that wait are answered
 * together (WAIT_CURRENT while it runs). Where an attempt is followed by another (conduct_again.c) both kinds have part in that one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

static bool command_asks(const struct conn *k)
{
	return k->wait == WAIT_NEXT || k->wait == WAIT_CURRENT;
}

bool command_waits(const struct coordinator *c, uint32_t attempts)
{
	struct conn *k;

	if (c->interval_due && c->interval_attempts < attempts)
		return true;
	list_each(k, &c->conns, node)
		if (command_asks(k) && k->attempts < attempts)
			return true;
	return false;
}

bool command_wanted(struct coordinator *c, uint32_t *ret_flags, uint32_t *ret_files)
{
	bool wanted;
	struct conn *k;

	c->interval_due &= c->member_count != 0;
	wanted = c->interval_due;
	c->interval_attempts = wanted ? c->interval_attempts + 1 : 0;
	list_each(k, &c->conns, node) {
		if (!command_asks(k))
			continue;
		k->wait = WAIT_CURRENT;
		k->attempts++;
		*ret_flags |= k->wait_flags;
		*ret_files = k->wait_files ? k->wait_files : *ret_files;
		wanted = true;
	}
	return wanted;
}

/* The interval's request is over like a command's. */
static void command_interval_result(struct coordinator *c)
{
	if (!c->interval_attempts || (c->state == STATE_AGAIN && c->interval_attempts < ATTEMPTS_MAX))
		return;
	c->interval_due = false;
	c->interval_attempts = 0;
	tell_interval(c);
}

static void command_result(struct conn *k, const struct outcome *o)
{
	struct msg_checkpoint_result r = { .error = o->error, .checkpoint = o->number, .bytes = o->bytes,
					   .pause_ns = o->pause_ns, .processes = o->processes,
					   .path_length = (uint32_t)strlen(o->path), .contents = o->contents,
					   .contents_bytes = o->contents_bytes, .attempts = k->attempts };
	char both[sizeof(o->path) + sizeof(o->text) + 32];

	memcpy(both, o->path, r.path_length);
	r.text_length = (uint32_t)snprintf(both + r.path_length, sizeof(both) - r.path_length,
					   o->error && k->attempts > 1 ? "%s (tried %u times)" : "%s", o->text, k->attempts);
	k->wait = WAIT_NONE;
	connection_send(k, MSG_CHECKPOINT_RESULT, &r, sizeof(r), both, r.path_length + r.text_length);
}

void command_results(struct coordinator *c)
{
	struct conn *k;

	command_interval_result(c);
	list_each(k, &c->conns, node) {
		/* When the job has been ended at it, it is the one that is wanted of the next, too. */
		if (k->wait != WAIT_CURRENT && !(k->wait == WAIT_NEXT && c->state == STATE_ENDING))
			continue;
		if (c->state != STATE_AGAIN || k->attempts >= ATTEMPTS_MAX)
			command_result(k, &c->last);
	}
}

void command_progress(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, progress_timer);
	struct msg_checkpoint_progress p = { .phase = conduct_phase(c->state), .round = c->state == STATE_AGAIN ? c->attempts : c->round };
	struct member *m;
	struct conn *k;

	list_each(m, &c->members, node) {
		if (m->waiting)
			continue;
		p.processes++;
		p.reported += m->reported;
		p.bytes_done += m->bytes_done;
		p.bytes_total += m->bytes_total;
	}
	if (c->state == STATE_WRITE)
		directories_add_progress(c, &p.bytes_done, &p.bytes_total);
	list_each(k, &c->conns, node)
		if (k->wait == WAIT_CURRENT)
			connection_send(k, MSG_CHECKPOINT_PROGRESS, &p, sizeof(p), NULL, 0);
}

void command_restart_result(struct coordinator *c)
{
	struct msg_restart_result r = { .error = c->restart_error, .processes = (uint32_t)c->expected_count,
					.duration_ns = c->restart_ns,
					.text_length = (uint32_t)strlen(c->restart_text) };
	struct conn *k;

	list_each(k, &c->conns, node) {
		if (k->wait != WAIT_RESTART)
			continue;
		k->wait = WAIT_NONE;
		connection_send(k, MSG_RESTART_RESULT, &r, sizeof(r), c->restart_text, r.text_length);
	}
}

static void command_send_ending(struct conn *k)
{
	const struct coordinator *c = k->c;
	bool stopped = c->ending == MSG_ENDING_STOPPED || c->ending == MSG_ENDING_REQUEUED;
	const char *text = stopped ? c->last.path : c->failed;
	struct msg_ending m = { .reason = c->ending, .checkpoint = stopped ? c->last.number : 0,
				.text_length = (uint32_t)strlen(text) };

	if (k->watches)
		connection_send(k, MSG_ENDING, &m, sizeof(m), text, m.text_length);
}

void command_tell_ending(struct coordinator *c)
{
	struct conn *k;

	list_each(k, &c->conns, node)
		command_send_ending(k);
}

/* Ends the job only where it can come back: who does that is there, and so is a checkpoint. */
static void command_failed(struct conn *from, const char *text, uint32_t length)
{
	struct coordinator *c = from->c;
	struct conn *k;

	list_each(k, &c->conns, node) {
		if (!k->keeps || !(c->committed || c->options->restart) || c->state == STATE_ENDING)
			continue;
		snprintf(c->failed, sizeof(c->failed), "%.*s", (int)(length < sizeof(c->failed) ? length : sizeof(c->failed) - 1), text);
		log_warn("the job is ended, to be brought back: %s", c->failed);
		conduct_end(c, MSG_ENDING_FAILED);
		return;
	}
}

void command_lost(struct coordinator *c)
{
	char text[sizeof(c->lost) + 16];
	struct conn *k;

	snprintf(text, sizeof(text), "%s is lost", c->lost);
	log_error("%s: no more checkpoints are taken", text);
	list_each(k, &c->conns, node) {
		if (!k->keeps)
			continue;
		command_failed(k, text, (uint32_t)strlen(text));
		return;
	}
}

static void command_watch(struct conn *k, const struct msg_watch *m)
{
	k->watches = true;
	k->keeps = m->flags & MSG_WATCH_KEEPER;
	if (k->c->ending)
		command_send_ending(k);
}

static json_t *command_status_processes(struct coordinator *c)
{
	json_t *list = json_array();
	struct member *m;

	list_each(m, &c->members, node)
		json_array_append_new(list, json_pack("{s:i, s:i, s:s, s:s, s:s, s:i, s:i, s:b, s:I, s:I}", "pid", (int)m->pid,
						      "ppid", (int)m->ppid, "comm", m->comm, "exe", m->exe, "host",
						      c->hosts[m->host], "member", (int)m->number, "generation",
						      (int)m->generation, "done", m->reported, "bytes_done",
						      (json_int_t)m->bytes_done, "bytes_total", (json_int_t)m->bytes_total));
	return list;
}

/* What each phase took, those that there were. */
static json_t *command_status_phases(const uint64_t ns[STATE_COUNT])
{
	json_t *phases = json_object();

	for (enum state s = 0; s < STATE_COUNT; s++)
		if (ns[s])
			json_object_set_new(phases, conduct_state_name(s), json_integer((json_int_t)ns[s]));
	return phases;
}

static json_t *command_status_last(const struct outcome *o)
{
	if (!o->any)
		return json_null();
	return json_pack("{s:i, s:i, s:i, s:i, s:I, s:i, s:I, s:I, s:o, s:s, s:s}", "checkpoint", (int)o->number, "error", o->error, "attempts",
			 (int)o->attempts, "processes", (int)o->processes, "bytes", (json_int_t)o->bytes, "contents", (int)o->contents,
			 "contents_bytes", (json_int_t)o->contents_bytes, "pause_ns", (json_int_t)o->pause_ns,
			 "phases_ns", command_status_phases(o->phase_ns), "path", o->path, "text", o->text);
}

/* Those that have a relay. */
static json_t *command_status_hosts(struct coordinator *c)
{
	json_t *list = json_array();
	struct conn *k;

	list_each(k, &c->conns, node)
		if (k->tunnel && k->tunnel->joined)
			json_array_append_new(list, json_string(k->tunnel->host));
	return list;
}

static json_t *command_status_with(const struct coordinator_options *o)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < o->with_count; i++)
		json_array_append_new(list, json_string(o->with[i]));
	return list;
}

json_t *command_status(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;

	return json_pack("{s:s, s:b, s:s?, s:s, s:s?, s:o, s:i, s:s, s:f, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "job", o->job,
			 "restarted", o->restart != NULL, "restarted_from", o->restart, "dir", o->dir, "listen",
			 c->port_count ? c->ports[0].address : NULL, "hosts", command_status_hosts(c),
			 "coordinator", (int)getpid(), "phase", conduct_state_name(c->state), "phase_seconds",
			 (double)(raw_now_ns() - c->state_since_ns) / 1e9, "interval", (int)o->interval_s, "keep",
			 (int)o->keep, "compress", o->compress, "rdma", o->rdma, "files", o->files, "external", o->external ? o->external : "fail", "text", o->text ? o->text : "ref", "on_failure",
			 o->on_failure ? o->on_failure : "none", "on_signal", o->on_signal ? o->on_signal : "none", "restarts", (int)o->restarts, "timeout_ms", (int)o->timeout_ms,
			 "next_checkpoint", (int)c->store.next, "restart_phases_ns", command_status_phases(c->restart_phase_ns),
			 "last", command_status_last(&c->last), "processes", command_status_processes(c), "with", command_status_with(o));
}

static void command_send_status(struct conn *k)
{
	json_t *status = command_status(k->c);
	char *text = status ? json_dumps(status, JSON_COMPACT) : NULL;

	if (text)
		connection_send(k, MSG_STATUS_REPLY, text, strlen(text), NULL, 0);
	else
		connection_send_error(k, -ENOMEM, "the coordinator is out of memory");
	free(text);
	json_decref(status);
}

static void command_checkpoint(struct conn *k, const struct msg_checkpoint *m)
{
	struct coordinator *c = k->c;

	if (c->state == STATE_ENDING) {
		connection_send_error(k, -ESHUTDOWN, "the job is being ended");
		return;
	}
	k->wait = WAIT_NEXT;
	k->attempts = 0;
	k->wait_flags = m->flags;
	k->wait_files = m->files <= MSG_FILES_IGNORE ? m->files : MSG_FILES_UNSAID;
	conduct_request(c);
}

/* Who asks at another host is told how that host has found us. */
static void command_listen(struct conn *k, const char *text, uint32_t length)
{
	char wanted[sizeof(k->c->ports[0].address)], why[256] = "";
	const char *at = NULL;
	int r = -EINVAL;

	snprintf(wanted, sizeof(wanted), "%.*s", (int)(length < sizeof(wanted) ? length : sizeof(wanted) - 1), text);
	at = k->relay ? k->relay->tunnel->target : accept_network(k->c, wanted, &r, why, sizeof(why));
	if (at)
		connection_send(k, MSG_LISTENING, at, strlen(at), NULL, 0);
	else
		connection_send_error(k, r, why);
}

void command_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length)
{
	struct msg_checkpoint checkpoint;
	struct msg_watch watch;

	connection_become(k, CONN_COMMAND);
	switch (type) {
	case MSG_CHECKPOINT:
		memcpy(&checkpoint, data, sizeof(checkpoint));
		command_checkpoint(k, &checkpoint);
		break;
	case MSG_STATUS:
		command_send_status(k);
		break;
	case MSG_QUIT:
		conduct_end(k->c, MSG_ENDING_QUIT);
		break;
	case MSG_WAIT_RESTART:
		k->wait = WAIT_RESTART;
		conduct_restoring(k->c);
		if (k->c->restart_over || !k->c->options->restart)
			command_restart_result(k->c);
		break;
	case MSG_WATCH:
		memcpy(&watch, data, sizeof(watch));
		command_watch(k, &watch);
		break;
	case MSG_LISTEN:
		command_listen(k, (const char *)data, length);
		break;
	case MSG_FAILED:
		command_failed(k, (const char *)data, length);
		break;
	default:
		log_warn("pid %d: message %u is not a command", (int)k->sender, type);
	}
	conduct_check(k->c);
}
