/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process, its threads and its children have used before the restarts that they have been through. */
#pragma once

#include <stdint.h>
#include <sys/resource.h>

struct spent {
	uint64_t cpu_ns; /* as CLOCK_PROCESS_CPUTIME_ID and CLOCK_THREAD_CPUTIME_ID count it */
	struct rusage usage;
};

/* In the thread itself: all that it has used until now; and what that was, when it comes back. */
void spent_note_thread(struct spent *ret);
void spent_thread_restarted(const struct spent *was);
void spent_note(void);	    /* QUIESCE: all threads stand */
void spent_restarted(void); /* before they go on */
void spent_forked(void);

/* For the wrappers, of the calling thread and its process; in enter, and in the same one as the call whose answer it is added to: a restart in between would count twice what was before it, or not at all. */
uint64_t spent_cpu_ns(int clock); /* 0: of a clock that is no processor time's, or none of this process */
void spent_add(struct rusage *to, int who);
int64_t spent_ticks(void); /* for the answer of times(2) */
