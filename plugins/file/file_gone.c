/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file or directory below /proc/PID, opened while that process was there, which has ended since: a debugger has the memory of what it debugs open, and a
 * supervisor the directory of a child. It still says what the dead have to say (memory reads as empty, other files fail with ESRCH), but cannot be opened any
 * more: the number is nobody's or, for what belongs to a memory, that of a zombie, which has none. A restart opens the same file of a process that it makes
 * for this, and ends (base/ended.h): its offset means nothing. Owns nothing between calls.
 *
 * A process of which a thread has ended is not meant: its files show the memory that the others have.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/ended.h"
#include "base/log.h"
#include "base/open_path.h"
#include "base/sys.h"
#include "plugins/file/file.h"

static const char proc[] = "/proc/", word[] = " (deleted)";

/* The process that @path belongs to, and what of the path is behind its number; 0: of none. A directory's path ends with the kernel's word. */
static int owner(const char *path, const char **ret_rest)
{
	int pid = 0;

	if (strncmp(path, proc, sizeof(proc) - 1) != 0)
		return 0;
	for (path += sizeof(proc) - 1; *path >= '0' && *path <= '9'; path++)
		pid = pid * 10 + (*path - '0');
	*ret_rest = path;
	return *path && *path != '/' && *path != ' ' ? 0 : pid;
}

static int count(const char *name, void *arg)
{
	*(int *)arg += name[0] != '.';
	return 0;
}

/* One that /proc does not show may be there all the same (its option hidepid). */
static bool has_ended(int pid)
{
	char path[32];
	char state = raw_process_state(pid);
	int threads = 0;

	if (!state)
		return RAW2(SYS_kill, pid, 0) == -ESRCH;
	fm_format(path, sizeof(path), "/proc/%d/task", pid);
	return state == 'Z' && raw_dir_each(path, count, &threads) >= 0 && threads <= 1;
}

static int can_be_opened(const struct fermata_desc *d, const char *path)
{
	int fd = raw_open(path, (int)(d->status & (O_ACCMODE | O_PATH | O_DIRECTORY)) | O_CLOEXEC, 0);

	if (fd >= 0)
		raw_close(fd);
	return fd >= 0 ? 1 : fd;
}

int file_gone_check(const struct fermata_desc *d, const char *path)
{
	const char *rest;
	struct statfs fs;
	int pid = owner(path, &rest), r;

	if (!pid || RAW2(SYS_fstatfs, d->fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return 0;
	r = path_leads_to(path, &d->st) ? can_be_opened(d, path) : 0;
	if (r == 1)
		return 0;
	return has_ended(pid) ? 1 : r;
}

struct place {
	const char *rest; /* of the path, behind the number */
	int flags;
};

static int open_below(int pid, void *arg)
{
	static const char task[] = "/task/";
	const struct place *p = arg;
	const char *rest = p->rest;
	char path[FILE_PATH_MAX];
	size_t n;

	if (strncmp(rest, task, sizeof(task) - 1) != 0) {
		n = fm_format(path, sizeof(path), "/proc/%d%s", pid, rest);
	} else {
		rest += sizeof(task) - 1;
		n = fm_format(path, sizeof(path), "/proc/%d/task/%d%s", pid, pid, rest + strspn(rest, "0123456789"));
	}
	if (n > sizeof(word) && n < sizeof(path) && !strcmp(path + n - (sizeof(word) - 1), word))
		path[n - (sizeof(word) - 1)] = 0;
	return raw_open(path, p->flags, 0);
}

int file_gone_open(const char *path, int flags)
{
	struct place p = { .flags = flags };

	return owner(path, &p.rest) ? ended_child_open(open_below, &p) : -EBADMSG;
}
