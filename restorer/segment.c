/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaches the System V segments, which `fermata restart` has made with their old ids, at their old addresses: true attachments, that
 * shmdt finds and the kernel counts. Before all other mappings, because shmat takes the whole range of a segment, also where the
 * program has unmapped a part of it. Transient attachments go when the pages are in; what the last process leaves behind
 * with a segment (its permissions, its removal) is set when every process has its attachments, behind the gate.
 */
#include <errno.h>
#include <sys/shm.h>

#include "restorer.h"

static int is_part(const struct plan_mapping *m, const struct plan_segment *s)
{
	return m->kind == IMAGE_MAPPING_SYSV && m->mmap_flags == (uint32_t)s->id && m->start - m->offset == s->base;
}

static void punch(struct restorer *r, uint64_t start, uint64_t end)
{
	int err = start < end ? raw_munmap((void *)start, end - start) : 0;

	if (err)
		fail(r, "unmapping a part of System V shared memory at", start, err);
}

/* What the program had unmapped is unmapped, what it had protected is protected; what pages are read into stays writable. */
static void shape(struct restorer *r, const struct plan_segment *s)
{
	uint32_t given = s->flags & PLAN_SEGMENT_READONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	uint64_t at = s->base;

	for (uint32_t i = 0; i < r->plan->mapping_count; i++) {
		const struct plan_mapping *m = &r->mappings[i];
		int err = 0;

		if (!is_part(m, s))
			continue;
		punch(r, at, m->start);
		at = m->end;
		if (m->prot != given && !memory_has_loads(r, m))
			err = raw_mprotect((void *)m->start, m->end - m->start, (int)m->prot);
		if (err)
			fail(r, "protecting System V shared memory at", m->start, err);
	}
	punch(r, at, s->base + s->size);
}

void segments_attach(struct restorer *r)
{
	for (uint32_t i = 0; i < r->plan->segment_count; i++) {
		const struct plan_segment *s = &r->segments[i];
		long got;

		if (!(s->flags & PLAN_SEGMENT_ATTACH))
			continue;
		got = RAW3(SYS_shmat, s->id, s->base, s->flags & PLAN_SEGMENT_READONLY ? SHM_RDONLY : 0);
		if (got != (long)s->base)
			fail(r, "attaching System V shared memory at", s->base, got < 0 ? got : -EEXIST);
		shape(r, s);
	}
}

void segments_detach(struct restorer *r)
{
	for (uint32_t i = 0; i < r->plan->segment_count; i++)
		if (r->segments[i].flags & PLAN_SEGMENT_TRANSIENT)
			RAW1(SYS_shmdt, r->segments[i].base);
}

/* The process that has attached or detached it last is the one again that did. */
static void touch(const struct plan_segment *s)
{
	void *at = (void *)RAW3(SYS_shmat, s->id, NULL, SHM_RDONLY);

	if (!raw_is_error(at))
		RAW1(SYS_shmdt, at);
}

static void settle(struct restorer *r, const struct plan_segment *s)
{
	struct shmid_ds d;
	long err = RAW3(SYS_shmctl, s->id, IPC_STAT, &d);

	if (err >= 0 && ((d.shm_perm.mode ^ s->mode) & 0777 || d.shm_perm.uid != s->uid || d.shm_perm.gid != s->gid)) {
		d.shm_perm.mode = (unsigned short)(s->mode & 0777);
		d.shm_perm.uid = s->uid;
		d.shm_perm.gid = s->gid;
		err = RAW3(SYS_shmctl, s->id, IPC_SET, &d);
	}
	if (err >= 0 && s->mode & SHM_LOCKED && RAW3(SYS_shmctl, s->id, SHM_LOCK, NULL) < 0)
		warn(r, "its System V shared memory is not locked into memory: id", (uint64_t)s->id, 0);
	if (err >= 0 && s->mode & SHM_DEST)
		err = RAW3(SYS_shmctl, s->id, IPC_RMID, NULL);
	if (err < 0)
		fail(r, "the owner and permissions of System V shared memory", (uint64_t)s->id, err);
}

void segments_finish(struct restorer *r)
{
	for (uint32_t i = 0; i < r->plan->segment_count; i++) {
		if (r->segments[i].flags & PLAN_SEGMENT_TOUCH)
			touch(&r->segments[i]);
		if (r->segments[i].flags & PLAN_SEGMENT_SETTLE)
			settle(r, &r->segments[i]);
	}
}
