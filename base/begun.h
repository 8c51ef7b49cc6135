/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a job's programs have from whoever began it, or restarts it: where they may run and how, what filters their system calls, in which namespaces and below which root directory they are.
 * What a program has set itself is what differs from that, and only that is the program's own at a restart: a batch system gives a restart other processors than it gave the launch. In the
 * environment of what they begin, with what those have inherited and cannot see (enum begun_unseen):
 *
 *   FERMATA_BEGUN=<where: 16 hex digits>:<cpus: 16>:<class: 16>:<nice: 16>:<filters: 16>:<places: 16>:<unseen: 16>:<time: 16>:<uptime: 16>:<group and session: 16>:<rights: 16>:<I/O priority: 16>:<oom_score_adj: 16>
 *
 * As FERMATA_HOST (host_id.h) it is true only where it was made.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BEGUN_VARIABLE "FERMATA_BEGUN="
#define BEGUN_ENTRY (sizeof(BEGUN_VARIABLE) + 13 * 17)
#define BEGUN_CPUS_MAX 1024u /* bytes: more than any kernel has */

struct begun {
	uint64_t cpus;	     /* a number of the set of processors */
	uint64_t scheduling; /* begun_scheduling() */
	int64_t nice;
	uint64_t filters; /* of seccomp */
	uint64_t places;  /* begun_places() */
	uint64_t unseen;  /* enum begun_unseen: of the program's own */
	int64_t time_s;   /* when that was: CLOCK_REALTIME */
	int64_t uptime_s; /* CLOCK_BOOTTIME */
	uint32_t pgid, sid; /* 0: led by whom is begun, or not of its pid namespace */
	uint64_t rights; /* begun_rights() */
	uint64_t io;	 /* begun_io() */
	int64_t oom_score_adj; /* begun_oom() */
};

/* What a process has confined itself to, for good, and its children, over exec too, which the kernel does not tell of. */
enum begun_unseen {
	BEGUN_LANDLOCK = 1,
	BEGUN_SECUREBITS = 2,
	BEGUN_NAMESPACE = 4, /* of one of its threads */
	BEGUN_DISPATCH = 8, /* of its system calls: of a thread, up to exec */
	BEGUN_KEYS = 16, /* in the keyring of a thread or of the process: up to exec */
	BEGUN_SESSION_KEYRING = 32,
	BEGUN_SESSION_KEYS = 64, /* put into that which it was begun with */
	BEGUN_PROGRAMS = BEGUN_DISPATCH | BEGUN_KEYS, /* what neither a child nor the next program has */
};

struct begun_attributes { /* struct sched_attr of sched_getattr(2), as it is since Linux 3.14 */
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice; /* 0 with the policies that do not look at it */
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

uint64_t begun_cpus(const uint8_t *mask, size_t length);
/* Policy, whether children get the normal one, priority; 0: the normal one. */
uint64_t begun_scheduling(const struct begun_attributes *a);
int begun_nice(uint32_t tid); /* 0: the caller's */
/* I/O priority of a thread that has policy and nice value of @a (ioprio_set(2)); 0: what follows from these. */
uint32_t begun_io(uint32_t tid, const struct begun_attributes *a);
#define BEGUN_OOM_UNKNOWN INT32_MIN
int begun_oom(void); /* of the process; BEGUN_OOM_UNKNOWN: it cannot be read (no descriptor is left) */
/* What stands behind @name, "\nNAME:", in @path, a status of /proc: UINT64_MAX if nothing does. */
uint64_t begun_number(const char *path, const char *name);
/* How many filters @path, a status of /proc, tells of; before Linux 5.9 one stands for any number. */
uint64_t begun_filters(const char *path);
/* A number of the users and groups that @path, a status of /proc, tells of. */
uint64_t begun_rights(const char *path);
/* A number of the namespaces and of the root directory of @process, a folder of /proc. */
uint64_t begun_places(const char *process);

/* What carries an earlier time of day was there before, whichever way the clock was set once since. */
int64_t begun_earliest(const struct begun *b);

void begun_note(struct begun *ret); /* what the calling thread has */
void begun_entry(char *entry, uint64_t where, const struct begun *b); /* BEGUN_ENTRY bytes; host_id_where */
/* 0, or -EINVAL: @value, what stands behind the =, is damaged or was not made @where. */
int begun_take(const char *value, uint64_t where, struct begun *ret);
