/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The children of this process, living or waiting to be waited for, from the kernel: /proc/self/task/TID/children (CONFIG_PROC_CHILDREN), or a pass over
 * /proc where that is absent. Called while the program's threads stand still, so no child is born meanwhile; one that ends
 * can shift the kernel's list while it is read, so it is read until it reads the same twice.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/scratch.h"

#define ZOMBIES_FIRST 256u

struct list_of {
	bool zombies; /* these, not the living */
	uint32_t *pids, room, count;
	int error;
};

enum state { GONE, LIVING, DEAD };

/*
 * What waitid says, not the state in /proc: the leader of a process shows as a zombie while its last threads still end, when
 * it cannot be waited for yet, or live on.
 */
static enum state state_of(uint32_t pid, uint32_t *ret_status)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	if (RAW5(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL) < 0)
		return GONE;
	if (!info.si_pid)
		return LIVING;
	*ret_status = info.si_code == CLD_EXITED ? ((uint32_t)info.si_status & 0xff) << 8 :
						   (uint32_t)info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
	return DEAD;
}

static void add(struct list_of *l, uint32_t pid)
{
	uint32_t status;

	if (state_of(pid, &status) != (l->zombies ? DEAD : LIVING))
		return;
	if (l->count < l->room)
		l->pids[l->count] = pid;
	l->count++;
}

static int of_task(const char *tid, void *arg)
{
	struct list_of *l = arg;
	char path[64], buf[16384];
	long n, i;
	uint32_t pid = 0;

	fm_format(path, sizeof(path), "/proc/self/task/%s/children", tid);
	n = raw_read_file(path, buf, sizeof(buf));
	if (n < 0)
		return l->error = (int)n;
	for (i = 0; i < n; i++) {
		if (buf[i] >= '0' && buf[i] <= '9') {
			pid = pid * 10 + (uint32_t)(buf[i] - '0');
		} else if (pid) {
			add(l, pid);
			pid = 0;
		}
	}
	return 0;
}

/* A process of /proc: ours if the fourth field of its stat is our pid. */
static int of_proc(const char *name, void *arg)
{
	char path[64], buf[512], *p;
	uint32_t pid = 0, ppid = 0;

	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9')
			return 0;
		pid = pid * 10 + (uint32_t)(*c - '0');
	}
	fm_format(path, sizeof(path), "/proc/%s/stat", name);
	if (raw_read_file(path, buf, sizeof(buf)) < 0 || !(p = strrchr(buf, ')')))
		return 0;
	for (p += 4; *p >= '0' && *p <= '9'; p++)
		ppid = ppid * 10 + (uint32_t)(*p - '0');
	if (ppid == agent.pid)
		add(arg, pid);
	return 0;
}

static int once(struct list_of *l)
{
	int r;

	l->count = 0;
	l->error = 0;
	r = raw_dir_each("/proc/self/task", of_task, l);
	if (!r)
		return 0;
	if (r != -ENOENT)
		return r;
	l->count = 0;
	return raw_dir_each("/proc", of_proc, l);
}

static int list(struct list_of *l)
{
	uint32_t before;
	int r = once(l);

	do {
		before = l->count;
		if (!r)
			r = once(l);
	} while (!r && l->count != before);
	return r < 0 ? r : (int)l->count;
}

int children_list(uint32_t *pids, uint32_t room)
{
	struct list_of l = { .pids = pids, .room = room };

	return list(&l);
}

int children_zombies(struct image_zombie **ret)
{
	struct list_of l = { .zombies = true, .room = ZOMBIES_FIRST };
	struct image_zombie *z;
	uint32_t n = 0;
	int r;

	for (;;) {
		l.pids = scratch_grow(NULL, 0, l.room * sizeof(*l.pids));
		if (!l.pids)
			return -ENOMEM;
		r = list(&l);
		if (r < 0)
			return r;
		if (l.count <= l.room)
			break;
		l.room = l.count * 2;
	}
	z = scratch_grow(NULL, 0, (l.count + 1) * sizeof(*z));
	if (!z)
		return -ENOMEM;
	for (uint32_t i = 0; i < l.count; i++)
		if (state_of(l.pids[i], &z[n].status) == DEAD)
			z[n++].pid = l.pids[i];
	*ret = z;
	return (int)n;
}
