/* SPDX-License-Identifier: BSD-2-Clause */
/* What agent/fd_share*.c share: what processes tell each other of the descriptions that they hold. */
#pragma once

#include "agent/fd_table.h"

struct share_holder {
	uint32_t pid;
	int32_t fd;
	uint32_t stdio_mask;
	uint32_t status;
	uint32_t kind; /* of what has no inode of its own; else 0 */
	uint32_t id;   /* of an eventfd, which has one description; 0: not told */
	uint32_t tid;  /* of a thread that has it */
	uint32_t partial; /* it cannot tell all of it */
};

struct share_holders { /* that may have the description of an entry */
	struct share_holder *all;
	uint32_t count, room;
	int fd;
	bool filled;
};

/* 0, or -errno, said. */
int fd_share_append(struct share_holders *l, const struct share_holder *h);
/* The @nth that holds something under the key of @e: 1, 0 past the last, or -errno. */
int fd_share_holder_at(const struct fd_entry *e, unsigned int nth, struct share_holder *ret);
/* share_holder.kind and .id of @e */
uint32_t fd_share_kind(const struct fd_entry *e);
uint32_t fd_share_eventfd(const struct fd_entry *e);
/* Whether @h, which has the description of @e, leads it rather than who does so far. */
bool fd_share_is_before(const struct fd_entry *e, const struct share_holder *h);
void fd_share_lead(struct fd_entry *e, const struct share_holder *h); /* it does */
/* Says that @e and @other could not be compared; @err. */
int fd_share_refused(const struct fd_entry *e, const struct share_holder *other, int err);

/* fd_share_mark.c: elects all leaders; 0, or -errno, said. */
int fd_share_resolve_apart(void);
