/* SPDX-License-Identifier: BSD-2-Clause */
/* The fermata command: a table of subcommands. Owns the choice among them and the level of messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{ "launch", cmd_launch, "run a program under checkpoint control" },
	{ "checkpoint", cmd_checkpoint, "take a checkpoint of a job now" },
	{ "restart", cmd_restart, "bring a job back from a checkpoint" },
	{ "status", cmd_status, "processes, phase and last checkpoint of a job" },
	{ "list", cmd_list, "checkpoints in a directory" },
	{ "check", cmd_check, "can this host do it?" },
	{ "inspect", cmd_inspect, "show what an image or a checkpoint holds" },
	{ "verify", cmd_verify, "check a checkpoint or an image for damage" },
	{ "core", cmd_core, "write an image as a core file for debuggers" },
	{ "coordinator", cmd_coordinator, "start a job's coordinator by hand" },
	{ "remote", cmd_remote, NULL }, /* for fermata's own use */
};

static void main_help(FILE *to)
{
	fputs("Usage: fermata COMMAND [ARGUMENTS]\n"
	      "Checkpoint and restart of unmodified programs that use RDMA, without root.\n\n", to);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (commands[i].summary)
			fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
	fputs("\nfermata COMMAND --help says more about each; fermata --version names the version.\n"
	      "FERMATA_LOG=error|warn|info|debug chooses what is said on standard error.\n", to);
}

static void main_log_level(void)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	const char *wanted = getenv("FERMATA_LOG");

	for (size_t i = 0; wanted && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(wanted, names[i]) || (wanted[0] == (char)('0' + i) && !wanted[1]))
			log_level = (enum log_level)i;
}

int main(int argc, char **argv)
{
	main_log_level();
	if (argc < 2) {
		main_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("fermata " FERMATA_VERSION);
		return CLI_OK;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		main_help(stdout);
		return CLI_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	log_error("%s: no such command; fermata --help lists them", argv[1]);
	return CLI_USAGE;
}
