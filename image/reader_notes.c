/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The vendor notes of an image that is being read: copied to aligned memory, decoded, checked. Hosted. Fills
 * in struct image.
 *
 * Structs may be longer (newer minor version) or shorter (older) than ours: decode() takes what there is and
 * leaves zeros for the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "image/view.h"

#define ADDRESS_MAX (1ull << 56)

bool image_raw_note_next(const uint8_t *base, uint64_t end, uint64_t *at, struct image_raw_note *ret, bool *ret_bad)
{
	Elf64_Nhdr h;
	uint64_t left = end - *at, name, data;

	if (left == 0)
		return false;
	if (left < sizeof(h))
		goto bad;
	memcpy(&h, base + *at, sizeof(h));
	left -= sizeof(h);
	name = ALIGN_UP((uint64_t)h.n_namesz, 4);
	data = ALIGN_UP((uint64_t)h.n_descsz, 4);
	if (name > left || data > left - name)
		goto bad;
	*ret = (struct image_raw_note){
		.owner = (const char *)base + *at + sizeof(h),
		.owner_length = h.n_namesz,
		.type = h.n_type,
		.length = h.n_descsz,
		.data = base + *at + sizeof(h) + name,
	};
	*at += sizeof(h) + name + data;
	return true;
bad:
	*ret_bad = true;
	return false;
}

bool image_raw_note_is_ours(const struct image_raw_note *n)
{
	return n->owner_length == sizeof(IMAGE_NOTE_OWNER) && !memcmp(n->owner, IMAGE_NOTE_OWNER, sizeof(IMAGE_NOTE_OWNER));
}

/* Counts, then copies: @count and @words are known after the first pass. */
static bool walk(struct image *i, bool copy, size_t *count, size_t *words)
{
	uint64_t at = i->notes_offset;
	struct image_raw_note n;
	bool bad = false;

	*count = *words = 0;
	while (image_raw_note_next(i->head, i->notes_end, &at, &n, &bad)) {
		if (!image_raw_note_is_ours(&n))
			continue;
		if (copy) {
			i->notes[*count] = (struct image_note_view){ n.type, n.length, i->note_data + *words };
			memcpy(i->note_data + *words, n.data, n.length);
		}
		*words += ((uint64_t)n.length + 7) / 8;
		(*count)++;
	}
	return !bad;
}

static void decode(const struct image_note_view *n, void *ret, size_t size)
{
	memcpy(ret, n->data, n->length < size ? n->length : size);
}

static bool ended(const char *s, size_t size)
{
	return memchr(s, 0, size) != NULL;
}

static bool read_process(struct image *i, const struct image_note_view *n)
{
	struct image_process *p = &i->process;

	decode(n, p, sizeof(*p));
	if (!ended(p->comm, sizeof(p->comm)) || !ended(p->exe, sizeof(p->exe)) || !ended(p->cwd, sizeof(p->cwd)) ||
	    !ended((const char *)p->boot_id, sizeof(p->boot_id)) || p->auxv_length > sizeof(p->auxv) || !p->thread_count)
		return false;
	/* A claim of more threads than notes is found later, but must not cost memory. */
	if (p->thread_count > i->note_count)
		return false;
	i->threads = calloc(p->thread_count, sizeof(*i->threads));
	return i->threads != NULL;
}

static bool read_thread(struct image *i, const struct image_note_view *n)
{
	struct image_thread *t;

	if (!i->threads || i->thread_count == i->process.thread_count)
		return false;
	t = &i->threads[i->thread_count++];
	decode(n, t, sizeof(*t));
	return t->tid && ended(t->comm, sizeof(t->comm));
}

static bool mapping_is_sane(const struct image *i, const struct image_mapping *m, uint64_t after)
{
	return m->start >= after && m->start < m->end && m->end <= ADDRESS_MAX && (m->start | m->end) % FM_PAGE_SIZE == 0 &&
	       m->offset % FM_PAGE_SIZE == 0 && m->kind >= IMAGE_MAPPING_ANON && m->kind <= IMAGE_MAPPING_SYSV &&
	       m->prot <= 7 && (m->path == 0 || m->path < i->paths_length);
}

static bool read_mappings(struct image *i, const struct image_note_view *n)
{
	struct image_mappings h = { 0 };
	const uint8_t *at = (const uint8_t *)n->data + sizeof(h);
	uint64_t left, after = 0;

	decode(n, &h, sizeof(h));
	left = n->length < sizeof(h) ? 0 : n->length - sizeof(h);
	if (!h.entry_size || h.entry_size % 8 || h.count > left / h.entry_size ||
	    h.paths_length != left - h.count * (uint64_t)h.entry_size)
		return false;
	i->paths = (const char *)at + h.count * (uint64_t)h.entry_size;
	i->paths_length = h.paths_length;
	if (h.paths_length && (i->paths[0] || i->paths[h.paths_length - 1]))
		return false;
	i->mappings = calloc(h.count + 1ul, sizeof(*i->mappings));
	if (!i->mappings)
		return false;
	for (uint32_t k = 0; k < h.count; k++, at += h.entry_size) {
		struct image_mapping *m = &i->mappings[i->mapping_count++];

		memcpy(m, at, h.entry_size < sizeof(*m) ? h.entry_size : sizeof(*m));
		if (!mapping_is_sane(i, m, after))
			return false;
		after = m->end;
	}
	return true;
}

static bool read_cpu(struct image *i, const struct image_note_view *n)
{
	decode(n, &i->cpu, sizeof(i->cpu));
	return ended(i->cpu.vendor, sizeof(i->cpu.vendor)) && ended(i->cpu.model, sizeof(i->cpu.model));
}

static bool read_host(struct image *i, const struct image_note_view *n)
{
	struct image_host *h = &i->host;

	decode(n, h, sizeof(*h));
	return ended(h->hostname, sizeof(h->hostname)) && ended(h->kernel, sizeof(h->kernel)) &&
	       ended(h->glibc, sizeof(h->glibc));
}

static bool read_resource(struct image *i, const struct image_note_view *n)
{
	const struct image_resource *r = n->data;
	uint64_t left;

	if (n->length < sizeof(*r))
		return false;
	left = n->length - sizeof(*r);
	if (!ended(r->plugin, sizeof(r->plugin)) || r->length > left || r->kind < IMAGE_RESOURCE_PLAIN ||
	    r->kind > IMAGE_RESOURCE_FOREIGN)
		return false;
	if (r->kind == IMAGE_RESOURCE_FOREIGN && r->length < sizeof(struct image_foreign))
		return false;
	if (!r->fd_count)
		return true;
	left = n->length;
	return ALIGN_UP(sizeof(*r) + (uint64_t)r->length, 8) <= left &&
	       r->fd_count <= (left - ALIGN_UP(sizeof(*r) + (uint64_t)r->length, 8)) / sizeof(struct image_fd);
}

static bool read_version(struct image *i, const struct image_note_view *n)
{
	decode(n, &i->version, sizeof(i->version));
	return i->version.version && ended(i->version.writer, sizeof(i->version.writer));
}

static bool read_signals(struct image *i, const struct image_note_view *n)
{
	decode(n, i->signals, sizeof(i->signals));
	return n->length >= sizeof(i->signals);
}

static bool read_zombies(struct image *i, const struct image_note_view *n)
{
	return n->length && n->length % sizeof(struct image_zombie) == 0;
}

static bool read_groups(struct image *i, const struct image_note_view *n)
{
	return n->length && n->length % sizeof(struct image_group) == 0;
}

static const struct kind {
	const char *name;
	bool once, needed;
	bool (*read)(struct image *i, const struct image_note_view *n); /* NULL: not one of the head */
} kinds[] = {
	[0] = { "VERSION", true, true, read_version },	 [1] = { "PROCESS", true, true, read_process },
	[2] = { "THREAD", false, true, read_thread },	 [3] = { "MAPPINGS", true, true, read_mappings },
	[4] = { "SIGNALS", true, true, read_signals },	 [5] = { "CPU", true, true, read_cpu },
	[6] = { "HOST", true, true, read_host },	 [7] = { "RESOURCE", false, false, read_resource },
	[8] = { "BLOCKS", true, false, NULL },		 [9] = { "ZOMBIES", true, false, read_zombies },
	[10] = { "SYSV", true, false, image_read_sysv },
	[11] = { "CONTENTS", true, false, image_read_contents },
	[12] = { "ZOMBIE_GROUPS", true, false, read_groups },
};

static int read_one(struct image *i, const struct image_note_view *n, struct image_error *e)
{
	uint32_t k = n->type - IMAGE_NOTE_VERSION;

	if (k >= ARRAY_SIZE(kinds)) /* not known: to be skipped */
		return 0;
	if (!kinds[k].read || (kinds[k].once && i->seen & 1u << k) || !kinds[k].read(i, n))
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: its note %s is not in order", kinds[k].name);
	i->seen |= 1u << k;
	return 0;
}

int image_read_notes(struct image *i, struct image_error *e)
{
	size_t words;
	int r = 0;

	if (!walk(i, false, &i->note_count, &words))
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: its notes do not fit into each other");
	i->notes = calloc(i->note_count + 1, sizeof(*i->notes));
	i->note_data = calloc(words + 1, sizeof(*i->note_data));
	if (!i->notes || !i->note_data)
		return image_say(i, e, IMAGE_MISSING, "no memory for its notes");
	walk(i, true, &i->note_count, &words);
	for (size_t n = 0; n < i->note_count && !r; n++)
		r = read_one(i, &i->notes[n], e);
	if (r)
		return r;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		if (kinds[k].needed && !(i->seen & 1u << k))
			return image_say(i, e, IMAGE_DAMAGED, "is damaged: its note %s is missing", kinds[k].name);
	if (i->thread_count != i->process.thread_count)
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: it has %zu of %u threads", i->thread_count,
				 i->process.thread_count);
	if (!image_sysv_agrees(i))
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: its System V memory does not agree with its mappings");
	return 0;
}

const struct image_version *image_get_version(const struct image *i)
{
	return &i->version;
}

const struct image_process *image_get_process(const struct image *i)
{
	return &i->process;
}

const struct image_thread *image_get_threads(const struct image *i, size_t *ret_count)
{
	*ret_count = i->thread_count;
	return i->threads;
}

const struct image_mapping *image_get_mappings(const struct image *i, size_t *ret_count)
{
	*ret_count = i->mapping_count;
	return i->mappings;
}

void image_take_pages(struct image *i, const struct image_mapping *mapping)
{
	struct image_mapping *m = &i->mappings[mapping - i->mappings];

	m->kind = IMAGE_MAPPING_ANON;
	m->path = 0;
	m->offset = m->dev = m->ino = 0;
}

const char *image_mapping_path(const struct image *i, const struct image_mapping *m)
{
	return m->path ? i->paths + m->path : "";
}

const struct image_sigaction *image_get_signals(const struct image *i)
{
	return i->signals;
}

const struct image_cpu *image_get_cpu(const struct image *i)
{
	return &i->cpu;
}

const struct image_host *image_get_host(const struct image *i)
{
	return &i->host;
}

bool image_next_note(const struct image *i, size_t *cursor, struct image_note_view *ret)
{
	if (*cursor >= i->note_count)
		return false;
	*ret = i->notes[(*cursor)++];
	return true;
}

const struct image_zombie *image_get_zombies(const struct image *i, size_t *ret_count, const struct image_group **ret_groups)
{
	const struct image_zombie *zombies = NULL;
	const struct image_group *groups = NULL;
	size_t cursor = 0, count = 0, grouped = 0;
	struct image_note_view n;

	while (image_next_note(i, &cursor, &n)) {
		if (n.type == IMAGE_NOTE_ZOMBIES) {
			zombies = n.data;
			count = n.length / sizeof(*zombies);
		} else if (n.type == IMAGE_NOTE_ZOMBIE_GROUPS) {
			groups = n.data;
			grouped = n.length / sizeof(*groups);
		}
	}
	*ret_count = count;
	if (ret_groups)
		*ret_groups = grouped == count ? groups : NULL;
	return zombies;
}
