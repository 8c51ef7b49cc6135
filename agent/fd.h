/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of descriptors (agent/fd_*.c), as the phases drive it. All of it runs in the checkpoint thread while every other thread
 * stands still. 0 or -errno unless said otherwise; the cause is then told by fermata_fail.
 *
 *   checkpoint:  fd_quiesce, fd_drain (rounds), fd_dump, fd_resume
 *   restart:     fd_recreate, fd_reconnect, fd_refill, a barrier between each, fd_restarted
 *
 * fd_dump runs before memory is written: the table and the records are then part of the image, and the restarted
 * process finds them where they were.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/record.h"

/* Lists, groups and offers the descriptors; names what may be shared. @jobdir: RUNDIR/JOB. */
int fd_quiesce(const char *jobdir);
/* FERMATA_DRAINED, FERMATA_DRAIN_MORE or -errno. Round 0 finds the leader of each description. */
int fd_drain(unsigned int round);
/* Hands out one record a description; the bytes stay valid until fd_resume or fd_restarted. */
int fd_dump(int (*emit)(void *arg, const struct image_resource *r, const void *record, size_t len,
			const struct image_fd *fds),
	    void *arg);
/* The checkpoint is over, or failed in whatever phase. */
void fd_resume(int reason);
/* True: our group has the foreground of a terminal that leads out of the job. Noted for a restart. Before memory is written. */
bool fd_note_terminal(void);

/* Present are the descriptors of `fermata restart` that @r names and the agent's own, nothing else. */
int fd_recreate(const struct image_restart *r);
int fd_reconnect(void);
int fd_refill(void);
void fd_restarted(void);
