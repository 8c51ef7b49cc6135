/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which System V semaphore sets and message queues are the job's. A process knows those that it has asked for by an id's call (the agent notes them), and those of which the kernel
 * says that it was the last to change a semaphore, to send or to receive (ipc_user.c): so also what it used without having asked, or before an exec. After a restart all that the
 * capsule's IPC namespace has are the job's.
 *
 * Each process publishes what it knows; the lowest pid leads. A process that the kernel names and that lives, but has not published the object, is not of the job.
 *
 * Owns the table `objects`, from QUIESCE to RESUME. A process without any pays two system calls.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/macro.h"
#include "plugins/ipc/ipc.h"

#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif
#ifndef MSG_STAT_ANY
#define MSG_STAT_ANY 13
#endif

struct key {
	char name[8];
	uint64_t id;
};

static const struct key namespace_key = { .name = "ipc/ns" };
static struct ipc_object *objects;
static uint32_t count, room;

static struct key key_of(int kind, int32_t id)
{
	struct key semaphores = { "ipc/sem", (uint64_t)id }, queues = { "ipc/msg", (uint64_t)id };

	return kind == FERMATA_SYSV_SEMAPHORES ? semaphores : queues;
}

const char *ipc_name(int kind)
{
	return kind == FERMATA_SYSV_SEMAPHORES ? "semaphore set" : "message queue";
}

static long control(int kind, int id, int command, void *arg)
{
	if (kind == FERMATA_SYSV_SEMAPHORES)
		return RAW4(SYS_semctl, id, 0, command, arg);
	return RAW3(SYS_msgctl, id, command, arg);
}

struct ipc_object *ipc_object_at(uint32_t index)
{
	return index < count ? &objects[index] : NULL;
}

struct ipc_object *ipc_object(int kind, int32_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (objects[i].id == id && objects[i].kind == kind)
			return &objects[i];
	return NULL;
}

void ipc_forget(void)
{
	fermata_free(objects);
	objects = NULL;
	count = room = 0;
}

static int add(int kind, int32_t id)
{
	struct ipc_object *more;

	if (ipc_object(kind, id))
		return 0;
	if (count == room) {
		more = fermata_alloc((room * 2 + 16) * sizeof(*more));
		if (!more)
			return fermata_fail(-ENOMEM, "no memory to list the System V semaphores of process %u", fermata_pid());
		if (count)
			memcpy(more, objects, count * sizeof(*more));
		fermata_free(objects);
		objects = more;
		room = room * 2 + 16;
	}
	objects[count++] = (struct ipc_object){ .kind = kind, .id = id };
	return 0;
}

/* ---- the process' own ---- */

static bool is_gone(long r)
{
	return r == -EINVAL || r == -EIDRM;
}

static int find_noted(int kind)
{
	struct fermata_sysv_note n;
	union ipc_state state;
	unsigned int nth = 0;
	int r;

	while ((r = fermata_sysv_noted(kind, nth, &n)) > 0) {
		if (is_gone(control(kind, n.id, IPC_STAT, &state))) {
			fermata_sysv_forget(kind, n.id);
			if (kind == FERMATA_SYSV_SEMAPHORES)
				fermata_undo_forget(n.id);
			continue;
		}
		r = add(kind, n.id);
		if (r)
			return r;
		nth++;
	}
	return r;
}

/* What the namespace has. @kind's IPC_INFO and *_INFO answer with the greatest index. */
static int find_used(int kind)
{
	union {
		struct seminfo set;
		struct msginfo queue;
	} info;
	bool sets = kind == FERMATA_SYSV_SEMAPHORES;
	long last = control(kind, 0, sets ? SEM_INFO : MSG_INFO, &info);
	union ipc_state state;
	int r = 0;

	if (last < 0 || !(sets ? info.set.semusz : info.queue.msgpool))
		return 0;
	for (int i = 0; i <= last && !r; i++) {
		long id = control(kind, i, sets ? SEM_STAT_ANY : MSG_STAT_ANY, &state);

		if (id >= 0 && !ipc_object(kind, (int32_t)id) && (fermata_in_capsule() || ipc_was_last_at(kind, (int32_t)id, &state)))
			r = add(kind, (int32_t)id);
	}
	return r;
}

/* More than there is room for are taken for one of all values. */
static void list_clears(const struct ipc_object *o, struct ipc_publication *p)
{
	struct fermata_undo u;

	for (unsigned int i = 0; fermata_cleared_noted(o->id, i, &u) > 0; i++)
		if (i < IPC_CLEARS)
			p->clears[p->clear_count++] = (struct ipc_clear){ u.since_ns, u.number };
		else if (u.since_ns > p->cleared_ns)
			p->cleared_ns = u.since_ns;
}

static int publish(const struct ipc_object *o)
{
	struct ipc_publication p = { .pid = fermata_pid() };
	struct key key = key_of(o->kind, o->id);
	struct fermata_sysv_note n;
	struct fermata_undo u;
	size_t length;
	int r;

	for (unsigned int i = 0; (r = fermata_sysv_noted(o->kind, i, &n)) > 0; i++)
		if (n.id == o->id) {
			p.cleared_ns = n.cleared_ns;
			p.changed_s = n.changed_s;
		}
	if (r < 0)
		return r;
	for (unsigned int i = 0; o->kind == FERMATA_SYSV_SEMAPHORES && (r = fermata_undo_noted(i, &u)) > 0; i++)
		p.undo |= u.id == o->id;
	if (o->kind == FERMATA_SYSV_SEMAPHORES)
		list_clears(o, &p);
	length = offsetof(struct ipc_publication, clears) + p.clear_count * sizeof(p.clears[0]);
	if (!r)
		r = fermata_publish(&key, sizeof(key), &p, length);
	return r ? r : fermata_ask(&key, sizeof(key));
}

static int publish_namespace(void)
{
	struct stat st = { 0 };
	uint64_t ino;
	int r;

	RAW4(SYS_newfstatat, AT_FDCWD, "/proc/thread-self/ns/ipc", &st, 0);
	ino = st.st_ino;
	r = fermata_publish(&namespace_key, sizeof(namespace_key), &ino, sizeof(ino));
	return r ? r : fermata_ask(&namespace_key, sizeof(namespace_key));
}

int ipc_find(void)
{
	int r = 0;

	ipc_forget();
	for (int kind = 0; kind < FERMATA_SYSV_KINDS && !r; kind++) {
		r = find_noted(kind);
		if (!r)
			r = find_used(kind);
	}
	for (uint32_t i = 0; i < count && !r; i++)
		r = publish(&objects[i]);
	return r || !count ? r : publish_namespace();
}

/* ---- all processes ---- */

const struct ipc_publication *ipc_published(const struct ipc_object *o, unsigned int index)
{
	struct key key = key_of(o->kind, o->id);
	size_t len;

	return fermata_resolve(&key, sizeof(key), index, &len);
}

int ipc_check_namespaces(void)
{
	const uint64_t *first = NULL, *ino;
	size_t len;

	for (unsigned int i = 0; (ino = fermata_resolve(&namespace_key, sizeof(namespace_key), i, &len)); i++) {
		first = first ? first : ino;
		if (*ino != *first)
			return fermata_fail(-EOPNOTSUPP, "the job's System V semaphores or message queues are in several IPC namespaces, which is not supported");
	}
	return 0;
}

void ipc_lead(struct ipc_object *o)
{
	const struct ipc_publication *p;

	o->leads = true;
	for (unsigned int i = 0; (p = ipc_published(o, i)); i++) {
		o->leads &= p->pid >= fermata_pid();
		o->undo |= p->undo != 0;
	}
}

int ipc_look(const struct ipc_object *o, union ipc_state *ret)
{
	long r = control(o->kind, o->id, IPC_STAT, ret);

	return r < 0 ? fermata_fail((int)r, "%s %d cannot be looked at (errno %d)", ipc_name(o->kind), o->id, (int)-r) : 0;
}

int ipc_check_owner(const struct ipc_object *o, const union ipc_state *s, struct ipc_owner *ret)
{
	uint32_t uid = (uint32_t)RAW0(SYS_geteuid), gid = (uint32_t)RAW0(SYS_getegid);
	const struct ipc_perm *p = &s->owner;

	*ret = (struct ipc_owner){ .id = o->id, .key = p->__key, .mode = p->mode & 0777, .uid = p->uid, .gid = p->gid, .cuid = p->cuid, .cgid = p->cgid };
	if (!uid || (p->uid == uid && p->cuid == uid && p->gid == gid && p->cgid == gid))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "%s %d belongs to another user or group than process %u (%u.%u, made by %u.%u)", ipc_name(o->kind),
			    o->id, fermata_pid(), p->uid, p->gid, p->cuid, p->cgid);
}
