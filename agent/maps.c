/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads /proc/self/maps and says of each mapping what a restart makes of it (enum image_mapping_kind):
 *
 *   private, no inode                    ANON (the stack, and what growing.c knows: GROWSDOWN)
 *   private, of a file                   FILE; of a deleted one: ANON, all of it saved
 *   shared, deleted or memfd or /dev/zero SHARED_ANON
 *   shared, of a file                    SHARED_FILE
 *   [vdso] and its data                  VDSO
 *   System V shared memory               SYSV (agent/sysv.c)
 *   shared, of a device; the kernel's AIO; secret memory   refused by name
 *
 * Owns no state. Runs in the checkpoint thread while the program stands still; its buffers are scratch memory, which is
 * left out of the list.
 */
#include "agent/maps.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/maps_object.h"
#include "agent/scratch.h"

#define LARGE (8ull << 30) /* mappings above are restored MAP_NORESERVE */

struct line {
	uint64_t start, end, offset, dev, ino;
	uint32_t prot;
	bool shared;
	const char *path;
};

static uint64_t take_hex(const char **p)
{
	uint64_t v = 0;

	for (;; (*p)++) {
		char c = **p;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return v;
	}
}

/* "start-end perm offset major:minor inode   path" with the newline made a NUL. */
static void parse(const char *p, struct line *l)
{
	uint64_t major, minor;

	l->start = take_hex(&p);
	p++;
	l->end = take_hex(&p);
	l->prot = (p[1] == 'r' ? PROT_READ : 0) | (p[2] == 'w' ? PROT_WRITE : 0) | (p[3] == 'x' ? PROT_EXEC : 0);
	l->shared = p[4] == 's';
	p += 6;
	l->offset = take_hex(&p);
	p++;
	major = take_hex(&p);
	p++;
	minor = take_hex(&p);
	p++;
	l->dev = major << 20 | minor;
	for (l->ino = 0; *p >= '0' && *p <= '9'; p++)
		l->ino = l->ino * 10 + (uint64_t)(*p - '0');
	while (*p == ' ')
		p++;
	l->path = p;
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), t = strlen(tail);

	return n >= t && !strcmp(s + n - t, tail);
}

static int add_path(struct maps *m, const char *path, uint32_t *ret)
{
	size_t n = strlen(path) + 1;

	if (m->paths_length + n > m->paths_room) {
		char *more = scratch_grow(m->paths, m->paths_length, (m->paths_room + n) * 2 + 4096);

		if (!more)
			return -ENOMEM;
		m->paths = more;
		m->paths_room = (uint32_t)((m->paths_room + n) * 2 + 4096);
	}
	*ret = m->paths_length;
	memcpy(m->paths + m->paths_length, path, n);
	m->paths_length += (uint32_t)n;
	return 0;
}

static int add_mapping(struct maps *m, const struct image_mapping *v)
{
	if (m->count == m->room) {
		struct image_mapping *more = scratch_grow(m->mappings, m->count * sizeof(*more),
							  (m->room * 2 + 256) * sizeof(*more));

		if (!more)
			return -ENOMEM;
		m->mappings = more;
		m->room = m->room * 2 + 256;
	}
	m->mappings[m->count++] = *v;
	return 0;
}

static int refuse(const struct line *l, const char *why)
{
	return fermata_fail(-EOPNOTSUPP, "mapping %lx-%lx of %s %s", l->start, l->end, l->path, why);
}

/* "/SYSV00001234 (deleted)", the key in hexadecimal, on a file system of the kernel's own. */
static bool is_sysv(const struct line *l)
{
	return !(l->dev >> 20) && l->shared && !strncmp(l->path, "/SYSV", 5) &&
	       strspn(l->path + 5, "0123456789abcdef") == 8 && !strcmp(l->path + 13, " (deleted)");
}

static int classify(const struct line *l, struct image_mapping *v)
{
	bool deleted = ends_with(l->path, " (deleted)");
	uint32_t page_shift = 0;
	struct stat st;

	if (!strncmp(l->path, "[v", 2)) {
		v->kind = IMAGE_MAPPING_VDSO;
		return 0;
	}
	if ((!l->ino && !is_sysv(l)) || *l->path != '/') { /* the first segment of an IPC namespace has the id 0, and that is its inode */
		v->kind = l->shared && l->ino ? IMAGE_MAPPING_SHARED_ANON : IMAGE_MAPPING_ANON; /* [anon_shmem:NAME] */
		if (!strcmp(l->path, "[stack]") || (!*l->path && !l->shared && growing_is(l->end)))
			v->flags |= IMAGE_MAPPING_GROWSDOWN;
		return 0;
	}
	if (is_sysv(l)) {
		v->kind = IMAGE_MAPPING_SYSV;
		v->flags |= object_page_shift(l->dev) << IMAGE_MAPPING_PAGE_SHIFT;
		return 0;
	}
	if (!l->shared && !strcmp(l->path, "/dev/zero")) {
		v->kind = IMAGE_MAPPING_ANON;
		return 0;
	}
	if (!(l->dev >> 20) && !strcmp(l->path, "/secretmem (deleted)"))
		return refuse(l, "is secret memory (memfd_secret), which must not come to lie in a file: let the program give it up before the checkpoint");
	if (!(l->dev >> 20) && !strcmp(l->path, "/[aio] (deleted)"))
		return refuse(l, "is a context of asynchronous I/O (io_setup, libaio), whose requests the kernel does not tell of: let the program end it before the checkpoint (io_destroy)");
	if (deleted || !strncmp(l->path, "/memfd:", 7)) {
		v->kind = l->shared ? IMAGE_MAPPING_SHARED_ANON : IMAGE_MAPPING_ANON;
		if (!(l->shared || object_is_anonymous_huge(l->path)) || !object_is_memory(l->path, l->dev, &page_shift))
			v->flags |= IMAGE_MAPPING_WHOLE;
		v->flags |= page_shift << IMAGE_MAPPING_PAGE_SHIFT;
		return 0;
	}
	v->kind = l->shared ? IMAGE_MAPPING_SHARED_FILE : IMAGE_MAPPING_FILE;
	if (RAW4(SYS_newfstatat, AT_FDCWD, l->path, &st, 0))
		return refuse(l, "cannot be held: its file is not there any more");
	if (!S_ISREG(st.st_mode))
		return refuse(l, "is a mapping of a device, which is not supported");
	v->file_size = (uint64_t)st.st_size;
	v->file_mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	if (!l->shared && agent.text == MSG_TEXT_SAVE)
		v->flags |= IMAGE_MAPPING_WHOLE;
	if (l->shared && object_in_memory(l->path, &page_shift)) {
		v->kind = IMAGE_MAPPING_SHARED_ANON;
		v->flags |= IMAGE_MAPPING_NAMED | page_shift << IMAGE_MAPPING_PAGE_SHIFT | (st.st_mode & 07777) << IMAGE_MAPPING_MODE_SHIFT;
	}
	return 0;
}

/*
 * A shared file that has lost the name that it was mapped by may have another one: libc makes a semaphore (sem_open) under a name of its own, links it to the right one, and takes the first away. Who opens it later
 * has to find this file.
 */
static void find_name(struct line *l, char *buf, size_t size)
{
	if (l->shared && l->ino && *l->path == '/' && ends_with(l->path, " (deleted)") && object_other_name(l->path, l->dev, l->ino, buf, size))
		l->path = buf;
}

static void note_vdso(struct maps *m, const struct line *l)
{
	if (!strcmp(l->path, "[vdso]")) {
		m->vdso_start = l->start;
		m->vdso_end = l->end;
		return;
	}
	if (!m->vvar_start)
		m->vvar_start = l->start;
	m->vvar_end = l->end;
}

/* The first piece of [start, end) that is not the program's: the device's, or the scratch memory, which the kernel shows as one mapping with a neighbour of its kind. */
static bool cut_next(uint64_t start, uint64_t end, uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t scratch_start, scratch_end;
	bool cut = device_range_next(start, end, ret_start, ret_end);

	scratch_range(&scratch_start, &scratch_end);
	if (scratch_end <= start || scratch_start >= end || (cut && *ret_start < scratch_start))
		return cut;
	*ret_start = scratch_start > start ? scratch_start : start;
	*ret_end = scratch_end < end ? scratch_end : end;
	return true;
}

/* Adds [start, end) of the line, less what is not the program's. */
static int add_cut(struct maps *m, struct image_mapping v, uint64_t start, uint64_t end)
{
	uint64_t cut_start, cut_end, base = start, offset = v.offset;
	int r = 0;

	while (start < end && !r) {
		bool cut = cut_next(start, end, &cut_start, &cut_end);

		v.start = start;
		v.end = cut ? cut_start : end;
		v.offset = offset + (start - base);
		if (v.end > v.start)
			r = add_mapping(m, &v);
		start = cut ? cut_end : end;
	}
	return r;
}

static int add_line(struct maps *m, struct line *l)
{
	static char name[PATH_MAX];
	struct image_mapping v = { .prot = l->prot, .offset = l->offset, .dev = l->dev, .ino = l->ino };
	uint64_t cut_start, cut_end;
	int r;

	if (!strcmp(l->path, "[vsyscall]") || (cut_next(l->start, l->end, &cut_start, &cut_end) && cut_start == l->start && cut_end == l->end))
		return 0;
	find_name(l, name, sizeof(name));
	r = classify(l, &v);
	if (!r && v.kind == IMAGE_MAPPING_VDSO)
		note_vdso(m, l);
	if (l->end - l->start > LARGE)
		v.flags |= IMAGE_MAPPING_NORESERVE;
	if (!r && *l->path)
		r = add_path(m, l->path, &v.path);
	return r ? r : add_cut(m, v, l->start, l->end);
}

/* The whole text, NUL-ended. The buffer grows until it fits with room to spare. */
static long read_text(struct maps *m)
{
	long n;

	for (;;) {
		if (m->text) {
			n = raw_read_file("/proc/thread-self/maps", m->text, m->text_room);
			if (n != -EFBIG)
				return n;
		}
		m->text_room = m->text_room ? m->text_room * 2 : 256u << 10;
		m->text = scratch_grow(NULL, 0, m->text_room);
		if (!m->text)
			return -ENOMEM;
	}
}

static int take_lines(struct maps *m)
{
	char *p = m->text;
	int r = 0;

	while (!r && *p) {
		char *end = strchr(p, '\n');
		struct line l;

		if (end)
			*end = 0;
		parse(p, &l);
		r = add_line(m, &l);
		p = end ? end + 1 : p + strlen(p);
	}
	return r;
}

int maps_read(struct maps *m)
{
	uint32_t none;
	long n;
	int r;

	memset(m, 0, sizeof(*m));
	device_list_begin();
	r = add_path(m, "", &none); /* offset 0 */
	n = r ? r : read_text(m);
	r = n < 0 ? (int)n : take_lines(m);
	device_list_end();
	return r < 0 ? fermata_fail(r, "cannot list the mappings of process %u (errno %d)", agent.pid, -r) : 0;
}
