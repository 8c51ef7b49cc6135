/* SPDX-License-Identifier: BSD-2-Clause */
/* See begun.h. No state. */
#include "base/begun.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/host_id.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"

#define LINE_MAX_LENGTH 64u /* of a line with one number */
#define IO_PROCESS 1	    /* IOPRIO_WHO_PROCESS: a thread */
#define IO_CLASS_SHIFT 13
#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif

static uint64_t hash(uint64_t h, uint64_t n)
{
	return (h ^ n) * 0x100000001b3u; /* FNV-1a, a number at a time */
}

/* Of the processors' numbers: how many bytes a kernel has for the set is not part of it. */
uint64_t begun_cpus(const uint8_t *mask, size_t length)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t cpu = 0; cpu < length * 8; cpu++)
		if (mask[cpu / 8] & 1u << cpu % 8)
			h = hash(h, cpu + 1);
	return h;
}

uint64_t begun_scheduling(const struct begun_attributes *a)
{
	return a->policy | (a->flags & 1 /* SCHED_FLAG_RESET_ON_FORK */) << 15 | (uint64_t)a->priority << 16;
}

/* That of sched_getattr is 0 with the policies that do not look at it. */
int begun_nice(uint32_t tid)
{
	long r = RAW2(SYS_getpriority, PRIO_PROCESS, tid);

	return r < 0 ? 0 : (int)(20 - r);
}

/* Kernels since 5.20 answer what comes of the nice value where nothing was set (__get_task_ioprio), others 0 or the middle of no class. */
uint32_t begun_io(uint32_t tid, const struct begun_attributes *a)
{
	enum { NONE, REALTIME, BEST_EFFORT, IDLE };
	const uint32_t level = (uint32_t)(begun_nice(tid) + 20) / 5;
	const bool realtime = a->policy == SCHED_FIFO || a->policy == SCHED_RR || a->policy == SCHED_DEADLINE;
	const uint32_t class = a->policy == SCHED_IDLE ? IDLE : realtime ? REALTIME : BEST_EFFORT;
	long r = RAW2(SYS_ioprio_get, IO_PROCESS, tid);

	return r < 0 || r >> IO_CLASS_SHIFT == NONE || r == (long)(class << IO_CLASS_SHIFT | level) ? 0 : (uint32_t)r;
}

/* By a thread that lives: the first one may have ended. */
int begun_oom(void)
{
	char text[32];
	int v = 0;

	if (raw_read_file("/proc/thread-self/oom_score_adj", text, sizeof(text)) <= 0)
		return BEGUN_OOM_UNKNOWN;
	for (const char *p = text + (text[0] == '-'); *p >= '0' && *p <= '9'; p++)
		v = v * 10 + *p - '0';
	return text[0] == '-' ? -v : v;
}

static uint64_t number_behind(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	uint64_t v = 0;

	if (!at)
		return UINT64_MAX;
	at += strlen(name);
	for (at += strspn(at, " \t"); *at >= '0' && *at <= '9'; at++)
		v = v * 10 + (uint64_t)(*at - '0');
	return *at ? v : UINT64_MAX; /* there may be more of it */
}

/* Through a window, as a process may be in any number of groups. */
uint64_t begun_number(const char *path, const char *name)
{
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	uint64_t v = UINT64_MAX;
	char text[1024];
	size_t have = 0;
	long n;

	if (fd < 0)
		return v;
	while (v == UINT64_MAX && ((n = raw_read(fd, text + have, sizeof(text) - 1 - have)) > 0 || n == -EINTR)) {
		have += n > 0 ? (size_t)n : 0;
		text[have] = 0;
		v = number_behind(text, name);
		if (have > LINE_MAX_LENGTH) {
			memmove(text, text + have - LINE_MAX_LENGTH, LINE_MAX_LENGTH);
			have = LINE_MAX_LENGTH;
		}
	}
	raw_close(fd);
	return v;
}

uint64_t begun_filters(const char *path)
{
	uint64_t n = begun_number(path, "\nSeccomp_filters:");

	return n == UINT64_MAX ? begun_number(path, "\nSeccomp:") + 1 > 1 : n; /* none, or a mode */
}

struct rights {
	uint64_t hash;
	char name[12]; /* of the line, up to its colon */
	size_t length;
	bool wanted, named;
};

static void rights_begin(struct rights *r)
{
	r->length = 0;
	r->wanted = r->named = false;
}

static void rights_name(struct rights *r)
{
	static const char *const wanted[] = { "Uid", "Gid", "Groups" };

	r->named = true;
	r->name[r->length] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		r->wanted |= !strcmp(r->name, wanted[i]);
}

static void rights_take(struct rights *r, char c)
{
	if (c == '\n') {
		rights_begin(r);
	} else if (!r->named && c == ':') {
		rights_name(r);
	} else if (!r->named) {
		r->name[r->length < sizeof(r->name) - 1 ? r->length++ : 0] = c;
	} else if (r->wanted) {
		r->hash = hash(r->hash, (uint8_t)c);
	}
}

uint64_t begun_rights(const char *path)
{
	struct rights r = { .hash = 0xcbf29ce484222325u };
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	char text[1024];
	long n;

	if (fd < 0)
		return 0;
	while ((n = raw_read(fd, text, sizeof(text))) > 0 || n == -EINTR)
		for (long i = 0; i < n; i++)
			rights_take(&r, text[i]);
	raw_close(fd);
	return r.hash;
}

/* Those that a kernel does not have, or a root directory without /proc, count as 0. */
uint64_t begun_places(const char *process)
{
	static const char *const places[] = { "ns/mnt", "ns/net", "ns/uts", "ns/ipc", "ns/user", "ns/cgroup", "ns/pid_for_children", "ns/time_for_children", "root" };
	uint64_t h = 0xcbf29ce484222325u;
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct stat st = { 0 };

		fm_format(path, sizeof(path), "%s/%s", process, places[i]);
		RAW4(SYS_newfstatat, AT_FDCWD, path, &st, 0);
		h = hash(hash(h, st.st_dev), st.st_ino);
	}
	return h;
}

static int64_t seconds(clockid_t clock)
{
	struct timespec t = { 0 };

	raw_clock_gettime(clock, &t);
	return t.tv_sec;
}

int64_t begun_earliest(const struct begun *b)
{
	int64_t counted = seconds(CLOCK_REALTIME) - (seconds(CLOCK_BOOTTIME) - b->uptime_s);

	return (counted < b->time_s ? counted : b->time_s) - 2; /* each is of whole seconds */
}

static uint32_t unless_own(long id)
{
	return id == raw_getpid() ? 0 : (uint32_t)id;
}

void begun_note(struct begun *ret)
{
	struct begun_attributes a = { 0 };
	uint8_t mask[BEGUN_CPUS_MAX];
	long n = RAW3(SYS_sched_getaffinity, 0, sizeof(mask), mask);

	RAW4(SYS_sched_getattr, 0, &a, sizeof(a), 0);
	*ret = (struct begun){ begun_cpus(mask, n > 0 ? (size_t)n : 0), begun_scheduling(&a), begun_nice(0), begun_filters("/proc/thread-self/status"),
				begun_places("/proc/thread-self"), 0, seconds(CLOCK_REALTIME), seconds(CLOCK_BOOTTIME), unless_own(RAW1(SYS_getpgid, 0)), unless_own(RAW1(SYS_getsid, 0)),
				begun_rights("/proc/thread-self/status"), begun_io(0, &a), begun_oom() };
}

void begun_entry(char *entry, uint64_t where, const struct begun *b)
{
	fm_format(entry, BEGUN_ENTRY, BEGUN_VARIABLE "%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx:%016lx", (unsigned long)where, (unsigned long)b->cpus,
		  (unsigned long)b->scheduling, (unsigned long)b->nice, (unsigned long)b->filters, (unsigned long)b->places, (unsigned long)b->unseen, (unsigned long)b->time_s,
		  (unsigned long)b->uptime_s, (unsigned long)b->pgid << 32 | b->sid, (unsigned long)b->rights, (unsigned long)b->io,
		  (unsigned long)b->oom_score_adj);
}

int begun_take(const char *value, uint64_t where, struct begun *ret)
{
	uint64_t n[13];

	for (size_t i = 0; i < ARRAY_SIZE(n); i++)
		if (!value || !(value = host_id_digits(value, &n[i])) || *value != (i < ARRAY_SIZE(n) - 1 ? ':' : 0))
			return -EINVAL;
		else
			value++;
	if (n[0] != where)
		return -EINVAL;
	*ret = (struct begun){ n[1], n[2], (int64_t)n[3], n[4], n[5], n[6], (int64_t)n[7], (int64_t)n[8], (uint32_t)(n[9] >> 32), (uint32_t)n[9], n[10], n[11], (int64_t)n[12] };
	return 0;
}
