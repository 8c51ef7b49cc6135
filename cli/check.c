/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata check: each ability of the host that checkpoint or restart rests on, yes or no, with the remedy. Owns the child in
 * which a probe runs: what it unshares, limits or crashes stays there.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/check.h"
#include "cli/cli.h"

static const char check_help[] =
	"Usage: fermata check [--json] [PROG]\n"
	"Says whether this host can take checkpoints and restart them: each thing that is\n"
	"needed, yes or no, with the remedy. Needs no rights and changes nothing.\n"
	"Exit status: 0 it can; 5 it cannot restart, or not even take checkpoints.\n"
	"With PROG: what is known to stand in the way of holding that program here, without\n"
	"running it. Exit status: 0 nothing; 1 something does.\n";

static const struct option check_long[] = {
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

void check_run(const struct check *k, struct check_verdict *shared)
{
	int status = 0;
	pid_t pid;

	*shared = (struct check_verdict){ .error = -EINTR };
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		shared->error = k->probe(shared->detail, sizeof(shared->detail));
		_exit(0);
	}
	if (pid < 0)
		shared->error = -errno;
	else
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	if (pid > 0 && !WIFEXITED(status))
		snprintf(shared->detail, sizeof(shared->detail), "the probe was ended by signal %d", WTERMSIG(status));
}

static void check_print(const struct check *k, const struct check_verdict *v)
{
	printf("%-3s  %s%s", v->error ? "no" : "yes", k->name, v->error && k->need > CHECK_RESTART ? " (optional)" : "");
	if (v->detail[0])
		printf(": %s", v->detail);
	else if (v->error)
		printf(": %s", strerror(-v->error));
	putchar('\n');
	if (v->error && k->remedy)
		printf("     -> %s\n", k->remedy);
}

static json_t *check_json(const struct check *k, const struct check_verdict *v)
{
	static const char *const needs[] = { "checkpoint", "restart", "optional", "optional", "optional" };

	return json_pack("{s:s, s:s, s:b, s:s, s:s}", "name", k->name, "needed_for", needs[k->need], "ok", v->error == 0,
			 "detail", v->detail[0] ? v->detail : v->error ? strerror(-v->error) : "", "remedy",
			 v->error && k->remedy ? k->remedy : "");
}

int cmd_check(int argc, char **argv)
{
	bool json = false, missing[CHECK_OPTIONAL + 1] = { false };
	struct check_verdict *v;
	json_t *list;
	int o;

	while ((o = getopt_long(argc, argv, "h", check_long, NULL)) != -1) {
		switch (o) {
		case 'j': json = true; break;
		case 'h': fputs(check_help, stdout); return CLI_OK;
		default: fputs(check_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs(check_help, stderr);
		return CLI_USAGE;
	}
	if (argc > optind)
		return check_program(argv[optind], json);
	v = mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (v == MAP_FAILED)
		return CLI_FAILED;
	list = json_array();
	for (size_t i = 0; i < check_count; i++) {
		check_run(&check_table[i], v);
		missing[check_table[i].need] |= v->error != 0;
		if (json)
			json_array_append_new(list, check_json(&check_table[i], v));
		else
			check_print(&check_table[i], v);
	}
	if (json) {
		json_t *all = json_pack("{s:b, s:b, s:O}", "checkpoint", !missing[CHECK_CHECKPOINT], "restart",
					!missing[CHECK_CHECKPOINT] && !missing[CHECK_RESTART], "checks", list);

		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
	} else {
		printf("\nThis host can%s take checkpoints and can%s restart them.\n", missing[CHECK_CHECKPOINT] ? "not" : "",
		       missing[CHECK_CHECKPOINT] || missing[CHECK_RESTART] ? "not" : "");
	}
	json_decref(list);
	munmap(v, sizeof(*v));
	return missing[CHECK_CHECKPOINT] || missing[CHECK_RESTART] ? CLI_CANNOT : CLI_OK;
}
