/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of a descriptor that tells of events: a head, then what its kind adds. Little-endian. */
#pragma once

#include <stdint.h>

#define EVENT_RECORD_VERSION 1

enum event_kind { EVENT_NONE, EVENT_EVENTFD, EVENT_TIMERFD, EVENT_SIGNALFD, EVENT_EPOLL, EVENT_INOTIFY, EVENT_PIDFD };

struct event_record {
	uint32_t version;
	uint32_t kind; /* enum event_kind */
};

struct event_eventfd {
	struct event_record head;
	uint64_t count;
	uint32_t semaphore; /* 1: EFD_SEMAPHORE */
	uint32_t reserved;
};
_Static_assert(sizeof(struct event_eventfd) == 24, "event_eventfd");

struct event_timerfd {
	struct event_record head;
	uint32_t clock;	      /* clockid of timerfd_create */
	uint32_t flags;	      /* of the last timerfd_settime */
	uint64_t expiry_ns;   /* next one, on its clock; 0: none. Relative timers of the realtime clock: on CLOCK_MONOTONIC */
	uint64_t interval_ns; /* 0: fires once */
	uint64_t ticks;	      /* expirations that nobody has read */
};
_Static_assert(sizeof(struct event_timerfd) == 40, "event_timerfd");

struct event_signalfd {
	struct event_record head;
	uint64_t mask; /* bit N - 1: signal N */
};
_Static_assert(sizeof(struct event_signalfd) == 16, "event_signalfd");

struct event_epoll {
	struct event_record head;
	uint32_t count; /* of struct event_interest, which follow */
	uint32_t reserved;
};
_Static_assert(sizeof(struct event_epoll) == 16, "event_epoll");

struct event_inotify {
	struct event_record head;
	uint32_t count; /* of struct event_watch, which follow, by ascending wd */
	uint32_t reserved;
};
_Static_assert(sizeof(struct event_inotify) == 16, "event_inotify");

struct event_watch {
	int32_t wd;
	uint32_t mask;	 /* as inotify_add_watch takes it */
	uint32_t length; /* of the path, which follows, with its NUL; zeros up to a multiple of 8 */
	uint32_t reserved;
};
_Static_assert(sizeof(struct event_watch) == 16, "event_watch");

struct event_pidfd {
	struct event_record head;
	uint32_t pid;
	uint32_t flags; /* of pidfd_open, but for PIDFD_NONBLOCK */
};
_Static_assert(sizeof(struct event_pidfd) == 16, "event_pidfd");

struct event_interest {
	uint64_t data;
	uint32_t events;
	int32_t fd;
};
_Static_assert(sizeof(struct event_interest) == 16, "event_interest");
