/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata restart: brings a job back from a checkpoint and stays in the foreground for it.
 *
 *   find, open, check  ->  run (restart_session.c)
 */
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/protect.h"
#include "cli/restart.h"

/*
 * Descriptors 0, 1 and 2 exist: the programs' standard ones are made of them. What else our caller has left open is not for the
 * programs.
 */
static void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	close(fd);
	if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0) /* before Linux 5.11 */
		for (fd = STDERR_FILENO + 1; fd < (int)sysconf(_SC_OPEN_MAX) && fd < 65536; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Ends as the program did. */
int restart_exit_status(int worst, size_t roots)
{
	struct rlimit none = { 0, 0 };
	sigset_t all;

	if (!worst)
		return 0;
	if (WIFEXITED(worst))
		return WEXITSTATUS(worst);
	if (roots == 1) {
		setrlimit(RLIMIT_CORE, &none);
		signal(WTERMSIG(worst), SIG_DFL);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		raise(WTERMSIG(worst));
	}
	return 128 + WTERMSIG(worst);
}

static const char restart_help[] =
	"Usage: fermata restart [--rdma WHICH] [--files WHAT] [--map OLD=NEW].. [--on-failure restart|none] [--restarts N] [--on-signal SIG]\n"
	"                       [--capsule WHETHER] [--host NAME[,NAME..] | --hosts FILE | --part PID[,PID..]] [--no-verify]\n"
	"                       [--listen ADDR:PORT | --coordinator ADDR:PORT]\n"
	"                       [--pause[=PID] | --gdb PID] CHECKPOINT\n"
	"Brings a job back from a checkpoint's directory, or from the newest one in a job's directory, and stays\n"
	"in the foreground for it: standard input and output, signals and exit status are the programs'.\n"
	"  --rdma WHICH  the RDMA device from now on: auto, system or soft (default: as the job was launched)\n"
	"  --files WHAT  files whose content has changed since the checkpoint: restore puts them back, what was there\n"
	"                is kept beside them; check refuses; ignore takes them as they are (default: the job's)\n"
	"  --map OLD=NEW  what was below directory OLD at the checkpoint is below NEW now; may be given several times\n"
	"  --on-failure WHAT  restart: again when a program is killed or fails; or none (default: the job's)\n"
	"  --restarts N  at most so often (default: the job's)\n"
	"  --on-signal SIG  at this signal: take a checkpoint, end the job, exit with 99; or none (default: the job's)\n"
	"  --capsule WHETHER  with namespaces of its own: yes; no: among all processes of this host, with the ids of then if\n"
	"                nobody has them; auto: yes where it is allowed (default)\n"
	"  --host NAMES  only the processes of these hosts of the job; others of this command, elsewhere, bring back the rest\n"
	"  --hosts FILE  each host of the job where FILE says, by ssh; lines: NAME [MACHINE]\n"
	"  --listen ADDR:PORT  where commands on other machines find this one (port 0: any; default: where --hosts needs it)\n"
	"  --coordinator ADDR:PORT  where the first of these commands listens, on another machine\n"
	"  --part PIDS   only these processes and all below them; others of this command, on other networks, bring back the rest\n"
	"  --no-verify   do not check the memory in the images, only their structure\n"
	"  --pause[=PID] stop process PID of the job, or all, before they run on, and say how to debug them\n"
	"  --gdb PID     stop process PID before it runs on, with gdb on it in the foreground\n"
	"A job that had several hosts comes back here with namespaces for each of them; a PID that two of them have is HOST:PID.\n"
	"Exit status: the programs' own; 2 usage or the job is running; 3 nothing to restart;\n"
	"5 cannot restart here (each reason is said); 6 image damaged; 99 checkpointed upon the signal, please requeue.\n";

static const struct option restart_long[] = {
	{ "files", required_argument, NULL, 'f' },
	{ "map", required_argument, NULL, 'm' },
	{ "rdma", required_argument, NULL, 'r' },
	{ "capsule", required_argument, NULL, 'c' },
	{ "on-failure", required_argument, NULL, 'o' },
	{ "restarts", required_argument, NULL, 'N' },
	{ "on-signal", required_argument, NULL, 's' },
	{ "part", required_argument, NULL, 'P' },
	{ "host", required_argument, NULL, 'H' },
	{ "conducted", no_argument, NULL, 'C' }, /* by restart_hosts.c, from another machine */
	{ "hosts", required_argument, NULL, 'W' },
	{ "listen", required_argument, NULL, 'L' },
	{ "coordinator", required_argument, NULL, 'K' },
	{ "verify", no_argument, NULL, 'v' },
	{ "no-verify", no_argument, NULL, 'n' },
	{ "pause", optional_argument, NULL, 'p' },
	{ "gdb", required_argument, NULL, 'g' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int usage(void)
{
	fputs(restart_help, stderr);
	return CLI_USAGE;
}

struct restart_command {
	struct restart restart;
	const char *checkpoint; /* as it was given */
	const char *rdma, *on_failure, *on_signal, *restarts;
	char job[64], dir[PATH_MAX];
	unsigned int number; /* of --restarts */
};

/* 0, or an exit status + 1. */
static int parse(int argc, char **argv, struct restart_command *c)
{
	struct restart *r = &c->restart;
	int o;

	while ((o = getopt_long(argc, argv, "h", restart_long, NULL)) != -1) {
		switch (o) {
		case 'f': r->files = optarg; break;
		case 'm':
			if (options_map_add(&r->map, optarg) < 0)
				return CLI_USAGE + 1;
			break;
		case 'r': c->rdma = optarg; break;
		case 'c': r->capsule_wanted = optarg; break;
		case 'o': c->on_failure = optarg; break;
		case 'N': c->restarts = optarg; break;
		case 's': c->on_signal = optarg; break;
		case 'P': r->part = optarg; break;
		case 'H': r->host_text = optarg; break;
		case 'C': r->conducted = true; break;
		case 'W': r->hosts_file = optarg; break;
		case 'L': r->listen = optarg; break;
		case 'K': r->coordinator = optarg; break;
		case 'v': r->verify = true; break;
		case 'n': r->verify = false; break;
		case 'p':
			r->pause_all = !optarg;
			r->pause_text = optarg;
			break;
		case 'g': r->debug_text = optarg; break;
		case 'h': fputs(restart_help, stdout); return CLI_OK + 1;
		default: return usage() + 1;
		}
	}
	if (optind + 1 != argc || (r->host_text && r->hosts_file) || (r->part && (r->host_text || r->hosts_file)) ||
	    (r->coordinator && (r->listen || r->hosts_file || !(r->part || r->host_text))))
		return usage() + 1;
	if ((r->pause_text && !restart_is_pid(r->pause_text)) || (r->debug_text && !restart_is_pid(r->debug_text)))
		return CLI_USAGE + 1;
	c->checkpoint = argv[optind];
	return 0;
}

int restart_one(struct restart *r)
{
	int code = restart_find_images(r);

	if (!code)
		code = restart_open(r);
	if (!code)
		code = restart_part_take(r);
	if (!code)
		code = restart_debug_check(r);
	if (!code)
		code = restart_files_collect(r);
	if (!code)
		code = restart_trees_collect(r);
	if (!code)
		code = restart_walk_choose(r);
	if (!code)
		code = restart_check(r);
	if (!code)
		code = restart_run(r);
	return code;
}

/* The job has come back, and ended: its exit status. @ready gets a byte in between. */
static int bring_back(void *arg, int ready)
{
	struct restart_command *c = arg;
	struct restart *r = &c->restart;
	int code;

	r->ready_fd = ready;
	if (options_map_make(&r->map, &r->moved) < 0)
		return CLI_CANNOT;
	code = restart_find(r, c->checkpoint);
	if (!code)
		code = restart_choose(r);
	if (!code)
		code = restart_chosen(r) > 1 || r->hosts_file ? restart_hosts_run(r) : restart_one(r);
	restart_close(r);
	return code;
}

static struct restart_command command_new(void)
{
	return (struct restart_command){ .restart = { .verify = true, .log_fd = -1, .gate_fd = -1, .gate_key_fd = -1, .orders_fd = -1 } };
}

int restart_again(const struct protect *p, int ready)
{
	struct restart_command c = p->restart_command ? *p->restart_command : command_new();

	c.checkpoint = p->checkpoint;
	if (p->number > p->floor) /* taken since, where all of it is */
		c.restart.map.count = 0;
	c.restart.on_failure = true;
	c.restart.restarts = p->restarts;
	snprintf(c.restart.on_signal, sizeof(c.restart.on_signal), "%s", p->signal ? p->on_signal : "none");
	open_standard();
	raw_descriptors_raise(); /* a plan has one of each object that its process has mapped; each process's own limits come back with it */
	return bring_back(&c, ready);
}

/* What was not given is as the job was launched; nobody whose job is in the debugger wants it ended, or back, and nobody can bring back parts of it. */
static void take_protection(struct restart_command *c)
{
	struct restart *r = &c->restart;
	bool alone = r->pause_all || r->pause_text || r->debug_text || r->part || r->host_text;
	struct image_error error;
	struct manifest *m;

	if (manifest_open(c->checkpoint, &m, &error) < 0)
		return; /* which bring_back() will say */
	snprintf(c->job, sizeof(c->job), "%s", m->job);
	snprintf(c->dir, sizeof(c->dir), "%s", m->dir);
	if (!c->on_signal && !alone && options_signal_number(m->on_signal))
		snprintf(r->on_signal, sizeof(r->on_signal), "%s", m->on_signal);
	r->on_failure = !strcmp(c->on_failure ? c->on_failure : alone ? "none" : m->on_failure, "restart");
	r->restarts = c->restarts ? c->number : m->restarts ? m->restarts : OPTIONS_RESTARTS;
	manifest_free(m);
}

/* 0 or an exit code. */
static int take_options(struct restart_command *c)
{
	struct restart *r = &c->restart;
	bool given;

	r->files = options_text(r->files, "FERMATA_FILES");
	r->capsule_wanted = options_text(r->capsule_wanted, "FERMATA_CAPSULE");
	c->rdma = options_text(c->rdma, "FERMATA_RDMA");
	c->on_failure = options_text(c->on_failure, "FERMATA_ON_FAILURE");
	c->on_signal = options_text(c->on_signal, "FERMATA_ON_SIGNAL");
	c->restarts = options_text(c->restarts, "FERMATA_RESTARTS");
	c->number = options_number("--restarts", c->restarts, &given);
	if (options_check(NULL, c->rdma, r->files) < 0 || options_capsule(r->capsule_wanted) < 0 || options_failure(c->on_failure) < 0 ||
	    options_signal(c->on_signal, r->on_signal) < 0 || fault_init(getenv("FERMATA_FAULT")) < 0)
		return CLI_USAGE;
	r->rdma_given = c->rdma != NULL;
	snprintf(r->rdma, sizeof(r->rdma), "%s", c->rdma ? c->rdma : "");
	take_protection(c);
	return 0;
}

/* They come by standard input, which is nothing of the programs'. */
static void take_orders(struct restart *r)
{
	int none = open("/dev/null", O_RDONLY | O_CLOEXEC);

	r->orders_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	dup2(none, STDIN_FILENO);
	close(none);
}

int cmd_restart(int argc, char **argv)
{
	struct restart_command c = command_new(), first;
	struct restart *r = &c.restart;
	struct protect p = { .job = c.job, .dir = c.dir, .on_signal = r->on_signal, .keeps = true, .begin = bring_back,
			     .arg = &first, .restart_command = &c };
	int code = parse(argc, argv, &c);

	if (code)
		return code - 1;
	code = take_options(&c);
	if (code)
		return code;
	open_standard();
	raw_descriptors_raise(); /* a plan has one of each object that its process has mapped; each process's own limits come back with it */
	protect_hold(r->on_signal);
	if (r->conducted)
		take_orders(r);
	first = c;
	p.on_failure = r->on_failure;
	p.restarts = r->restarts;
	p.from = c.checkpoint;
	return !r->conducted && (p.on_failure || options_signal_number(r->on_signal)) ? protect_run(&p) : bring_back(&first, -1);
}
