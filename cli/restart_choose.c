/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What of a checkpoint is brought back, by its manifest alone: which of the job's hosts, and which process somebody means. A process is a host and a pid: the same number may be on
 * several hosts, and then HOST:PID says which one. From restart_choose_host() on all files of the restart see the processes of one host only, which a pid tells apart.
 *
 * Owns restart.chosen.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/restart.h"

/* ---- a process ---- */

/* Behind the host's name, if there is one. */
static const char *pid_text(const char *text)
{
	const char *colon = strrchr(text, ':');

	return colon ? colon + 1 : text;
}

static uint32_t read_pid(const char *text)
{
	const char *digits = pid_text(text);
	char *end;
	unsigned long pid = strtoul(digits, &end, 10);

	return *digits >= '1' && *digits <= '9' && !*end && pid <= INT_MAX ? (uint32_t)pid : 0;
}

bool restart_is_pid(const char *text)
{
	if (read_pid(text))
		return true;
	warnx("%s is not a process id", text);
	return false;
}

static bool is_meant(const struct restart *r, const struct manifest_image *i, const char *text)
{
	const char *host = r->manifest->hosts[i->host].name, *pid = pid_text(text);
	size_t length = pid == text ? 0 : (size_t)(pid - text - 1);

	if (i->pid != read_pid(text) || (r->chosen && !r->chosen[i->host]))
		return false;
	return pid == text || (strlen(host) == length && !memcmp(host, text, length));
}

static void print_process(const struct restart *r, const struct manifest_image *i)
{
	if (r->manifest->host_count > 1)
		fprintf(stderr, "  %s:%u %s\n", r->manifest->hosts[i->host].name, i->pid, i->comm);
	else
		fprintf(stderr, "  %8u %s\n", i->pid, i->comm);
}

const struct manifest_image *restart_choose_process(const struct restart *r, const char *option, const char *text)
{
	const struct manifest *m = r->manifest;
	const struct manifest_image *found = NULL;
	size_t count = 0;

	for (size_t i = 0; i < m->count; i++)
		if (is_meant(r, &m->images[i], text)) {
			found = &m->images[i];
			count++;
		}
	if (count == 1)
		return found;
	warnx(count ? "%s: %s has a process %s on several hosts; say which:" : "%s: %s has no process %s; it has:", option,
	      r->checkpoint, text);
	for (size_t i = 0; i < m->count; i++)
		if (!count || is_meant(r, &m->images[i], text))
			print_process(r, &m->images[i]);
	return NULL;
}

/* ---- hosts ---- */

static int choose_host(struct restart *r, const char *name)
{
	int host = manifest_host_find(r->manifest, name);

	if (host < 0) {
		warnx("--host: %s has no host %s; it has:", r->checkpoint, name);
		for (size_t i = 0; i < r->manifest->host_count; i++)
			fprintf(stderr, "  %s\n", r->manifest->hosts[i].name);
		return CLI_USAGE;
	}
	r->chosen[host] = true;
	return 0;
}

static int choose_hosts(struct restart *r)
{
	char *names = strdup(r->host_text), *rest = names, *name;
	int code = names ? 0 : CLI_CANNOT;

	while (!code && (name = strsep(&rest, ",")))
		code = choose_host(r, name);
	free(names);
	return code;
}

/* A part is of one host: that of its first process. */
static const struct manifest_image *first_of_part(const struct restart *r)
{
	char *first = strndup(r->part, strcspn(r->part, ","));
	const struct manifest_image *i = first ? restart_choose_process(r, "--part", first) : NULL;

	free(first);
	return i;
}

static int choose_processes(struct restart *r)
{
	if (r->pause_text)
		r->paused = restart_choose_process(r, "--pause", r->pause_text);
	if (r->debug_text)
		r->debugged = restart_choose_process(r, "--gdb", r->debug_text);
	return (r->pause_text && !r->paused) || (r->debug_text && !r->debugged) ? CLI_USAGE : 0;
}

int restart_choose(struct restart *r)
{
	const struct manifest_image *first = r->part ? first_of_part(r) : NULL;
	size_t hosts = r->manifest->host_count;
	int code = 0;

	if (r->part && !first)
		return CLI_USAGE;
	r->several = hosts > 1;
	r->chosen = calloc(hosts, sizeof(*r->chosen));
	if (!r->chosen)
		return CLI_CANNOT;
	for (size_t i = 0; i < hosts; i++)
		r->chosen[i] = first ? first->host == i : !r->host_text;
	if (r->host_text)
		code = choose_hosts(r);
	if (!code)
		code = choose_processes(r);
	for (size_t i = 0; i < hosts && !code && restart_chosen(r) == 1 && !r->hosts_file; i++)
		if (r->chosen[i])
			restart_choose_host(r, i);
	return code;
}

size_t restart_chosen(const struct restart *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->manifest->host_count; i++)
		n += r->chosen[i];
	return n;
}

void restart_choose_host(struct restart *r, size_t host)
{
	static char name[96];

	for (size_t i = 0; i < r->manifest->host_count; i++)
		r->chosen[i] = i == host;
	r->host = host;
	r->pause_pid = r->paused && r->paused->host == host ? r->paused->pid : 0;
	r->debug_pid = r->debugged && r->debugged->host == host ? r->debugged->pid : 0;
	if (!r->several)
		return;
	snprintf(name, sizeof(name), "fermata (%s)", r->manifest->hosts[host].name);
	program_invocation_short_name = name; /* of warnx() */
	log_name = name;
}
