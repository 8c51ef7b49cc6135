/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which number the kernel gives the next task of this pid namespace, without any right to say so.
 *
 * Numbers are handed out in ascending order; those in use are left out; behind the last one they begin again at 300 (kernel/pid.c: alloc_pid,
 * RESERVED_PIDS). The last one that was handed out can be read (ns_last_pid), and a clone that fails late, since its pidfd cannot be stored, has used up one
 * (kernel/fork.c: copy_process). So one walks up to the numbers in front of the wanted one. Others take numbers meanwhile: the last few are therefore
 * used up by real tasks, each of which looks at what it has got, and ends if that is not it. If it was passed, one walks round again. No state.
 */
#pragma once

#include <errno.h>
#include <linux/sched.h>
#include <stdint.h>

#include "base/sys.h"

#define PID_WALK_RESERVED 300u /* smaller ones are handed out once in the life of a pid namespace */
#define PID_WALK_TRIES 32u     /* when others take it in that moment: on a busy host every second time */
#define PID_WALK_ROUNDS 8u     /* when others come in between on the way */
#define PID_WALK_MARGIN 24u    /* numbers in front of the wanted one: the rest of the way is gone by tasks that end at once */

static inline long pid_walk_read(const char *path)
{
	char text[24];
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	long n = fd < 0 ? fd : raw_read(fd, text, sizeof(text)), value = 0;

	if (fd >= 0)
		raw_close(fd);
	for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		value = value * 10 + (text[i] - '0');
	return n < 0 ? n : value;
}

/* The last number that was handed out, or -errno. */
static inline long pid_walk_last(void)
{
	return pid_walk_read("/proc/sys/kernel/ns_last_pid");
}

/* Numbers end in front of this one. -errno. */
static inline long pid_walk_end(void)
{
	return pid_walk_read("/proc/sys/kernel/pid_max");
}

/* Uses up at least one number. 0 or -errno. */
static inline int pid_walk_step(void)
{
	long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_PIDFD, nowhere = 8;
	long r = RAW5(SYS_clone, flags, 0, nowhere, 0, 0);

	if (r == 0)
		RAW1(SYS_exit, 0); /* cannot be: the page at 0 is nobody's */
	return r == -EFAULT || r == -EMFILE || r == -ENFILE ? 0 : r < 0 ? (int)r : -ENOTRECOVERABLE;
}

/* Is there a task of this number? One that only names a group or a session is not seen. */
static inline int pid_walk_is_used(uint32_t id)
{
	return RAW1(SYS_sched_getscheduler, id) != -ESRCH;
}

/* Steps from @last towards the margin before @id; numbers in use make them longer than they look, so half of the way at most. 0: it is there. */
static inline long pid_walk_steps(long last, long id, long end)
{
	long way = last < id ? id - 1 - last : end - last + (id > (long)PID_WALK_RESERVED ? id - (long)PID_WALK_RESERVED : 0);

	if (last < id && way <= (long)PID_WALK_MARGIN)
		return 0;
	return way > (long)(2 * PID_WALK_MARGIN) ? way / 2 : 1;
}

/*
 * The next tasks get numbers up to @id: one of the PID_WALK_MARGIN in front of it, if they are free, or @id. 0; -EBUSY: the kernel does not come by
 * it any more; or another -errno. A way all around takes some 10 us times pid_max: @fd, if not negative, gets the byte @mark now and then.
 */
static inline int pid_walk_near(uint32_t id, int fd, char mark)
{
	long end = pid_walk_end(), before = 0, last, steps;
	unsigned int rounds = 0;
	int err = end < 0 ? (int)end : 0;

	while (!err) {
		last = pid_walk_last();
		if (last < 0)
			return (int)last;
		rounds += last < before;
		before = last;
		if (rounds > PID_WALK_ROUNDS || (last >= (long)id && id < PID_WALK_RESERVED))
			return -EBUSY;
		steps = pid_walk_steps(last, (long)id, end);
		if (!steps)
			return 0;
		for (; steps && !err; steps--) {
			if (steps % 65536 == 0 && fd >= 0)
				raw_write(fd, &mark, 1);
			err = pid_walk_step();
		}
	}
	return err;
}
