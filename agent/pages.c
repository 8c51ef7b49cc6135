/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of a mapping have to be saved. PAGEMAP_SCAN (kernel commit 52526ca7fdb9, 6.7) where a probe finds it, else the entries of
 * /proc/self/pagemap. A page counts
 *
 *   of anonymous memory       when it is present or swapped
 *   of a deleted file         always, as far as it goes: none has the rest of it any more
 *   of a private file mapping when it is no longer the file's (copied on write): present or swapped, and not PAGE_IS_FILE
 *                             With --text=save the file's are saved as well, as far as it goes: marked, since a restart that finds it need not take them. So is in any
 *                             case the first page of a program or library
 *   of shared memory          when the object has it, as mincore tells: our page table need not hold what another process wrote. Where
 *                             there is swap, always: mincore does not see what is there; and of huge pages it sees those in our page table
 *                             alone. Reading a page that is not there would make it
 */
#include <elf.h>
#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>

#include "agent/agent.h"
#include "agent/maps.h"
#include "agent/scratch.h"
#include "image/writer.h"

#define PM_PRESENT (1ull << 63)
#define PM_SWAPPED (1ull << 62)
#define PM_FILE (1ull << 61)

/* <linux/fs.h> of Debian 12 does not have it yet. */
struct pm_region {
	uint64_t start, end, categories;
};
struct pm_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define FM_PAGEMAP_SCAN _IOWR('f', 16, struct pm_arg)
enum { IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4 };

static enum { UNKNOWN, YES, NO } has_scan;

int runs_add(struct runs *runs, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags)
{
	struct image_run *last;

	if (start == end)
		return 0;
	if (runs->count == runs->room) {
		struct image_run *more = scratch_grow(runs->run, runs->count * sizeof(*more),
						      (runs->room * 2 + 512) * sizeof(*more));

		if (!more)
			return fermata_fail(-ENOMEM, "no memory to list the pages of process %u", agent.pid);
		runs->run = more;
		runs->room = runs->room * 2 + 512;
	}
	last = runs->count > runs->first ? &runs->run[runs->count - 1] : NULL;
	if (last && last->end == start && last->prot == prot && last->flags == flags && flags != IMAGE_RUN_EMPTY)
		last->end = end;
	else
		runs->run[runs->count++] = (struct image_run){ start, end, prot, flags };
	return 0;
}

struct walk {
	const struct image_mapping *v;
	struct runs *runs;
	uint64_t at; /* up to here everything is in a run */
	uint64_t clean_end; /* up to here pages that are the file's are saved, too */
	uint32_t data;
};

static int untouched(struct walk *w, uint64_t start, uint64_t end)
{
	uint64_t clean = end < w->clean_end ? end : w->clean_end > start ? w->clean_end : start;
	int r = runs_add(w->runs, start, clean, w->v->prot, w->data | IMAGE_RUN_CLEAN);

	return r ? r : runs_add(w->runs, clean, end, w->v->prot, IMAGE_RUN_EMPTY);
}

static int touched(struct walk *w, uint64_t start, uint64_t end)
{
	int r = start > w->at ? untouched(w, w->at, start) : 0;

	w->at = end;
	return r ? r : runs_add(w->runs, start, end, w->v->prot, w->data);
}

static int scan(int fd, struct walk *w, uint64_t from, uint64_t to)
{
	struct pm_region vec[128];
	struct pm_arg a = { .size = sizeof(a), .start = from, .end = to, .vec = (uint64_t)vec,
			    .vec_len = ARRAY_SIZE(vec), .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
			    .return_mask = IS_PRESENT };
	int r = 0;

	if (w->v->kind == IMAGE_MAPPING_FILE) {
		a.category_inverted = IS_FILE;
		a.category_mask = IS_FILE;
	}
	while (a.start < to && !r) {
		int n = raw_ioctl(fd, FM_PAGEMAP_SCAN, &a);

		if (n < 0)
			return n;
		for (int i = 0; i < n && !r; i++)
			r = touched(w, vec[i].start, vec[i].end);
		a.start = a.walk_end;
	}
	return r;
}

static int read_entries(int fd, struct walk *w, uint64_t from, uint64_t to)
{
	uint64_t entries[512];
	int r = 0;

	while (from < to && !r) {
		size_t n = (to - from) / FM_PAGE_SIZE < ARRAY_SIZE(entries) ? (to - from) / FM_PAGE_SIZE :
									     ARRAY_SIZE(entries);

		r = raw_pread_all(fd, entries, n * sizeof(entries[0]), from / FM_PAGE_SIZE * sizeof(entries[0]));
		for (size_t i = 0; i < n && !r; i++, from += FM_PAGE_SIZE) {
			if (!(entries[i] & (PM_PRESENT | PM_SWAPPED)))
				continue;
			if (w->v->kind == IMAGE_MAPPING_FILE && (entries[i] & PM_FILE))
				continue;
			r = touched(w, from, from + FM_PAGE_SIZE);
		}
	}
	return r;
}

static bool has_swap(void)
{
	struct sysinfo s;

	return RAW1(SYS_sysinfo, &s) < 0 || s.totalswap;
}

/* No other error than that of a page without a file behind it counts: it is met again, and told, when the page is saved. */
static bool is_readable(int fd, uint64_t at)
{
	char byte;
	long n;

	do
		n = raw_pread(fd, &byte, 1, at);
	while (n == -EINTR);
	return n != -EIO && n != -EFAULT;
}

/*
 * Where the file ends under the mapping: its size is nowhere to be had when it is deleted. Behind a page that cannot be read for another reason (its disk, no huge page is free) others
 * can, and one of those that are looked at there will be: then all has to be read, and who writes the image says which page cannot.
 */
static uint64_t readable_end(const struct image_mapping *v)
{
	uint64_t low = 0, pages = (v->end - v->start) / FM_PAGE_SIZE, high = pages, middle;
	int fd = raw_open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return v->end;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (is_readable(fd, v->start + middle * FM_PAGE_SIZE))
			low = middle + 1;
		else
			high = middle;
	}
	for (uint64_t further = 1; low + further < pages; further *= 2)
		if (is_readable(fd, v->start + (low + further) * FM_PAGE_SIZE))
			low = pages;
	raw_close(fd);
	return v->start + low * FM_PAGE_SIZE;
}

/* Of huge pages one that cannot be read may just be missing: who writes the image says so. */
static uint64_t shared_end(const struct image_mapping *v)
{
	uint64_t length = v->file_size > v->offset ? v->file_size - v->offset : 0;

	if (!image_mapping_page_shift(v))
		return readable_end(v);
	return v->flags & IMAGE_MAPPING_NAMED && length < v->end - v->start ? v->start + length : v->end;
}

static int shared_pages(struct walk *w, uint64_t from, uint64_t to)
{
	unsigned char there[4096];
	uint64_t start = from, end;
	long r = 0;

	if (w->v->flags & IMAGE_MAPPING_WHOLE || image_mapping_page_shift(w->v) || has_swap()) {
		end = shared_end(w->v);
		return from < end ? touched(w, from, end < to ? end : to) : 0;
	}
	for (uint64_t at = from; at < to && !r; at += FM_PAGE_SIZE) {
		size_t i = (at - from) / FM_PAGE_SIZE % sizeof(there);

		if (i == 0) {
			uint64_t length = to - at < sizeof(there) * FM_PAGE_SIZE ? to - at : sizeof(there) * FM_PAGE_SIZE;

			r = RAW3(SYS_mincore, at, length, there);
		}
		if (r || there[i] & 1)
			continue;
		r = start < at ? touched(w, start, at) : 0;
		start = at + FM_PAGE_SIZE;
	}
	if (!r && start < to)
		r = touched(w, start, to);
	return r < 0 ? fermata_fail((int)r, "cannot look at the shared pages of %lx-%lx (errno %d)", from, to, (int)-r) : 0;
}

static int walk(struct walk *w, uint64_t from, uint64_t to)
{
	int fd = raw_open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC, 0), r = -ENOTTY;

	if (fd < 0)
		return fermata_fail(fd, "cannot open /proc/self/pagemap (errno %d): is /proc mounted?", -fd);
	if (has_scan != NO) {
		r = scan(fd, w, from, to);
		has_scan = r == -ENOTTY || r == -EINVAL ? NO : YES;
	}
	if (has_scan == NO)
		r = read_entries(fd, w, from, to);
	raw_close(fd);
	return r < 0 ? fermata_fail(r, "cannot read which pages of %lx-%lx are touched (errno %d)", from, to, -r) : 0;
}

/* A program or library from its beginning on: that page tells which build it is, a restart and debuggers. */
static bool is_program_head(const struct image_mapping *v)
{
	char magic[SELFMAG];
	struct iovec to = { magic, sizeof(magic) }, from = { (void *)v->start, sizeof(magic) };

	return v->kind == IMAGE_MAPPING_FILE && !v->offset && v->prot & PROT_READ &&
	       RAW6(SYS_process_vm_readv, raw_gettid(), &to, 1, &from, 1, 0) == sizeof(magic) && !memcmp(magic, ELFMAG, SELFMAG);
}

/* Up to where unchanged pages are saved. */
static uint64_t clean_end(const struct image_mapping *v)
{
	if (v->flags & IMAGE_MAPPING_WHOLE && v->kind == IMAGE_MAPPING_ANON)
		return readable_end(v);
	if (v->flags & IMAGE_MAPPING_WHOLE && v->kind == IMAGE_MAPPING_FILE)
		return v->file_size <= v->offset ? v->start : v->start + ALIGN_UP(v->file_size - v->offset, FM_PAGE_SIZE);
	return is_program_head(v) ? v->start + FM_PAGE_SIZE : v->start;
}

int pages_runs(const struct image_mapping *v, uint64_t from, uint64_t to, struct runs *runs)
{
	struct walk w = { .v = v, .runs = runs, .at = from,
			  .data = v->prot & PROT_READ ? IMAGE_RUN_DATA : IMAGE_RUN_UNREADABLE,
			  .clean_end = clean_end(v) };
	int r;

	if (v->kind == IMAGE_MAPPING_SHARED_ANON || v->kind == IMAGE_MAPPING_SYSV)
		r = shared_pages(&w, from, to);
	else
		r = walk(&w, from, to);
	return r ? r : untouched(&w, w.at, to);
}
