/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a child that had ended, and was not waited for, ends again, with the same status. No state.
 *
 * WCOREDUMP() is true again where it was: the child writes a core once more, in a folder of the job's coordinator, cut short after the first page (the kernel says so of one that was cut
 * short, too), and its parent removes it. Not so where cores go to a program or to a folder of the system's (core(5)), which would take this one for the program's: then it is lost, which is
 * said. Where there was none, none is written, nor given to such a program, which gets one also of who may write none.
 */
#include "cli/restart.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CORE_PATTERN "/proc/sys/kernel/core_pattern"
#define CORE_ROOM 4096 /* bytes: the kernel's ELF_EXEC_PAGESIZE, less than which it does not begin */

static void core_folder(const struct restart *r, uint32_t pid, char ret[static PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%s/core-%u", r->rundir, pid);
}

static bool cores_go_to_own_folder(void)
{
	char first = '/';
	int fd = open(CORE_PATTERN, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (read(fd, &first, 1) != 1)
			first = '/';
		close(fd);
	}
	return !strchr("/|@", first);
}

static bool enter_core_folder(const struct restart *r, uint32_t pid)
{
	char folder[PATH_MAX];

	core_folder(r, pid, folder);
	return mkdir(folder, S_IRWXU) == 0 && chdir(folder) == 0;
}

_Noreturn void restart_end_as(const struct restart *r, uint32_t pid, uint32_t status)
{
	const bool core = WCOREDUMP(status) && cores_go_to_own_folder() && enter_core_folder(r, pid);
	const struct rlimit room = { core ? CORE_ROOM : 0, core ? CORE_ROOM : 0 };
	sigset_t set;

	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	setrlimit(RLIMIT_CORE, &room);
	prctl(PR_SET_DUMPABLE, core, 0, 0, 0);
	signal(WTERMSIG(status), SIG_DFL);
	sigfillset(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	kill(getpid(), WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

void restart_ended_seen(const struct restart *r, uint32_t pid, uint32_t status, bool dumped)
{
	char folder[PATH_MAX];
	const struct dirent *e;
	DIR *d;

	if (!WIFSIGNALED(status) || !WCOREDUMP(status))
		return;
	core_folder(r, pid, folder);
	d = opendir(folder);
	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0); /* but . and .. */
	if (d)
		closedir(d);
	rmdir(folder);
	if (!dumped)
		warnx("process %u, which had ended, and has not been waited for: that it had dumped core is not told any more", pid);
}
