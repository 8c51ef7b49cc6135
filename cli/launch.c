/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata launch: joins or starts the job, then becomes the program (launch_become.c); of a protected job a child does (protect.h). Owns nothing. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/job_flags.h"
#include "cli/launch_apart.h"
#include "cli/launch_become.h"
#include "cli/program.h"
#include "cli/protect.h"
#include "coordinator/rundir.h"

static const char launch_help[] =
	"Usage: fermata launch [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
	"Runs PROGRAM under checkpoint control: with its own input, output and exit status.\n"
	"  --job NAME        name of the job; a job of that name that runs is joined\n"
	"                    (default: PROGRAM and four random characters)\n"
	"  --dir DIR         where its checkpoints go (default: ./fermata-NAME)\n"
	"  --interval SECS   take one every SECS seconds (default: only when asked)\n"
	"  --keep N          remove all but the newest N (default: keep all)\n"
	"  --compress WHAT   none\n"
	"  --rdma WHICH      auto, system or soft (default: auto)\n"
	"  --files WHAT      contents of files open for writing: restore, saved and put back\n"
	"                    at a restart; check, it refuses if they differ; ignore\n"
	"                    (default: restore)\n"
	"  --with DIR        a checkpoint holds what is in DIR, too, as --files says; may be given several times\n"
	"  --external WHAT   connections that lead out of the job: fail, the checkpoint names one; error, it\n"
	"                    comes back with its other side gone; reconnect-listen, and so do those that no\n"
	"                    program has accepted yet: they are left out (default: fail)\n"
	"  --text WHAT       unchanged pages of programs, libraries and other files that are mapped: ref, a\n"
	"                    restart takes them from the files; save, they are in the checkpoint, too, for a\n"
	"                    machine with other files, or without (default: ref)\n"
	"  --on-failure WHAT restart: when a program that was launched is killed or fails, the job comes back\n"
	"                    from its newest checkpoint (default: none)\n"
	"  --restarts N      at most so often (default: 5), and three times from the same checkpoint\n"
	"  --on-signal SIG   at this signal to fermata launch: take a checkpoint, end the job,\n"
	"                    exit with 99, for batch systems that start it again (default: none)\n"
	"  --timeout SECS    the longest that a phase may last (default: 60)\n"
	"  --listen ADDR:PORT        where this host's address is to be found by the job's other hosts; port 0: any,\n"
	"                    fermata status says which\n"
	"  --coordinator ADDR:PORT   where the job listens, at another host: PROGRAM joins it (with --job)\n"
	"  --no-remote       what is started on other hosts by ssh does not come under the job\n"
	"Each has an environment variable: FERMATA_JOB, FERMATA_DIR, FERMATA_INTERVAL,\n"
	"FERMATA_KEEP, FERMATA_COMPRESS, FERMATA_RDMA, FERMATA_FILES, FERMATA_WITH=DIR:DIR,\n"
	"FERMATA_EXTERNAL, FERMATA_TEXT, FERMATA_ON_FAILURE, FERMATA_RESTARTS, FERMATA_ON_SIGNAL, FERMATA_TIMEOUT, FERMATA_LISTEN,\n"
	"FERMATA_COORDINATOR,\n"
	"FERMATA_REMOTE=no; an option beats it.\n";

enum { OPT_COORDINATOR = 256, OPT_NO_REMOTE, OPT_WITH };

static const struct option launch_long[] = {
	JOB_FLAGS_LONG
	{ "with", required_argument, NULL, OPT_WITH },	       { "coordinator", required_argument, NULL, OPT_COORDINATOR },
	{ "no-remote", no_argument, NULL, OPT_NO_REMOTE },     { "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct launch_flags {
	struct job_flags job;
	struct options_with with;
	const char *coordinator;
};

/* 0, or an exit status + 1. */
static int launch_parse(int argc, char **argv, struct launch_flags *f)
{
	int o;

	while ((o = getopt_long(argc, argv, "+h", launch_long, NULL)) != -1) {
		if (job_flags_take(&f->job, o, optarg))
			continue;
		switch (o) {
		case OPT_COORDINATOR: f->coordinator = optarg; break;
		case OPT_WITH:
			if (options_with_add(&f->with, optarg) < 0)
				return CLI_USAGE + 1;
			break;
		case OPT_NO_REMOTE: setenv("FERMATA_REMOTE", "no", 1); break;
		case 'h': fputs(launch_help, stdout); return CLI_OK + 1;
		default: fputs(launch_help, stderr); return CLI_USAGE + 1;
		}
	}
	if (optind < argc)
		return 0;
	log_error("launch: no program given; fermata launch --help says how");
	return CLI_USAGE + 1;
}

/* "ibv_rc_pingpong-x7k2" */
static void launch_default_name(const char *program, char *name, size_t size)
{
	static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789";
	const char *base = strrchr(program, '/');
	size_t len;

	snprintf(name, size, "%.40s", base ? base + 1 : program);
	if (name[0] == '.')
		name[0] = '_';
	for (char *p = name; *p; p++) {
		char one[2] = { *p, 0 };

		if (rundir_job_check(one) < 0 && *p != '.')
			*p = '_';
	}
	len = strlen(name);
	snprintf(name + len, size - len, "-%c%c%c%c", letters[randombytes_uniform(32)], letters[randombytes_uniform(32)],
		 letters[randombytes_uniform(32)], letters[randombytes_uniform(32)]);
}

static int launch_options(struct launch_flags *f, const char *program, struct job_options *o, char *name,
			  size_t name_size, char *dir, size_t dir_size)
{
	const char *given = job_flags_text(&f->job, JOB_FLAG_JOB), *where = job_flags_text(&f->job, JOB_FLAG_DIR);

	o->coordinator = options_text(f->coordinator, "FERMATA_COORDINATOR");
	if (o->coordinator && !given) {
		log_error("--coordinator %s: --job has to say which job that is", o->coordinator);
		return -EINVAL;
	}
	if (given)
		snprintf(name, name_size, "%s", given);
	else
		launch_default_name(program, name, name_size);
	if (rundir_job_check(name) < 0 || (given && strlen(given) >= name_size)) {
		log_error("--job %s: a name of at most %d letters, digits and . _ - is needed", given, RUNDIR_JOB_MAX);
		return -EINVAL;
	}
	if (where && paths_absolute(where, dir, dir_size) < 0) {
		log_error("--dir %s: the path is too long", where);
		return -EINVAL;
	}
	if (options_with_environment(&f->with) < 0)
		return -EINVAL;
	if (f->with.count && o->coordinator) {
		log_error("--with %s: directories are named where the job is begun", f->with.paths[0]);
		return -EINVAL;
	}
	o->with = f->with.count ? &f->with : NULL;
	o->name = name;
	o->dir = where ? dir : NULL;
	return job_flags_options(&f->job, o);
}

/* 0 with the path, or -errno: it is not there, or it cannot be held. */
static int launch_find_program(const char *program, char *ret, size_t size)
{
	int r = program_find(program, ret, size);
	char file[LAUNCH_PATH_MAX];
	struct program_refusal no;

	if (r < 0) {
		log_error("%s: %s", program, r == -ENOENT && !strchr(program, '/') ? "command not found" : strerror(-r));
		return r;
	}
	r = program_check(ret, file, sizeof(file), &no);
	if (r < 0)
		log_error("%s: %s%s%s", file, no.why, no.remedy ? "; " : "", no.remedy ? no.remedy : "");
	return r;
}

/* Stays with the program if the job is protected, or the program is to have another pid. A program that has joined it does not bring it back itself. */
static int launch_run(struct launch *l)
{
	struct protect p = { .job = l->job.name, .dir = l->job.dir, .on_signal = l->job.on_signal, .on_failure = l->job.on_failure,
			     .keeps = !l->job.joined, .restarts = l->job.restarts, .begin = launch_become, .arg = l,
			     .handed = &l->job, .program = l->argv[0] };

	return p.on_failure || options_signal_number(p.on_signal) || launch_apart() ? protect_run(&p) : launch_become(l, -1);
}

int cmd_launch(int argc, char **argv)
{
	char name[RUNDIR_JOB_MAX + 1], dir[JOB_PATH_MAX];
	struct launch_flags f = { 0 };
	struct job_options o = { 0 };
	struct launch l;
	int r = launch_parse(argc, argv, &f);

	if (r)
		return r - 1;
	if (launch_options(&f, argv[optind], &o, name, sizeof(name), dir, sizeof(dir)) < 0)
		return CLI_USAGE;
	r = launch_find_program(argv[optind], l.program, sizeof(l.program));
	if (r < 0)
		return r == -ENOENT ? 127 : 126;
	if (launch_find_parts(&l) < 0)
		return CLI_FAILED;
	protect_hold(f.job.on_signal);
	l.argv = argv + optind;
	r = job_start(&o, &l.job);
	if (r < 0)
		return r == -EEXIST ? CLI_USAGE : CLI_FAILED;
	return launch_run(&l);
}
