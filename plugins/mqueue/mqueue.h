/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the mqueue plugin share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/mqueue/mqueue_record.h"

/* A queue that this process has open or has opened by a name that it still has. */
struct mqueue {
	struct mqueue *next;
	uint64_t dev, ino;
	char name[MQUEUE_NAME_MAX]; /* for who speaks of it, and by which it is made again */
	bool unlinked;
	int fd; /* one of the program's; -1: it has none */
	bool notifies; /* this process is registered, and is not for the time being */
	struct fermata_mqueue_notify notify;
};

/* ---- mqueue.c ---- */
struct mqueue *mqueue_first(void);
bool mqueue_leads(const struct mqueue *q); /* has the lowest pid of those who know it */

/* ---- mqueue_apart.c ---- */
int mqueue_apart(void (*fn)(void *arg), void *arg); /* runs it in another process, to its end: 0 or -errno */
int mqueue_open(const struct mqueue *q, int flags); /* a descriptor of ours, or -errno */
/* 0 or -errno. @ret_notified: the process that is registered, or 0. */
int mqueue_look(const struct mqueue *q, struct stat *ret, int *ret_notified);

/* ---- mqueue_content.c ---- */
int mqueue_dump(const struct mqueue *q, struct fermata_sink *sink);
int mqueue_put(int fd, const struct mqueue_queue *q); /* the messages that follow it */

/* ---- mqueue_restart.c ---- */
int mqueue_recreate(const void *record, size_t len);
int mqueue_refill(void);
