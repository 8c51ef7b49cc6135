/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exec of ssh or rsh: `fermata remote` is begun in its place, so that what is started on the other host comes under the job (cli/remote.c).
 * Whether it does is said there; here only the program's name is looked at.
 *
 *   execve("/usr/bin/ssh", {"ssh", "b", "cmd"})  ->  BINDIR/fermata remote /usr/bin/ssh ssh b cmd
 *
 * What is begun there is outside of control until it knows what it becomes, and so is the real ssh, which it may start: FERMATA_APART tells the
 * agent to let it be (main.c). The connection to the coordinator is handed on as in any exec: as long as its member says nothing no SUSPEND
 * ends, so a checkpoint waits until the other host has answered. FERMATA_REMOTE=no leaves ssh alone. No state.
 */
#include "agent/exec_remote.h"

#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

/* As it is looked for: @search, along PATH. */
static const char *place(const char *file, bool search)
{
	const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;

	if (strcmp(base, "ssh") && strcmp(base, "rsh"))
		return NULL;
	if (slash || search)
		return file;
	return base[0] == 's' ? "./ssh" : "./rsh";
}

static bool is_wanted(char *const *env)
{
	for (; env && *env; env++)
		if (!strcmp(*env, "FERMATA_REMOTE=no"))
			return false;
	return true;
}

bool exec_remote(const char **file, bool search, char *const argv[], char **env, char **out, char command[EXEC_REMOTE_PATH])
{
	const char *real = place(*file, search);
	size_t n = 0;

	if (!real || !argv || !argv[0] || !agent.libdir[0] || !is_wanted(env))
		return false;
	if (strchr(real, '/') && RAW3(SYS_faccessat, AT_FDCWD, real, X_OK) < 0)
		return false;
	fm_format(command, EXEC_REMOTE_PATH, "%s/../bin/fermata", agent.libdir);
	if (RAW3(SYS_faccessat, AT_FDCWD, command, X_OK) < 0)
		return false;
	*file = command;
	out[n++] = (char *)"fermata";
	out[n++] = (char *)"remote";
	out[n++] = (char *)real;
	for (size_t i = 0; argv[i]; i++)
		out[n++] = argv[i];
	out[n] = NULL;
	for (n = 0; env[n]; n++)
		;
	env[n] = (char *)"FERMATA_APART=1";
	env[n + 1] = NULL;
	return true;
}
