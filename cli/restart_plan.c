/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An image becomes a plan (image/plan.h). Runs in the new process, after the fork: its files are opened in the capsule's mount
 * namespace and their numbers are its own. Owns nothing.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/sys.h"

#define HOLE_FIRST 0x100000000000ull
#define HOLE_STEP (1ull << 30)

struct building {
	const struct restart *restart;
	const struct restart_process *process;
	struct restart_mapped mapped;
	struct plan_mapping *mappings;
	size_t mapping_count;
	struct plan_segment *segments;
	size_t segment_count;
	struct restart_loads loads;
	struct restart_vdso vdso;
	bool foreign; /* the image's vdso is not this kernel's */
	struct image_process info; /* with this kernel's vdso in it, where it goes */
	struct plan_patch patches[PLAN_PATCHES];
	size_t patch_count;
	struct image_terminal *terminals;
	size_t terminal_count;
	uint32_t own_fd; /* the restorer's file, where it is loaded as a library; else UINT32_MAX */
};

static uint32_t mapping_flags(const struct image_mapping *m, uint32_t kind)
{
	uint32_t flags = 0;

	if (m->flags & IMAGE_MAPPING_GROWSDOWN)
		flags |= MAP_GROWSDOWN;
	if (m->flags & IMAGE_MAPPING_NORESERVE)
		flags |= MAP_NORESERVE;
	switch (kind) {
	case IMAGE_MAPPING_SYSV:
		return (uint32_t)m->ino;
	case IMAGE_MAPPING_ANON: /* huge pages are reserved, so that one that is missing is not missed later */
		if (image_mapping_page_shift(m))
			flags = MAP_HUGETLB | image_mapping_page_shift(m) << MAP_HUGE_SHIFT;
		return flags | MAP_PRIVATE | MAP_ANONYMOUS;
	case IMAGE_MAPPING_FILE:
		return flags | MAP_PRIVATE;
	default:
		return flags | MAP_SHARED;
	}
}

static int add_mappings(struct building *b)
{
	size_t n;
	const struct image_mapping *m = image_get_mappings(b->process->image, &n);

	b->mappings = calloc(n + 1 + ARRAY_SIZE(b->vdso.areas), sizeof(*b->mappings));
	if (!b->mappings || restart_mapped_begin(&b->mapped, b->restart, b->process, n) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint32_t kind = b->foreign && m[i].kind == IMAGE_MAPPING_VDSO ? (uint32_t)IMAGE_MAPPING_ANON : m[i].kind;
		int fd, r = restart_mapped_get(&b->mapped, &m[i], &fd);

		if (r < 0)
			return r;
		b->mappings[b->mapping_count++] = (struct plan_mapping){
			.start = m[i].start,
			.end = m[i].end,
			.kind = kind,
			.prot = m[i].flags & IMAGE_MAPPING_TRANSIENT ? PROT_READ | PROT_WRITE : m[i].prot,
			.mmap_flags = mapping_flags(&m[i], kind),
			.fd = fd,
			.offset = fd >= 0 || m[i].kind == IMAGE_MAPPING_SYSV ? m[i].offset : 0,
		};
	}
	return 0;
}

/* Free in the image and where the kernel itself puts nothing: well below any mmap base, far above a fixed-address program. */
static uint64_t hole_above(const struct building *b, uint64_t at, uint64_t size)
{
	for (size_t i = 0; i < b->mapping_count; i++) {
		const struct plan_mapping *m = &b->mappings[i];

		if (m->end + HOLE_STEP <= at)
			continue;
		if (m->start >= at + size + HOLE_STEP)
			break;
		at = ALIGN_UP(m->end + HOLE_STEP, HOLE_STEP);
	}
	return at;
}

/* A segment takes its whole range for a moment, also where the program has unmapped a part of it. */
static uint64_t find_hole(const struct building *b, uint64_t size)
{
	uint64_t at = hole_above(b, HOLE_FIRST, size);

	for (size_t i = 0; i < b->segment_count; i++) {
		const struct plan_segment *s = &b->segments[i];

		if (s->flags & PLAN_SEGMENT_ATTACH && s->base < at + size && s->base + s->size > at) {
			at = hole_above(b, ALIGN_UP(s->base + s->size, HOLE_STEP), size);
			i = (size_t)-1;
		}
	}
	return at;
}

/*
 * Another kernel's image: this kernel's vdso goes behind the hole, one page between them, where the process has it from now on. The list stays
 * in order.
 */
static int place_vdso(struct building *b, uint64_t at)
{
	const struct restart_vdso *h = &b->vdso;
	uint64_t base = h->areas[0].start;
	size_t i = 0;

	while (i < b->mapping_count && b->mappings[i].start < at)
		i++;
	memmove(&b->mappings[i + h->count], &b->mappings[i], (b->mapping_count - i) * sizeof(*b->mappings));
	b->mapping_count += h->count;
	for (size_t k = 0; k < h->count; k++)
		b->mappings[i + k] = (struct plan_mapping){ .start = at + (h->areas[k].start - base),
							    .end = at + (h->areas[k].end - base),
							    .kind = IMAGE_MAPPING_VDSO, .fd = -1 };
	b->info.vvar_start = at;
	b->info.vvar_end = b->info.vdso_start = at + (h->start - base);
	b->info.vdso_end = at + (h->end - base);
	return restart_vdso_patches(h, b->process, b->info.vdso_start, b->patches, ARRAY_SIZE(b->patches), &b->patch_count);
}

static uint32_t reading_threads(const struct building *b)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), share = cpus / (long)b->restart->count;

	if (share < 2)
		return b->restart->count > (size_t)cpus ? 1 : 2;
	return share > 8 ? 8 : (uint32_t)share;
}

static int place_hole(struct building *b, struct plan *p, size_t threads)
{
	uint64_t size, vdso = b->foreign ? b->vdso.end - b->vdso.areas[0].start : 0;

	b->info = *b->process->info;
	p->thread_count = (uint32_t)threads;
	p->size = sizeof(*p) + (b->mapping_count + ARRAY_SIZE(b->vdso.areas)) * sizeof(*b->mappings) +
		  b->loads.block_count * sizeof(*b->loads.blocks) + b->loads.load_count * sizeof(*b->loads.loads) +
		  threads * sizeof(struct image_thread) + 64 * sizeof(struct image_sigaction) +
		  b->segment_count * sizeof(*b->segments) + sizeof(b->patches) + b->terminal_count * sizeof(*b->terminals) + b->restart->moved.length;
	p->process = b->info;
	p->turns_size = b->restart->capsule ? 0 : plan_turns_size(b->restart->turns->count);
	size = plan_hole_size(p) + vdso;
	p->hole_start = find_hole(b, size + 4096 + vdso);
	p->hole_end = p->hole_start + size;
	return b->foreign ? place_vdso(b, p->hole_end + 4096) : 0;
}

static void fill_head(const struct building *b, struct plan *p, size_t threads)
{
	const struct restart *r = b->restart;
	uint32_t exe;

	p->magic = PLAN_MAGIC;
	p->mapping_count = (uint32_t)b->mapping_count;
	p->block_count = (uint32_t)b->loads.block_count;
	p->dense_count = (uint32_t)b->loads.dense_count;
	p->load_count = (uint32_t)b->loads.load_count;
	p->thread_count = (uint32_t)threads;
	p->mappings = sizeof(*p);
	p->blocks = p->mappings + b->mapping_count * sizeof(*b->mappings);
	p->loads = p->blocks + b->loads.block_count * sizeof(*b->loads.blocks);
	p->threads = p->loads + b->loads.load_count * sizeof(*b->loads.loads);
	p->signals = p->threads + threads * sizeof(struct image_thread);
	p->segments = p->signals + 64 * sizeof(struct image_sigaction);
	p->segment_count = (uint32_t)b->segment_count;
	p->patches = p->segments + b->segment_count * sizeof(*b->segments);
	p->patch_count = (uint32_t)b->patch_count;
	p->terminals = p->patches + b->patch_count * sizeof(*b->patches);
	p->path_map = p->terminals + b->terminal_count * sizeof(*b->terminals);
	p->size = p->path_map + r->moved.length;
	p->process = b->info;
	p->helper_tid = r->capsule ? b->process->helper_tid : 0;
	p->eager_threads = reading_threads(b);
	p->verify = r->verify;
	p->log_fd = (uint32_t)dup(r->log_fd);
	p->gate_fd = (uint32_t)dup(r->gate_fd);
	p->own_fd = b->own_fd;
	p->turns_fd = r->capsule ? UINT32_MAX : (uint32_t)dup(r->turns_fd);
	exe = r->capsule ? (uint32_t)open(b->process->program, O_RDONLY) : UINT32_MAX; /* UINT32_MAX: /proc/self/exe stays what was exec'd */
	p->restart = (struct image_restart){
		.size = sizeof(p->restart),
		.hole_start = p->hole_start,
		.hole_end = p->hole_end,
		.stdio = { 0, 1, 2 },
		.exe_fd = exe,
		.vdso_start = b->info.vdso_start,
		.caps = r->capsule && p->process.uid != 0,
		.capsule = r->capsule,
		.init = (uint32_t)r->init,
		.part = r->part != NULL,
		.terminal = !r->sets_terminal ? 0 : r->debug_pid ? IMAGE_TERMINAL_SETTINGS : IMAGE_TERMINAL_SETTINGS | IMAGE_TERMINAL_FOREGROUND,
		.pause = restart_is_paused(r, p->process.pid),
		.outputs_at_end = restart_files_restores(r),
		.path_map = p->hole_start + PLAN_HOLE_PLAN + p->path_map,
		.path_map_length = (uint32_t)r->moved.length,
		.terminals = p->hole_start + PLAN_HOLE_PLAN + p->terminals,
		.terminal_count = (uint32_t)b->terminal_count,
	};
	memcpy(p->restart.rundir, r->rundir, sizeof(p->restart.rundir));
	if (r->rdma_given)
		memcpy(p->restart.rdma, r->rdma, sizeof(p->restart.rdma));
}

static int write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		size -= (size_t)n;
	}
	return 0;
}

static int write_plan(struct building *b)
{
	size_t threads;
	const struct image_thread *t = image_get_threads(b->process->image, &threads);
	struct plan p = { 0 };
	int fd = memfd_create("plan", 0), err;

	if (fd < 0)
		return -errno;
	err = place_hole(b, &p, threads);
	if (err)
		return err;
	fill_head(b, &p, threads);
	err = write_all(fd, &p, sizeof(p));
	if (!err)
		err = write_all(fd, b->mappings, b->mapping_count * sizeof(*b->mappings));
	if (!err)
		err = write_all(fd, b->loads.blocks, b->loads.block_count * sizeof(*b->loads.blocks));
	if (!err)
		err = write_all(fd, b->loads.loads, b->loads.load_count * sizeof(*b->loads.loads));
	if (!err)
		err = write_all(fd, t, threads * sizeof(*t));
	if (!err)
		err = write_all(fd, image_get_signals(b->process->image), 64 * sizeof(struct image_sigaction));
	if (!err)
		err = write_all(fd, b->segments, b->segment_count * sizeof(*b->segments));
	if (!err)
		err = write_all(fd, b->patches, b->patch_count * sizeof(*b->patches));
	if (!err)
		err = write_all(fd, b->terminals, b->terminal_count * sizeof(*b->terminals));
	if (!err)
		err = write_all(fd, b->restart->moved.texts, b->restart->moved.length);
	return err ? err : fd;
}

static int add_terminals(struct building *b)
{
	b->terminals = calloc(2 * b->restart->pty_count + 1, sizeof(*b->terminals));
	if (!b->terminals)
		return -ENOMEM;
	b->terminal_count = restart_ptys_hand_over(b->restart, b->process->info->pid, b->terminals);
	return 0;
}

/* Without a capsule: it is loaded by a descriptor, which any path can be opened as. */
static int open_restorer(struct building *b)
{
	int fd = b->restart->capsule ? -1 : open(b->restart->restorer, O_RDONLY);

	b->own_fd = (uint32_t)fd;
	return b->restart->capsule || fd >= 0 ? 0 : -errno;
}

/*
 * In a capsule the restorer is a program, which may make /proc/self/exe another. Elsewhere that is not allowed: there the program itself is exec'd, and before
 * the linker has loaded anything of it, it loads the restorer, as a library that wants to watch it (rtld-audit(7)). The linker's
 * own rseq area would be gone with it, while the kernel writes to it. A linker that could not load the restorer says so and goes on with the program: it would begin anew,
 * with arguments that are not its own. So it is told to list what it would load, and end.
 */
static void become_restorer(const struct building *b, int plan_fd)
{
	const struct restart *r = b->restart;
	char plan[16], image[16], audit[64];
	char *argv[] = { "restorer", plan, image, NULL }, *none[] = { NULL }, *watched[] = { audit, "LD_TRACE_LOADED_OBJECTS=1", "GLIBC_TUNABLES=glibc.pthread.rseq=0", NULL };

	snprintf(plan, sizeof(plan), "%d", plan_fd);
	snprintf(image, sizeof(image), "%d", dup(image_fd(b->process->image)));
	snprintf(audit, sizeof(audit), "LD_AUDIT=/proc/self/fd/%u", b->own_fd);
	execve(r->capsule ? r->restorer : b->process->program, argv, r->capsule ? none : watched);
}

void restart_exec(const struct restart *r, const struct restart_process *p)
{
	struct building b = { .restart = r, .process = p };
	int plan_fd, err = restart_vdso_probe(&b.vdso);

	b.foreign = !err && !restart_vdso_same(&b.vdso, p);
	if (!err)
		err = add_mappings(&b);
	if (!err)
		err = restart_sysv_plan(r, p, &b.segments, &b.segment_count);
	if (!err)
		err = restart_loads_build(p->image, b.foreign, &b.loads);
	if (!err)
		err = add_terminals(&b);
	if (!err)
		err = open_restorer(&b);
	plan_fd = err ? err : write_plan(&b);
	if (plan_fd < 0) {
		errno = -plan_fd;
		warn("process %u: its plan", p->info->pid);
		return;
	}
	become_restorer(&b, plan_fd);
	warn("process %u: %s", p->info->pid, r->restorer);
}
