/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata launch: joins or starts the job, then becomes the program by exec; of a protected job a child does (protect.h). Owns the environment that the program gets:
 *
 *   LD_PRELOAD       libfermata.so in front of what was there
 *   FERMATA_JOBDIR   where the coordinator is
 *   FERMATA_FD       the connection that was made here, its key proved: the agent registers on it
 *   FERMATA_LIBDIR   where the parts of fermata are
 *   LD_LIBRARY_PATH  the shim of libibverbs in front, where there is one
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/begun.h"
#include "base/fault.h"
#include "base/host_id.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/launch_apart.h"
#include "cli/launch_member.h"
#include "cli/launch_shim.h"
#include "cli/program.h"
#include "cli/protect.h"
#include "coordinator/rundir.h"

#define LAUNCH_FD_MIN 500 /* out of the way of the program's own until the agent takes it over */
#define LAUNCH_PATH_MAX 4096
#define LAUNCH_WORDS_MAX 1024

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
	"FERMATA_EXTERNAL, FERMATA_ON_FAILURE, FERMATA_RESTARTS, FERMATA_ON_SIGNAL, FERMATA_TIMEOUT, FERMATA_LISTEN, FERMATA_COORDINATOR,\n"
	"FERMATA_REMOTE=no; an option beats it.\n";

enum { OPT_COORDINATOR = 256, OPT_EXTERNAL, OPT_LISTEN, OPT_NO_REMOTE, OPT_WITH };

static const struct option launch_long[] = {
	{ "job", required_argument, NULL, 'j' },      { "dir", required_argument, NULL, 'd' },
	{ "interval", required_argument, NULL, 'i' }, { "keep", required_argument, NULL, 'k' },
	{ "compress", required_argument, NULL, 'c' }, { "rdma", required_argument, NULL, 'r' },
	{ "on-failure", required_argument, NULL, 'o' }, { "restarts", required_argument, NULL, 'n' },
	{ "external", required_argument, NULL, OPT_EXTERNAL },
	{ "files", required_argument, NULL, 'f' },    { "on-signal", required_argument, NULL, 's' },
	{ "timeout", required_argument, NULL, 't' },  { "coordinator", required_argument, NULL, OPT_COORDINATOR },
	{ "listen", required_argument, NULL, OPT_LISTEN }, { "no-remote", no_argument, NULL, OPT_NO_REMOTE },
	{ "with", required_argument, NULL, OPT_WITH }, { "help", no_argument, NULL, 'h' }, { 0 },
};

struct launch_flags {
	const char *job, *dir, *interval, *keep, *compress, *rdma, *files, *external, *on_failure, *restarts, *on_signal, *timeout, *coordinator, *listen;
	struct options_with with;
};

/* 0, or an exit status + 1. */
static int launch_parse(int argc, char **argv, struct launch_flags *f)
{
	int o;

	while ((o = getopt_long(argc, argv, "+h", launch_long, NULL)) != -1) {
		switch (o) {
		case 'j': f->job = optarg; break;
		case 'd': f->dir = optarg; break;
		case 'i': f->interval = optarg; break;
		case 'k': f->keep = optarg; break;
		case 'c': f->compress = optarg; break;
		case 'r': f->rdma = optarg; break;
		case 'f': f->files = optarg; break;
		case 'o': f->on_failure = optarg; break;
		case 'n': f->restarts = optarg; break;
		case 's': f->on_signal = optarg; break;
		case 't': f->timeout = optarg; break;
		case OPT_EXTERNAL: f->external = optarg; break;
		case OPT_COORDINATOR: f->coordinator = optarg; break;
		case OPT_LISTEN: f->listen = optarg; break;
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
	const char *given = options_text(f->job, "FERMATA_JOB"), *where = options_text(f->dir, "FERMATA_DIR");

	o->listen = options_text(f->listen, "FERMATA_LISTEN");
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
	o->compress = options_text(f->compress, "FERMATA_COMPRESS");
	o->rdma = options_text(f->rdma, "FERMATA_RDMA");
	o->files = options_text(f->files, "FERMATA_FILES");
	o->external = options_text(f->external, "FERMATA_EXTERNAL");
	o->on_failure = options_text(f->on_failure, "FERMATA_ON_FAILURE");
	o->restarts = options_number("--restarts", options_text(f->restarts, "FERMATA_RESTARTS"), &o->restarts_given);
	o->interval = options_number("--interval", options_text(f->interval, "FERMATA_INTERVAL"), &o->interval_given);
	o->keep = options_number("--keep", options_text(f->keep, "FERMATA_KEEP"), &o->keep_given);
	o->timeout = options_number("--timeout", options_text(f->timeout, "FERMATA_TIMEOUT"), &o->timeout_given);
	if (fault_init(getenv("FERMATA_FAULT")) < 0) {
		log_error("FERMATA_FAULT=%s: no such point", getenv("FERMATA_FAULT"));
		return -EINVAL;
	}
	return options_failure(o->on_failure) < 0 || options_external(o->external) < 0 ? -EINVAL : options_check(o->compress, o->rdma, o->files);
}

/* @first, then what the variable had. */
static int launch_prepend(const char *variable, const char *first, char separator)
{
	const char *old = getenv(variable);
	char *both = NULL;
	int r;

	if (!old || !*old)
		return setenv(variable, first, 1);
	if (strstr(old, first))
		return 0;
	if (asprintf(&both, "%s%c%s", first, separator, old) < 0)
		return -1;
	r = setenv(variable, both, 1);
	free(both);
	return r;
}

/* As long as the machine's, which it may come to be after a restart; what a process of the job launches is of that one's host. */
static int launch_host(void)
{
	char name[HOST_ID_NAME], entry[HOST_ID_ENTRY];
	uint64_t part = 0;

	if (host_id_take(getenv("FERMATA_HOST"), &part, name) < 0)
		host_id_node(name);
	host_id_entry(entry, part, name);
	return setenv("FERMATA_HOST", entry + sizeof(HOST_ID_VARIABLE) - 1, 1);
}

/* What a process of the job launches is begun by the job: it has what that was begun with from it. */
static int launch_begun(void)
{
	char entry[BEGUN_ENTRY];
	struct begun b;

	if (begun_take(getenv("FERMATA_BEGUN"), &b) < 0)
		begun_note(&b);
	begun_entry(entry, &b);
	return setenv("FERMATA_BEGUN", entry + sizeof(BEGUN_VARIABLE) - 1, 1);
}

static int launch_environment(const struct job *job, const char *agent, const char *libdir, int fd)
{
	char number[16], shim[JOB_PATH_MAX];
	int r = 0;

	if (launch_prepare_shim(job->jobdir, libdir, shim, sizeof(shim)) == 0)
		r |= launch_prepend("LD_LIBRARY_PATH", shim, ':');
	snprintf(number, sizeof(number), "%d", fd);
	r |= launch_prepend("LD_PRELOAD", agent, ':');
	r |= setenv("FERMATA_JOBDIR", job->jobdir, 1);
	r |= setenv("FERMATA_LIBDIR", libdir, 1);
	r |= setenv("FERMATA_FD", number, 1);
	r |= setenv("FERMATA_RDMA", job->rdma, 1);
	r |= setenv("UCX_UD_TIMEOUT", "31536000s", 0); /* who was away until a restart is not dead (agent/ucx_clock.c) */
	r |= launch_host();
	r |= launch_begun();
	return r ? -ENOMEM : 0;
}

/* The loader takes LD_PRELOAD apart at spaces and colons, and leaves out what it does not find. */
static int launch_check_agent(const char *agent)
{
	if (!strpbrk(agent, " :"))
		return 0;
	log_error("%s: the loader cannot preload a file with a space or colon in its path: install fermata elsewhere", agent);
	return -EINVAL;
}

/* The connection outlives the exec; this process holds nothing else of the job. */
static int launch_keep_connection(struct job *job)
{
	int fd = fcntl(job->link.fd, F_DUPFD, LAUNCH_FD_MIN);

	if (fd < 0)
		fd = fcntl(job->link.fd, F_DUPFD, 3);
	if (fd < 0)
		return -errno;
	job_close(job);
	return fd;
}

/* What the program becomes by exec. */
struct launch {
	struct job job;
	char program[LAUNCH_PATH_MAX], agent[JOB_PATH_MAX], libdir[JOB_PATH_MAX];
	char **argv;
};

/* ssh, as a process of the job begins it (agent/exec_remote.c). */
static int launch_remote(struct launch *l)
{
	char command[JOB_PATH_MAX + 32], *words[LAUNCH_WORDS_MAX] = { "fermata", "remote", l->program };
	size_t n = 0;

	while (l->argv[n])
		n++;
	if (n + 4 > LAUNCH_WORDS_MAX)
		return -E2BIG;
	memcpy(words + 3, l->argv, (n + 1) * sizeof(*words));
	snprintf(command, sizeof(command), "%s/../bin/fermata", l->libdir);
	setenv("FERMATA_APART", "1", 1);
	execv(command, words);
	unsetenv("FERMATA_APART");
	return -errno;
}

static bool launch_is_ssh(const char *program)
{
	const char *base = strrchr(program, '/'), *wanted = getenv("FERMATA_REMOTE");

	base = base ? base + 1 : program;
	return (!strcmp(base, "ssh") || !strcmp(base, "rsh")) && (!wanted || strcmp(wanted, "no"));
}

/* Returns an exit status if it fails. */
static int launch_become(void *arg, int ready)
{
	struct launch *l = arg;
	int fd = launch_keep_connection(&l->job);

	(void)ready;
	if (fd < 0 || launch_environment(&l->job, l->agent, l->libdir, fd) < 0) {
		log_error("%s: %s", l->program, strerror(errno));
		return CLI_FAILED;
	}
	if (launch_is_ssh(l->program))
		launch_remote(l);
	execv(l->program, l->argv);
	log_error("%s: %s", l->program, strerror(errno));
	return 126;
}

/* Stays with the program if the job is protected, or the program is to have another pid. A program that has joined it does not bring it back itself. */
static int launch_run(struct launch *l)
{
	struct protect p = { .job = l->job.name, .dir = l->job.dir, .on_signal = l->job.on_signal, .on_failure = l->job.on_failure,
			     .keeps = !l->job.joined, .restarts = l->job.restarts, .begin = launch_become, .arg = l,
			     .handed = &l->job, .program = l->argv[0] };

	return p.on_failure || options_signal_number(p.on_signal) || launch_apart() ? protect_run(&p) : launch_become(l, -1);
}

/* Where the agent and the other parts are. */
static int launch_find_parts(struct launch *l)
{
	if (paths_lib("libfermata.so", l->agent, sizeof(l->agent)) < 0 || paths_lib("", l->libdir, sizeof(l->libdir)) < 0)
		return -ENOENT;
	return launch_check_agent(l->agent);
}

int launch_member(const struct job_options *o, char **argv, int (*joined)(void *arg), void *arg)
{
	struct launch l = { .argv = argv };
	ssize_t n = readlink("/proc/self/exe", l.program, sizeof(l.program) - 1);

	if (n < 0 || launch_find_parts(&l) < 0 || job_start(o, &l.job) < 0)
		return CLI_FAILED;
	l.program[n] = 0;
	return joined(arg) < 0 ? CLI_FAILED : launch_become(&l, -1);
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

int cmd_launch(int argc, char **argv)
{
	char name[RUNDIR_JOB_MAX + 1], dir[JOB_PATH_MAX], on_signal[JOB_SIGNAL_MAX];
	struct launch_flags f = { 0 };
	struct job_options o = { 0 };
	struct launch l;
	int r = launch_parse(argc, argv, &f);

	if (r)
		return r - 1;
	if (launch_options(&f, argv[optind], &o, name, sizeof(name), dir, sizeof(dir)) < 0 ||
	    options_signal(options_text(f.on_signal, "FERMATA_ON_SIGNAL"), on_signal) < 0)
		return CLI_USAGE;
	o.on_signal = options_text(f.on_signal, "FERMATA_ON_SIGNAL") ? on_signal : NULL;
	r = launch_find_program(argv[optind], l.program, sizeof(l.program));
	if (r < 0)
		return r == -ENOENT ? 127 : 126;
	if (launch_find_parts(&l) < 0)
		return CLI_FAILED;
	protect_hold(on_signal);
	l.argv = argv + optind;
	r = job_start(&o, &l.job);
	if (r < 0)
		return r == -EEXIST ? CLI_USAGE : CLI_FAILED;
	return launch_run(&l);
}
