/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The descriptors' part of a restart. fd_table is that of the checkpoint, back with the memory; the descriptors are gone.
 *
 *   RECREATE   every number of the table, and of a device's that comes back, is held by a placeholder, so that nothing made meanwhile can take it. Leaders
 *              re-create, numbers are put in place. Names are published.
 *   RECONNECT  what had to wait for the others' RECREATE. Now each led description stands in its place everywhere.
 *   REFILL     those led elsewhere are fetched from their leader; then contents go back.
 *   restarted  what was inherited from `fermata restart` is closed.
 *
 * Invariant from fd_recreate on: a number of the table is a placeholder or its own description, never anything else.
 */
#include "agent/fd.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "agent/fd_table.h"
#include "base/fdpass.h"
#include "base/sys.h"

#define STATUS_SETTABLE (O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME)

static struct rlimit saved_limit;
static int highest; /* of the numbers that come back */
static int holder;  /* while numbers are being held */

static int failed(const struct fd_entry *e, int fd, int err)
{
	return fermata_fail(err, "fd %d (%s) cannot be restored (errno %d)", fd, e->desc.link, -err);
}

/* Lets @from, which stays open, take number @to. */
static int put(const struct fd_entry *e, int from, const struct image_fd *to)
{
	int r = raw_dup3(from, to->fd, to->flags & FD_CLOEXEC ? O_CLOEXEC : 0);

	return r < 0 ? failed(e, to->fd, r) : 0;
}

/* Lets the new description @fd take every number of @e. */
static int place(const struct fd_entry *e, int fd)
{
	int now = raw_fcntl(fd, F_GETFL, 0), r = 0;

	if (now >= 0 && !(now & O_PATH) && ((uint32_t)now ^ e->desc.status) & STATUS_SETTABLE)
		r = raw_fcntl(fd, F_SETFL, (long)(e->desc.status & STATUS_SETTABLE));
	if (r < 0)
		failed(e, e->desc.fd, r);
	for (uint32_t i = 0; i < e->fd_count && r >= 0; i++)
		r = put(e, fd, &e->fds[i]);
	raw_close(fd);
	return r < 0 ? r : 0;
}

static int attach(const struct fd_entry *e)
{
	int r = 0;

	for (uint32_t i = 0; i < e->fd_count && !r; i++) {
		int from = fd_stdio_pick(e, e->fds[i].fd);

		if (from >= 0 && e->desc.status & O_NONBLOCK)
			raw_fcntl(from, F_SETFL, raw_fcntl(from, F_GETFL, 0) | O_NONBLOCK);
		r = from < 0 ? failed(e, e->fds[i].fd, from) : put(e, from, &e->fds[i]);
	}
	return r;
}

static int note_number(int fd)
{
	if (fd > highest)
		highest = fd;
	return 0;
}

static int each_device_number(int (*fn)(int fd))
{
	int r = 0;

	for (const struct fermata_plugin *const *p = agent_plugins; *p && r >= 0; p++)
		if ((*p)->numbers)
			r = (*p)->numbers(fn);
	return r;
}

static void find_highest(void)
{
	highest = 2;
	each_device_number(note_number);
	note_number(fd_table_highest());
}

/* The limit may be below numbers that were in use before it was lowered. */
static void limit_raise(void)
{
	rlim_t want = (rlim_t)highest + 64;
	struct rlimit limit;

	saved_limit = (struct rlimit){ 0 };
	if (RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) < 0 || limit.rlim_cur >= want)
		return;
	saved_limit = limit;
	limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
	RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
}

static void limit_restore(void)
{
	if (saved_limit.rlim_max)
		RAW4(SYS_prlimit64, 0, RLIMIT_NOFILE, &saved_limit, NULL);
	saved_limit = (struct rlimit){ 0 };
}

static int hold(int fd)
{
	return fd_is_reserved(fd) ? -EBUSY : raw_dup3(holder, fd, O_CLOEXEC);
}

static int hold_of_device(int fd)
{
	int r = hold(fd);

	return r < 0 ? fermata_fail(r, "fd %d, which an RDMA device had, cannot be had again (errno %d)", fd, -r) : 0;
}

static int hold_numbers(void)
{
	int root = raw_open("/", O_PATH | O_CLOEXEC, 0), r;

	holder = root;
	if (root >= 0) {
		holder = raw_fcntl(root, F_DUPFD_CLOEXEC, highest + 1);
		raw_close(root);
	}
	if (holder < 0)
		return fermata_fail(holder == -EINVAL ? -EMFILE : holder, "cannot come back with fd %d", highest);
	r = each_device_number(hold_of_device);
	for (uint32_t i = 0; i < fd_table.count && r >= 0; i++) {
		const struct fd_entry *e = fd_table.entries[i];

		for (uint32_t k = 0; k < e->fd_count && r >= 0; k++) {
			r = hold(e->fds[k].fd);
			if (r < 0)
				failed(e, e->fds[k].fd, r);
		}
	}
	raw_close(holder);
	return r < 0 ? r : 0;
}

/* @fd: what the hook has answered. */
static int take(struct fd_entry *e, int fd)
{
	if (fd == FERMATA_FD_LATER && !e->later) {
		e->later = true;
		return 0;
	}
	e->later = false;
	return fd < 0 ? failed(e, e->desc.fd, fd) : place(e, fd);
}

int fd_recreate(const struct image_restart *restart)
{
	int r;

	find_highest();
	limit_raise();
	r = fd_stdio_inherit(restart, highest + 1);
	if (!r)
		r = fd_terminals_inherit(highest + 1);
	fdpass_consent();
	if (!r)
		r = hold_numbers();
	if (!r)
		fdpass_serve(highest + 1); /* where it cannot, who wants a descriptor of ours says which */
	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];

		fermata_free(e->desc.priv);
		e->desc.priv = NULL;
		e->later = false;
		if (!fd_entry_led(e))
			continue;
		r = e->plugin ? take(e, e->plugin->fd_restore(&e->desc, e->record.data, e->record.len)) : attach(e);
	}
	return r;
}

int fd_reconnect(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];

		if (e->later)
			r = take(e, e->plugin->fd_reconnect(&e->desc, e->record.data, e->record.len));
	}
	return r;
}

/* A leader that is not here came back elsewhere (fermata restart --part): of what it leads only streams that lead out of the job can be had here, too. */
static int fetch(const struct fd_entry *e)
{
	int fd = fdpass_take((int)e->leader_pid, e->leader_fd), r = 0;

	if (fd == -ESRCH && e->stdio_mask)
		return attach(e);
	if (fd < 0)
		return fermata_fail(fd, "fd %d (%s) cannot be taken from fd %d of process %u: pidfd_getfd is refused (errno %d)",
				    e->desc.fd, e->desc.link, e->leader_fd, e->leader_pid, -fd);
	for (uint32_t i = 0; i < e->fd_count && !r; i++)
		r = put(e, fd, &e->fds[i]);
	raw_close(fd);
	return r;
}

static int each_own(int (*fn)(const struct fd_entry *e))
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		if (fd_table.entries[i]->plugin && fd_entry_led(fd_table.entries[i]))
			r = fn(fd_table.entries[i]);
	return r;
}

int fd_refill(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		if (!fd_entry_led(fd_table.entries[i]))
			r = fetch(fd_table.entries[i]);
	if (!r)
		r = each_own(fd_owner_restore);
	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];

		if (!e->plugin || !fd_entry_led(e) || !e->plugin->fd_refill)
			continue;
		r = e->plugin->fd_refill(&e->desc, e->record.data, e->record.len);
		if (r)
			failed(e, e->desc.fd, r);
	}
	return r ? r : each_own(fd_owner_tell);
}

void fd_restarted(void)
{
	fdpass_serve_end();
	fd_stdio_done();
	fd_terminals_done();
	fd_found_end(false);
	limit_restore();
	fd_table_free();
}
