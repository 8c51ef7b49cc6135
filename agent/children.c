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

static void add(struct children *l, uint32_t pid)
{
	struct image_zombie z = { .pid = pid };
	enum state s = state_of(pid, &z.status);

	if (s == LIVING && l->living_count++ < l->living_room)
		l->living[l->living_count - 1] = pid;
	if (s == DEAD && l->dead_count++ < l->dead_room)
		l->dead[l->dead_count - 1] = z;
}

static int of_task(const char *tid, void *arg)
{
	struct children *l = arg;
	char path[64], buf[16384];
	long n, i;
	uint32_t pid = 0;

	fm_format(path, sizeof(path), "/proc/self/task/%s/children", tid);
	n = raw_read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
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

static int once(struct children *l)
{
	int r;

	l->living_count = l->dead_count = 0;
	r = raw_dir_each("/proc/self/task", of_task, l);
	if (r != -ENOENT)
		return r;
	l->living_count = l->dead_count = 0;
	return raw_dir_each("/proc", of_proc, l);
}

int children_list(struct children *ret)
{
	uint32_t living, dead;
	int r = once(ret);

	do {
		living = ret->living_count;
		dead = ret->dead_count;
		if (r >= 0)
			r = once(ret);
	} while (r >= 0 && (ret->living_count != living || ret->dead_count != dead));
	return r < 0 ? r : 0;
}

int children_zombies(struct image_zombie **ret)
{
	struct children l = { .dead_room = ZOMBIES_FIRST };
	int r;

	for (;;) {
		l.dead = scratch_grow(NULL, 0, l.dead_room * sizeof(*l.dead));
		if (!l.dead)
			return -ENOMEM;
		r = children_list(&l);
		if (r < 0)
			return r;
		if (l.dead_count <= l.dead_room)
			break;
		l.dead_room = l.dead_count * 2;
	}
	*ret = l.dead;
	return (int)l.dead_count;
}
