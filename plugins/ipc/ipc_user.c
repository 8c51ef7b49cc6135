/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has used a System V object, by what the kernel says of it: the process that was the last to change a semaphore, to send or to receive. Its number stays when it has ended
 * (its struct pid keeps it), and may be another process' by now. So a process counts only if it had begun by the time of the object's last use.
 *
 * The time of use is the real-time clock's, in seconds; a process' begin is known by CLOCK_BOOTTIME (proc_pid_stat(5), starttime). What lies between both is noted at the
 * begin of the program, too: after a step of the clock the lesser counts, so that a process is never taken for younger than it is.
 *
 * Owns the note, which is this life's from its first hook on.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "plugins/ipc/ipc.h"

#define SECOND_NS 1000000000
#define TICK_NS (SECOND_NS / 100) /* USER_HZ, of x86-64 and arm64 */

static int64_t noted_ns;

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	raw_clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t real_behind_boot(void)
{
	return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME);
}

int ipc_user_init(void)
{
	noted_ns = real_behind_boot();
	return 0;
}

/* Since when process @pid runs, by CLOCK_BOOTTIME; 0: it has ended, or is not to be seen. */
static int64_t began_ns(int32_t pid)
{
	int64_t ticks = 0;
	char path[32], text[1024], *state, *p;

	fm_format(path, sizeof(path), "/proc/%d/stat", pid);
	if (pid <= 0 || raw_read_file(path, text, sizeof(text)) < 0 || !(state = raw_process_field(text, 3)) || *state == 'Z' || *state == 'X' ||
	    !(p = raw_process_field(text, 22)))
		return 0;
	while (*p >= '0' && *p <= '9')
		ticks = ticks * 10 + (*p++ - '0');
	return ticks * TICK_NS;
}

/* Whether who began at @began may have used an object whose last use was in second @when. The kernel may tell the second before, until its next tick. */
static bool had_begun(int64_t began, int64_t when)
{
	int64_t now = real_behind_boot();

	return (began + (now < noted_ns ? now : noted_ns)) / SECOND_NS <= when + 1;
}

/* This process, where the kernel names its number. Without /proc, or if its first thread has ended, it counts. */
static bool we_may_have(int64_t when)
{
	int64_t began = began_ns((int32_t)fermata_pid());

	return !began || had_begun(began, when);
}

int64_t ipc_set_used_s(const struct semid_ds *set)
{
	return set->sem_otime > set->sem_ctime ? set->sem_otime : set->sem_ctime;
}

bool ipc_was_last_at(int kind, int32_t id, const union ipc_state *s)
{
	int32_t own = (int32_t)fermata_pid();

	if (kind == FERMATA_SYSV_QUEUES)
		return (s->queue.msg_lspid == own && we_may_have(s->queue.msg_stime)) || (s->queue.msg_lrpid == own && we_may_have(s->queue.msg_rtime));
	for (unsigned long i = 0; i < s->set.sem_nsems; i++) {
		long pid = RAW4(SYS_semctl, id, i, GETPID, 0);

		if (pid == own || pid < 0)
			return pid == own && we_may_have(ipc_set_used_s(&s->set));
	}
	return false;
}

int ipc_check_user(const struct ipc_object *o, int32_t pid, int64_t when)
{
	const struct ipc_publication *p;
	int64_t began;

	if (fermata_in_capsule())
		return 0;
	for (unsigned int i = 0; (p = ipc_published(o, i)); i++)
		if ((int32_t)p->pid == pid)
			return 0;
	began = began_ns(pid);
	if (!began || !had_begun(began, when))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "%s %d is used by process %d, which is not of the job", ipc_name(o->kind), o->id, pid);
}
