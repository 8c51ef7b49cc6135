/* SPDX-License-Identifier: BSD-2-Clause */
/* The waits of libc's that a signal of the program's ends, for tests of how they go on (call_woken.c). What they wait for never comes, but something to read if a test sends it. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <time.h>

#define CALL_WAITS 15

struct call_wait {
	int (*wait)(long ms);
	bool reads;    /* answers 1 if there is something to read */
	bool takes;    /* the same, and takes it */
	bool has_rest, endless;
	bool restarts; /* after a handler with SA_RESTART */
	bool lasts;    /* it is no cancellation point */
};
extern const struct call_wait call_waits[CALL_WAITS];

extern int call_waits_ends[2];		 /* of a pipe: who reads waits for the first */
extern struct timespec call_waits_rest; /* that the last wait has told */
extern struct pollfd call_waits_polled; /* what the last poll has answered */

bool call_waits_init(void);
bool call_waits_end(void);
