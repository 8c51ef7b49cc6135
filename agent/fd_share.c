/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which process of the job leads a description that several hold. No state of its own.
 *
 * In QUIESCE each process publishes, under a key made of device, inode and type, where it holds the description, and asks for the
 * same key. In drain round 0, when every process stands still and every answer is there, it compares the others' by kcmp. All see the
 * same holders, so all elect the same leader: the lowest pid. An inode is a coarse key (every holder of /dev/null is
 * under one), kcmp is what decides. Terminals are not named: each process re-attaches its own.
 */
#include "agent/fd_table.h"

#include <errno.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/macro.h"

struct share_key {
	char tag[3]; /* "fd/" */
	uint64_t dev, ino;
	uint32_t type;
} PACKED;

struct share_holder {
	uint32_t pid;
	int32_t fd;
	uint32_t stdio_mask;
};

static struct share_key key_of(const struct fd_entry *e)
{
	const struct stat *st = &e->desc.st;

	return (struct share_key){ { 'f', 'd', '/' }, st->st_dev, st->st_ino, st->st_mode & S_IFMT };
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

	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];
		struct share_key key = key_of(e);
		struct share_holder holder = { fermata_pid(), e->desc.fd, e->stdio_mask };

		if (!e->plugin)
			continue;
		r = fermata_publish(&key, sizeof(key), &holder, sizeof(holder));
		if (!r && !asked_before(i))
			r = fermata_ask(&key, sizeof(key));
	}
	return r;
}

static int resolve_one(struct fd_entry *e)
{
	struct share_key key = key_of(e);
	uint32_t self = fermata_pid();
	struct share_holder other;
	const void *value;
	size_t len;

	for (unsigned int i = 0; (value = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		int r;

		if (len < sizeof(other))
			return fermata_fail(-EPROTO, "a name for fd %d has %zu bytes", e->desc.fd, len);
		memcpy(&other, value, sizeof(other));
		if (other.pid == self)
			continue;
		r = fdpass_compare((int)self, e->desc.fd, (int)other.pid, other.fd);
		if (r < 0)
			return fermata_fail(r, "fd %d (%s) cannot be compared with fd %d of process %u: kcmp is refused "
					    "(errno %d)", e->desc.fd, e->desc.link, other.fd, other.pid, -r);
		if (r > 0)
			continue;
		e->stdio_mask |= other.stdio_mask;
		if (other.pid < e->leader_pid) {
			e->leader_pid = other.pid;
			e->leader_fd = other.fd;
		}
	}
	return 0;
}

int fd_share_resolve(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		if (fd_table.entries[i]->plugin)
			r = resolve_one(fd_table.entries[i]);
	return r;
}
