/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has to be done with a queue by another process than this one: to close any descriptor of a queue takes back what the process has registered for it (mq_notify); and what is taken out of a
 * queue has to go back, though this process be killed. Such a process has our memory and our descriptors, a session of its own, and tells nobody of its end but us.
 *
 * Owns nothing between calls.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/arch/x86_64/thread.h"
#include "base/log.h"
#include "plugins/mqueue/mqueue.h"

#define STACK 65536

struct task {
	void (*fn)(void *arg);
	void *arg;
};

static void run(void *arg)
{
	const struct task *t = arg;

	RAW0(SYS_setsid);
	t->fn(t->arg);
}

int mqueue_apart(void (*fn)(void *arg), void *arg)
{
	char *stack = raw_mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct task task = { fn, arg };
	uint32_t unused = 0;
	long pid, r;

	if (raw_is_error(stack))
		return (int)(long)stack;
	pid = arch_thread_clone(CLONE_VM | CLONE_FILES | CLONE_FS, stack + STACK, &unused, &unused, NULL, run, &task);
	r = pid;
	while (pid > 0 && (r = RAW4(SYS_wait4, pid, NULL, __WALL, NULL)) == -EINTR)
		;
	raw_munmap(stack, STACK);
	return r < 0 ? (int)r : 0;
}

int mqueue_open(const struct mqueue *q, int flags)
{
	char path[48];

	if (q->fd < 0)
		return (int)RAW4(SYS_mq_open, q->name, flags | O_NONBLOCK | O_CLOEXEC, 0, NULL);
	fm_format(path, sizeof(path), "/proc/thread-self/fd/%d", q->fd);
	return raw_open(path, flags | O_NONBLOCK | O_CLOEXEC, 0);
}

struct look {
	const struct mqueue *queue;
	struct stat st;
	char text[128];
	int error;
};

static void look(void *arg)
{
	struct look *l = arg;
	int fd = mqueue_open(l->queue, O_RDONLY);

	l->error = fd < 0 ? fd : (int)RAW2(SYS_fstat, fd, &l->st);
	if (!l->error && raw_pread(fd, l->text, sizeof(l->text) - 1, 0) < 0)
		l->error = -EIO;
	if (fd >= 0)
		raw_close(fd);
}

int mqueue_look(const struct mqueue *q, struct stat *ret, int *ret_notified)
{
	struct look l = { .queue = q };
	int r = mqueue_apart(look, &l);
	const char *p = strstr(l.text, "NOTIFY_PID:");

	r = r ? r : l.error ? l.error : p ? 0 : -EPROTO;
	if (r)
		return r;
	*ret = l.st;
	*ret_notified = 0;
	for (p += 11; *p >= '0' && *p <= '9'; p++)
		*ret_notified = *ret_notified * 10 + *p - '0';
	return 0;
}
