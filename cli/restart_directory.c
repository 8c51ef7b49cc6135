/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The working directory of a process. One that had been deleted is made once more, entered, and deleted: where it was if that name is free and can be made, else beside it, else in
 * /tmp. No state.
 */
#include "cli/restart.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int enter_new(const char *path)
{
	int r;

	if (mkdir(path, 0777) < 0)
		return -1;
	r = chdir(path);
	rmdir(path);
	return r;
}

int restart_enter_directory(const struct image_process *p)
{
	const size_t length = strlen(p->cwd), word = strlen(" (deleted)");
	char was[sizeof(p->cwd)], beside[sizeof(p->cwd) + 32];
	const char *slash;

	if (!p->cwd_deleted || length <= word)
		return chdir(p->cwd);
	snprintf(was, sizeof(was), "%.*s", (int)(length - word), p->cwd);
	slash = strrchr(was, '/');
	snprintf(beside, sizeof(beside), "%.*s/.fermata-cwd-%u", (int)(slash ? slash - was : 0), was, p->pid);
	if (enter_new(was) == 0 || enter_new(beside) == 0)
		return 0;
	snprintf(beside, sizeof(beside), "/tmp/.fermata-cwd-%u", p->pid);
	return enter_new(beside);
}
