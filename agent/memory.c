/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared memory objects, saved once in the whole checkpoint. Each process publishes the windows that it maps, by object (device and
 * inode), in QUIESCE; in WRITE it saves of each of its windows what no window of a process with a lower pid covers, and none of its own that begins
 * before it. An object may have tens of thousands of windows: they are put in their order once (names_sort), and gone through once for all windows of ours.
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
	uint64_t offset, length, start; /* in the object; in its process */
	uint32_t pid, reserved;
};

struct part {
	uint64_t start, end; /* of an object */
};

/* Of an object that we map. */
struct memory_object {
	struct part *taken; /* what others save, in order and apart */
	size_t count;
};

/* A window's own part, if its object is known yet. */
struct memory_share {
	const struct memory_object *object;
	struct part part;
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

static bool is_of_same(const struct image_mapping *a, const struct image_mapping *b)
{
	return a->kind == b->kind && a->dev == b->dev && a->ino == b->ino;
}

static int by_offset(const void *a, const void *b)
{
	const struct window *v = a, *w = b;

	return v->offset < w->offset ? -1 : v->offset > w->offset;
}

static const struct window *window_at(const struct key *key, unsigned int i)
{
	size_t len;

	if (!i)
		names_sort(key, sizeof(*key), by_offset);
	return fermata_resolve(key, sizeof(*key), i, &len);
}

int fermata_ask_mapped(const struct stat *st)
{
	struct key key = key_of_file(st);

	return fermata_ask(&key, sizeof(key));
}

/* What it has without a name, it may have more of than it shows. */
static int check_rearranged(const struct maps *m, const struct image_mapping *v)
{
	if (likely(!agent.rearranges) || v->kind != IMAGE_MAPPING_SHARED_ANON || v->flags & IMAGE_MAPPING_NAMED)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "process %u has rearranged memory that it shares (remap_file_pages), of which a part may be mapped by nobody now: mapping %lx-%lx of %s; let the program map the parts anew (mmap)",
			    agent.pid, (unsigned long)v->start, (unsigned long)v->end, maps_path(m, v));
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
		struct window w = { v->offset, v->end - v->start, v->start, agent.pid, 0 };
		struct key key = key_of(v);

		r = content_note_mapping(&m, v);
		r = r ? r : check_rearranged(&m, v);
		if (r || v->kind != IMAGE_MAPPING_SHARED_ANON)
			continue;
		r = fermata_publish(&key, sizeof(key), &w, sizeof(w));
		if (!r && !(i && is_of_same(v, v - 1)))
			r = fermata_ask(&key, sizeof(key));
	}
	if (!r)
		r = sysv_publish(&m);
	scratch_end();
	return r;
}

/* The end of what the job's windows cover without a gap from @at on. */
static uint64_t covered(const struct key *key, uint64_t at)
{
	const struct window *w;

	for (unsigned int i = 0; (w = window_at(key, i)) && w->offset <= at; i++)
		if (w->offset + w->length > at)
			at = w->offset + w->length;
	return at;
}

int fermata_next_unmapped(const struct stat *st, uint64_t *start, uint64_t *end)
{
	struct key key = key_of_file(st);
	const struct window *w;

	*start = covered(&key, *start);
	*end = (uint64_t)st->st_size;
	for (unsigned int i = 0; (w = window_at(&key, i)) && w->offset < *end; i++)
		if (w->offset > *start)
			*end = w->offset;
	return *start < *end;
}

int fermata_is_mapped(const struct stat *st)
{
	struct key key = key_of_file(st);

	if (!window_at(&key, 0))
		return 0;
	return covered(&key, 0) >= (uint64_t)st->st_size ? 2 : 1;
}

/* A file in memory comes back from what is mapped of it. Where that is not all, it is a file as others are, whose content is saved (content.c). One of huge pages has none. */
static int settle(const struct maps *m, struct image_mapping *v, uint64_t covered_to)
{
	if (!(v->flags & IMAGE_MAPPING_NAMED) || covered_to >= v->file_size)
		return 0;
	if (image_mapping_page_shift(v))
		return fermata_fail(-EOPNOTSUPP, "%s is shared memory of huge pages, of which the part from byte %lu on is mapped by nobody, which is not supported yet",
				    maps_path(m, v), (unsigned long)covered_to);
	v->kind = IMAGE_MAPPING_SHARED_FILE;
	v->flags &= ((1u << IMAGE_MAPPING_MODE_SHIFT) - 1) ^ IMAGE_MAPPING_NAMED;
	return 0;
}

/* The window that it was published as, and the object still. */
static struct image_mapping *find_ours(const struct maps *m, const struct image_mapping *of, const struct window *w)
{
	uint32_t low = 0, high = m->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (m->mappings[middle].start < w->start)
			low = middle + 1;
		else
			high = middle;
	}
	if (w->pid != agent.pid || low == m->count || m->mappings[low].start != w->start || !is_of_same(&m->mappings[low], of))
		return NULL;
	return m->mappings[low].offset == w->offset && m->mappings[low].end - w->start == w->length ? &m->mappings[low] : NULL;
}

static void take(struct memory_object *o, const struct window *w)
{
	struct part *last = &o->taken[o->count - 1];

	if (o->count && w->offset <= last->end)
		last->end = w->offset + w->length > last->end ? w->offset + w->length : last->end;
	else
		o->taken[o->count++] = (struct part){ w->offset, w->offset + w->length };
}

/* All windows on what @v is one on. One that is not found again among ours saves itself, as if it were alone. */
static int share_out(struct maps *m, struct image_mapping *v)
{
	const struct key key = key_of(v);
	const uint64_t end = covered(&key, 0);
	const struct image_mapping of = *v;
	struct memory_object *o = scratch_grow(NULL, 0, sizeof(*o));
	const struct window *w;
	struct image_mapping *ours;
	uint64_t reach = 0;
	size_t others = 0;
	int r = 0;

	for (unsigned int i = 0; (w = window_at(&key, i)); i++)
		others += w->pid < agent.pid;
	if (!o || !(o->taken = scratch_grow(NULL, 0, (others + 1) * sizeof(*o->taken))))
		return fermata_fail(-ENOMEM, "no memory to list the shared memory of process %u", agent.pid);
	m->shares[v - m->mappings] = (struct memory_share){ o, { v->offset, v->offset + (v->end - v->start) } };
	for (unsigned int i = 0; !r && (w = window_at(&key, i)); i++) {
		if (w->pid < agent.pid)
			take(o, w);
		ours = find_ours(m, &of, w);
		if (!ours)
			continue;
		m->shares[ours - m->mappings] = (struct memory_share){ o, { w->offset > reach ? w->offset : reach, w->offset + w->length } };
		reach = w->offset + w->length > reach ? w->offset + w->length : reach;
		r = settle(m, ours, end);
	}
	return r || v->kind != of.kind ? r : settle(m, v, end);
}

int memory_settle(struct maps *m)
{
	int r = 0;

	m->shares = scratch_grow(NULL, 0, m->count * sizeof(*m->shares));
	if (!m->shares)
		return fermata_fail(-ENOMEM, "no memory to list the shared memory of process %u", agent.pid);
	for (uint32_t i = 0; i < m->count && !r; i++)
		if (m->mappings[i].kind == IMAGE_MAPPING_SHARED_ANON && !m->shares[i].object)
			r = share_out(m, &m->mappings[i]);
	return r;
}

/* The first that ends behind @at. */
static size_t first_taken(const struct memory_object *o, uint64_t at)
{
	size_t low = 0, high = o->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (o->taken[middle].end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int memory_shared_runs(const struct maps *m, const struct image_mapping *v, struct runs *runs)
{
	const struct memory_share *s = &m->shares[v - m->mappings];
	uint64_t at = v->offset, last = v->offset + (v->end - v->start), base = v->start - v->offset;
	const struct part *t = s->object->taken + first_taken(s->object, s->part.start), *end = s->object->taken + s->object->count;
	int r = 0;

	while (at < last && !r) {
		uint64_t start = at < s->part.start ? least(s->part.start, last) : at; /* empty up to here, and then up to @stop data */
		uint64_t stop = last;

		for (; t < end && t->start <= start; t++)
			start = least(t->end > start ? t->end : start, last);
		if (t < end)
			stop = least(t->start, last);
		r = runs_add(runs, at + base, start + base, v->prot, IMAGE_RUN_EMPTY);
		if (!r && start < stop)
			r = pages_runs(v, start + base, stop + base, runs);
		at = stop > start ? stop : start;
	}
	return r;
}
