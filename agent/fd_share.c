/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which process of the job leads a description that several hold. Owns the name of our pid namespace.
 *
 * In QUIESCE each process publishes, under a key made of pid namespace, device, inode and type, where it holds the description, and asks for the
 * same key. In drain round 0, when every process stands still and every answer is there, it compares the others' by kcmp. All see the
 * same holders, so all elect the same leader: the lowest pid, of those that can tell all of it. (What an epoll set watches has numbers of who has added it: another holder may have closed them, or never had them.) An inode is a coarse key (every holder of /dev/null is
 * under one), kcmp is what decides. A fork leaves a description its number, so that is tried first, and no process has it twice. Terminals are not named: each process re-attaches its own. Processes of
 * different pid namespaces, which parts of a job have (fermata restart --part), have nothing in common. Where kcmp is refused: fd_share_mark.c.
 */
#include "agent/fd_share.h"

#include <errno.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/macro.h"

#define ANONYMOUS "anon_inode:"

struct share_key {
	char tag[3]; /* "fd/" */
	uint64_t dev, ino, space;
	uint32_t type;
} PACKED;

uint32_t fd_share_kind(const struct fd_entry *e)
{
	uint32_t hash = 2166136261u;

	if (memcmp(e->desc.link, ANONYMOUS, sizeof(ANONYMOUS) - 1) != 0)
		return 0;
	for (const char *c = e->desc.link; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 16777619u;
	return hash;
}

/* Only where kcmp is refused: it spares us to look at each eventfd of everybody. Linux 5.2. */
uint32_t fd_share_eventfd(const struct fd_entry *e)
{
	static const char name[] = "eventfd-id:";
	int self = raw_gettid();
	char path[48], text[256];
	const char *at;
	uint32_t id = 0;

	if (strcmp(e->desc.link, ANONYMOUS "[eventfd]") != 0 || !fdpass_is_refused(fdpass_compare(self, e->desc.fd, self, e->desc.fd)))
		return 0;
	fm_format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", e->desc.fd);
	at = raw_read_file(path, text, sizeof(text)) < 0 ? NULL : strstr(text, name);
	if (!at)
		return 0;
	for (at += sizeof(name) - 1 + strspn(at + sizeof(name) - 1, " \t"); *at >= '0' && *at <= '9'; at++)
		id = id * 10 + (uint32_t)(*at - '0');
	return id + 1;
}

static uint64_t space;

static uint64_t space_find(void)
{
	struct stat st = { 0 };

	RAW4(SYS_newfstatat, AT_FDCWD, "/proc/thread-self/ns/pid", &st, 0);
	return st.st_ino;
}

static struct share_key key_of(const struct fd_entry *e)
{
	const struct stat *st = &e->desc.st;

	return (struct share_key){ { 'f', 'd', '/' }, st->st_dev, st->st_ino, space, st->st_mode & S_IFMT };
}

/* A key is asked for once, by the first entry of this process that has it: answers to the same question add up. */
static bool asked_before(uint32_t index)
{
	const struct stat *st = &fd_table.entries[index]->desc.st;

	for (uint32_t i = fd_table.entries[index]->next; i; i = fd_table.entries[i - 1]->next) {
		const struct fd_entry *e = fd_table.entries[i - 1];

		if (e->plugin && e->desc.st.st_ino == st->st_ino && e->desc.st.st_dev == st->st_dev)
			return true;
	}
	return false;
}

int fd_share_publish(void)
{
	int r = 0;

	space = space_find();
	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];
		struct share_key key = key_of(e);
		struct share_holder holder = { fermata_pid(), e->desc.fd, e->stdio_mask, e->desc.status, fd_share_kind(e), fd_share_eventfd(e), (uint32_t)raw_gettid(), e->desc.partial };

		if (!e->plugin)
			continue;
		e->leader_partial = e->desc.partial;
		r = fermata_publish(&key, sizeof(key), &holder, sizeof(holder));
		if (!r && !asked_before(i))
			r = fermata_ask(&key, sizeof(key));
	}
	return r;
}

int fd_share_holder_at(const struct fd_entry *e, unsigned int nth, struct share_holder *ret)
{
	struct share_key key = key_of(e);
	size_t len;
	const void *value = fermata_resolve(&key, sizeof(key), nth, &len);

	if (!value)
		return 0;
	if (len < sizeof(*ret))
		return fermata_fail(-EPROTO, "a name for fd %d has %zu bytes", e->desc.fd, len);
	memcpy(ret, value, sizeof(*ret));
	return 1;
}

int fd_share_refused(const struct fd_entry *e, const struct share_holder *other, int err)
{
	return fermata_fail(err, "fd %d (%s) cannot be compared with fd %d of process %u: kcmp is refused, and nothing else tells "
			    "(errno %d)", e->desc.fd, e->desc.link, other->fd, other->pid, -err);
}

int fd_share_append(struct share_holders *l, const struct share_holder *h)
{
	if (l->count == l->room) {
		uint32_t room = l->room ? l->room * 2 : 64;
		struct share_holder *more = fermata_alloc(room * sizeof(*more));

		if (!more)
			return fermata_fail(-ENOMEM, "no memory to compare descriptors");
		if (l->count)
			memcpy(more, l->all, l->count * sizeof(*more));
		fermata_free(l->all);
		l->all = more;
		l->room = room;
	}
	l->all[l->count++] = *h;
	return 0;
}

bool fd_share_is_before(const struct fd_entry *e, const struct share_holder *h)
{
	return h->partial != e->leader_partial ? !h->partial : h->pid < e->leader_pid;
}

void fd_share_lead(struct fd_entry *e, const struct share_holder *h)
{
	e->leader_pid = h->pid;
	e->leader_fd = h->fd;
	e->leader_partial = h->partial;
}

/* 1: @other is of the same description, and has been taken into account; 0: not; or -errno. */
static int compare(struct fd_entry *e, const struct share_holder *other)
{
	int r = fdpass_compare(raw_gettid(), e->desc.fd, (int)other->tid, other->fd);

	if (r < 0)
		return fdpass_is_refused(r) ? r : fd_share_refused(e, other, r);
	if (r > 0)
		return 0;
	e->stdio_mask |= other->stdio_mask;
	if (fd_share_is_before(e, other))
		fd_share_lead(e, other);
	return 1;
}

/* Among those of one process. */
static int compare_all(struct fd_entry *e, const struct share_holder *h, uint32_t count)
{
	uint32_t kind = fd_share_kind(e);
	int r = 0;

	for (uint32_t i = 0; i < count && !r; i++)
		if (h[i].fd == e->desc.fd)
			r = compare(e, &h[i]);
	for (uint32_t i = 0; i < count && !r; i++)
		if (h[i].fd != e->desc.fd && h[i].kind == kind)
			r = compare(e, &h[i]);
	return r;
}

/* @l: what others hold of its inode. An error of kcmp that is a refusal has found nothing out. */
static int resolve_one(struct fd_entry *e, const struct share_holders *l)
{
	uint32_t end;
	int r = 0;

	for (uint32_t i = 0; i < l->count && r >= 0; i = end) {
		for (end = i + 1; end < l->count && l->all[end].pid == l->all[i].pid; end++)
			;
		r = compare_all(e, &l->all[i], end - i);
	}
	return r < 0 ? r : 0;
}

/* Those of other processes under the key of @e, in the order in which these have told of them. */
static int holders_fill(const struct fd_entry *e, struct share_holders *ret)
{
	struct share_holder h;
	int r;

	for (unsigned int i = 0; (r = fd_share_holder_at(e, i, &h)) > 0; i++)
		if (h.pid != fermata_pid() && (r = fd_share_append(ret, &h)) < 0)
			break;
	ret->filled = true;
	return r;
}

/* @lists: one an inode, at the place of its first entry. */
static int resolve_all(struct share_holders *lists)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];
		struct share_holders *l = &lists[e->first];

		if (!e->plugin)
			continue;
		if (!l->filled)
			r = holders_fill(e, l);
		if (!r)
			r = resolve_one(e, l);
	}
	return r;
}

int fd_share_resolve(void)
{
	struct share_holders *lists = fermata_alloc((fd_table.count + 1) * sizeof(*lists));
	int r = lists ? resolve_all(lists) : fermata_fail(-ENOMEM, "no memory to compare descriptors");

	for (uint32_t i = 0; lists && i < fd_table.count; i++)
		fermata_free(lists[i].all);
	fermata_free(lists);
	return fdpass_is_refused(r) ? fd_share_resolve_apart() : r;
}
