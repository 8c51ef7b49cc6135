/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On which machine each host of a job comes back (--hosts FILE), and the command that brings it back there.
 *
 *   # comment
 *   NAME [MACHINE]     a host of the checkpoint; where it comes back: NAME itself if it is not said; localhost, or this machine's name: here
 *
 * Another machine is reached by ssh (FERMATA_SSH: another command, taken apart at blanks). What is begun there is `fermata restart --host NAME` of the same path, so fermata has to lie
 * there as it does here, and the checkpoint.
 */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/remote.h"
#include "cli/restart.h"

#define SSH_DEFAULT "ssh -o BatchMode=yes"
#define SSH_WORDS 64

/* ---- the file ---- */

static bool is_here(const char *machine)
{
	char own[256] = "";

	gethostname(own, sizeof(own) - 1);
	return !strcmp(machine, "localhost") || !strcmp(machine, own);
}

struct reading {
	struct restart *restart;
	struct restart_where *where;
	bool *named;
	unsigned int line;
};

static int refuse(const struct reading *f, const char *what, const char *word)
{
	warnx("%s:%u: %s%s", f->restart->hosts_file, f->line, what, word);
	return CLI_USAGE;
}

static int take_line(struct reading *f, char *line)
{
	char *rest, *name, *machine, *more;
	int host;

	line[strcspn(line, "#\n")] = 0;
	name = strtok_r(line, " \t\r", &rest);
	machine = name ? strtok_r(NULL, " \t\r", &rest) : NULL;
	more = machine ? strtok_r(NULL, " \t\r", &rest) : NULL;
	if (!name)
		return 0;
	if (more)
		return refuse(f, "a name and a machine are expected, and then: ", more);
	host = manifest_host_find(f->restart->manifest, name);
	if (host < 0)
		return refuse(f, "the checkpoint has no host ", name);
	if (f->named[host])
		return refuse(f, "once more: host ", name);
	f->named[host] = true;
	machine = machine ? machine : name;
	if (machine[0] == '-')
		return refuse(f, "not a machine: ", machine);
	if (is_here(machine))
		return 0;
	f->where[host].machine = strdup(machine);
	return f->where[host].machine ? 0 : refuse(f, "no memory left for ", machine);
}

static int check_named(const struct reading *f)
{
	const struct manifest *m = f->restart->manifest;
	int code = 0;

	for (size_t i = 0; i < m->host_count; i++)
		if (!f->named[i]) {
			warnx("%s: it does not say where host %s of the checkpoint comes back", f->restart->hosts_file, m->hosts[i].name);
			code = CLI_USAGE;
		}
	return code;
}

static int read_lines(struct reading *f)
{
	FILE *file = fopen(f->restart->hosts_file, "re");
	char line[512];
	int code = 0;

	if (!file) {
		warn("%s", f->restart->hosts_file);
		return CLI_USAGE;
	}
	while (!code && fgets(line, sizeof(line), file)) {
		f->line++;
		code = take_line(f, line);
	}
	fclose(file);
	return code ? code : check_named(f);
}

int restart_where_read(struct restart *r, struct restart_where **ret)
{
	size_t hosts = r->manifest->host_count;
	struct reading f = { .restart = r, .where = calloc(hosts, sizeof(*f.where)), .named = calloc(hosts, sizeof(bool)) };
	int code = !f.where || !f.named ? CLI_CANNOT : r->hosts_file ? read_lines(&f) : 0;

	free(f.named);
	if (code)
		restart_where_free(f.where, hosts);
	else
		*ret = f.where;
	return code;
}

struct restart_where *restart_where_free(struct restart_where *w, size_t count)
{
	for (size_t i = 0; w && i < count; i++)
		free(w[i].machine);
	free(w);
	return NULL;
}

/* ---- the command ---- */

/* For a shell. */
static void put_word(FILE *f, const char *word)
{
	fputs(" '", f);
	for (; *word; word++)
		*word == '\'' ? fputs("'\\''", f) : fputc(*word, f);
	fputc('\'', f);
}

static void put_option(FILE *f, const char *option, const char *value)
{
	if (!value || !*value)
		return;
	fprintf(f, " %s", option);
	put_word(f, value);
}

static void put_map(FILE *f, const struct options_map *m)
{
	char rule[2 * PATH_MAX];

	for (unsigned int i = 0; i < m->count; i++) {
		snprintf(rule, sizeof(rule), "%s=%s/", *m->old[i] ? m->old[i] : "/", m->new[i]);
		put_option(f, "--map", rule);
	}
}

static void put_process(FILE *f, const char *option, const struct manifest_image *i, size_t host)
{
	if (i && i->host == host)
		fprintf(f, " %s=%u", option, i->pid);
}

/* What was given here holds there. Who brings the job back after a failure, and takes a checkpoint upon a signal, is here. */
static char *command_of(const struct restart *r, size_t host, const char *address)
{
	char exe[PATH_MAX] = "fermata", *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (!f)
		return NULL;
	exe[n > 0 ? n : (ssize_t)strlen(exe)] = 0;
	fputs("exec", f);
	put_word(f, exe);
	fputs(" restart --conducted", f);
	put_option(f, "--host", r->manifest->hosts[host].name);
	put_option(f, "--coordinator", address);
	put_option(f, "--rdma", r->rdma_given ? r->rdma : NULL);
	put_option(f, "--files", r->files);
	put_map(f, &r->map);
	put_option(f, "--on-failure", r->on_failure ? "restart" : "none");
	put_option(f, "--capsule", r->capsule_wanted);
	fputs(r->verify ? "" : " --no-verify", f);
	fputs(r->pause_all ? " --pause" : "", f);
	put_process(f, "--pause", r->paused, host);
	put_process(f, "--gdb", r->debugged, host);
	put_word(f, r->checkpoint);
	return fclose(f) ? NULL : text;
}

/* What reaches @machine, for @command there. The memory of its own words, to be freed; NULL: there is none. */
static char *words_of(const char *machine, char *command, char *argv[SSH_WORDS])
{
	const char *given = getenv("FERMATA_SSH");
	char *words = strdup(given && *given ? given : SSH_DEFAULT), *rest = words;
	size_t n = 0;

	while (words && n < SSH_WORDS - 3 && (argv[n] = strsep(&rest, " ")))
		n += argv[n][0] != 0;
	argv[n++] = (char *)(uintptr_t)machine;
	argv[n++] = command;
	argv[n] = NULL;
	return words;
}

int restart_where_address(const char *machine, char *ret, size_t size)
{
	char *argv[SSH_WORDS], *words = words_of(machine, (char *)(uintptr_t)"true", argv);
	struct remote_options p = { .host = machine };
	int r = -ENOMEM;

	if (words) {
		remote_options_parse(argv, &p); /* else it is no ssh, and the machine a name or an address */
		r = remote_address_towards(argv[0], argv, &p, ret, size);
	}
	free(words);
	return r;
}

void restart_where_exec(const struct restart *r, size_t host, const char *machine, const char *address)
{
	char *argv[SSH_WORDS], *command = command_of(r, host, address), *words = words_of(machine, command, argv);

	if (words && command)
		execvp(argv[0], argv);
	warn("%s", words ? argv[0] : "ssh");
}
