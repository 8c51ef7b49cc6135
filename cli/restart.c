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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/cli.h"
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
	"Usage: fermata restart [--rdma WHICH] [--files WHAT] [--no-verify] [--pause[=PID] | --gdb PID] CHECKPOINT\n"
	"Brings a job back from a checkpoint's directory, or from the newest one in a job's directory, and stays\n"
	"in the foreground for it: standard input and output, signals and exit status are the programs'.\n"
	"  --rdma WHICH  the RDMA device from now on: auto, system or soft (default: as the job was launched)\n"
	"  --files WHAT  files whose content has changed since the checkpoint: restore puts them back, what was there\n"
	"                is kept beside them; check refuses; ignore takes them as they are (default: the job's)\n"
	"  --no-verify   do not check the memory in the images, only their structure\n"
	"  --pause[=PID] stop process PID of the job, or all, before they run on, and say how to debug them\n"
	"  --gdb PID     stop process PID before it runs on, with gdb on it in the foreground\n"
	"Exit status: the programs' own; 2 usage or the job is running; 3 nothing to restart;\n"
	"5 cannot restart here (each reason is said); 6 image damaged.\n";

static const struct option restart_long[] = {
	{ "files", required_argument, NULL, 'f' },
	{ "rdma", required_argument, NULL, 'r' },
	{ "verify", no_argument, NULL, 'v' },
	{ "no-verify", no_argument, NULL, 'n' },
	{ "pause", optional_argument, NULL, 'p' },
	{ "gdb", required_argument, NULL, 'g' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* A pid, or 0. */
static uint32_t read_pid(const char *text)
{
	char *end;
	unsigned long pid = strtoul(text, &end, 10);

	if (*text >= '1' && *text <= '9' && !*end && pid <= INT_MAX)
		return (uint32_t)pid;
	warnx("%s is not a process id", text);
	return 0;
}

static int usage(void)
{
	fputs(restart_help, stderr);
	return CLI_USAGE;
}

int cmd_restart(int argc, char **argv)
{
	struct restart r = { .verify = true, .log_fd = -1, .gate_fd = -1, .gate_key_fd = -1 };
	const char *files = NULL;
	const char *rdma = NULL;
	int code, o;

	while ((o = getopt_long(argc, argv, "h", restart_long, NULL)) != -1) {
		switch (o) {
		case 'f': files = optarg; break;
		case 'r': rdma = optarg; break;
		case 'v': r.verify = true; break;
		case 'n': r.verify = false; break;
		case 'p':
			r.pause_all = !optarg;
			r.pause_pid = optarg ? read_pid(optarg) : 0;
			if (optarg && !r.pause_pid)
				return CLI_USAGE;
			break;
		case 'g':
			r.debug_pid = read_pid(optarg);
			if (!r.debug_pid)
				return CLI_USAGE;
			break;
		case 'h': fputs(restart_help, stdout); return CLI_OK;
		default: return usage();
		}
	}
	if (optind + 1 != argc)
		return usage();
	r.files = options_text(files, "FERMATA_FILES");
	rdma = options_text(rdma, "FERMATA_RDMA");
	if (options_check(NULL, rdma, r.files) < 0 || fault_init(getenv("FERMATA_FAULT")) < 0)
		return CLI_USAGE;
	r.rdma_given = rdma != NULL;
	snprintf(r.rdma, sizeof(r.rdma), "%s", rdma ? rdma : "");
	open_standard();
	code = paths_lib("fermata/restorer", r.restorer, sizeof(r.restorer)) < 0 ? CLI_CANNOT : 0;
	if (!code)
		code = restart_find(&r, argv[optind]);
	if (!code)
		code = restart_open(&r);
	if (!code)
		code = restart_debug_check(&r);
	if (!code)
		code = restart_files_collect(&r);
	if (!code)
		code = restart_check(&r);
	if (!code)
		code = restart_run(&r);
	restart_close(&r);
	return code;
}
