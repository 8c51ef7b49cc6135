/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata coordinator: a job's coordinator by hand. launch and restart start theirs by the same command line. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/fault.h"
#include "base/log.h"
#include "cli/cli.h"
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

enum { OPT_READY = 256, OPT_LINGER, OPT_RESTART, OPT_FILES, OPT_EXTERNAL, OPT_ON_SIGNAL, OPT_ON_FAILURE, OPT_RESTARTS, OPT_LISTEN, OPT_RELAY, OPT_WITH };

static const struct option coordinator_long[] = {
	{ "job", required_argument, NULL, 'j' },	{ "dir", required_argument, NULL, 'd' },
	{ "interval", required_argument, NULL, 'i' },	{ "keep", required_argument, NULL, 'k' },
	{ "compress", required_argument, NULL, 'c' },	{ "rdma", required_argument, NULL, 'r' },
	{ "timeout", required_argument, NULL, 't' },	{ "files", required_argument, NULL, OPT_FILES },
	{ "external", required_argument, NULL, OPT_EXTERNAL },
	{ "on-signal", required_argument, NULL, OPT_ON_SIGNAL }, { "on-failure", required_argument, NULL, OPT_ON_FAILURE },
	{ "restarts", required_argument, NULL, OPT_RESTARTS }, { "foreground", no_argument, NULL, 'f' },
	{ "restart", required_argument, NULL, OPT_RESTART }, { "ready-fd", required_argument, NULL, OPT_READY },
	{ "listen", required_argument, NULL, OPT_LISTEN }, { "relay", required_argument, NULL, OPT_RELAY },
	{ "with", required_argument, NULL, OPT_WITH },
	{ "linger", no_argument, NULL, OPT_LINGER },	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct coordinator_flags {
	const char *job, *dir, *compress, *rdma, *files, *external, *on_failure, *on_signal, *restarts, *interval, *keep, *timeout, *restart, *ready, *listen, *relay;
	struct options_with with;
	bool foreground, linger;
};

/* 0, or an exit status + 1. */
static int coordinator_parse(int argc, char **argv, struct coordinator_flags *f)
{
	int o;

	while ((o = getopt_long(argc, argv, "h", coordinator_long, NULL)) != -1) {
		switch (o) {
		case 'j': f->job = optarg; break;
		case 'd': f->dir = optarg; break;
		case 'i': f->interval = optarg; break;
		case 'k': f->keep = optarg; break;
		case 'c': f->compress = optarg; break;
		case 'r': f->rdma = optarg; break;
		case 't': f->timeout = optarg; break;
		case 'f': f->foreground = true; break;
		case OPT_FILES: f->files = optarg; break;
		case OPT_EXTERNAL: f->external = optarg; break;
		case OPT_ON_FAILURE: f->on_failure = optarg; break;
		case OPT_RESTARTS: f->restarts = optarg; break;
		case OPT_ON_SIGNAL: f->on_signal = optarg; break;
		case OPT_RESTART: f->restart = optarg; break;
		case OPT_READY: f->ready = optarg; break;
		case OPT_LISTEN: f->listen = optarg; break;
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

static int coordinator_start(const struct coordinator_flags *f, const char *dir, const struct coordinator_options *c)
{
	struct job_options o = { .name = c->job, .dir = dir, .compress = c->compress, .rdma = c->rdma, .files = c->files, .external = c->external, .on_failure = c->on_failure,
				 .on_signal = c->on_signal, .restarts = c->restarts, .restarts_given = true,
				 .interval = c->interval_s, .interval_given = true, .keep = c->keep, .keep_given = true,
				 .timeout = c->timeout_ms / 1000, .timeout_given = true, .listen = c->listen, .linger = true,
				 .with = f->with.count ? &f->with : NULL };
	struct job job;
	int r = job_start(&o, &job);

	job_close(&job);
	return r == 0 ? CLI_OK : r == -EEXIST ? CLI_USAGE : CLI_FAILED;
}

int cmd_coordinator(int argc, char **argv)
{
	struct coordinator_flags f = { 0 };
	char dir[JOB_PATH_MAX], by_name[96], on_signal[JOB_SIGNAL_MAX];
	struct coordinator_options c = { 0 };
	bool given;
	int r = coordinator_parse(argc, argv, &f);

	if (r)
		return r - 1;
	c.job = options_text(f.job, "FERMATA_JOB");
	if (!c.job || rundir_job_check(c.job) < 0) {
		log_error("--job %s: a name of letters, digits and . _ - is needed", c.job ? c.job : "");
		return CLI_USAGE;
	}
	c.compress = options_text(f.compress, "FERMATA_COMPRESS");
	c.rdma = options_text(f.rdma, "FERMATA_RDMA");
	c.files = options_text(f.files, "FERMATA_FILES");
	c.external = options_text(f.external, "FERMATA_EXTERNAL");
	if (options_check(c.compress, c.rdma, c.files) < 0 || options_external(c.external) < 0 || fault_init(getenv("FERMATA_FAULT")) < 0) {
		if (fault_init(getenv("FERMATA_FAULT")) < 0)
			log_error("FERMATA_FAULT=%s: no such point", getenv("FERMATA_FAULT"));
		return CLI_USAGE;
	}
	c.on_failure = options_text(f.on_failure, "FERMATA_ON_FAILURE");
	c.on_failure = c.on_failure ? c.on_failure : "none";
	if (options_failure(c.on_failure) < 0 || options_signal(options_text(f.on_signal, "FERMATA_ON_SIGNAL"), on_signal) < 0)
		return CLI_USAGE;
	c.restarts = options_number("--restarts", options_text(f.restarts, "FERMATA_RESTARTS"), &given);
	c.restarts = given ? c.restarts : OPTIONS_RESTARTS;
	c.on_signal = on_signal;
	c.compress = c.compress ? c.compress : "none";
	c.rdma = c.rdma ? c.rdma : "auto";
	c.files = c.files ? c.files : "restore";
	c.external = c.external ? c.external : "fail";
	c.interval_s = options_number("--interval", options_text(f.interval, "FERMATA_INTERVAL"), &given);
	c.keep = options_number("--keep", options_text(f.keep, "FERMATA_KEEP"), &given);
	c.timeout_ms = 1000 * options_number("--timeout", options_text(f.timeout, "FERMATA_TIMEOUT"), &given);
	c.timeout_ms = c.timeout_ms ? c.timeout_ms : 60000;
	if (!f.relay && options_with_environment(&f.with) < 0)
		return CLI_USAGE;
	c.with = (const char *const *)f.with.paths;
	c.with_count = f.with.count;
	c.save_directories = tree_save_all;
	c.restart = f.restart;
	c.relay = f.relay;
	c.listen = f.relay ? NULL : options_text(f.listen, "FERMATA_LISTEN");
	c.linger = f.linger || f.foreground;
	c.ready_fd = f.ready ? atoi(f.ready) : -1;
	snprintf(by_name, sizeof(by_name), "fermata-%s", c.job);
	c.dir = options_text(f.dir, "FERMATA_DIR");
	if (paths_absolute(c.dir ? c.dir : by_name, dir, sizeof(dir)) < 0) {
		log_error("--dir %s: the path is too long", c.dir);
		return CLI_USAGE;
	}
	c.dir = dir;
	if (!f.foreground && !f.ready)
		return coordinator_start(&f, dir, &c);
	prctl(PR_SET_NAME, "fermata-coord");
	return coordinator_run(&c) < 0 ? CLI_FAILED : CLI_OK;
}
