/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processor time, and what else getrusage(2) counts, go on over a restart: for the kernel it is a new process, which has used nothing yet. A thread notes what it has used when it stops, the
 * checkpoint thread what the process has, when all stand, so it is no less than the program can have seen; after a restart the wrappers (wrap_spent.c) add that. What the restart itself takes counts as well.
 *
 * Owns what is to be added: of the process and its children in words that change while all threads stand, of a thread in its own memory, and of all threads in a table by their
 * ids, for clocks of other threads (pthread_getcpuclockid). A thread that is made later, with an id of the table, is seen by others with what the earlier one had; by itself it is not.
 *
 * Not added: to what wait4 says of a child, and so to what its parent's children have used, when it ends; to /proc; to moments of processor time that a timer is set to.
 */
#include <stddef.h>
#include <string.h>
#include <sys/times.h>
#include <time.h>

#include "agent/agent.h"

static struct spent process, process_noted;
static struct rusage children, children_noted;
static int64_t ticks, ticks_noted; /* of times(2) */
static __thread struct spent thread __attribute__((tls_model("initial-exec")));

static struct spent_entry {
	int tid;
	uint64_t cpu_ns;
} *table;
static uint32_t table_count;
static bool any; /* it has been restarted */

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t = { 0 };

	RAW2(SYS_clock_gettime, id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void add_time(struct timeval *to, const struct timeval *more)
{
	to->tv_sec += more->tv_sec;
	to->tv_usec += more->tv_usec;
	if (to->tv_usec >= 1000000) {
		to->tv_sec++;
		to->tv_usec -= 1000000;
	}
}

static void add(struct rusage *to, const struct rusage *more)
{
	long a[(sizeof(*to) - offsetof(struct rusage, ru_maxrss)) / sizeof(long)], b[ARRAY_SIZE(a)];

	add_time(&to->ru_utime, &more->ru_utime);
	add_time(&to->ru_stime, &more->ru_stime);
	memcpy(a, &to->ru_maxrss, sizeof(a));
	memcpy(b, &more->ru_maxrss, sizeof(b));
	a[0] = a[0] > b[0] ? a[0] : b[0]; /* the most memory; all the others are counts */
	for (size_t i = 1; i < ARRAY_SIZE(a); i++)
		a[i] += b[i];
	memcpy(&to->ru_maxrss, a, sizeof(a));
}

static void take(struct spent *ret, int who, const struct spent *before)
{
	memset(ret, 0, sizeof(*ret));
	RAW2(SYS_getrusage, who, &ret->usage);
	add(&ret->usage, &before->usage);
	ret->cpu_ns = before->cpu_ns + clock_ns(who == RUSAGE_THREAD ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID);
}

void spent_note_thread(struct spent *ret)
{
	take(ret, RUSAGE_THREAD, &thread);
}

void spent_thread_restarted(const struct spent *was)
{
	thread = *was;
}

static int64_t ticks_now(void)
{
	struct tms unused;

	return RAW1(SYS_times, &unused);
}

void spent_note(void)
{
	take(&process_noted, RUSAGE_SELF, &process);
	memset(&children_noted, 0, sizeof(children_noted));
	RAW2(SYS_getrusage, RUSAGE_CHILDREN, &children_noted);
	add(&children_noted, &children);
	ticks_noted = ticks_now() + ticks;
}

static void make_table(void)
{
	uint32_t count = 0;
	struct stop_thread *t;

	while (stop_thread_at(count))
		count++;
	fermata_free(table);
	table = fermata_alloc(count * sizeof(*table));
	table_count = 0;
	for (uint32_t i = 0; table && (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_STOPPED)
			table[table_count++] = (struct spent_entry){ t->tid, t->spent.cpu_ns };
}

void spent_restarted(void)
{
	process = process_noted;
	children = children_noted;
	ticks = ticks_noted - ticks_now();
	make_table();
	any = true;
}

void spent_forked(void)
{
	any = false;
	memset(&process, 0, sizeof(process));
	memset(&children, 0, sizeof(children));
	memset(&thread, 0, sizeof(thread));
	table_count = 0;
}

static uint64_t of_thread(int tid)
{
	uint64_t ns = 0;

	if (!tid || tid == raw_gettid())
		return thread.cpu_ns;
	for (uint32_t i = 0; i < table_count && !ns; i++)
		if (table[i].tid == tid)
			ns = table[i].cpu_ns;
	return ns;
}

/* Of another process or thread: the id's complement above three bits, of which 4 says that it is a thread's, and the others what is counted (kernel/time/posix-cpu-timers.c). */
uint64_t spent_cpu_ns(int clock)
{
	int id = ~(clock >> 3);

	if (clock == CLOCK_PROCESS_CPUTIME_ID)
		return process.cpu_ns;
	if (clock == CLOCK_THREAD_CPUTIME_ID)
		return thread.cpu_ns;
	if (clock >= 0 || (clock & 3) != 2)
		return 0;
	if (clock & 4)
		return of_thread(id);
	return !id || id == (int)agent.pid ? process.cpu_ns : 0;
}

void spent_add(struct rusage *to, int who)
{
	if (likely(!any))
		return;
	if (who == RUSAGE_SELF)
		add(to, &process.usage);
	else if (who == RUSAGE_CHILDREN)
		add(to, &children);
	else if (who == RUSAGE_THREAD)
		add(to, &thread.usage);
}

int64_t spent_ticks(void)
{
	return ticks;
}
