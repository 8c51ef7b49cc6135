/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Restart: what the checkpoint holds of a file without a name goes into the one that has just been made for it. The list is that of the checkpoint, back with the memory; where its
 * files are now the image tells, which lies beside them. Owns nothing beyond the call.
 *
 * Of a file that is mapped in part, what is mapped is a hole in what was saved: pages of zeros are not written, so the memory, which is back already, stays as it is.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/content.h"
#include "image/content.h"

void content_restarted(int image)
{
	char proc[40], *slash;
	long n;

	fm_format(proc, sizeof(proc), "/proc/thread-self/fd/%d", image);
	n = RAW4(SYS_readlinkat, AT_FDCWD, proc, content_now.directory, sizeof(content_now.directory) - 1);
	content_now.directory[n > 0 ? n : 0] = 0;
	slash = strrchr(content_now.directory, '/');
	if (slash)
		*slash = 0;
}

static int open_saved(const struct fermata_desc *d, const struct content *c)
{
	char path[sizeof(content_now.directory) + sizeof(c->name) + 1];
	struct stat st;
	int fd;

	fm_format(path, sizeof(path), "%s/%s", content_now.directory, c->name);
	fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd < 0)
		return fermata_fail(fd, "fd %d: %s, the content of %s, cannot be opened (errno %d)", d->fd, path, c->path, -fd);
	if (RAW2(SYS_fstat, fd, &st) >= 0 && (uint64_t)st.st_size == c->record.size)
		return fd;
	raw_close(fd);
	return fermata_fail(-EBADMSG, "fd %d: %s is damaged: it does not have the %lu bytes of %s", d->fd, path, (unsigned long)c->record.size, c->path);
}

static int copy(const struct fermata_desc *d, struct content *c, int from, int to)
{
	struct image_content_work w = { .progress = content_progress, .arg = c };
	bool cloned = !c->mapped && !image_content_clone(from, to), reading = false;
	uint64_t sum, bytes;
	int r;

	w.buffer = raw_mmap(NULL, IMAGE_CONTENT_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_is_error(w.buffer))
		return fermata_fail(-ENOMEM, "fd %d: no memory to copy %s with", d->fd, c->path);
	r = image_content_copy(&w, from, cloned ? -1 : to, c->record.size, &sum, &bytes, &reading);
	raw_munmap(w.buffer, IMAGE_CONTENT_BLOCK);
	if (r)
		return fermata_fail(r, reading ? "fd %d: %s/%s, the content of %s, cannot be read (errno %d)" :
						 "fd %d: %s/%s, the content of %s, cannot be put back: where the file was, or in /tmp, it cannot be written (errno %d)",
				    d->fd, content_now.directory, c->name, c->path, -r);
	if (c->record.flags & IMAGE_CONTENT_HAS_SUM && sum != c->record.sum)
		return fermata_fail(-EBADMSG, "fd %d: %s/%s is damaged: the content of %s does not match its checksum", d->fd, content_now.directory, c->name, c->path);
	return 0;
}

int fermata_content_put(const struct fermata_desc *d, uint64_t dev, uint64_t ino, int fd)
{
	struct content *c = content_find(&content_now, dev, ino);
	int from, r;

	if (!c)
		return fermata_fail(-ENODATA, "fd %d (%s): the checkpoint does not have its content", d->fd, d->link);
	if (c->memory)
		return 0;
	from = open_saved(d, c);
	r = from < 0 ? from : copy(d, c, from, fd);
	if (from >= 0)
		raw_close(from);
	return r;
}
