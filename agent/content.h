/* SPDX-License-Identifier: BSD-2-Clause */
/* The contents of files, saved once in the whole checkpoint. 0 or -errno; the cause is then told by fermata_fail. What plugins ask of them: fermata_content_keep, fermata_content_put. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/maps.h"
#include "image/record.h"

struct msg_phase;
struct msg_phase_done;

int content_note_mapping(const struct maps *m, const struct image_mapping *v); /* QUIESCE: a shared mapping of a file */
int content_quiesce(void); /* QUIESCE: all descriptors are listed */
int content_drain(void);   /* DRAIN, round 0: what the others have said is known */
/* WRITE, before memory: copies what this process has to save. Adds to what is reported. */
int content_write(const struct msg_phase *where, struct msg_phase_done *done);
/* The note IMAGE_NOTE_CONTENTS, of *@ret_length bytes, or NULL. */
const void *content_record(uint32_t *ret_length);
void content_restarted(int image); /* before the image is closed: notes where the contents are now */
void content_end(const struct msg_phase *resume); /* RESUME; NULL: a restart is complete */
uint64_t content_bytes(void); /* that content_write() has come through: the image's progress goes on from there */

/* ---- what agent/content*.c share ---- */

struct content {
	struct image_content record;
	int64_t ctime_sec, seen_sec;
	uint32_t ctime_nsec, holder; /* of those who write to it, the lowest pid */
	int fd;	      /* one that names it, or -1: mapped only */
	bool written; /* by somebody in the job, for all that this process knows: here */
	bool deleted; /* it has no name: saved whatever --files says, but for what is mapped of it */
	bool mapped;  /* shared and writable, by anybody of the job */
	bool memory;  /* it is in the image: a file in memory, or without a name, that is mapped */
	uint32_t next; /* of its bucket, index + 1 */
	uint64_t begun; /* how much had been come through when it was begun */
	char *path;
	char name[48];
};
struct content_list {
	struct content *all;
	uint32_t count, room;
	uint32_t buckets[256];
	char directory[512]; /* where they were saved; in a restart: where they are */
};
extern struct content_list content_now, content_before; /* of this checkpoint, of the one that was committed before it */
struct content *content_find(struct content_list *l, uint64_t dev, uint64_t ino);

/* content_write.c */
void content_write_end(void);

struct content_place {
	int dir;
	const char *directory;
	void *buffer;
	const char *before; /* the checkpoint before this one, or NULL */
};
/* content_save.c. @before: the same file in that one, or NULL. */
bool content_is_local(int fd, const char *path); /* its file system is no other host's; fd -1: by its path */
int content_save(struct content *c, const struct content *before, const struct content_place *place);
/* content_write.c: as image_content_work.progress, of a struct content. */
int content_progress(void *arg, uint64_t at);
