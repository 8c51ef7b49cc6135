/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hosts of the job, by name, and their places. Owns both lists; nothing leaves them as long as the coordinator lives.
 *
 * A process is known by its host and its pid: the host's name is the one that it had when the process first came into the job, and stays that wherever the process is
 * restarted. A place is what has pids, inodes and a loopback of its own: a host, or, after a restart in parts, a part of one. Names of a host are shared by who is in one
 * place (names.c). Two machines that bear one name would mix their processes up: the second one is refused, told by its kernel's boot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/internal.h"

/* Printable ASCII only: it goes into messages and JSON. */
static void host_clean(char *to, const char *from, size_t size)
{
	size_t n = strnlen(from, size - 1);

	for (size_t i = 0; i < n; i++)
		to[i] = from[i] < ' ' || from[i] > '~' ? '?' : from[i];
	to[n] = 0;
}

int host_number(struct coordinator *c, const char *name)
{
	char clean[sizeof(((struct msg_register *)0)->host)];
	char **hosts;

	host_clean(clean, name, sizeof(clean));
	for (uint32_t i = 0; i < c->host_count; i++)
		if (!strcmp(c->hosts[i], clean))
			return (int)i;
	hosts = realloc(c->hosts, (c->host_count + 1) * sizeof(*hosts));
	if (!hosts)
		return -ENOMEM;
	c->hosts = hosts;
	hosts[c->host_count] = strdup(clean);
	return hosts[c->host_count] ? (int)c->host_count++ : -ENOMEM;
}

static bool host_is_left(const struct coordinator *c, uint32_t place)
{
	struct member *m;

	list_each(m, &c->members, node)
		if (m->scope == place)
			return false;
	return true;
}

/* One that nobody is in any more may have begun again. */
static int host_boot(struct coordinator *c, uint32_t i, uint64_t boot)
{
	if (c->places[i].boot != boot && !host_is_left(c, i))
		return -EEXIST;
	c->places[i].boot = boot;
	return (int)i;
}

int host_place(struct coordinator *c, uint32_t host, const struct msg_register *reg)
{
	struct place *places;

	for (uint32_t i = 0; i < c->place_count; i++)
		if (c->places[i].host == host && c->places[i].part == reg->part)
			return host_boot(c, i, reg->boot);
	places = realloc(c->places, (c->place_count + 1) * sizeof(*places));
	if (!places)
		return -ENOMEM;
	c->places = places;
	places[c->place_count] = (struct place){ .host = host, .part = reg->part, .boot = reg->boot };
	return (int)c->place_count++;
}

void host_free(struct coordinator *c)
{
	for (uint32_t i = 0; i < c->host_count; i++)
		free(c->hosts[i]);
	free(c->hosts);
	free(c->places);
}
