/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rebuilds the memory: unmaps what exec made, makes the plan's mappings, reads their pages from the image with several
 * threads, and moves the kernel's vvar and vdso to where the image's libc expects them.
 *
 * The image is read once: a block is summed in memory, while it is in the cache. One that is not as it was written ends the process. As long as
 * one process of the job has not come through, none goes on (the gate): nothing of the program has run then, not even
 * its robust futexes are known to the kernel.
 *
 * A mapping that pages are read into is writable at first and gets its protection afterwards. The kernel moves a mapping only one VMA at a time, hence the
 * plan names each VMA of vvar and vdso; `fermata restart` has checked that this kernel's are the same.
 */
#include <errno.h>
#include <linux/mman.h>
#include <linux/prctl.h>

#include "arch/x86_64/arch.h"
#include "image/hash.h"
#include "restorer.h"

#define CLAIM 4u /* blocks in a row that a thread takes at a time */

static void move(struct restorer *r, const char *step, uint64_t from, uint64_t to, uint64_t length)
{
	long ret = RAW5(SYS_mremap, from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (raw_is_error((void *)ret))
		fail(r, step, from, ret);
}

static void unmap(struct restorer *r, uint64_t start, uint64_t end)
{
	int err = start < end ? raw_munmap((void *)start, end - start) : 0;

	if (err)
		fail(r, "unmapping from", start, err);
}

void memory_clear(struct restorer *r)
{
	const struct image_process *p = &r->plan->process;

	for (uint32_t i = 0; i < r->plan->mapping_count; i++) {
		const struct plan_mapping *m = &r->mappings[i];

		if (m->kind == IMAGE_MAPPING_VDSO)
			move(r, "parking the vdso from", r->vdso_now + (m->start - p->vdso_start),
			     r->park + (m->start - p->vvar_start), m->end - m->start);
	}
	unmap(r, 0, r->plan->hole_start);
	unmap(r, r->plan->hole_end, ARCH_USER_END);
}

/* Whether a load goes into @m; @next is the first load at or behind the mapping, moved on for the next one. */
static int has_loads(const struct restorer *r, const struct plan_mapping *m, uint32_t *next)
{
	int found = 0;

	for (; *next < r->plan->load_count && r->loads[*next].address < m->end; (*next)++)
		found |= r->loads[*next].address >= m->start && r->loads[*next].address != PLAN_NOWHERE;
	return found;
}

int memory_has_loads(const struct restorer *r, const struct plan_mapping *m)
{
	uint32_t next = 0;

	return has_loads(r, m, &next);
}

/* Of a mapping of huge pages, what one of small ones has as well. */
#define SMALL (((1u << MAP_HUGE_SHIFT) - 1) & ~(uint32_t)MAP_HUGETLB)

static void *map_there(const struct plan_mapping *m, uint32_t prot, uint32_t flags)
{
	return raw_mmap((void *)m->start, m->end - m->start, (int)prot, (int)(flags & ~(uint32_t)MAP_FIXED) | MAP_FIXED_NOREPLACE, m->fd, m->offset);
}

/* For memory that can only be executed the kernel takes the lowest protection key that is free (pkeys(7)), when the first of it is made: to be the one that it had taken before. */
static void leave_one_key(const struct restorer *r)
{
	if (!r->plan->process.execute_only_key)
		return;
	while (RAW2(SYS_pkey_alloc, 0, 0) > 0)
		;
	RAW1(SYS_pkey_free, r->plan->process.execute_only_key);
}

/* All but that one, which the kernel has or nobody. */
static void free_keys(const struct restorer *r)
{
	for (int key = 1; r->plan->process.execute_only_key && key < 16; key++)
		RAW1(SYS_pkey_free, key);
}

void memory_map(struct restorer *r)
{
	uint32_t next = 0;

	leave_one_key(r);
	for (uint32_t i = 0; i < r->plan->mapping_count; i++) {
		const struct plan_mapping *m = &r->mappings[i];
		uint32_t prot = m->prot;
		void *got;

		if (m->kind == IMAGE_MAPPING_VDSO || m->kind == IMAGE_MAPPING_SYSV)
			continue;
		if (has_loads(r, m, &next))
			prot = PROT_READ | PROT_WRITE;
		got = map_there(m, prot, m->mmap_flags);
		if (got != (void *)m->start && m->mmap_flags & MAP_HUGETLB) {
			warn(r, "no huge pages: small ones from here on", m->start, raw_is_error(got) ? (long)got : -EEXIST);
			got = map_there(m, prot, (m->mmap_flags & SMALL) | MAP_NORESERVE);
		}
		if (got != (void *)m->start)
			fail(r, "mapping at", m->start, raw_is_error(got) ? (long)got : -EEXIST);
	}
}

static void read_image(const struct restorer *r, void *to, uint64_t length, uint64_t offset)
{
	for (uint64_t done = 0; done < length;) {
		long n = raw_pread(r->image_fd, (char *)to + done, length - done, offset + done);

		if (n == -EINTR)
			continue;
		if (n == 0 || n == -EIO)
			damaged(r, n ? "its image cannot be read from byte" : "its image ends at byte", offset + done, n);
		if (n < 0)
			fail(r, "reading pages of the image to", (uint64_t)to + done, n);
		done += (uint64_t)n;
	}
}

static void add_zeros(struct image_hash *h, uint64_t length)
{
	static const char zeros[4096];

	for (uint64_t n; length; length -= n) {
		n = length < sizeof(zeros) ? length : sizeof(zeros);
		image_hash64_add(h, zeros, n);
	}
}

/* Bytes of the image that no memory has. */
static void add_unloaded(const struct restorer *r, struct image_hash *h, uint64_t offset, uint64_t length)
{
	char buffer[4096];

	for (uint64_t n; length; length -= n, offset += n) {
		n = length < sizeof(buffer) ? length : sizeof(buffer);
		read_image(r, buffer, n, offset);
		image_hash64_add(h, buffer, n);
	}
}

/* Over what has come to memory, so that what runs is what was checked. */
static uint64_t block_sum(const struct restorer *r, const struct plan_block *b)
{
	const struct plan_load *l = &r->loads[b->first_load];
	uint64_t at = b->file_offset;
	struct image_hash h;

	if (b->load_count == 1 && l->length == b->length && l->address != PLAN_NOWHERE)
		return image_hash64((const void *)l->address, l->length);
	image_hash64_begin(&h);
	for (uint32_t i = 0; i < b->load_count; i++, l++) {
		add_zeros(&h, l->file_offset - at);
		if (l->address == PLAN_NOWHERE)
			add_unloaded(r, &h, l->file_offset, l->length);
		else
			image_hash64_add(&h, (const void *)l->address, l->length);
		at = l->file_offset + l->length;
	}
	add_zeros(&h, b->file_offset + b->length - at);
	return image_hash64_end(&h);
}

static void load_block(const struct restorer *r, const struct plan_block *b)
{
	const struct plan_load *l = &r->loads[b->first_load];

	for (uint32_t i = 0; i < b->load_count; i++, l++)
		if (l->address != PLAN_NOWHERE)
			read_image(r, (void *)l->address, l->length, l->file_offset);
	if (r->plan->verify && block_sum(r, b) != b->sum)
		damaged(r, "its image does not match its checksum in the block from byte", b->file_offset, 0);
}

static void mark(const struct restorer *r, enum plan_mark m)
{
	const char byte = (char)m;

	raw_write((int)r->plan->log_fd, &byte, 1);
}

/* The dense blocks, or the others. */
static void load_blocks(struct restorer *r, int sparse)
{
	uint32_t begin = sparse ? r->plan->dense_count : 0, end = sparse ? r->plan->block_count : r->plan->dense_count;

	for (;;) {
		uint32_t i = begin + __atomic_fetch_add(&r->next_block[sparse], CLAIM, __ATOMIC_RELAXED), last = i + CLAIM;

		if (i >= end)
			return;
		for (; i < (last < end ? last : end); i++)
			load_block(r, &r->blocks[i]);
		mark(r, PLAN_PROGRESS);
	}
}

static void await(uint32_t *word, uint32_t value)
{
	for (uint32_t seen; (seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != value;)
		raw_futex(word, FUTEX_WAIT_PRIVATE, seen, NULL, 0);
}

static void load_helper(void *arg)
{
	struct restorer *r = arg;

	load_blocks(r, 0);
	__atomic_fetch_add(&r->dense_done, 1, __ATOMIC_RELEASE);
	wake_all(&r->dense_done);
	await(&r->sparse, 1);
	load_blocks(r, 1);
	raw_exit_thread(0);
}

static int helper_start(struct restorer *r, uint32_t index)
{
	int tid = (int)(r->plan->helper_tid + index);
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			 CLONE_CHILD_CLEARTID,
		.child_tid = (uint64_t)&r->helpers[index],
		.stack = stack_top(r, index + 1) - PLAN_HOLE_STACK, /* the first one is in use */
		.stack_size = PLAN_HOLE_STACK,
		.set_tid = r->plan->helper_tid ? (uint64_t)&tid : 0,
		.set_tid_size = r->plan->helper_tid != 0,
	};
	long err;

	r->helpers[index] = 1;
	err = arch_clone(&args, load_helper, r);
	if (err < 0) { /* the others do its work */
		r->helpers[index] = 0;
		warn(r, "starting a reading thread", 0, err);
	}
	return err >= 0;
}

static void set_huge(long disable)
{
	RAW5(SYS_prctl, PR_SET_THP_DISABLE, disable != 0, disable & ~1L, 0, 0);
}

/*
 * Where hardly anything is to be in memory, huge pages, which a kernel that is set to "always" gives at the first touch, would fill it with zeros that were not there. It may do so later, too,
 * up to when the program's advice against that is given again.
 */
void memory_load(struct restorer *r)
{
	uint32_t helpers = r->plan->eager_threads, claims = (r->plan->block_count + CLAIM - 1) / CLAIM, started = 0;
	long disabled = RAW5(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0);

	if (helpers > claims)
		helpers = claims;
	if (helpers > PLAN_EAGER_MAX)
		helpers = PLAN_EAGER_MAX;
	for (uint32_t i = 0; i + 1 < helpers; i++)
		started += (uint32_t)helper_start(r, i);
	load_blocks(r, 0);
	await(&r->dense_done, started);
	set_huge(1);
	__atomic_store_n(&r->sparse, 1, __ATOMIC_RELEASE);
	wake_all(&r->sparse);
	load_blocks(r, 1);
	for (uint32_t i = 0; i < PLAN_EAGER_MAX; i++)
		for (uint32_t seen; (seen = __atomic_load_n(&r->helpers[i], __ATOMIC_ACQUIRE)) != 0;)
			raw_futex(&r->helpers[i], FUTEX_WAIT, seen, NULL, 0);
	if (!r->plan->process.huge_at_end)
		set_huge(disabled > 0 ? disabled : 0);
}

/* Without the byte `fermata restart` has given up; it has said why. */
void memory_await_others(struct restorer *r)
{
	char byte;
	long n;

	mark(r, PLAN_LOADED);
	do
		n = raw_read((int)r->plan->gate_fd, &byte, 1);
	while (n == -EINTR);
	if (n != 1)
		raw_exit_group(5);
	raw_close((int)r->plan->gate_fd);
}

static void protect(struct restorer *r)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < r->plan->mapping_count; i++) {
		const struct plan_mapping *m = &r->mappings[i];
		int err;

		if (m->kind == IMAGE_MAPPING_VDSO || !has_loads(r, m, &next) || m->prot == (PROT_READ | PROT_WRITE))
			continue;
		err = raw_mprotect((void *)m->start, m->end - m->start, (int)m->prot);
		if (err)
			fail(r, "protecting the mapping at", m->start, err);
	}
}

static void patch(struct restorer *r)
{
	for (uint32_t i = 0; i < r->plan->patch_count; i++)
		arch_write_jump((void *)r->patches[i].address, r->patches[i].target);
}

/* The pages are in: protections, the vdso to its place, and the descriptors that only served here are closed. */
void memory_finish(struct restorer *r)
{
	const struct image_process *p = &r->plan->process;

	patch(r);
	protect(r);
	free_keys(r);
	for (uint32_t i = 0; i < r->plan->mapping_count; i++) {
		const struct plan_mapping *m = &r->mappings[i];

		if (m->kind == IMAGE_MAPPING_VDSO)
			move(r, "placing the vdso from", r->park + (m->start - p->vvar_start), m->start,
			     m->end - m->start);
		else if (m->fd >= 0) /* may be shared by several mappings: the second close fails, harmless */
			raw_close(m->fd);
	}
	raw_close(r->plan_fd);
	if (r->plan->own_fd != UINT32_MAX)
		raw_close((int)r->plan->own_fd);
}
