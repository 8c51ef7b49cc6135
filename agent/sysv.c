/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V shared memory. In QUIESCE each process publishes the segments that it maps, and those without any attachment that are the
 * job's: its own creations, and after a restart all of the capsule. The lowest pid that published a segment leads it: it
 * counts the attachments, so that none is another job's, and saves the pages, all of them and once, through a
 * mapping of its own that shows the whole segment, or through an attachment that it makes for the checkpoint's duration ("transient").
 *
 * Owns the table `held`, in the arena: made in QUIESCE, filled in at the beginning of WRITE, before the moment of the image; the transient
 * attachments are gone at RESUME. Runs in the checkpoint thread.
 */
#include "agent/sysv.h"

#include <errno.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include "agent/agent.h"

#define LEAVING_MS 1000 /* a process of the job that ends just now may still be attached */

struct held {
	int32_t id;
	bool attached, leads;
	uint64_t window, window_length; /* a mapping of ours from the segment's first byte on, writable */
	uint64_t transient;		/* 0: none */
};

struct publication {
	uint32_t pid;
	uint32_t mappings; /* 1, or 0: known, not mapped */
};

struct key {
	char name[8];
	uint64_t id;
};

static struct held *held;
static struct image_sysv *records;
static uint32_t count, record_count;

static struct key key_of(int32_t id)
{
	return (struct key){ .name = "sysvshm", .id = (uint64_t)id };
}

static const struct key namespace_key = { .name = "sysvns" };

static struct held *find(uint64_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if ((uint64_t)held[i].id == id)
			return &held[i];
	return NULL;
}

static struct held *add(uint64_t id)
{
	struct held *h = find(id), *more;

	if (h)
		return h;
	more = arena_realloc(&agent_arena, held, (count + 1) * sizeof(*held));
	if (!more)
		return NULL;
	held = more;
	held[count] = (struct held){ .id = (int32_t)id };
	return &held[count++];
}

static int publish(int32_t id, uint32_t mappings)
{
	struct publication p = { agent.pid, mappings };
	struct key key = key_of(id);

	return fermata_publish(&key, sizeof(key), &p, sizeof(p));
}

static int no_memory(void)
{
	return fermata_fail(-ENOMEM, "no memory to list the System V shared memory of process %u", agent.pid);
}

static int publish_mapping(const struct image_mapping *v)
{
	struct held *h = add(v->ino);

	if (!h)
		return no_memory();
	h->attached = true;
	if (!v->offset && v->prot & PROT_WRITE && v->prot & PROT_READ) {
		h->window = v->start;
		h->window_length = v->end - v->start;
	}
	return publish(h->id, 1);
}

/* Pids come again: a user that we have never been has made it as another process. Root we may have been. */
static bool is_ours(const struct ipc_perm *p)
{
	uint32_t real, effective, saved;

	return !p->cuid || RAW3(SYS_getresuid, &real, &effective, &saved) < 0 || p->cuid == real || p->cuid == effective || p->cuid == saved;
}

static bool is_of_the_job(const struct shmid_ds *d)
{
	return ((uint32_t)d->shm_cpid == agent.pid && is_ours(&d->shm_perm)) || (agent.capsule && !d->shm_nattch);
}

/* Segments that no process of the job need be attached to. */
static int publish_others(void)
{
	struct shm_info info;
	struct shmid_ds d;
	long last = RAW3(SYS_shmctl, 0, SHM_INFO, &info);
	int r = 0;

	if (last < 0 || !info.used_ids)
		return 0;
	for (int i = 0; i <= last && !r; i++) {
		long id = RAW3(SYS_shmctl, i, SHM_STAT_ANY, &d);

		if (id < 0 || !is_of_the_job(&d) || find((uint64_t)id))
			continue;
		r = add((uint64_t)id) ? publish((int32_t)id, 0) : no_memory();
	}
	return r;
}

static int publish_namespace(void)
{
	struct stat st = { 0 };
	uint64_t ino;

	if (!count)
		return 0;
	RAW4(SYS_newfstatat, AT_FDCWD, "/proc/thread-self/ns/ipc", &st, 0);
	ino = st.st_ino;
	int r = fermata_publish(&namespace_key, sizeof(namespace_key), &ino, sizeof(ino));

	return r ? r : fermata_ask(&namespace_key, sizeof(namespace_key));
}

static void forget(void)
{
	arena_free(&agent_arena, held);
	arena_free(&agent_arena, records);
	held = NULL;
	records = NULL;
	count = record_count = 0;
}

int sysv_publish(const struct maps *m)
{
	int r = 0;

	forget();
	for (uint32_t i = 0; i < m->count && !r; i++)
		if (m->mappings[i].kind == IMAGE_MAPPING_SYSV)
			r = publish_mapping(&m->mappings[i]);
	if (!r)
		r = publish_others();
	for (uint32_t i = 0; i < count && !r; i++) {
		struct key key = key_of(held[i].id);

		r = fermata_ask(&key, sizeof(key));
	}
	return r ? r : publish_namespace();
}

/* ---- WRITE ---- */

static int check_namespaces(void)
{
	const uint64_t *first = NULL, *ino;
	size_t len;

	for (unsigned int i = 0; (ino = fermata_resolve(&namespace_key, sizeof(namespace_key), i, &len)); i++) {
		first = first ? first : ino;
		if (*ino != *first)
			return fermata_fail(-EOPNOTSUPP,
					    "the job's System V shared memory is in several IPC namespaces, which is not supported");
	}
	return 0;
}

/* How often the job's processes map it; and whether we have the lowest pid of those who know it. */
static uint64_t count_mappings(struct held *h)
{
	const struct publication *p;
	struct key key = key_of(h->id);
	uint64_t n = 0;
	size_t len;

	h->leads = true;
	for (unsigned int i = 0; (p = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		n += p->mappings;
		h->leads &= p->pid >= agent.pid;
	}
	return n;
}

static int look(const struct held *h, struct shmid_ds *ret)
{
	long r = RAW3(SYS_shmctl, h->id, IPC_STAT, ret);

	return r < 0 ? fermata_fail((int)r, "System V shared memory %d cannot be looked at (errno %d)", h->id, (int)-r) : 0;
}

static int check_owner(const struct held *h, const struct shmid_ds *d)
{
	uint32_t uid = (uint32_t)RAW0(SYS_geteuid), gid = (uint32_t)RAW0(SYS_getegid);
	const struct ipc_perm *p = &d->shm_perm;

	if (!uid || (p->uid == uid && p->cuid == uid && p->gid == gid && p->cgid == gid))
		return 0;
	return fermata_fail(-EOPNOTSUPP, "System V shared memory %d belongs to another user or group than process %u (%u.%u, made by %u.%u)",
			    h->id, agent.pid, p->uid, p->gid, p->cuid, p->cgid);
}

static int check_attachments(const struct held *h, struct shmid_ds *d, uint64_t ours)
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

static int attach_transient(struct held *h)
{
	void *at = (void *)RAW3(SYS_shmat, h->id, NULL, SHM_RDONLY);

	if (raw_is_error(at))
		return fermata_fail((int)(long)at, "System V shared memory %d cannot be read (errno %d)", h->id, (int)-(long)at);
	h->transient = h->window = (uint64_t)at;
	return 0;
}

static int lead(struct held *h, struct shmid_ds *d, uint64_t ours)
{
	int r = check_attachments(h, d, ours);

	if (r || (h->window && h->window_length >= d->shm_segsz)) /* as far as its last page, of whatever size */
		return r;
	return attach_transient(h);
}

static void record(const struct held *h, const struct shmid_ds *d)
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

static int begin(struct held *h)
{
	uint64_t ours = count_mappings(h);
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
	int r = check_namespaces();

	if (!count || r)
		return r;
	records = arena_alloc(&agent_arena, count * sizeof(*records));
	if (!records)
		return no_memory();
	for (uint32_t i = 0; i < count && !r; i++)
		r = begin(&held[i]);
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
	const struct held *h = find(v->ino);
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
	const struct held *h = find(v->ino);

	return h && h->leads && h->window == v->start;
}

const struct image_sysv *sysv_records(uint32_t *ret_count)
{
	*ret_count = record_count;
	return records;
}

void sysv_end(void)
{
	for (uint32_t i = 0; i < count; i++)
		if (held[i].transient)
			RAW1(SYS_shmdt, held[i].transient);
	forget();
}

void sysv_restarted(void)
{
	forget();
}
