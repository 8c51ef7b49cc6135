/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata coordinator: a job's coordinator by hand. launch and restart start theirs by the same command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "cli/job_flags.h"
#include "cli/tree.h"
#include "coordinator/coordinator.h"
#include "coordinator/rundir.h"

static const char coordinator_help[] =
	"Usage: fermata coordinator --job NAME [--dir DIR] [--interval SECS] [--keep N]\n"
	"                           [--compress none] [--rdma auto|system|soft]\n"
	"                           [--on-failure restart|none] [--restarts N]\n"
	"                           [--on-signal SIGNAL] [--timeout SECS] [--listen ADDR:PORT]\n"
	"                           [--with DIR].. [--foreground]\n"
	"Starts the coordinator of a job by hand. It waits for the job's first process and\n"
	"leaves with the last one. fermata launch starts one by itself if there is none.\n"
	"  --foreground   stay in the foreground, messages on standard error\n"
	"The other options: see fermata launch --help.\n";

enum { OPT_FOREGROUND = 256, OPT_READY, OPT_LINGER, OPT_RESTART, OPT_RELAY, OPT_WITH };

static const struct option coordinator_long[] = {
	JOB_FLAGS_LONG
	{ "with", required_argument, NULL, OPT_WITH },	     { "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "restart", required_argument, NULL, OPT_RESTART }, { "ready-fd", required_argument, NULL, OPT_READY },
	{ "relay", required_argument, NULL, OPT_RELAY },     { "linger", no_argument, NULL, OPT_LINGER },
	{ "help", no_argument, NULL, 'h' },		     { 0 },
};

struct coordinator_flags {
	struct job_flags job;
	struct options_with with;
	const char *restart, *ready, *relay;
	bool foreground, linger;
};

/* 0, or an exit status + 1. */
static int coordinator_parse(int argc, char **argv, struct coordinator_flags *f)
{
	int o;

	while ((o = getopt_long(argc, argv, "h", coordinator_long, NULL)) != -1) {
		if (job_flags_take(&f->job, o, optarg))
			continue;
		switch (o) {
		case OPT_FOREGROUND: f->foreground = true; break;
		case OPT_RESTART: f->restart = optarg; break;
		case OPT_READY: f->ready = optarg; break;
		case OPT_RELAY: f->relay = optarg; break;
		case OPT_WITH:
			if ((f->ready ? options_with_take : options_with_add)(&f->with, optarg) < 0)
				return CLI_USAGE + 1;
			break;
		case OPT_LINGER: f->linger = true; break;
		case 'h': fputs(coordinator_help, stdout); return CLI_OK + 1;
		default: fputs(coordinator_help, stderr); return CLI_USAGE + 1;
		}
	}
	return 0;
}

/* What the job has where nothing is said. */
static void coordinator_defaults(struct job_options *o, const char *on_signal)
{
	o->compress = o->compress ? o->compress : "none";
	o->rdma = o->rdma ? o->rdma : "auto";
	o->files = o->files ? o->files : "restore";
	o->external = o->external ? o->external : "fail";
	o->text = o->text ? o->text : "ref";
	o->on_failure = o->on_failure ? o->on_failure : "none";
	o->on_signal = on_signal;
	o->restarts = o->restarts_given ? o->restarts : OPTIONS_RESTARTS;
	o->timeout = o->timeout ? o->timeout : 60;
	o->restarts_given = o->interval_given = o->keep_given = o->timeout_given = true;
}

/* @dir: of JOB_PATH_MAX bytes, where the path of the job's checkpoints goes. 0, or -EINVAL after it has said what is wrong. */
static int coordinator_options(struct coordinator_flags *f, struct job_options *o, char *dir)
{
	const char *given = job_flags_text(&f->job, JOB_FLAG_DIR);
	char by_name[96];

	o->name = job_flags_text(&f->job, JOB_FLAG_JOB);
	if (!o->name || rundir_job_check(o->name) < 0) {
		log_error("--job %s: a name of letters, digits and . _ - is needed", o->name ? o->name : "");
		return -EINVAL;
	}
	if (job_flags_options(&f->job, o) < 0 || (!f->relay && options_with_environment(&f->with) < 0))
		return -EINVAL;
	coordinator_defaults(o, f->job.on_signal);
	snprintf(by_name, sizeof(by_name), "fermata-%s", o->name);
	if (paths_absolute(given ? given : by_name, dir, JOB_PATH_MAX) < 0) {
		log_error("--dir %s: the path is too long", given ? given : by_name);
		return -EINVAL;
	}
	o->dir = dir;
	o->with = f->with.count ? &f->with : NULL;
	o->linger = true;
	return 0;
}

static int coordinator_start(const struct job_options *o)
{
	struct job job;
	int r = job_start(o, &job);

	job_close(&job);
	return r == 0 ? CLI_OK : r == -EEXIST ? CLI_USAGE : CLI_FAILED;
}

/* This process becomes it. */
static int coordinator_conduct(const struct coordinator_flags *f, const struct job_options *o)
{
	struct coordinator_options c = {
		.job = o->name, .dir = o->dir, .compress = o->compress, .rdma = o->rdma, .files = o->files, .external = o->external, .text = o->text,
		.on_failure = o->on_failure, .on_signal = o->on_signal, .restarts = o->restarts, .interval_s = o->interval, .keep = o->keep,
		.timeout_ms = 1000 * o->timeout, .with = (const char *const *)f->with.paths, .with_count = f->with.count,
		.save_directories = tree_save_all, .restart = f->restart, .relay = f->relay, .listen = f->relay ? NULL : o->listen,
		.linger = f->linger || f->foreground, .ready_fd = f->ready ? atoi(f->ready) : -1,
	};

	prctl(PR_SET_NAME, "fermata-coord");
	return coordinator_run(&c) < 0 ? CLI_FAILED : CLI_OK;
}

int cmd_coordinator(int argc, char **argv)
{
	struct coordinator_flags f = { 0 };
	struct job_options o = { 0 };
	char dir[JOB_PATH_MAX];
	int r = coordinator_parse(argc, argv, &f);

	if (r)
		return r - 1;
	if (coordinator_options(&f, &o, dir) < 0)
		return CLI_USAGE;
	return f.foreground || f.ready ? coordinator_conduct(&f, &o) : coordinator_start(&o);
}
