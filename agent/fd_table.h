/* SPDX-License-Identifier: BSD-2-Clause */
/* What agent/fd_*.c share: the open file descriptions of this process. Touched by the checkpoint thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/sink.h"
#include "fermata/plugin.h"
#include "image/record.h"

/* Asked of the rest of the agent, so that this part can be tested without it: plugin_api.c, reserved.c, device.c. */
extern const struct fermata_plugin *const agent_plugins[];
bool fd_is_reserved(int fd);
bool device_owns_fd(int fd);
void device_list_begin(void);
void device_list_end(void);

struct fd_owner { /* fd_owner.c */
	int type, pid; /* struct f_owner_ex */
	int sig;       /* 0: SIGIO */
};

struct fd_entry {
	struct fermata_desc desc;
	struct fd_owner owner;
	const struct fermata_plugin *plugin; /* NULL: re-attached, see fd_stdio.c */
	struct image_fd *fds; /* every descriptor of this process that names it, ascending */
	uint32_t fd_count, fd_room;
	uint32_t leader_pid; /* lowest pid of the job that holds the description, of those for whom it is not partial if there are any */
	int32_t leader_fd;   /* its lowest descriptor there */
	bool leader_partial;
	uint32_t stdio_mask; /* bit N: descriptor N (0, 1, 2) of whatever process names it, or somebody was begun with it as that */
	uint32_t next;	     /* index + 1 of the next entry of the same bucket */
	uint32_t first;	     /* index of the first entry of the same inode: the root of their tree */
	uint32_t below[2];   /* index + 1: in kcmp's order before it, behind it */
	bool later;	     /* restart: to be asked again in RECONNECT */
	bool outside;	     /* drain: it seems to lead out of the job */
	struct fermata_sink record;
};

struct fd_table {
	struct fd_entry **entries;
	uint32_t count, room;
	uint32_t buckets[256]; /* by device and inode: index + 1 */
};
extern struct fd_table fd_table;

static inline bool fd_entry_led(const struct fd_entry *e)
{
	return e->leader_pid == fermata_pid();
}

/* Lists /proc/self/fd into the table: one entry a description, grouped. */
int fd_table_fill(void);
/* @fd, which was made since, as well. */
int fd_table_take(int fd);
/* What is of the inode with @st's st_dev and st_ino: @fn, for each entry. */
void fd_table_each_of(const struct stat *st, void (*fn)(struct fd_entry *e, void *arg), void *arg);
void fd_table_free(void);
bool fd_table_has(int fd);
int fd_table_highest(void); /* number; -1: there is none */

/* fd_found.c: closes those numbers, which the list keeps for the restart; and the end of the list, before or after that. */
void fd_found_close(void);
void fd_found_end(bool closed);

/* Names what other processes may hold as well, and asks for it. */
int fd_share_publish(void);
/* Elects the leaders from the answers. */
int fd_share_resolve(void);

/* Of one that is led here, in WRITE; when it is in its place again, before and behind its contents. 0 or -errno. */
void fd_owner_note(struct fd_entry *e);
int fd_owner_restore(const struct fd_entry *e);
int fd_owner_tell(const struct fd_entry *e);

/* 1: a terminal, which is re-attached; 0: not. */
int fd_stdio_claim(const struct fermata_desc *d);
/* A description that leads out of the job becomes a re-attached one, if it is a standard stream. */
/* Whatever of the table is a stream that somebody of the job was begun with gets that stream's bit. */
void fd_stdio_find(const char *jobdir);
int fd_stdio_take_over(struct fd_entry *e);
int fd_stdio_dump(const struct fd_entry *e, struct fermata_sink *sink);
/* Moves the inherited streams out of the way of the numbers to come: to @above or higher. */
/* A copy of @fd, close-on-exec, out of the way of the numbers to come: @above or higher, also where the limit is low. Or -errno. */
int fd_copy_above(int fd, int above);
int fd_stdio_inherit(const struct image_restart *r, int above);
int fd_terminals_restarted(const struct image_restart *r); /* while the restorer's pages are there: 0 or -ENOMEM */
int fd_terminals_inherit(int above); /* as fd_stdio_inherit() */
void fd_terminals_done(void);
/* The inherited descriptor that stands for number @fd of @e, not to be closed; or -errno. */
int fd_stdio_pick(const struct fd_entry *e, int fd);
void fd_stdio_done(void);
