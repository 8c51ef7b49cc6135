/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When the job's processes were begun. Of one that a restart has made the kernel says that it was begun then (proc_pid_stat(5), starttime). Who remembers a process by its number and that
 * time, as java.lang.Process and psutil do, takes it for another one after a restart, and no longer ends it, say. So who opens /proc/PID/stat reads when the process was first begun:
 *
 *   WRITE      each records when it was begun, as it has been known in this life
 *   RECREATE   publishes that, and what the kernel says now; one process asks for all
 *   PUBLISH    and writes the list for everybody (agent/common.c), also for programs that are begun later
 *
 * A process that has the number of one of the list, but was begun at another moment, is none of them. What is opened is a copy as of then: who keeps it open, and reads it again, does not see what
 * changes. So /proc/self/stat, by which nobody remembers a process, is the kernel's, and so is what is opened otherwise than by open, openat, fopen and a path from the root. Owns, in a restart, who leads.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/process/process.h"

#define LIST "begun"
#define STARTTIME 22 /* its field, in ticks of CLOCK_BOOTTIME */
#define STAT_SIZE 2048

struct process_began { /* a name's value, and an entry of the list */
	uint32_t host, pid;
	uint64_t was, is;
};
static const char key[8] = LIST;

/* Of the process' /proc/PID/stat, which is read into @text; NULL: it is not there. */
static char *read_began(uint32_t pid, char text[STAT_SIZE], uint64_t *ret)
{
	char path[32], *p;

	fm_format(path, sizeof(path), "/proc/%u/stat", pid);
	p = raw_read_file(path, text, STAT_SIZE) > 0 ? raw_process_field(text, STARTTIME) : NULL;
	*ret = 0;
	for (const char *d = p; d && *d >= '0' && *d <= '9'; d++)
		*ret = *ret * 10 + (uint64_t)(*d - '0');
	return p;
}

/* When process @pid was first begun, of which the kernel says @is. 0: no restart has made it. */
static uint64_t look_up(uint32_t pid, uint64_t is)
{
	struct process_began some[128];
	uint64_t at = 0;
	long n;

	for (; (n = fermata_common_read(LIST, at, some, sizeof(some))) > 0; at += (uint64_t)n)
		for (long i = 0; i < n / (long)sizeof(some[0]); i++)
			if (some[i].pid == pid && some[i].is == is && some[i].host == fermata_host())
				return some[i].was;
	return 0;
}

uint64_t process_began(void)
{
	char text[STAT_SIZE];
	uint64_t is, was;

	if (!read_began(fermata_pid(), text, &is))
		return 0;
	was = look_up(fermata_pid(), is);
	return was ? was : is;
}

/* ---- restart ---- */

static bool leads;

int process_began_recreate(uint64_t was)
{
	struct process_began b = { .host = fermata_host(), .pid = fermata_pid(), .was = was };
	char text[STAT_SIZE];
	int r;

	leads = false;
	if (!was || !read_began(b.pid, text, &b.is))
		return 0;
	r = fermata_job_publish(key, sizeof(key), &b, sizeof(b));
	if (!r)
		r = fermata_common_lead(LIST);
	leads = r == 1;
	return r == 1 ? fermata_job_ask(key, sizeof(key)) : r;
}

int process_began_learn(void)
{
	struct process_began *all;
	unsigned int count = 0;
	const void *value;
	size_t len;
	int r;

	if (!leads)
		return 0;
	while (fermata_job_resolve(key, sizeof(key), count, &len))
		count++;
	all = fermata_alloc(count * sizeof(*all));
	if (count && !all)
		return fermata_fail(-ENOMEM, "no memory for when %u processes were begun", count);
	for (unsigned int i = 0; i < count; i++)
		if ((value = fermata_job_resolve(key, sizeof(key), i, &len)) && len == sizeof(*all))
			memcpy(&all[i], value, len);
	r = fermata_common_write(LIST, all, count * sizeof(*all));
	fermata_free(all);
	return r;
}

/* ---- the program's ---- */

/* "/proc/PID/stat": its number, or 0. */
static uint32_t stat_of(const char *path)
{
	static const char proc[] = "/proc/";
	uint32_t pid = 0;

	if (strncmp(path, proc, sizeof(proc) - 1) != 0)
		return 0;
	for (path += sizeof(proc) - 1; *path >= '0' && *path <= '9' && pid < UINT32_MAX / 16; path++)
		pid = pid * 10 + (uint32_t)(*path - '0');
	return strcmp(path, "/stat") == 0 ? pid : 0;
}

/* A descriptor for reading of what @text says, with @was in place of the number at @at. */
static int make_copy(const char *text, const char *at, uint64_t was, int flags)
{
	char number[24], path[40];
	const char *rest = at + strspn(at, "0123456789");
	size_t before = (size_t)(at - text), n = fm_format(number, sizeof(number), "%lu", (unsigned long)was);
	int fd = (int)RAW2(SYS_memfd_create, "stat", 1 /* MFD_CLOEXEC */), r;

	if (fd < 0)
		return fd;
	r = raw_pwrite_all(fd, text, before, 0);
	r = r < 0 ? r : raw_pwrite_all(fd, number, n, before);
	r = r < 0 ? r : raw_pwrite_all(fd, rest, strlen(rest), before + n);
	fm_format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	r = r < 0 ? r : raw_open(path, flags, 0);
	raw_close(fd);
	return r;
}

static int open_stat(uint32_t pid, int flags)
{
	char text[STAT_SIZE], *at;
	uint64_t is, was;

	at = read_began(pid, text, &is);
	was = at ? look_up(pid, is) : 0;
	return was ? make_copy(text, at, was, flags) : FERMATA_NOT_MINE;
}

int process_began_open(const char *path, int flags)
{
	uint32_t pid = stat_of(path);
	int r;

	if (!pid || (flags & (O_ACCMODE | O_PATH)) != O_RDONLY || !fermata_active())
		return FERMATA_NOT_MINE;
	fermata_enter();
	r = open_stat(pid, flags);
	fermata_leave();
	return r;
}
