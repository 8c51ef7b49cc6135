/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The descriptors' part of a checkpoint: QUIESCE lists and claims, DRAIN elects leaders and empties what is in flight, WRITE
 * dumps one record a description. Works on fd_table; no locks: the checkpoint thread is alone.
 *
 * Whatever is held and has no owner makes the checkpoint fail here, in QUIESCE, before anything has been touched.
 */
#include "agent/fd.h"

#include <errno.h>
#include <string.h>

#include "agent/fd_table.h"
#include "base/fdpass.h"
#include "base/log.h"

#define ROUND_OUTSIDE 2u

static bool dumped; /* the records are made: what was found has no numbers any more */

static int claim(struct fd_entry *e)
{
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++) {
		int r = (*p)->fd_claim ? (*p)->fd_claim(&e->desc) : 0;

		if (r < 0)
			return r;
		if (r) {
			e->plugin = *p;
			return 0;
		}
	}
	if (fd_stdio_claim(&e->desc))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is not supported yet: close it before the checkpoint", e->desc.fd,
			    e->desc.link);
}

/* The table grows meanwhile, by what is found, which may hold others. */
static int unpack_all(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		for (const struct fermata_plugin *const *p = agent_plugins; *p && !r; p++)
			if ((*p)->fd_unpack)
				r = (*p)->fd_unpack(&fd_table.entries[i]->desc);
	return r;
}

int fd_quiesce(const char *jobdir)
{
	int r;

	dumped = false;
	fd_table_free();
	r = fd_table_fill();
	if (!r)
		r = unpack_all();
	if (!r)
		fd_stdio_find(jobdir);
	for (uint32_t i = 0; i < fd_table.count && !r; i++)
		r = claim(fd_table.entries[i]);
	if (!r)
		fdpass_serve(3); /* where it cannot, who wants a descriptor of ours says which */
	return r ? r : fd_share_publish();
}

/* Terminals that lead out of the job need no leader. */
static int find_outside(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && r >= 0; i++) {
		struct fd_entry *e = fd_table.entries[i];

		r = e->plugin && e->plugin->fd_is_outside ? e->plugin->fd_is_outside(&e->desc) : 0;
		if (r > 0)
			e->plugin = NULL;
	}
	return r < 0 ? r : 0;
}

/*
 * It leads out of the job. Or its other end lies in a connection that waits to be accepted, where nobody sees it (a process that has passed it to a server, and gone on): then a listener says so in round 1
 * (socket_pending.c), which is no reason for ever. So its own waits for that.
 */
static int outside(struct fd_entry *e, unsigned int round)
{
	e->outside = !e->stdio_mask && round < ROUND_OUTSIDE;
	return e->outside ? FERMATA_DRAIN_MORE : fd_stdio_take_over(e);
}

static int drain_one(struct fd_entry *e, unsigned int round)
{
	int r;

	if (e->outside)
		return outside(e, round);
	if (e->plugin && !fd_entry_led(e) && e->plugin->fd_follow)
		return e->plugin->fd_follow(&e->desc, round);
	if (!e->plugin || !fd_entry_led(e) || !e->plugin->fd_drain)
		return FERMATA_DRAINED;
	r = e->plugin->fd_drain(&e->desc, round);
	return r == FERMATA_FD_OUTSIDE ? outside(e, round) : r;
}

int fd_drain(unsigned int round)
{
	int r = round ? 0 : find_outside(), more = 0;

	if (!round && !r)
		r = fd_share_resolve();
	for (uint32_t i = 0; i < fd_table.count && r >= 0; i++) {
		r = drain_one(fd_table.entries[i], round);
		more |= r == FERMATA_DRAIN_MORE;
	}
	return r < 0 ? r : more ? FERMATA_DRAIN_MORE : FERMATA_DRAINED;
}

static int dump_one(struct fd_entry *e, struct image_resource *r)
{
	struct image_foreign foreign = { e->leader_pid, e->leader_fd };

	sink_done(&e->record);
	r->kind = fd_entry_led(e) ? IMAGE_RESOURCE_DESC : IMAGE_RESOURCE_FOREIGN;
	fm_format(r->plugin, sizeof(r->plugin), "%s", e->plugin ? e->plugin->name : "stdio");
	if (!fd_entry_led(e))
		return fermata_sink_write(&e->record, &foreign, sizeof(foreign));
	fd_owner_note(e);
	if (!e->plugin)
		return fd_stdio_dump(e, &e->record);
	return e->plugin->fd_dump(&e->desc, &e->record);
}

int fd_dump(int (*emit)(void *arg, const struct image_resource *r, const void *record, size_t len,
			const struct image_fd *fds),
	    void *arg)
{
	int r = 0;

	fdpass_serve_end(); /* all others are through with DRAIN */
	for (uint32_t i = 0; i < fd_table.count && !r; i++) {
		struct fd_entry *e = fd_table.entries[i];
		struct image_resource head = { .desc_id = e->desc.id, .fd_count = e->fd_count };

		r = dump_one(e, &head);
		head.length = (uint32_t)e->record.len;
		if (!r)
			r = emit(arg, &head, e->record.data, e->record.len, e->fds);
	}
	if (!r) {
		fd_found_close();
		dumped = true;
	}
	return r;
}

void fd_resume(int reason)
{
	(void)reason;
	fdpass_serve_end();
	for (uint32_t i = 0; i < fd_table.count; i++) {
		struct fd_entry *e = fd_table.entries[i];

		if (e->plugin && fd_entry_led(e) && e->plugin->fd_resume)
			e->plugin->fd_resume(&e->desc);
	}
	fd_found_end(dumped);
	dumped = false;
	fd_table_free();
}
