/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata restart: brings a job back from a checkpoint and stays in the foreground for it.
 *
 *   find, open, check  ->  run (restart_session.c)
 */
#include <fcntl.h>
#include <getopt.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static const char restart_help[] =
	"Usage: fermata restart [--no-verify] CHECKPOINT\n"
	"Brings a job back from a checkpoint's directory, or from the newest one in a job's directory, and stays\n"
	"in the foreground for it: standard input and output, signals and exit status are the programs'.\n"
	"  --no-verify   do not check the memory in the images, only their structure\n"
	"Exit status: the programs' own; 2 usage or the job is running; 3 nothing to restart;\n"
	"5 cannot restart here (each reason is said); 6 image damaged.\n";

static const struct option restart_long[] = {
	{ "verify", no_argument, NULL, 'v' },
	{ "no-verify", no_argument, NULL, 'n' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

int cmd_restart(int argc, char **argv)
{
	struct restart r = { .verify = true, .log_fd = -1, .gate_fd = -1, .gate_key_fd = -1 };
	int code, o;

	while ((o = getopt_long(argc, argv, "h", restart_long, NULL)) != -1) {
		switch (o) {
		case 'v': r.verify = true; break;
		case 'n': r.verify = false; break;
		case 'h': fputs(restart_help, stdout); return CLI_OK;
		default: fputs(restart_help, stderr); return CLI_USAGE;
		}
	}
	if (optind + 1 != argc) {
		fputs(restart_help, stderr);
		return CLI_USAGE;
	}
	open_standard();
	code = paths_lib("fermata/restorer", r.restorer, sizeof(r.restorer)) < 0 ? CLI_CANNOT : 0;
	if (!code)
		code = restart_find(&r, argv[optind]);
	if (!code)
		code = restart_open(&r);
	if (!code)
		code = restart_check(&r);
	if (!code)
		code = restart_run(&r);
	restart_close(&r);
	return code;
}
