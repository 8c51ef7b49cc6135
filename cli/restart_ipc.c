/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V semaphores and message queues: made in the capsule's IPC namespace by its init, before the tree, with their old ids, keys, owners and contents. Short-lived processes with the
 * ids of those who changed a semaphore, sent or received last do the same again: the kernel goes on telling of them. The adjustments of processes (SEM_UNDO) are the agents'
 * (plugins/ipc/). Owns nothing: the records lie in the images.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/restart.h"
#include "plugins/ipc/ipc_record.h"

#define QUEUE_BYTES 16384u /* what the kernel lets a queue hold that nobody has given more */

typedef int (*entry_fn)(const struct ipc_entry *e);

/* Each entry of a record to @fn, or none: to be looked at. */
static int each_entry(const void *record, size_t length, entry_fn fn)
{
	const struct ipc_entry *e = NULL;
	int err = 0;

	if (!ipc_record_is_whole(record, length))
		return -EBADMSG;
	while (fn && length && !err && (e = ipc_record_next(record, length, e)))
		err = fn(e);
	return err;
}

static int each(const struct restart_process *p, entry_fn fn)
{
	struct image_note_view note;
	size_t cursor = 0;
	int err = 0;

	while (!err && image_next_note(p->image, &cursor, &note)) {
		const struct image_resource *r = note.data;

		if (note.type == IMAGE_NOTE_RESOURCE && r->kind == IMAGE_RESOURCE_PLAIN && !strcmp(r->plugin, "ipc"))
			err = each_entry(r + 1, r->length, fn);
	}
	return err;
}

int restart_ipc_check(const struct restart *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (each(&r->processes[i], NULL) < 0) {
			warnx("process %u: the record of its System V semaphores and message queues is damaged or of another version",
			      r->processes[i].info->pid);
			return CLI_DAMAGED;
		}
	return 0;
}

/* ---- in the capsule's init ---- */

/* Runs @fn in a process with the id @pid, if it is one. */
static int run_as(int32_t pid, int (*fn)(const void *arg, int32_t pid), const void *arg)
{
	pid_t child = pid > 1 ? restart_fork_as((uint32_t)pid) : fork();
	int status = 0;

	if (child == 0)
		_exit(-fn(arg, pid));
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECANCELED;
}

/* The next object of its kind gets this id, and is made by its creator's user. */
static int prepare(const struct ipc_owner *o, const char *next_id)
{
	char text[16];

	if ((o->cgid != getegid() && setegid(o->cgid) < 0) || (o->cuid != geteuid() && seteuid(o->cuid) < 0))
		return -errno;
	snprintf(text, sizeof(text), "%d", o->id);
	return restart_write_text(next_id, text);
}

static int said(const char *what, const struct ipc_owner *o, int err)
{
	if (err < 0)
		warnx("System V %s %d: %s", what, o->id, strerror(-err));
	return err;
}

static int set_make(const void *arg, int32_t pid)
{
	const struct ipc_set *s = arg;
	int err = prepare(&s->owner, "/proc/sys/kernel/sem_next_id"), id;

	(void)pid;
	if (err < 0)
		return err;
	id = semget(s->owner.key, (int)s->count, IPC_CREAT | IPC_EXCL | 0600);
	return id == s->owner.id ? 0 : id < 0 ? -errno : -EEXIST;
}

/* The values that @pid has left. */
static int set_values(const void *arg, int32_t pid)
{
	const struct ipc_set *s = arg;
	const struct ipc_semaphore *v = (const void *)(s + 1);

	for (uint32_t i = 0; i < s->count; i++)
		if (v[i].pid == pid && (pid || v[i].value) && semctl(s->owner.id, (int)i, SETVAL, v[i].value) < 0)
			return -errno;
	return 0;
}

static bool pid_is_first(const struct ipc_semaphore *v, uint32_t at)
{
	for (uint32_t i = 0; i < at; i++)
		if (v[i].pid == v[at].pid)
			return false;
	return true;
}

static int set_create(const struct ipc_set *s)
{
	const struct ipc_semaphore *v = (const void *)(s + 1);
	struct semid_ds d = { .sem_perm = { .uid = s->owner.uid, .gid = s->owner.gid, .mode = (unsigned short)s->owner.mode } };
	int err = run_as(0, set_make, s);

	for (uint32_t i = 0; i < s->count && !err; i++)
		if (pid_is_first(v, i))
			err = run_as(v[i].pid, set_values, s);
	if (!err && semctl(s->owner.id, 0, IPC_SET, &d) < 0)
		err = -errno;
	return said("semaphore set", &s->owner, err);
}

static int queue_make(const void *arg, int32_t pid)
{
	const struct ipc_queue *q = arg;
	int err = prepare(&q->owner, "/proc/sys/kernel/msg_next_id"), id;

	(void)pid;
	if (err < 0)
		return err;
	id = msgget(q->owner.key, IPC_CREAT | IPC_EXCL | 0600);
	return id == q->owner.id ? 0 : id < 0 ? -errno : -EEXIST;
}

/* One message that comes and goes, for the sake of who has done so. */
static int queue_pass(const void *arg, int32_t pid)
{
	const struct ipc_queue *q = arg;
	struct {
		long type;
		char text[8];
	} m = { 1, "" };

	(void)pid;
	if (msgsnd(q->owner.id, &m, 0, IPC_NOWAIT) < 0)
		return -errno;
	return 0;
}

static int queue_receive(const void *arg, int32_t pid)
{
	const struct ipc_queue *q = arg;
	long m[2];

	(void)pid;
	return msgrcv(q->owner.id, m, 0, 0, IPC_NOWAIT) < 0 ? -errno : 0;
}

static int queue_fill(const void *arg, int32_t pid)
{
	const struct ipc_queue *q = arg;
	const struct ipc_message *m = (const void *)(q + 1);

	(void)pid;
	for (uint32_t i = 0; i < q->count; i++, m = ipc_message_after(m))
		if (msgsnd(q->owner.id, &m->type, m->length, IPC_NOWAIT) < 0)
			return -errno;
	return 0;
}

static int queue_set(const struct ipc_queue *q, uint64_t limit)
{
	struct msqid_ds d = { .msg_qbytes = limit, .msg_perm = { .uid = q->owner.uid, .gid = q->owner.gid, .mode = (unsigned short)q->owner.mode } };

	return msgctl(q->owner.id, IPC_SET, &d) < 0 ? -errno : 0;
}

/* Root alone may; who had no need of it does not know that it cannot. */
static void raise_limits(const struct ipc_queue *q)
{
	const struct ipc_message *m = (const void *)(q + 1);
	uint64_t longest = 0, all = q->limit;
	char text[24];

	for (uint32_t i = 0; i < q->count; i++, m = ipc_message_after(m)) {
		longest = m->length > longest ? m->length : longest;
		all += m->length;
	}
	if (all > QUEUE_BYTES) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)all);
		(void)restart_write_text("/proc/sys/kernel/msgmnb", text);
	}
	if (longest > 8192) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)longest);
		(void)restart_write_text("/proc/sys/kernel/msgmax", text);
	}
}

static int queue_create(const struct ipc_queue *q)
{
	int err;

	raise_limits(q);
	err = run_as(0, queue_make, q);
	if (!err && q->lrpid) {
		err = run_as(q->lspid, queue_pass, q);
		if (!err)
			err = run_as(q->lrpid, queue_receive, q);
	}
	if (!err && q->count)
		err = run_as(q->lspid, queue_fill, q);
	if (!err)
		err = queue_set(q, q->limit);
	return said("message queue", &q->owner, err);
}

static int create(const struct ipc_entry *e)
{
	if (e->kind == IPC_ENTRY_SET)
		return set_create((const void *)(e + 1));
	return e->kind == IPC_ENTRY_QUEUE ? queue_create((const void *)(e + 1)) : 0;
}

int restart_ipc_create(const struct restart *r)
{
	int err = 0;

	for (size_t i = 0; i < r->count && !err; i++)
		err = each(&r->processes[i], create);
	return err;
}
