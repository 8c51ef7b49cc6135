/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V shared memory, in QUIESCE: each process publishes the segments that it maps, and those without any attachment that are the
 * job's: its own creations, and after a restart all of the capsule. Of those who published a segment one leads it (sysv.c): the one
 * that was the last to attach or detach it (lpid), so that it still is afterwards; else the lowest pid. Who was the last may
 * change meanwhile, as others end: what the lowest pid has published of it counts for all.
 *
 * Owns the table sysv_held, in the arena: made here, filled in by sysv.c. Runs in the checkpoint thread.
 */
#include "agent/sysv.h"

#include <errno.h>
#include <sys/shm.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "base/begun.h"

struct publication {
	uint32_t pid;
	uint32_t mappings; /* 1, or 0: known, not mapped */
	uint32_t last;	   /* the segment's lpid */
};

struct key {
	char name[8];
	uint64_t id;
};

struct sysv_held *sysv_held;
uint32_t sysv_held_count;

static struct key key_of(int32_t id)
{
	return (struct key){ .name = "sysvshm", .id = (uint64_t)id };
}

static const struct key namespace_key = { .name = "sysvns" };

struct sysv_held *sysv_find(uint64_t id)
{
	for (uint32_t i = 0; i < sysv_held_count; i++)
		if ((uint64_t)sysv_held[i].id == id)
			return &sysv_held[i];
	return NULL;
}

static struct sysv_held *add(uint64_t id)
{
	struct sysv_held *h = sysv_find(id), *more;

	if (h)
		return h;
	more = arena_realloc(&agent_arena, sysv_held, (sysv_held_count + 1) * sizeof(*more));
	if (!more)
		return NULL;
	sysv_held = more;
	sysv_held[sysv_held_count] = (struct sysv_held){ .id = (int32_t)id };
	return &sysv_held[sysv_held_count++];
}

static int publish(int32_t id, uint32_t mappings)
{
	struct publication p = { agent.pid, mappings, 0 };
	struct key key = key_of(id);
	struct shmid_ds d;

	if (RAW3(SYS_shmctl, id, IPC_STAT, &d) >= 0)
		p.last = (uint32_t)d.shm_lpid;
	return fermata_publish(&key, sizeof(key), &p, sizeof(p));
}

static int no_memory(void)
{
	return fermata_fail(-ENOMEM, "no memory to list the System V shared memory of process %u", agent.pid);
}

static int publish_mapping(const struct image_mapping *v)
{
	struct sysv_held *h = add(v->ino);

	if (!h)
		return no_memory();
	h->attached = true;
	if (!v->offset && v->prot & PROT_WRITE && v->prot & PROT_READ) {
		h->window = v->start;
		h->window_length = v->end - v->start;
	}
	return publish(h->id, 1);
}

/* Pids come again: what is older than the job, or of a user that we have never been, is another process's. Root we may have been. */
static bool is_ours(const struct shmid_ds *d)
{
	const struct ipc_perm *p = &d->shm_perm;
	uint32_t real, effective, saved;

	if (d->shm_ctime < begun_earliest(fermata_begun()))
		return false;
	return !p->cuid || RAW3(SYS_getresuid, &real, &effective, &saved) < 0 || p->cuid == real || p->cuid == effective || p->cuid == saved;
}

static bool is_of_the_job(const struct shmid_ds *d)
{
	return ((uint32_t)d->shm_cpid == agent.pid && is_ours(d)) || (agent.capsule && !d->shm_nattch);
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

		if (id < 0 || !is_of_the_job(&d) || sysv_find((uint64_t)id))
			continue;
		r = add((uint64_t)id) ? publish((int32_t)id, 0) : no_memory();
	}
	return r;
}

static int publish_namespace(void)
{
	struct stat st = { 0 };
	uint64_t ino;

	if (!sysv_held_count)
		return 0;
	RAW4(SYS_newfstatat, AT_FDCWD, "/proc/thread-self/ns/ipc", &st, 0);
	ino = st.st_ino;
	int r = fermata_publish(&namespace_key, sizeof(namespace_key), &ino, sizeof(ino));

	return r ? r : fermata_ask(&namespace_key, sizeof(namespace_key));
}

void sysv_forget(void)
{
	arena_free(&agent_arena, sysv_held);
	sysv_held = NULL;
	sysv_held_count = 0;
}

int sysv_publish(const struct maps *m)
{
	int r = 0;

	sysv_forget();
	for (uint32_t i = 0; i < m->count && !r; i++)
		if (m->mappings[i].kind == IMAGE_MAPPING_SYSV)
			r = publish_mapping(&m->mappings[i]);
	if (!r)
		r = publish_others();
	for (uint32_t i = 0; i < sysv_held_count && !r; i++) {
		struct key key = key_of(sysv_held[i].id);

		r = fermata_ask(&key, sizeof(key));
	}
	return r ? r : publish_namespace();
}

int sysv_check_namespaces(void)
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

static uint32_t leader_of(const struct key *key)
{
	const struct publication *p, *lowest = NULL;
	size_t len;

	for (unsigned int i = 0; (p = fermata_resolve(key, sizeof(*key), i, &len)); i++)
		lowest = lowest && (lowest->pid < p->pid || (lowest->pid == p->pid && lowest->last <= p->last)) ? lowest : p;
	for (unsigned int i = 0; lowest && (p = fermata_resolve(key, sizeof(*key), i, &len)); i++)
		if (p->pid == lowest->last)
			return p->pid;
	return lowest ? lowest->pid : 0;
}

uint64_t sysv_count_mappings(struct sysv_held *h)
{
	const struct publication *p;
	struct key key = key_of(h->id);
	uint64_t n = 0;
	size_t len;

	h->leads = leader_of(&key) == agent.pid;
	for (unsigned int i = 0; (p = fermata_resolve(&key, sizeof(key), i, &len)); i++)
		n += p->mappings;
	return n;
}
