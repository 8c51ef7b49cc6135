/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V shared memory, in WRITE. Of those who know a segment (sysv_publish.c) one leads it: it
 * counts the attachments, so that none is another job's, and saves the pages, all of them and once, through a
 * mapping of its own that shows the whole segment, or through an attachment that it makes for the checkpoint's duration ("transient").
 *
 * Owns the records, in the arena: made at the beginning of WRITE, before the moment of the image. The transient
 * attachments are gone at the end of WRITE, not at RESUME: another process may go on before this one, and would count them.
 * Runs in the checkpoint thread.
 */
#include "agent/sysv.h"

#include <errno.h>
#include <string.h>
#include <sys/shm.h>

#include "agent/agent.h"

#define LEAVING_MS 1000 /* a process of the job that ends just now may still be attached */

static struct image_sysv *records;
static uint32_t record_count;

static int look(const struct sysv_held *h, struct shmid_ds *ret)
{
	long r = RAW3(SYS_shmctl, h->id, IPC_STAT, ret);

	return r < 0 ? fermata_fail((int)r, "System V shared memory %d cannot be looked at (errno %d)", h->id, (int)-r) : 0;
}

static int check_owner(const struct sysv_held *h, const struct shmid_ds *d)
{
	uint32_t uid = (uint32_t)RAW0(SYS_geteuid), gid = (uint32_t)RAW0(SYS_getegid);
	const struct ipc_perm *p = &d->shm_perm;

	if (!uid || (p->uid == uid && p->cuid == uid && p->gid == gid && p->cgid == gid))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "System V shared memory %d belongs to another user or group than process %u (%u.%u, made by %u.%u)",
			    h->id, agent.pid, p->uid, p->gid, p->cuid, p->cgid);
}

static int check_attachments(const struct sysv_held *h, struct shmid_ds *d, uint64_t ours)
{
	const struct timespec nap = { 0, 1000000 };
	int r = 0;

	for (int ms = 0; d->shm_nattch > ours && ms < LEAVING_MS && !r; ms++) {
		RAW2(SYS_nanosleep, &nap, NULL);
		r = look(h, d);
	}
	if (r || d->shm_nattch <= ours)
		return r;
	return fermata_fail(-EOPNOTSUPP, "System V shared memory %d is attached by a process that is not of the job", h->id);
}

static int attach_transient(struct sysv_held *h)
{
	void *at = (void *)RAW3(SYS_shmat, h->id, NULL, SHM_RDONLY);

	if (raw_is_error(at))
		return fermata_fail((int)(long)at, "System V shared memory %d cannot be read (errno %d)", h->id, (int)-(long)at);
	h->transient = h->window = (uint64_t)at;
	return 0;
}

static int lead(struct sysv_held *h, struct shmid_ds *d, uint64_t ours)
{
	int r = check_attachments(h, d, ours);

	if (r || (h->window && h->window_length >= d->shm_segsz)) /* as far as its last page, of whatever size */
		return r;
	return attach_transient(h);
}

static void record(const struct sysv_held *h, const struct shmid_ds *d)
{
	const struct ipc_perm *p = &d->shm_perm;
	uint32_t at = record_count++;

	for (; at && records[at - 1].id > h->id; at--)
		records[at] = records[at - 1];
	records[at] = (struct image_sysv){
		.id = h->id, .key = p->__key, .size = d->shm_segsz, .mode = p->mode, .uid = p->uid, .gid = p->gid,
		.cuid = p->cuid, .cgid = p->cgid, .cpid = d->shm_cpid, .lpid = d->shm_lpid,
	};
}

static int begin(struct sysv_held *h)
{
	uint64_t ours = sysv_count_mappings(h);
	struct shmid_ds d;
	int r;

	if (!h->attached && !h->leads)
		return 0;
	r = look(h, &d);
	if (!r)
		r = check_owner(h, &d);
	if (!r && h->leads)
		r = lead(h, &d, ours);
	if (!r)
		record(h, &d);
	return r;
}

int sysv_begin(void)
{
	int r = sysv_check_namespaces();

	if (!sysv_held_count || r)
		return r;
	records = arena_alloc(&agent_arena, sysv_held_count * sizeof(*records));
	if (!records)
		return fermata_fail(-ENOMEM, "no memory to list the System V shared memory of process %u", agent.pid);
	for (uint32_t i = 0; i < sysv_held_count && !r; i++)
		r = begin(&sysv_held[i]);
	return r;
}

static int32_t in_records(uint64_t id)
{
	for (uint32_t i = 0; i < record_count; i++)
		if ((uint64_t)records[i].id == id)
			return (int32_t)i;
	return -1;
}

/* What was attached with SHM_RDONLY cannot be made writable. */
static bool is_readonly(const struct image_mapping *v)
{
	void *at = (void *)v->start;

	if (v->prot & PROT_WRITE || raw_mprotect(at, v->end - v->start, (int)v->prot | PROT_WRITE))
		return !(v->prot & PROT_WRITE);
	raw_mprotect(at, v->end - v->start, (int)v->prot);
	return false;
}

static int mark(const struct maps *m, struct image_mapping *v)
{
	const struct sysv_held *h = sysv_find(v->ino);
	int32_t at = in_records(v->ino);
	const char *why = NULL;

	if (!h || at < 0)
		why = "is not known";
	else
		records[at].page_shift = image_mapping_page_shift(v);
	if (!why && (v->offset > v->start || v->offset + (v->end - v->start) > image_sysv_room(&records[at])))
		why = "reaches beyond its System V shared memory, which is not supported";
	if (why)
		return fermata_fail(-EOPNOTSUPP, "mapping %lx-%lx of %s %s", (long)v->start, (long)v->end, maps_path(m, v), why);
	if (h->transient && v->start - v->offset == h->transient)
		v->flags |= IMAGE_MAPPING_TRANSIENT;
	else if (is_readonly(v))
		v->flags |= IMAGE_MAPPING_READONLY;
	return 0;
}

int sysv_mark(struct maps *m)
{
	int r = 0;

	for (uint32_t i = 0; i < m->count && !r; i++)
		if (m->mappings[i].kind == IMAGE_MAPPING_SYSV)
			r = mark(m, &m->mappings[i]);
	return r;
}

bool sysv_saves(const struct image_mapping *v)
{
	const struct sysv_held *h = sysv_find(v->ino);

	return h && h->leads && h->window == v->start;
}

const struct image_sysv *sysv_records(uint32_t *ret_count)
{
	*ret_count = record_count;
	return records;
}

void sysv_detach(void)
{
	for (uint32_t i = 0; i < sysv_held_count; i++) {
		if (sysv_held[i].transient)
			RAW1(SYS_shmdt, sysv_held[i].transient);
		sysv_held[i].transient = 0;
	}
}

void sysv_end(void)
{
	arena_free(&agent_arena, records);
	records = NULL;
	record_count = 0;
	sysv_forget();
}
