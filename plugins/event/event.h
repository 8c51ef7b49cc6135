/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this plugin share. All return 0 or -errno, told by fermata_fail, unless said otherwise. */
#pragma once

#include "fermata/plugin.h"
#include "plugins/event/event_record.h"

/* The text of /proc/self/fdinfo/@fd, to be freed with fermata_free. */
int event_fdinfo(int fd, char **ret_text);
/* What stands behind "@name" at the beginning of a line, or NULL. */
const char *event_field(const char *text, const char *name);
/* The number that @text begins with, spaces left out. */
uint64_t event_number(const char *text, unsigned int base);

int event_eventfd_dump(struct fermata_desc *d, struct fermata_sink *sink);
/* A descriptor, or -errno: as the next ones. */
int event_eventfd_restore(struct fermata_desc *d, const struct event_eventfd *r);
/* Asks a kernel that does not tell: whether reading takes one. @count is what is in it, before and after. */
int event_eventfd_is_semaphore(int fd, uint64_t count);

int event_timerfd_dump(struct fermata_desc *d, struct fermata_sink *sink);
int event_timerfd_restore(struct fermata_desc *d, const struct event_timerfd *r);

/* Refuses one with unread events. */
int event_inotify_check(struct fermata_desc *d);
int event_inotify_dump(struct fermata_desc *d, struct fermata_sink *sink);
int event_inotify_refill(struct fermata_desc *d, const struct event_inotify *r, size_t len);

/* Tells the others that this process is of the job. */
int event_pidfd_quiesce(void);
/* Refuses that of a process which is gone, or (drain) is not of the job. */
int event_pidfd_check(struct fermata_desc *d);
int event_pidfd_drain(const struct fermata_desc *d);
int event_pidfd_dump(struct fermata_desc *d, struct fermata_sink *sink);
int event_pidfd_restore(struct fermata_desc *d, const struct event_pidfd *r);

int event_epoll_check(struct fermata_desc *d);
int event_epoll_dump(struct fermata_desc *d, struct fermata_sink *sink);
/* Every descriptor of the process is in its place. */
int event_epoll_refill(struct fermata_desc *d, const struct event_epoll *r);
