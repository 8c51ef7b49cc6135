/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V shared memory. Which segments there are, all images together; making them in the capsule's IPC namespace with their old
 * ids, keys and creators; and what a process' plan says of them. Owns struct restart's list of them.
 *
 * They are made by the capsule's init before the tree, each by a short-lived process with the id of the old creator (of which the kernel
 * goes on telling). As long as not everybody is attached the owner may do everything with them, and none is marked for removal: the
 * restorer of the lowest pid sees to that (restorer/segment.c).
 */
#include "cli/restart.h"

#include <asm-generic/hugetlb_encode.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static struct restart_sysv *find(const struct restart *r, int32_t id)
{
	for (size_t i = 0; i < r->sysv_count; i++)
		if (r->sysv[i].segment.id == id)
			return &r->sysv[i];
	return NULL;
}

static int note(struct restart *r, const struct restart_process *p, const struct image_sysv *s)
{
	struct restart_sysv *known = find(r, s->id), *more;

	if (known) {
		if (known->segment.size != s->size || known->segment.key != s->key || known->segment.mode != s->mode ||
		    known->segment.page_shift != s->page_shift) {
			warnx("process %u and process %u do not agree on System V shared memory %d", p->info->pid,
			      known->keeper, s->id);
			return CLI_DAMAGED;
		}
		if (p->info->pid < known->keeper)
			*known = (struct restart_sysv){ .segment = *s, .keeper = p->info->pid };
		return 0;
	}
	more = reallocarray(r->sysv, r->sysv_count + 1, sizeof(*more));
	if (!more) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	r->sysv = more;
	more[r->sysv_count++] = (struct restart_sysv){ .segment = *s, .keeper = p->info->pid };
	return 0;
}

int restart_sysv_collect(struct restart *r)
{
	int code = 0;

	for (size_t p = 0; p < r->count && !code; p++) {
		size_t n;
		const struct image_sysv *s = image_get_sysv(r->processes[p].image, &n);

		for (size_t i = 0; i < n && !code; i++)
			code = note(r, &r->processes[p], &s[i]);
	}
	return code;
}

/* ---- in the capsule's init ---- */

static int get(const struct image_sysv *s, uint64_t size, uint32_t flags)
{
	char text[16];
	int err, id;

	snprintf(text, sizeof(text), "%d", s->id);
	err = restart_write_text("/proc/sys/kernel/shm_next_id", text);
	if (err < 0)
		return err;
	id = shmget(s->key, size, IPC_CREAT | IPC_EXCL | 0600 | (int)((s->mode & 0777) | flags));
	return id == s->id ? 0 : id < 0 ? -errno : -EEXIST;
}

/* Where there are no huge pages, or not for us, it has small ones, as far as the huge ones reached. */
static int make(const struct image_sysv *s)
{
	int err;

	if ((s->cgid != getegid() && setegid(s->cgid) < 0) || (s->cuid != geteuid() && seteuid(s->cuid) < 0))
		return -errno;
	if (!s->page_shift)
		return get(s, s->size, 0);
	err = get(s, s->size, SHM_HUGETLB | s->page_shift << HUGETLB_FLAG_ENCODE_SHIFT);
	if (!err)
		return 0;
	warnx("System V shared memory %d comes back in small pages: no %llu bytes of huge pages (%s)", s->id, (unsigned long long)image_sysv_room(s), strerror(-err));
	return get(s, image_sysv_room(s), 0);
}

static int make_as_creator(const struct image_sysv *s)
{
	pid_t pid = s->cpid > 1 ? restart_fork_as((uint32_t)s->cpid) : fork();
	int status = 0;

	if (pid == 0)
		_exit(-make(s));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECANCELED;
}

int restart_sysv_create(const struct restart *r)
{
	for (size_t i = 0; i < r->sysv_count; i++) {
		int err = make_as_creator(&r->sysv[i].segment);

		if (err < 0) {
			warnx("System V shared memory %d of %llu bytes: %s", r->sysv[i].segment.id,
			      (unsigned long long)r->sysv[i].segment.size, strerror(-err));
			return err;
		}
	}
	return 0;
}

/* ---- the plan ---- */

static struct plan_segment *attachment(struct plan_segment *s, size_t count, const struct image_mapping *m)
{
	for (size_t i = 0; i < count; i++)
		if ((uint64_t)s[i].id == m->ino && s[i].base == m->start - m->offset)
			return &s[i];
	return NULL;
}

static int by_base(const void *a, const void *b)
{
	const struct plan_segment *l = a, *r = b;

	return l->base < r->base ? -1 : l->base > r->base;
}

static size_t plan_attachments(const struct restart *r, const struct restart_process *p, struct plan_segment *ret)
{
	size_t mappings, n = 0;
	const struct image_mapping *m = image_get_mappings(p->image, &mappings);

	for (size_t i = 0; i < mappings; i++) {
		struct plan_segment *s;

		if (m[i].kind != IMAGE_MAPPING_SYSV)
			continue;
		s = attachment(ret, n, &m[i]);
		if (!s) {
			s = &ret[n++];
			*s = (struct plan_segment){ .base = m[i].start - m[i].offset, .id = (int32_t)m[i].ino,
						    .flags = PLAN_SEGMENT_ATTACH };
			s->size = image_sysv_room(&find(r, s->id)->segment);
		}
		if (m[i].flags & IMAGE_MAPPING_TRANSIENT)
			s->flags |= PLAN_SEGMENT_TRANSIENT;
		else if (m[i].flags & IMAGE_MAPPING_READONLY)
			s->flags |= PLAN_SEGMENT_READONLY;
	}
	qsort(ret, n, sizeof(*ret), by_base);
	return n;
}

int restart_sysv_plan(const struct restart *r, const struct restart_process *p, struct plan_segment **ret, size_t *ret_count)
{
	size_t mappings, n;
	struct plan_segment *s;

	image_get_mappings(p->image, &mappings);
	s = calloc(mappings + r->sysv_count + 1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	n = plan_attachments(r, p, s);
	for (size_t i = 0; i < r->sysv_count; i++) {
		const struct image_sysv *v = &r->sysv[i].segment;
		uint32_t flags = 0;

		if ((uint32_t)v->lpid == p->info->pid)
			flags |= PLAN_SEGMENT_TOUCH;
		if (r->sysv[i].keeper == p->info->pid)
			flags |= PLAN_SEGMENT_SETTLE;
		if (flags)
			s[n++] = (struct plan_segment){ .size = v->size, .id = v->id, .flags = flags, .mode = v->mode,
							.uid = v->uid, .gid = v->gid };
	}
	*ret = s;
	*ret_count = n;
	return 0;
}
