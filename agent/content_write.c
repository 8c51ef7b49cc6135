/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * WRITE's part of the contents of files: what this process has to save is looked at, saved one after the other (content_save.c), and told of in the
 * note CONTENTS. Owns that note, and how far it has come: the commands are told what there is before the first byte is copied.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/content.h"
#include "base/fault.h"
#include "base/thread.h"
#include "image/content.h"

#define STACK_SIZE (64u << 10)

static uint8_t *record;
static uint32_t record_length;
static uint64_t done_bytes, total_bytes, told_ns;

static bool ours(const struct content *c)
{
	return c->holder == agent.pid && !c->memory;
}

static int tell(bool always)
{
	struct msg_progress p = { done_bytes, total_bytes };
	uint64_t at = raw_now_ns();

	if (!always && at - told_ns < 200000000u)
		return 0;
	told_ns = at;
	link_send(&agent.link, MSG_PROGRESS, &p, sizeof(p));
	return phase_called_off();
}

int content_progress(void *arg, uint64_t at)
{
	const struct content *c = arg;
	int r;

	done_bytes = c->begun + at;
	r = tell(false);
	return r ? r : fault_point(FAULT_CONTENT_IN_COPY);
}

uint64_t content_bytes(void)
{
	return total_bytes;
}

/* Other hosts have written out what they had (content.c), and what this one knows of the file may be older. Before Linux 4.11 it is. */
static void renew(const struct content *c)
{
	struct statx st;

	RAW5(SYS_statx, c->fd >= 0 ? c->fd : AT_FDCWD, c->fd >= 0 ? "" : c->path, AT_STATX_FORCE_SYNC | (c->fd >= 0 ? AT_EMPTY_PATH : 0), STATX_BASIC_STATS, &st);
}

/* Sizes and times as they are now that everybody stands. */
static int examine(struct content *c)
{
	struct image_content *r = &c->record;
	struct stat st;
	struct timespec t = { 0 };
	long err;

	renew(c);
	err = c->fd >= 0 ? RAW2(SYS_fstat, c->fd, &st) : RAW4(SYS_newfstatat, AT_FDCWD, c->path, &st, 0);

	if (err < 0 || st.st_dev != r->dev || st.st_ino != r->ino)
		return fermata_fail(err < 0 ? (int)err : -ESTALE, "%s cannot be examined (errno %ld)", c->path, err < 0 ? -err : ESTALE);
	raw_clock_gettime(CLOCK_REALTIME, &t);
	c->seen_sec = t.tv_sec;
	c->ctime_sec = st.st_ctim.tv_sec;
	c->ctime_nsec = (uint32_t)st.st_ctim.tv_nsec;
	r->size = (uint64_t)st.st_size;
	r->mtime_sec = st.st_mtim.tv_sec;
	r->mtime_nsec = (uint32_t)st.st_mtim.tv_nsec;
	r->mode = st.st_mode & 07777;
	r->uid = st.st_uid;
	r->gid = st.st_gid;
	r->kind = c->deleted ? IMAGE_CONTENT_DELETED : !c->written ? IMAGE_CONTENT_STATED : agent.files == MSG_FILES_CHECK ? IMAGE_CONTENT_SUMMED : IMAGE_CONTENT_SAVED;
	return 0;
}

static int make_record(void)
{
	struct image_contents head = { .entry_size = sizeof(struct image_content), .texts_length = 1 };
	uint8_t *entries, *texts;

	for (uint32_t i = 0; i < content_now.count; i++)
		if (ours(&content_now.all[i])) {
			head.count++;
			head.texts_length += strlen(content_now.all[i].path) + strlen(content_now.all[i].name) + 2;
		}
	record_length = head.count ? (uint32_t)(sizeof(head) + head.count * sizeof(struct image_content) + head.texts_length) : 0;
	record = record_length ? fermata_alloc(record_length) : NULL;
	if (!record)
		return record_length ? fermata_fail(-ENOMEM, "no memory to list %u files", head.count) : 0;
	memcpy(record, &head, sizeof(head));
	entries = record + sizeof(head);
	texts = entries + head.count * sizeof(struct image_content);
	head.texts_length = 1;
	for (uint32_t i = 0; i < content_now.count; i++) {
		struct content *c = &content_now.all[i];
		size_t path = strlen(c->path) + 1, name = strlen(c->name) + 1;

		if (!ours(c))
			continue;
		c->record.path = (uint32_t)head.texts_length;
		c->record.name = c->name[0] ? (uint32_t)(head.texts_length + path) : 0;
		memcpy(texts + head.texts_length, c->path, path);
		memcpy(texts + head.texts_length + path, c->name, name);
		memcpy(entries, &c->record, sizeof(c->record));
		entries += sizeof(c->record);
		head.texts_length += path + name;
	}
	return 0;
}

/* "12.core" holds process 12, "12.3.file" the fourth file of its list. */
static void name(struct content *c, const char *image, uint32_t index)
{
	char stem[64];
	size_t n = strlen(image);

	n -= n > 5 ? 5 : 0;
	memcpy(stem, image, n);
	stem[n] = 0;
	if (image_content_is_saved(&c->record))
		fm_format(c->name, sizeof(c->name), "%s.%u.file", stem, index);
}

struct job {
	const struct msg_phase *where;
	struct msg_phase_done *done;
	struct content_place place;
	int result;
};

static int save_one(struct job *j, uint32_t i)
{
	struct content *c = &content_now.all[i];
	int r;

	if (!ours(c) || !c->written)
		return 0;
	name(c, j->where->name, i);
	c->begun = done_bytes;
	r = content_save(c, content_find(&content_before, c->record.dev, c->record.ino), &j->place);
	done_bytes = c->begun + c->record.size;
	if (image_content_is_saved(&c->record)) {
		j->done->contents++;
		j->done->contents_bytes += c->record.bytes;
	}
	return r;
}

/* In a thread of its own: see content_save.c. */
static void save_all(void *arg)
{
	struct job *j = arg;

	j->place.dir = raw_open(j->where->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (j->place.dir < 0)
		j->result = fermata_fail(j->place.dir, "cannot open %s (errno %d)", j->where->directory, -j->place.dir);
	for (uint32_t i = 0; i < content_now.count && !j->result; i++)
		j->result = save_one(j, i);
	if (j->place.dir >= 0)
		raw_close(j->place.dir);
}

static int save(const struct msg_phase *where, struct msg_phase_done *done)
{
	struct job j = { where, done, { .directory = where->directory, .before = content_before.directory[0] ? content_before.directory : NULL }, 0 };
	char *room = raw_mmap(NULL, IMAGE_CONTENT_BLOCK + STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct raw_thread t;
	int r;

	if (raw_is_error(room))
		return fermata_fail(-ENOMEM, "no memory to copy files with");
	j.place.buffer = room;
	r = raw_thread_spawn_apart(&t, NULL, true, save_all, &j, room + IMAGE_CONTENT_BLOCK, STACK_SIZE);
	if (!r)
		raw_thread_join(&t);
	else
		thread_fail(r);
	raw_munmap(room, IMAGE_CONTENT_BLOCK + STACK_SIZE);
	fm_format(content_now.directory, sizeof(content_now.directory), "%s", where->directory);
	return r ? r : j.result;
}

int content_write(const struct msg_phase *where, struct msg_phase_done *done)
{
	bool any = false;
	int r = 0;

	done_bytes = total_bytes = 0;
	for (uint32_t i = 0; i < content_now.count && !r; i++) {
		if (!ours(&content_now.all[i]))
			continue;
		r = examine(&content_now.all[i]);
		any |= content_now.all[i].written;
		total_bytes += content_now.all[i].written ? content_now.all[i].record.size : 0;
	}
	if (total_bytes && !r)
		tell(true); /* how much it will be, before it is begun */
	if (any && !r)
		r = save(where, done);
	return r ? r : make_record();
}

const void *content_record(uint32_t *ret_length)
{
	*ret_length = record_length;
	return record;
}

void content_write_end(void)
{
	fermata_free(record);
	record = NULL;
	record_length = 0;
}
