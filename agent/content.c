/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which files' contents this process has to put into the checkpoint. Owns the list of regular files that it has open or mapped shared, and
 * what the checkpoint before this one held of them.
 *
 *   QUIESCE  lists them; of each that is written to here, or has no name, it publishes, by device and inode, that this process does
 *   DRAIN    of all of this host that write to a file, the lowest pid saves it; of one without a name what is mapped of it comes back with the memory
 *   WRITE    content_save.c copies; the list becomes the note CONTENTS
 *   RESUME   committed: the list is kept, so that the next checkpoint need not copy what has not changed since
 *
 * A restart finds the list in memory. Files with names were put back before it began; who makes one without a name again (plugins/file/) takes its content from here (content_put.c).
 *
 * Several hosts may write to one file, of a file system that they have in common. Whether two hosts mean the same file nothing tells for certain: device numbers differ where the file is
 * one, and inodes and paths may be equal where it is not. So each host saves it, under a name of its own (content_write.c). These contents are equal, for what has been written is on the
 * server before the first is saved, and who saves asks there how large the file is; at a restart the first one that is put back leaves nothing to do to the others.
 *
 * The list is in the agent's arena: WRITE makes it before memory is written, so it is in the image; a restart forgets all of it. No locks: the
 * checkpoint thread is alone.
 */
#include "agent/content.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "agent/agent.h"
#include "agent/fd_table.h"
#include "base/open_path.h"
#include "protocol/files.h"

struct content_list content_now, content_before;

static void list_free(struct content_list *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		fermata_free(l->all[i].path);
	fermata_free(l->all);
	memset(l, 0, sizeof(*l));
}

static uint32_t *bucket(struct content_list *l, uint64_t dev, uint64_t ino)
{
	return &l->buckets[(ino ^ dev * 31) & (ARRAY_SIZE(l->buckets) - 1)];
}

struct content *content_find(struct content_list *l, uint64_t dev, uint64_t ino)
{
	for (uint32_t i = *bucket(l, dev, ino); i; i = l->all[i - 1].next)
		if (l->all[i - 1].record.dev == dev && l->all[i - 1].record.ino == ino)
			return &l->all[i - 1];
	return NULL;
}

/* The entry of a file, which may be a new one; NULL: no memory. */
static struct content *list_take(struct content_list *l, const struct stat *st, const char *path)
{
	struct content *c = content_find(l, st->st_dev, st->st_ino);
	size_t n = strlen(path) + 1;

	if (c)
		return c;
	if (l->count == l->room) {
		c = arena_realloc(&agent_arena, l->all, (l->room * 2 + 16) * sizeof(*c));
		if (!c)
			return NULL;
		l->all = c;
		l->room = l->room * 2 + 16;
	}
	c = &l->all[l->count];
	*c = (struct content){ .fd = -1, .record = { .dev = st->st_dev, .ino = st->st_ino }, .path = fermata_alloc(n),
			       .next = *bucket(l, st->st_dev, st->st_ino) };
	if (!c->path)
		return NULL;
	memcpy(c->path, path, n);
	*bucket(l, st->st_dev, st->st_ino) = ++l->count;
	return c;
}

/* ---- QUIESCE ---- */

int content_note_mapping(const struct maps *m, const struct image_mapping *v)
{
	const char *path = maps_path(m, v);
	struct content *c;
	struct stat st;
	long r;

	if (agent.files == MSG_FILES_IGNORE || !(v->prot & PROT_WRITE) || image_mapping_page_shift(v))
		return 0;
	if (v->kind != IMAGE_MAPPING_SHARED_FILE && !(v->kind == IMAGE_MAPPING_SHARED_ANON && v->flags & IMAGE_MAPPING_NAMED))
		return 0;
	r = RAW4(SYS_newfstatat, AT_FDCWD, path, &st, 0);
	c = r < 0 ? NULL : list_take(&content_now, &st, path);
	if (!c)
		return fermata_fail(r < 0 ? (int)r : -ENOMEM, "%s, which is mapped, cannot be examined (errno %ld)", path, r < 0 ? -r : ENOMEM);
	c->written = c->mapped = true;
	r = content_is_local(-1, path) ? 0 : RAW3(SYS_msync, v->start, v->end - v->start, MS_SYNC);
	return r < 0 ? fermata_fail((int)r, "%s, which is mapped, cannot be written out (errno %ld)", path, -r) : 0;
}

/* Before anybody saves it: another host sees what has been written out. */
static int write_out(const struct content *c)
{
	long r = c->fd < 0 || c->deleted || content_is_local(c->fd, NULL) ? 0 : RAW1(SYS_fsync, c->fd);

	return r < 0 ? fermata_fail((int)r, "%s cannot be written out (errno %ld)", c->path, -r) : 0;
}

/* Files that show what the kernel knows: they have no content of their own. */
static bool has_content(int fd)
{
	static const uint32_t kernel[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,
					   TRACEFS_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC, HUGETLBFS_MAGIC, SELINUX_MAGIC, 0x62656570 /* configfs */,
					   0x19800202 /* mqueue: plugins/mqueue/ */ };
	struct statfs s;

	if (RAW2(SYS_fstatfs, fd, &s) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(kernel); i++)
		if ((uint32_t)s.f_type == kernel[i])
			return false;
	return true;
}

/* The entry of what is open as @d; NULL has been said. */
static struct content *take_descriptor(const struct fermata_desc *d)
{
	char path[4096];
	struct content *c;
	long n = open_path(d->fd, &d->st, path, sizeof(path));

	c = n < 0 ? NULL : list_take(&content_now, &d->st, path);
	if (!c)
		fermata_fail(n < 0 ? (int)n : -ENOMEM, "fd %d (%s) cannot be noted (errno %ld)", d->fd, d->link, n < 0 ? -n : ENOMEM);
	else if (c->fd < 0)
		c->fd = d->fd;
	return c;
}

int fermata_content_keep(const struct fermata_desc *d)
{
	struct content *c = take_descriptor(d);

	if (c)
		c->written = c->deleted = true;
	return c ? 0 : -ENOMEM;
}

static int note_descriptor(const struct fd_entry *e)
{
	const struct fermata_desc *d = &e->desc;
	struct content *c;

	if (!e->plugin || !S_ISREG(d->st.st_mode) || !d->st.st_nlink || d->status & O_PATH || !has_content(d->fd))
		return 0;
	c = take_descriptor(d);
	if (!c)
		return -ENOMEM;
	if ((d->status & O_ACCMODE) != O_RDONLY)
		c->fd = d->fd;
	c->written |= (d->status & O_ACCMODE) != O_RDONLY;
	if (e->stdio_mask & 6)
		c->record.flags |= IMAGE_CONTENT_STANDARD;
	return 0;
}
static int publish(const struct content *c)
{
	struct files_key key = { FILES_TAG, c->record.dev, c->record.ino };
	struct files_holder holder = { agent.pid, c->mapped };
	struct stat st = { .st_dev = c->record.dev, .st_ino = c->record.ino };
	int r = fermata_publish(&key, sizeof(key), &holder, sizeof(holder));

	if (!r)
		r = fermata_ask(&key, sizeof(key));
	return r ? r : fermata_ask_mapped(&st);
}

int content_quiesce(void)
{
	int r = 0;

	for (uint32_t i = 0; i < fd_table.count && !r && agent.files != MSG_FILES_IGNORE; i++)
		r = note_descriptor(fd_table.entries[i]);
	for (uint32_t i = 0; i < content_now.count && !r; i++)
		if (content_now.all[i].written && !(r = write_out(&content_now.all[i])))
			r = publish(&content_now.all[i]);
	return r;
}

/* ---- DRAIN ---- */

/* A file in memory, or without a name, is if all of it is mapped (memory_settle). */
static bool in_image(const struct content *c, struct stat *st)
{
	long r = c->fd >= 0 ? RAW2(SYS_fstat, c->fd, st) : RAW4(SYS_newfstatat, AT_FDCWD, c->path, st, 0);

	return !r && fermata_is_mapped(st) == 2;
}

int content_drain(void)
{
	for (uint32_t i = 0; i < content_now.count; i++) {
		struct content *c = &content_now.all[i];
		struct files_key key = { FILES_TAG, c->record.dev, c->record.ino };
		struct stat st = { .st_dev = c->record.dev, .st_ino = c->record.ino };
		struct files_holder h;
		const void *value;
		size_t len;

		c->holder = agent.pid;
		for (unsigned int k = 0; c->written && (value = fermata_resolve(&key, sizeof(key), k, &len)); k++) {
			if (len < sizeof(h))
				return fermata_fail(-EPROTO, "a name for %s has %zu bytes", c->path, len);
			memcpy(&h, value, sizeof(h));
			c->holder = h.pid < c->holder ? h.pid : c->holder;
			c->mapped |= h.mapped;
		}
		c->memory = c->written && fermata_is_mapped(&st) && in_image(c, &st);
		c->mapped |= c->deleted && fermata_is_mapped(&st);
	}
	return 0;
}

/* ---- RESUME ---- */

/* "DIR/.12.partial" is "DIR/12" when it is committed. */
static void committed(uint32_t number)
{
	size_t n = (size_t)(strrchr(content_now.directory, '/') - content_now.directory);

	list_free(&content_before);
	content_before = content_now;
	memset(&content_now, 0, sizeof(content_now));
	fm_format(content_before.directory + n, sizeof(content_before.directory) - n, "/%u", number);
}

void content_end(const struct msg_phase *resume)
{
	content_write_end();
	if (!resume)
		list_free(&content_before);
	else if (!resume->reason && content_now.directory[0])
		committed(resume->checkpoint);
	list_free(&content_now);
}
