/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything that can be known before a restart touches anything: the images are in order but for their memory, which the restorers check as they
 * read it, and this host can run them. All reasons are said, not the first one only. Owns the opened images.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/macro.h"
#include "image/writer.h"

#define NS_PER_S 1000000000ull

/* ---- the images are in order ---- */

/* Its agent takes the map where the restorer leaves it. */
static bool knows_map(const struct image_process *p)
{
	return p->restart_info_size >= offsetof(struct image_restart, path_map_length) + sizeof(((struct image_restart *)0)->path_map_length);
}

static int map_paths(const struct restart *r, struct restart_process *p)
{
	struct image_error error = { 0 };

	if (!r->moved.length)
		return 0;
	if (!knows_map(image_get_process(p->image))) {
		warnx("process %u was checkpointed by a fermata that did not know of --map yet", image_get_process(p->image)->pid);
		return CLI_CANNOT;
	}
	if (!image_map_paths(p->image, &r->moved, &error))
		return 0;
	warnx("%s", error.text);
	return CLI_CANNOT;
}

static void find_program(struct restart_process *p)
{
	static const char deleted[] = " (deleted)"; /* proc(5), of /proc/PID/exe */
	size_t n = strlen(p->info->exe), tail = sizeof(deleted) - 1;

	if (n > tail && !strcmp(p->info->exe + n - tail, deleted) && access(p->info->exe, F_OK) < 0)
		n -= tail;
	snprintf(p->program, sizeof(p->program), "%.*s", (int)n, p->info->exe);
}

static int open_one(struct restart *r, struct restart_process *p)
{
	struct image_error error = { 0 };
	size_t n;
	int code;
	const Elf64_Phdr *s;
	int err = manifest_image_open(r->manifest, p->named, &p->image, &error);

	if (err) {
		warnx("%s", error.text);
		return error.fault == IMAGE_NEWER ? CLI_CANNOT : CLI_DAMAGED;
	}
	p->info = image_get_process(p->image);
	s = image_get_segments(p->image, &n);
	for (size_t i = 0; i < n; i++)
		r->memory += s[i].p_filesz;
	code = map_paths(r, p);
	find_program(p);
	return code;
}

int restart_open(struct restart *r)
{
	int worst = 0;

	for (size_t i = 0; i < r->count; i++) {
		int code = open_one(r, &r->processes[i]);

		worst = code ? code : worst;
	}
	return worst;
}

void restart_close(struct restart *r)
{
	for (size_t i = 0; i < r->count; i++)
		image_free(r->processes[i].image);
	for (size_t i = 0; i < r->shared_count; i++)
		close(r->shared[i].fd);
	restart_trees_free(r);
	for (unsigned int i = 0; i < r->with.count; i++)
		free(r->with.paths[i]);
	restart_files_free(r);
	free(r->taken);
	free((void *)r->moved.texts);
	free(r->processes);
	free(r->nodes);
	free(r->carried);
	manifest_free(r->manifest);
	free(r->shared);
	free(r->sysv);
	free(r->chosen);
}

/* ---- this host can run them ---- */

/* BAD: for a reason that has been said. MISSING: one is that a path leads to nothing. REFERRED: one is a file of which the checkpoint has not all pages. TAKE: it has them, and is fine. */
enum { BAD = 1, MISSING = 2, REFERRED = 4, TAKE = 8 };

static int bad_path(void)
{
	return errno == ENOENT || errno == ENOTDIR ? BAD | MISSING : BAD;
}

struct host {
	struct image_cpu cpu;
	struct utsname name;
	struct restart_vdso vdso;
};

static int host_probe(struct host *h)
{
	memset(h, 0, sizeof(*h));
	image_cpu_probe(&h->cpu);
	uname(&h->name);
	return restart_vdso_probe(&h->vdso);
}

/* Another kernel's: does it go together with ours? */
static bool foreign_vdso(const struct host *h, const struct restart_process *p)
{
	struct plan_patch patches[PLAN_PATCHES];
	size_t n;

	return restart_vdso_patches(&h->vdso, p, h->vdso.start, patches, ARRAY_SIZE(patches), &n) == 0;
}

static int check_host(const struct host *h, const struct restart_process *p)
{
	const struct image_host *saved = image_get_host(p->image);
	char missing[512];
	int bad = 0;

	if (image_cpu_missing(image_get_cpu(p->image), &h->cpu, missing, sizeof(missing))) {
		warnx("process %u needs CPU features that this host (%.48s) lacks: %s", p->info->pid, h->cpu.model, missing);
		bad = 1;
	}
	if (saved->page_size != (uint32_t)sysconf(_SC_PAGESIZE)) {
		warnx("process %u: the image has pages of %u bytes, this host of %ld", p->info->pid, saved->page_size,
		      sysconf(_SC_PAGESIZE));
		bad = 1;
	}
	if (!restart_vdso_same(&h->vdso, p) && !foreign_vdso(h, p)) {
		warnx("process %u: its kernel %.64s gave it a vdso that does not go together with that of this one (%s); restart it on a"
		      " host with the same kernel",
		      p->info->pid, saved->kernel, h->name.release);
		bad = 1;
	}
	if (p->info->uid != geteuid()) {
		warnx("process %u belongs to user %u, you are user %u", p->info->pid, p->info->uid, geteuid());
		bad = 1;
	}
	return bad;
}

/* What of a mapped file is there, and said where it is not enough. TAKE: nothing of it is needed. */
static int check_mapped_file(const struct restart_process *p, const struct image_mapping *m)
{
	const char *path = image_mapping_path(p->image, m);
	bool whole = m->kind == IMAGE_MAPPING_FILE && m->flags & IMAGE_MAPPING_WHOLE;
	struct stat st;

	if (stat(path, &st) < 0) {
		int bad = bad_path();

		if (whole)
			return TAKE;
		warn("process %u maps %s", p->info->pid, path);
		return bad | (m->kind == IMAGE_MAPPING_FILE ? REFERRED : 0);
	}
	if (m->kind == IMAGE_MAPPING_SHARED_FILE) { /* its content may have gone on; its pages must exist */
		if ((uint64_t)st.st_size >= m->file_size)
			return 0;
		warnx("process %u maps %s: it has %lld bytes now, %llu are mapped", p->info->pid, path,
		      (long long)st.st_size, (unsigned long long)m->file_size);
		return BAD;
	}
	if ((uint64_t)st.st_size == m->file_size &&
	    ((uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec == m->file_mtime_ns || restart_same_build(p, path)))
		return 0;
	if (whole)
		return TAKE;
	warnx("process %u maps %s, which has changed since the checkpoint", p->info->pid, path);
	return BAD | REFERRED;
}

/* Each once. False: no memory. */
static bool note_taken(struct restart *r, const char *path)
{
	const char **more;

	for (size_t i = 0; i < r->taken_count; i++)
		if (!strcmp(r->taken[i], path))
			return true;
	more = reallocarray(r->taken, r->taken_count + 1, sizeof(*more));
	if (!more) {
		warn("%s", path);
		return false;
	}
	r->taken = more;
	r->taken[r->taken_count++] = path;
	return true;
}

/* Mappings of one file stand together as a rule. */
static int check_mappings(struct restart *r, const struct restart_process *p)
{
	const char *last = "";
	size_t n;
	const struct image_mapping *m = image_get_mappings(p->image, &n);
	uint32_t last_kind = 0;
	int bad = 0, is = 0;

	for (size_t i = 0; i < n; i++) {
		const char *path = image_mapping_path(p->image, &m[i]);

		if ((m[i].kind != IMAGE_MAPPING_FILE && m[i].kind != IMAGE_MAPPING_SHARED_FILE) || restart_files_covers(r, path) || restart_trees_covers(r, path))
			continue;
		if (m[i].kind != last_kind || strcmp(path, last)) {
			is = check_mapped_file(p, &m[i]);
			if (is == TAKE && !note_taken(r, path))
				is = BAD;
			last = path;
			last_kind = m[i].kind;
		}
		if (is == TAKE)
			image_take_pages(p->image, &m[i]);
		else
			bad |= is;
	}
	return bad;
}

/* Where nothing is mapped of it that is not in the checkpoint, a capsule can do without (@mapped: nothing was said): /proc/self/exe is the restorer then. */
static int check_program(const struct restart *r, const struct restart_process *p, int mapped)
{
	int bad;

	if (restart_trees_covers(r, p->program) || !access(p->program, X_OK))
		return 0;
	bad = bad_path();
	if (bad & MISSING && r->capsule && !mapped)
		return 0;
	warn("process %u: its program %s", p->info->pid, p->program);
	return bad;
}

static int check_files(struct restart *r, const struct restart_process *p)
{
	struct stat st;
	int bad = check_mappings(r, p);

	bad |= check_program(r, p, bad);
	if (!p->info->cwd_deleted && !restart_trees_covers(r, p->info->cwd) && (stat(p->info->cwd, &st) < 0 || access(p->info->cwd, X_OK) < 0)) {
		bad |= bad_path();
		warn("process %u: its working directory %s", p->info->pid, p->info->cwd);
	}
	return bad;
}

/* @bad: of all that was said. */
static void say_remedies(const struct restart *r, int bad)
{
	if (bad & MISSING)
		warnx("what has moved since the checkpoint is found with --map OLD=NEW");
	if (bad & REFERRED)
		warnx("a checkpoint that is taken with --text=save needs no programs and libraries that are as they were");
	if (r->taken_count && !bad)
		warnx("%zu mapped file%s not there as at the checkpoint, %s%s: the pages come from the checkpoint", r->taken_count,
		      r->taken_count == 1 ? " is" : "s are", r->taken[0], r->taken_count == 1 ? "" : " first");
}

int restart_check(struct restart *r)
{
	struct host host;
	int bad = 0;

	if (host_probe(&host) < 0) {
		warnx("this kernel gives programs no vdso");
		return CLI_CANNOT;
	}
	for (size_t i = 0; i < r->count; i++) {
		bad |= check_host(&host, &r->processes[i]);
		bad |= check_files(r, &r->processes[i]);
	}
	say_remedies(r, bad);
	if (access(r->restorer, X_OK) < 0) {
		warn("%s", r->restorer);
		bad = BAD;
	}
	return bad ? CLI_CANNOT : 0;
}
