/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members: the processes of the job. Owns struct member and the table (host, pid) -> member (host.c: what a host is). A member has exactly one connection, and
 * leaves when that ends. An exec keeps the connection and registers again on it: the entry is replaced, its number is new.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "coordinator/internal.h"
#include "coordinator/tunnel.h"

static size_t member_bucket(const struct coordinator *c, uint32_t host, uint32_t pid)
{
	return ((pid * 2654435761u) ^ (host * 40503u)) & (c->bucket_count - 1);
}

static int member_grow(struct coordinator *c)
{
	size_t count = c->bucket_count ? c->bucket_count * 2 : 64;
	struct member **buckets, *m;

	if (c->member_count < c->bucket_count)
		return 0;
	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;
	free(c->buckets);
	c->buckets = buckets;
	c->bucket_count = count;
	list_each(m, &c->members, node) {
		size_t b = member_bucket(c, m->host, m->pid);

		m->next = buckets[b];
		buckets[b] = m;
	}
	return 0;
}

struct member *member_find(struct coordinator *c, uint32_t host, uint32_t pid)
{
	struct member *m = c->bucket_count ? c->buckets[member_bucket(c, host, pid)] : NULL;

	while (m && (m->host != host || m->pid != pid))
		m = m->next;
	return m;
}

static void member_unlink(struct member *m)
{
	struct coordinator *c = m->conn->c;
	struct member **at = &c->buckets[member_bucket(c, m->host, m->pid)];

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	list_del(&m->node);
	c->member_count--;
}

void member_remove(struct member *m)
{
	log_info("pid %u (%s) has left%s", m->pid, m->comm, m->exiting ? "" : " without a word");
	if (!m->exiting || !m->childless)
		m->conn->c->may_come_ns = raw_now_ns();
	member_unlink(m);
	conduct_left(m);
	free(m->children);
	free(m);
}

void member_name(const struct member *m, char *buf, size_t size)
{
	const struct coordinator *c = m->conn->c;

	if (c->host_count > 1)
		snprintf(buf, size, "pid %u (%s) on %s", m->pid, m->comm, c->hosts[m->host]);
	else
		snprintf(buf, size, "pid %u (%s)", m->pid, m->comm);
}

bool member_comes_back(const struct coordinator *c)
{
	return c->options->on_failure && !strcmp(c->options->on_failure, "restart");
}

void member_welcome(struct member *m)
{
	const struct coordinator_options *o = m->conn->c->options;
	struct msg_welcome w = { .member = m->number, .timeout_ms = o->timeout_ms, .host = m->scope };

	snprintf(w.compress, sizeof(w.compress), "%s", o->compress);
	snprintf(w.rdma, sizeof(w.rdma), "%s", o->rdma);
	snprintf(w.job, sizeof(w.job), "%s", o->job);
	w.flags = m->conn->relay && member_comes_back(m->conn->c) ? MSG_WELCOME_WITH_RELAY : 0;
	m->waiting = false;
	connection_send(m->conn, MSG_WELCOME, &w, sizeof(w), NULL, 0);
}

void member_welcome_waiting(struct coordinator *c)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (m->waiting)
			member_welcome(m);
}

/* Printable ASCII only: it goes into messages and JSON. */
static void member_copy_text(char *to, const char *from, size_t size)
{
	snprintf(to, size, "%s", from);
	for (char *p = to; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

static struct member *member_create(struct conn *k, const struct msg_register *reg, uint32_t host, uint32_t place)
{
	struct coordinator *c = k->c;
	struct member *m = member_grow(c) == 0 ? calloc(1, sizeof(*m)) : NULL;
	size_t b;

	if (!m)
		return NULL;
	m->conn = k;
	m->number = c->next_member++;
	m->pid = reg->pid;
	m->ppid = reg->ppid;
	m->generation = reg->generation;
	m->host = host;
	m->scope = place;
	m->kill_pid = k->sender;
	m->reported = true;
	m->newborn = reg->flags & MSG_REGISTER_FORKED;
	m->let_run = reg->flags & MSG_REGISTER_LET_RUN;
	m->born_here = member_find(c, host, m->ppid) != NULL;
	member_copy_text(m->comm, reg->comm, sizeof(m->comm));
	member_copy_text(m->exe, reg->exe, sizeof(m->exe));
	b = member_bucket(c, host, m->pid);
	m->next = c->buckets[b];
	c->buckets[b] = m;
	list_add_tail(&c->members, &m->node);
	c->member_count++;
	c->had_member = true;
	k->member = m;
	return m;
}

/* Where it belongs: a process that is restarted, on the host that the manifest has it on. */
static int member_host(struct coordinator *c, const struct msg_register *reg)
{
	const struct expected *e = reg->flags & MSG_REGISTER_RESTARTED ? manifest_expected(c, reg->host, reg->pid) : NULL;

	return e ? (int)e->host : host_number(c, reg->host);
}

static void member_refuse(struct conn *k, const struct msg_register *reg, int err)
{
	char text[256];

	if (err == -EEXIST)
		snprintf(text, sizeof(text), "two machines of this job have the node name %s: give one of them another (hostnamectl)", reg->host);
	else
		snprintf(text, sizeof(text), "the coordinator is out of memory");
	log_error("pid %u (%s): %s", reg->pid, reg->comm, text);
	connection_send_error(k, err, text);
	connection_close(k);
}

void member_register(struct conn *k, const struct msg_register *reg)
{
	int host = member_host(k->c, reg);
	int place = host < 0 ? host : host_place(k->c, (uint32_t)host, reg);
	/* The process's former entry: an exec on this connection, or one whose old connection has not been seen to end. */
	struct member *old = k->member ? k->member : place >= 0 ? member_find(k->c, (uint32_t)host, reg->pid) : NULL;
	struct member *m = place >= 0 ? member_create(k, reg, (uint32_t)host, (uint32_t)place) : NULL;

	if (!m) {
		member_refuse(k, reg, place < 0 ? place : -ENOMEM);
		return;
	}
	log_info("pid %u (%s) joins as member %u", m->pid, m->comm, m->number);
	connection_become(k, CONN_MEMBER);
	/* First the new one, then without the old one: a phase does not end in between for want of members. */
	conduct_joined(m, (reg->flags & MSG_REGISTER_RESTARTED) != 0);
	if (!old)
		return;
	old->exiting = true;
	if (old->conn == k)
		member_remove(old);
	else
		connection_close(old->conn);
}

void member_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length)
{
	struct member *m = k->member;
	struct msg_progress progress;
	struct msg_exiting exiting = { 0 };
	struct decode_done done;
	char name[128];
	int r;

	switch (type) {
	case MSG_PHASE_DONE:
		if (decode_phase_done(data, length, &done) == 0)
			conduct_report(m, &done);
		break;
	case MSG_NAMES:
		if (!conduct_takes_names(m))
			break;
		r = names_add(k->c, m, data, length);
		member_name(m, name, sizeof(name));
		if (r < 0)
			conduct_fail(k->c, r, "%s: names could not be kept: %s", name, strerror(-r));
		break;
	case MSG_PROGRESS:
		memcpy(&progress, data, sizeof(progress));
		conduct_progress(m, &progress);
		break;
	case MSG_ENDED:
		conduct_ended(m, data, length);
		break;
	case MSG_EXITING:
		memcpy(&exiting, data, length < sizeof(exiting) ? length : sizeof(exiting));
		m->exiting = exiting.stays != 1;
		m->childless = exiting.childless == 1;
		break;
	default:
		log_warn("pid %u (%s): message %u is not one of a process", m->pid, m->comm, type);
	}
}

/* The connection still stands once the pidfd is open: so it names the member and not a later process of that number. */
void member_kill_behind(const struct conn *k, pid_t pid, const char *name)
{
	struct pollfd p = { .fd = k->fd, .events = POLLRDHUP };
	int fd;

	if (pid <= 1) {
		log_error("%s cannot be ended: it is in a pid namespace that is not seen from here", name);
		return;
	}
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	poll(&p, 1, 0);
	if (p.revents & (POLLRDHUP | POLLHUP | POLLERR))
		;
	else if (fd >= 0)
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	else if (errno == ENOSYS)
		kill(pid, SIGKILL);
	if (fd >= 0)
		close(fd);
}

void member_kill_all(struct coordinator *c)
{
	struct member *m;
	char name[128];

	list_each(m, &c->members, node) {
		member_name(m, name, sizeof(name));
		if (m->conn->relay)
			tunnel_send(m->conn->relay, TUNNEL_KILL, m->conn->channel, 0, NULL, 0);
		else
			member_kill_behind(m->conn, m->kill_pid, name);
	}
}
