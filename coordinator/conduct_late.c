/* SPDX-License-Identifier: BSD-2-Clause */
/* Time-outs of phases: who has not answered, or what is still on its way, in words. Owns nothing; the failure itself is conduct_fail()'s. */
#include <errno.h>
#include <stdio.h>

#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

#define CONDUCT_NAMED_MAX 8 /* processes that a text names */

/* In the middle of DRAIN's rounds: everybody answers, but for some there is data on its way. */
static bool conduct_in_rounds(const struct coordinator *c)
{
	return c->state == STATE_DRAIN &&
	       (!c->missing || (c->round && raw_now_ns() - c->state_since_ns < c->options->timeout_ms * 500000ull));
}

static bool conduct_is_late(const struct member *m)
{
	const struct coordinator *c = m->conn->c;

	return !m->waiting && (c->missing && !conduct_in_rounds(c) ? !m->reported : m->more);
}

static size_t conduct_name_late(struct coordinator *c, char *text, size_t size)
{
	size_t late = 0, len = 0;
	struct member *m;
	char name[128];

	text[0] = 0;
	list_each(m, &c->members, node) {
		if (!conduct_is_late(m) || late++ >= CONDUCT_NAMED_MAX)
			continue;
		member_name(m, name, sizeof(name));
		len += (size_t)snprintf(text + len, size - len, "%s%s", late > 1 ? ", " : "", name);
		len = len < size ? len : size - 1;
		if (!m->more || !m->waits[0])
			continue;
		len += (size_t)snprintf(text + len, size - len, " (%s)", m->waits);
		len = len < size ? len : size - 1;
	}
	if (late > CONDUCT_NAMED_MAX)
		snprintf(text + len, size - len, " and %zu more", late - CONDUCT_NAMED_MAX);
	return late;
}

static size_t conduct_name_expected(struct coordinator *c, char *text, size_t size)
{
	size_t late = 0, len = 0;

	text[0] = 0;
	for (size_t i = 0; i < c->expected_count; i++) {
		if (c->expected[i].come || late++ >= CONDUCT_NAMED_MAX)
			continue;
		len += (size_t)snprintf(text + len, size - len, "%spid %u (%s)%s%s", late > 1 ? ", " : "", c->expected[i].pid,
					c->expected[i].comm, c->host_count > 1 ? " on " : "", c->host_count > 1 ? c->hosts[c->expected[i].host] : "");
		len = len < size ? len : size - 1;
	}
	if (late > CONDUCT_NAMED_MAX)
		snprintf(text + len, size - len, " and %zu more", late - CONDUCT_NAMED_MAX);
	return late;
}

static void conduct_name_half_open(struct coordinator *c, char *text, size_t size)
{
	struct conn *k;

	snprintf(text, size, "a process that was being created");
	list_each(k, &c->conns, node) {
		if (k->state > CONN_OPEN)
			continue;
		snprintf(text, size, "a process that was being created (connected by pid %d, has not registered)",
			 (int)k->sender);
		return;
	}
	list_each(k, &c->conns, node)
		if (k->tunnel && k->tunnel->joined && k->tunnel->synced != c->sync)
			snprintf(text, size, "host %s, where a process is being created, or has ended and the kernel is still freeing what it held", k->tunnel->host);
}

void conduct_timeout(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, phase_timer);
	unsigned int s = c->options->timeout_ms / 1000;
	char late[512];

	if (c->state == STATE_WRITE && directories_moved(c)) {
		uv_timer_start(&c->phase_timer, conduct_timeout, c->options->timeout_ms, 0);
		return;
	}
	if (c->state == STATE_RESTORE)
		conduct_name_expected(c, late, sizeof(late));
	else if (!conduct_name_late(c, late, sizeof(late)))
		conduct_name_half_open(c, late, sizeof(late));
	if (c->state == STATE_WRITE && !c->missing)
		snprintf(late, sizeof(late), "the file system of the directories (--with)");
	if (conduct_in_rounds(c))
		conduct_fail(c, -ETIMEDOUT, "DRAIN: after %u s data was still on its way at %s", s, late);
	else
		conduct_fail(c, -ETIMEDOUT, "%s: no answer within %u s from %s", conduct_state_name(c->state), s, late);
}
