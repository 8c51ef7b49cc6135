/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared memory objects, saved once in the whole checkpoint. Each process publishes the windows that it maps, by object (device and
 * inode), in QUIESCE; in WRITE it saves of each of its windows what no window of a process with a lower pid, and no earlier
 * window of its own, covers.
 */
#include "agent/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "agent/agent.h"
#include "agent/content.h"
#include "agent/scratch.h"
#include "agent/sysv.h"
#include "image/writer.h"

struct window {
	uint64_t offset, length;
	uint32_t pid, reserved;
};

struct key {
	char name[8]; /* "shm" */
	uint64_t dev, ino;
};

static struct key key_of(const struct image_mapping *v)
{
	return (struct key){ .name = "shm", .dev = v->dev, .ino = v->ino };
}

static struct key key_of_file(const struct stat *st)
{
	return (struct key){ .name = "shm", .dev = (uint64_t)major(st->st_dev) << 20 | minor(st->st_dev), .ino = st->st_ino };
}

int fermata_ask_mapped(const struct stat *st)
{
	struct key key = key_of_file(st);

	return fermata_ask(&key, sizeof(key));
}

int memory_publish_shared(void)
{
	struct maps m;
	int r = scratch_begin();

	if (r)
		return fermata_fail(r, "no address space to list the mappings of process %u", agent.pid);
	r = maps_read(&m);
	for (uint32_t i = 0; i < m.count && !r; i++) {
		const struct image_mapping *v = &m.mappings[i];
		struct window w = { v->offset, v->end - v->start, agent.pid, 0 };
		struct key key = key_of(v);

		r = content_note_mapping(&m, v);
		if (r || v->kind != IMAGE_MAPPING_SHARED_ANON)
			continue;
		r = fermata_publish(&key, sizeof(key), &w, sizeof(w));
		if (!r)
			r = fermata_ask(&key, sizeof(key));
	}
	if (!r)
		r = sysv_publish(&m);
	scratch_end();
	return r;
}

/* The first window of a lower pid that reaches over [*start, end): cuts it off from the front, or ends the part before it. */
static void next_free(const struct key *key, uint64_t *start, uint64_t *end)
{
	const struct window *w;
	size_t len;

	for (unsigned int i = 0; (w = fermata_resolve(key, sizeof(*key), i, &len)); i++) {
		if (w->pid >= agent.pid || w->offset + w->length <= *start || w->offset >= *end)
			continue;
		if (w->offset > *start) {
			*end = w->offset;
		} else {
			*start = w->offset + w->length < *end ? w->offset + w->length : *end;
			i = (unsigned int)-1;
		}
	}
}

static bool is_first_of_ours(const struct maps *m, const struct image_mapping *v)
{
	for (const struct image_mapping *o = m->mappings; o < v; o++)
		if (o->kind == v->kind && o->dev == v->dev && o->ino == v->ino && o->offset <= v->offset &&
		    o->offset + (o->end - o->start) >= v->offset + (v->end - v->start))
			return false;
	return true;
}

/* The end of what the job's windows cover without a gap from @at on. Windows come in order as a rule, so two passes do. */
static uint64_t covered(const struct key *key, uint64_t at)
{
	const struct window *w;
	uint64_t before;
	size_t len;

	do {
		before = at;
		for (unsigned int i = 0; (w = fermata_resolve(key, sizeof(*key), i, &len)); i++)
			if (w->offset <= at && w->offset + w->length > at)
				at = w->offset + w->length;
	} while (at != before);
	return at;
}

int fermata_next_unmapped(const struct stat *st, uint64_t *start, uint64_t *end)
{
	struct key key = key_of_file(st);
	const struct window *w;
	size_t len;

	*start = covered(&key, *start);
	*end = (uint64_t)st->st_size;
	for (unsigned int i = 0; (w = fermata_resolve(&key, sizeof(key), i, &len)); i++)
		if (w->offset > *start && w->offset < *end)
			*end = w->offset;
	return *start < *end;
}

int fermata_is_mapped(const struct stat *st)
{
	struct key key = key_of_file(st);
	size_t len;

	if (!fermata_resolve(&key, sizeof(key), 0, &len))
		return 0;
	return covered(&key, 0) >= (uint64_t)st->st_size ? 2 : 1;
}

/* A file in memory comes back from what is mapped of it. Where that is not all, it is a file as others are, whose content is saved (content.c). One of huge pages has none. */
int memory_settle(struct maps *m)
{
	for (uint32_t i = 0; i < m->count; i++) {
		struct image_mapping *v = &m->mappings[i];
		struct key key = key_of(v);
		uint64_t end;

		if (v->kind != IMAGE_MAPPING_SHARED_ANON || !(v->flags & IMAGE_MAPPING_NAMED) || (end = covered(&key, 0)) >= v->file_size)
			continue;
		if (image_mapping_page_shift(v))
			return fermata_fail(-EOPNOTSUPP, "%s is shared memory of huge pages, of which the part from byte %lu on is mapped by nobody, which is not supported yet",
					    m->paths + v->path, (unsigned long)end);
		v->kind = IMAGE_MAPPING_SHARED_FILE;
		v->flags &= ((1u << IMAGE_MAPPING_MODE_SHIFT) - 1) ^ IMAGE_MAPPING_NAMED;
	}
	return 0;
}

int memory_shared_runs(const struct maps *m, const struct image_mapping *v, struct runs *runs)
{
	struct key key = key_of(v);
	uint64_t at = v->offset, last = v->offset + (v->end - v->start), base = v->start - v->offset;
	int r = 0;

	if (!is_first_of_ours(m, v))
		return runs_add(runs, v->start, v->end, v->prot, IMAGE_RUN_EMPTY);
	while (at < last && !r) {
		uint64_t start = at, end = last;

		next_free(&key, &start, &end);
		r = runs_add(runs, at + base, start + base, v->prot, IMAGE_RUN_EMPTY);
		if (!r && start < end)
			r = pages_runs(v, start + base, end + base, runs);
		at = end > start ? end : start;
	}
	return r;
}
