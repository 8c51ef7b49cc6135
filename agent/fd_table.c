/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns fd_table: what open file descriptions this process holds and under which numbers. Filled in QUIESCE, emptied by fd_resume or
 * fd_restarted; in between it lies in saved memory, so a restarted process goes on with the table of its checkpoint.
 *
 * Invariants: every number of /proc/self/fd stands in exactly one entry, but those of the agent and of devices; entries
 * do not move; desc.fd is fds[0].fd, the lowest but for those that fd_found.c adds later.
 *
 * Duplicates are told by kcmp, asked only where device and inode agree, which of eventfds and the like they always do. It tells an order as well, the same at any time,
 * so the entries of an inode are a tree. Where kcmp is refused, fd_mark.c tells, one by one.
 */
#include "agent/fd_table.h"

#include <errno.h>
#include <string.h>

#include "agent/fd_mark.h"
#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"

struct fd_table fd_table;

struct numbers {
	int *fd;
	uint32_t count, room;
};

static int number_add(const char *name, void *arg)
{
	struct numbers *n = arg;
	int fd = 0;

	if (n->count == n->room) {
		uint32_t room = n->room ? n->room * 2 : 256;
		int *more = fermata_alloc(room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		if (n->count)
			memcpy(more, n->fd, n->count * sizeof(*more));
		fermata_free(n->fd);
		n->fd = more;
		n->room = room;
	}
	for (; *name >= '0' && *name <= '9'; name++)
		fd = fd * 10 + *name - '0';
	n->fd[n->count++] = fd;
	return 0;
}

static uint32_t *bucket_of(const struct stat *st)
{
	return &fd_table.buckets[(st->st_ino ^ st->st_dev * 31) & (ARRAY_SIZE(fd_table.buckets) - 1)];
}

static bool is_of_inode(const struct fd_entry *e, const struct stat *st)
{
	return e->desc.st.st_ino == st->st_ino && e->desc.st.st_dev == st->st_dev;
}

/* @first: of that inode; the others follow it. */
static struct fd_entry *find_marked(int fd, const struct stat *st, struct fd_entry *first, int *ret_err)
{
	uint32_t status = (uint32_t)raw_fcntl(fd, F_GETFL, 0);
	struct fd_entry *e = first, *found = NULL;
	struct fd_mark m;
	bool begun = false;

	for (; e && !found && !*ret_err; e = e->next ? fd_table.entries[e->next - 1] : NULL) {
		if (!is_of_inode(e, st) || !fd_mark_possible(status, e->desc.status))
			continue;
		if (!begun)
			*ret_err = fd_mark_begin(&m, fd, st, status);
		begun = !*ret_err;
		if (!begun)
			fermata_fail(*ret_err, "fd %d and fd %d (%s) cannot be compared: kcmp is refused here, and nothing else tells (errno %d)",
				     fd, e->desc.fd, e->desc.link, -*ret_err);
		else if (fd_mark_is_on(&m, e->desc.fd))
			found = e;
	}
	if (begun)
		fd_mark_end(&m);
	return found;
}

static struct fd_entry *of_inode(const struct stat *st)
{
	for (uint32_t i = *bucket_of(st); i; i = fd_table.entries[i - 1]->next)
		if (is_of_inode(fd_table.entries[i - 1], st))
			return fd_table.entries[i - 1];
	return NULL;
}

/*
 * The entry that @fd names already, NULL, or an error by @ret_err. @ret_place: where a new one goes in the tree of its inode, NULL: nowhere.
 */
static struct fd_entry *entry_find(int fd, const struct stat *st, uint32_t **ret_place, int *ret_err)
{
	struct fd_entry *newest = of_inode(st), *e = newest ? fd_table.entries[newest->first] : NULL;
	int self = raw_gettid();

	*ret_err = 0;
	*ret_place = NULL;
	while (e) {
		int r = fdpass_compare(self, fd, self, e->desc.fd);

		if (r == 0)
			return e;
		if (fdpass_is_refused(r))
			return find_marked(fd, st, newest, ret_err);
		if (r < 0) {
			*ret_err = fermata_fail(r, "fd %d and fd %d cannot be compared (errno %d)", fd, e->desc.fd, -r);
			return NULL;
		}
		*ret_place = &e->below[r == 1 ? 0 : 1];
		e = **ret_place ? fd_table.entries[**ret_place - 1] : NULL;
	}
	return NULL;
}

static int entry_add_number(struct fd_entry *e, int fd)
{
	int flags = raw_fcntl(fd, F_GETFD, 0);

	if (e->fd_count == e->fd_room) {
		uint32_t room = e->fd_room ? e->fd_room * 2 : 2;
		struct image_fd *more = fermata_alloc(room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		if (e->fd_count)
			memcpy(more, e->fds, e->fd_count * sizeof(*more));
		fermata_free(e->fds);
		e->fds = more;
		e->fd_room = room;
	}
	e->fds[e->fd_count++] = (struct image_fd){ fd, flags > 0 ? (uint32_t)flags : 0 };
	if (fd <= 2)
		e->stdio_mask |= 1u << fd;
	return 0;
}

static struct fd_entry *entry_new(int fd, const struct stat *st, uint32_t *place)
{
	struct fd_entry *e = fermata_alloc(sizeof(*e)), *newest = of_inode(st);
	uint32_t *bucket = bucket_of(st);
	char path[40];

	if (!e)
		return NULL;
	if (fd_table.count == fd_table.room) {
		uint32_t room = fd_table.room ? fd_table.room * 2 : 64;
		struct fd_entry **more = fermata_alloc(room * sizeof(*more));

		if (!more) {
			fermata_free(e);
			return NULL;
		}
		if (fd_table.count)
			memcpy(more, fd_table.entries, fd_table.count * sizeof(*more));
		fermata_free(fd_table.entries);
		fd_table.entries = more;
		fd_table.room = room;
	}
	e->desc.fd = fd;
	e->desc.st = *st;
	e->desc.id = fd_table.count + 1;
	e->desc.status = (uint32_t)raw_fcntl(fd, F_GETFL, 0);
	fm_format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	RAW4(SYS_readlinkat, AT_FDCWD, path, e->desc.link, sizeof(e->desc.link) - 1);
	e->leader_pid = fermata_pid();
	e->leader_fd = fd;
	e->first = newest ? newest->first : fd_table.count;
	fd_table.entries[fd_table.count++] = e;
	if (place)
		*place = fd_table.count;
	e->next = *bucket;
	*bucket = fd_table.count;
	return e;
}

static int number_take(int fd)
{
	struct fd_entry *e;
	uint32_t *place;
	struct stat st;
	int r;

	if (fd_is_reserved(fd) || device_owns_fd(fd))
		return 0;
	if (RAW2(SYS_fstat, fd, &st) < 0)
		return 0; /* the listing's own */
	e = entry_find(fd, &st, &place, &r);
	if (r)
		return r;
	if (!e)
		e = entry_new(fd, &st, place);
	r = e ? entry_add_number(e, fd) : -ENOMEM;
	return r ? fermata_fail(r, "no memory for the table of descriptors") : 0;
}

int fd_table_fill(void)
{
	struct numbers n = { 0 };
	int r;

	device_list_begin();
	r = raw_dir_each("/proc/thread-self/fd", number_add, &n);
	if (r)
		fermata_fail(r, "cannot list /proc/self/fd (errno %d)", -r);
	for (uint32_t i = 0; i < n.count && !r; i++)
		r = number_take(n.fd[i]);
	device_list_end();
	fermata_free(n.fd);
	return r;
}

int fd_table_take(int fd)
{
	return number_take(fd);
}

void fd_table_each_of(const struct stat *st, void (*fn)(struct fd_entry *e, void *arg), void *arg)
{
	for (uint32_t i = *bucket_of(st); i; i = fd_table.entries[i - 1]->next)
		if (is_of_inode(fd_table.entries[i - 1], st))
			fn(fd_table.entries[i - 1], arg);
}

bool fd_table_has(int fd)
{
	for (uint32_t i = 0; i < fd_table.count; i++)
		for (uint32_t k = 0; k < fd_table.entries[i]->fd_count; k++)
			if (fd_table.entries[i]->fds[k].fd == fd)
				return true;
	return false;
}

int fd_table_highest(void)
{
	int highest = -1;

	for (uint32_t i = 0; i < fd_table.count; i++)
		for (uint32_t k = 0; k < fd_table.entries[i]->fd_count; k++)
			if (fd_table.entries[i]->fds[k].fd > highest)
				highest = fd_table.entries[i]->fds[k].fd;
	return highest;
}

void fd_table_free(void)
{
	for (uint32_t i = 0; i < fd_table.count; i++) {
		struct fd_entry *e = fd_table.entries[i];

		sink_done(&e->record);
		fermata_free(e->desc.priv);
		fermata_free(e->fds);
		fermata_free(e);
	}
	fermata_free(fd_table.entries);
	memset(&fd_table, 0, sizeof(fd_table));
}
