/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the chunks that its callers' arenas map. A block is preceded by a 16-byte header with its class, or its length
 * when it is a mapping of its own:
 *
 *   | header 16 | payload ... |          together 16, 32, 48, 64 bytes, then four sizes a doubling: 80, 96, 112, 128, 160, ..
 *
 * Not powers of two: the same field of many objects would then lie in a few sets of the processor's caches.
 *
 * Freed blocks go on a list of their class; an arena holds what it held at its fullest until arena_done. Each chunk
 * begins with 16 bytes of its own: the link to the chunk before, and its size.
 *
 * Who fills several chunks has thousands of objects, and goes through them: of an arena that maps by itself later chunks are whole huge pages, where the kernel has some, so that
 * they are not beyond the reach of the processor's TLB.
 */
#include "base/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macro.h"
#include "base/sys.h"

#define CHUNK_SIZE (1u << 20)
#define CHUNKS_SMALL 4u
#define HUGE_PAGE (2u << 20)
#define LARGE_SIZE (128u << 10)
#define LARGE_CLASS 0xff

struct header {
	uint32_t class;
	uint32_t offset; /* large only: bytes from the mapping's start to the payload */
	uint64_t size;	 /* bytes of the whole block or mapping */
};

struct chunk {
	struct chunk *before;
	size_t size;
};

_Static_assert(sizeof(struct header) == 16 && sizeof(struct chunk) == 16, "payload alignment");

/* The class of @size bytes, and what each of its blocks takes. */
static unsigned int class_of(size_t size, size_t *ret_block)
{
	unsigned int doubling, quarter;

	if (size <= 64) {
		*ret_block = ALIGN_UP(size, (size_t)16);
		return (unsigned int)(*ret_block / 16) - 1;
	}
	doubling = 63 - (unsigned int)__builtin_clzl(size - 1); /* 1 << doubling < size <= 2 << doubling */
	quarter = (unsigned int)((size - 1) >> (doubling - 2)) & 3;
	*ret_block = (size_t)(5 + quarter) << (doubling - 2);
	return 4 + (doubling - 6) * 4 + quarter;
}

static void *chunk_map(struct arena *a, size_t len)
{
	void *p;

	if (a->map)
		return a->map(len);
	p = raw_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return raw_is_error(p) ? NULL : p;
}

static char *huge_map(void)
{
	char *p = raw_mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at, *end;

	if (raw_is_error(p))
		return NULL;
	at = (char *)ALIGN_UP((uintptr_t)p, (uintptr_t)HUGE_PAGE);
	end = at + HUGE_PAGE;
	if (at != p)
		raw_munmap(p, (size_t)(at - p));
	raw_munmap(end, (size_t)(p + 2 * HUGE_PAGE - end));
	RAW3(SYS_madvise, at, HUGE_PAGE, MADV_HUGEPAGE);
	return at;
}

static int chunk_add(struct arena *a)
{
	size_t size = a->map || a->chunk_count < CHUNKS_SMALL ? CHUNK_SIZE : HUGE_PAGE;
	struct chunk *c = size == HUGE_PAGE ? (void *)huge_map() : chunk_map(a, size);

	if (!c)
		return -ENOMEM;
	*c = (struct chunk){ .before = a->chunks, .size = size };
	a->chunks = c;
	a->chunk_count++;
	a->bump = (char *)(c + 1);
	a->bump_end = (char *)c + size;
	return 0;
}

static void *large_alloc(struct arena *a, size_t size)
{
	size_t len = ALIGN_UP(size + FM_PAGE_SIZE, FM_PAGE_SIZE);
	char *base = len > size ? chunk_map(a, len) : NULL;
	struct header *h;

	if (!base)
		return NULL;
	h = (struct header *)(base + FM_PAGE_SIZE) - 1;
	*h = (struct header){ .class = LARGE_CLASS, .offset = FM_PAGE_SIZE, .size = len };
	return h + 1;
}

static struct header *small_take(struct arena *a, unsigned int class, size_t block)
{
	struct header *h = a->free[class];

	if (h) {
		memcpy(&a->free[class], h + 1, sizeof(void *));
		memset(h + 1, 0, sizeof(void *));
		return h;
	}
	if ((!a->bump || (size_t)(a->bump_end - a->bump) < block) && chunk_add(a))
		return NULL;
	h = (struct header *)a->bump;
	a->bump += block;
	return h;
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct header *h;
	unsigned int class;
	size_t block;

	if (size > LARGE_SIZE - sizeof(*h))
		return large_alloc(a, size);
	class = class_of(size + sizeof(*h), &block);
	lock_acquire(&a->lock);
	h = small_take(a, class, block);
	lock_release(&a->lock);
	if (!h)
		return NULL;
	*h = (struct header){ .class = class, .size = block };
	return h + 1;
}

void arena_free(struct arena *a, void *p)
{
	struct header *h;

	if (!p)
		return;
	h = (struct header *)p - 1;
	if (h->class == LARGE_CLASS) {
		char *base = (char *)p - h->offset;

		if (a->unmap)
			a->unmap(base, h->size);
		else
			raw_munmap(base, h->size);
		return;
	}
	memset(p, 0, h->size - sizeof(*h));
	lock_acquire(&a->lock);
	memcpy(p, &a->free[h->class], sizeof(void *));
	a->free[h->class] = h;
	lock_release(&a->lock);
}

void arena_done(struct arena *a)
{
	struct chunk *c = a->chunks, *before;

	for (; c; c = before) {
		before = c->before;
		if (a->unmap)
			a->unmap(c, c->size);
		else
			raw_munmap(c, c->size);
	}
	memset(a->free, 0, sizeof(a->free));
	a->chunks = NULL;
	a->chunk_count = 0;
	a->bump = a->bump_end = NULL;
}

void *arena_realloc(struct arena *a, void *p, size_t size)
{
	struct header *h;
	size_t have;
	void *q;

	if (!p)
		return arena_alloc(a, size);
	h = (struct header *)p - 1;
	have = h->class == LARGE_CLASS ? h->size - h->offset : h->size - sizeof(*h);
	if (size <= have)
		return p;
	q = arena_alloc(a, size);
	if (!q)
		return NULL;
	memcpy(q, p, have);
	arena_free(a, p);
	return q;
}

char *arena_strdup(struct arena *a, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = arena_alloc(a, n);

	if (p)
		memcpy(p, s, n);
	return p;
}
