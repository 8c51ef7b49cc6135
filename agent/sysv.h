/* SPDX-License-Identifier: BSD-2-Clause */
/* System V shared memory of the job. */
#pragma once

#include <stdbool.h>

#include "agent/maps.h"

struct sysv_held {
	int32_t id;
	bool attached, leads;
	uint64_t window, window_length; /* a mapping of ours from the segment's first byte on, writable */
	uint64_t transient;		/* 0: none */
};

/* sysv_publish.c: the segments that this process knows. */
extern struct sysv_held *sysv_held;
extern uint32_t sysv_held_count;
struct sysv_held *sysv_find(uint64_t id); /* NULL: not known */
void sysv_forget(void);
int sysv_check_namespaces(void);
uint64_t sysv_count_mappings(struct sysv_held *h); /* of the job; and says whether this process leads */

int sysv_publish(const struct maps *m); /* QUIESCE: the segments that this process maps, or has to save for the job */
int sysv_begin(void);			/* WRITE, before the moment of the image: looks at them, attaches what it saves */
int sysv_mark(struct maps *m);		/* completes the mappings of the kind SYSV, and refuses what cannot come back */
bool sysv_saves(const struct image_mapping *v); /* whether the image has the pages of this mapping */
const struct image_sysv *sysv_records(uint32_t *ret_count); /* for the note */
void sysv_detach(void);			/* the end of WRITE: what sysv_begin has attached */
void sysv_end(void);			/* RESUME, also after a restart */
