/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata status: what the coordinator says of its job, for people or as JSON. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "coordinator/rundir.h"

static const char status_help[] =
	"Usage: fermata status [JOB] [--json] [--watch]\n"
	"Shows the processes, the phase and the last checkpoint of JOB, or of every job.\n"
	"  --json    as JSON: an object with JOB, else an array\n"
	"  --watch   again every second, until the job has ended\n";

static const struct option status_long[] = {
	{ "json", no_argument, NULL, 'j' },
	{ "watch", no_argument, NULL, 'w' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static const char *status_text(json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static long long status_number(json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* Where the pause went. */
static void status_print_phases(json_t *phases)
{
	const char *name;
	json_t *ns;

	printf("   ");
	json_object_foreach(phases, name, ns)
		printf(" %s %.1f ms", name, (double)json_integer_value(ns) / 1e6);
	putchar('\n');
}

static void status_print_last(json_t *last)
{
	char size[80];

	if (!json_is_object(last)) {
		printf("  last checkpoint: none yet\n");
		return;
	}
	size_format_contents((double)status_number(last, "bytes"), (double)status_number(last, "contents_bytes"),
			     (unsigned int)status_number(last, "contents"), size, sizeof(size));
	if (status_number(last, "error") && status_number(last, "attempts") > 1)
		printf("  last checkpoint: failed: %s (attempt %lld)\n", status_text(last, "text"), status_number(last, "attempts"));
	else if (status_number(last, "error"))
		printf("  last checkpoint: failed: %s\n", status_text(last, "text"));
	else
		printf("  last checkpoint: %lld: %lld process%s, %s, paused %.0f ms, %s\n", status_number(last, "checkpoint"),
		       status_number(last, "processes"), status_number(last, "processes") == 1 ? "" : "es", size, (double)status_number(last, "pause_ns") / 1e6,
		       status_text(last, "path"));
	status_print_phases(json_object_get(last, "phases_ns"));
}

/* A pid is one of a host. */
static bool status_has_hosts(const json_t *processes)
{
	json_t *p, *first = json_array_get(processes, 0);
	size_t i;

	json_array_foreach(processes, i, p)
		if (strcmp(status_text(p, "host"), status_text(first, "host")) != 0)
			return true;
	return false;
}

static void status_print(json_t *s)
{
	json_t *processes = json_object_get(s, "processes"), *p;
	const char *phase = status_text(s, "phase");
	bool idle = !strcmp(phase, "running") || !strcmp(phase, "AGAIN"), hosts = status_has_hosts(processes);
	size_t i;

	printf("job %s: %s for %.0f s, %zu process%s, checkpoints in %s", status_text(s, "job"), status_text(s, "phase"),
	       json_real_value(json_object_get(s, "phase_seconds")), json_array_size(processes),
	       json_array_size(processes) == 1 ? "" : "es", status_text(s, "dir"));
	if (status_number(s, "interval"))
		printf(", every %lld s", status_number(s, "interval"));
	putchar('\n');
	status_print_last(json_object_get(s, "last"));
	printf("  %8s %8s %-16s %s%s\n", "PID", "PARENT", "PROGRAM", hosts ? "HOST             " : "", idle ? "" : "PHASE DONE");
	json_array_foreach(processes, i, p) {
		char done[32] = "", total[32] = "";

		size_format((double)status_number(p, "bytes_done"), done, sizeof(done));
		size_format((double)status_number(p, "bytes_total"), total, sizeof(total));
		printf("  %8lld %8lld %-16s ", status_number(p, "pid"), status_number(p, "ppid"), status_text(p, "comm"));
		if (hosts)
			printf("%-16s ", status_text(p, "host"));
		printf("%s", idle ? "" : json_is_true(json_object_get(p, "done")) ? "yes" : "no");
		if (!idle && status_number(p, "bytes_total"))
			printf(" %s of %s", done, total);
		putchar('\n');
	}
}

static int status_show(struct job *job, bool json)
{
	char *text = NULL;
	json_t *s;
	int r = job_status(job, &text);

	if (r < 0)
		return r;
	s = json_loads(text, 0, NULL);
	free(text);
	if (!s)
		return -EPROTO;
	if (json) {
		json_dumpf(s, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		status_print(s);
	}
	fflush(stdout);
	json_decref(s);
	return 0;
}

struct status_all {
	bool json;
	size_t count;
};

static int status_show_one(const char *name, const char *jobdir, void *arg)
{
	struct status_all *all = arg;
	struct job job;

	if (job_connect(name, &job) < 0)
		return 0;
	if (all->json)
		fputs(all->count ? "," : "", stdout);
	else if (all->count)
		putchar('\n');
	all->count += status_show(&job, all->json) == 0;
	job_close(&job);
	return 0;
}

static size_t status_every(bool json)
{
	struct status_all all = { .json = json };

	if (json)
		putchar('[');
	rundir_each(status_show_one, &all);
	if (json)
		puts("]");
	else if (!all.count)
		puts("no job is running");
	return all.count;
}

/* Watching goes on until nothing runs any more. */
static int status_watch(const char *name, bool json)
{
	const struct timespec second = { .tv_sec = 1 };
	bool screen = isatty(STDOUT_FILENO) && !json;
	struct job job;

	if (name && job_connect(name, &job) < 0)
		return CLI_USAGE;
	for (;;) {
		char jobdir[RUNDIR_PATH_MAX];

		if (screen)
			fputs("\033[H\033[J", stdout);
		if (name ? rundir_find(name, jobdir) < 0 || status_show(&job, json) < 0 : !status_every(json))
			break;
		nanosleep(&second, NULL);
	}
	if (name)
		job_close(&job);
	return CLI_OK;
}

int cmd_status(int argc, char **argv)
{
	bool json = false, watch = false;
	struct job job;
	int o, r;

	while ((o = getopt_long(argc, argv, "h", status_long, NULL)) != -1) {
		switch (o) {
		case 'j': json = true; break;
		case 'w': watch = true; break;
		case 'h': fputs(status_help, stdout); return CLI_OK;
		default: fputs(status_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs(status_help, stderr);
		return CLI_USAGE;
	}
	if (watch)
		return status_watch(argv[optind], json);
	if (!argv[optind]) {
		status_every(json);
		return CLI_OK;
	}
	if (job_connect(argv[optind], &job) < 0)
		return CLI_USAGE;
	r = status_show(&job, json);
	job_close(&job);
	return r < 0 ? CLI_FAILED : CLI_OK;
}
