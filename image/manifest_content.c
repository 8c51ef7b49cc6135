/* SPDX-License-Identifier: BSD-2-Clause */
/* Holds the copy of a file in a checkpoint against what an image says of it. Hosted. Owns nothing beyond the call. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/content.h"
#include "image/manifest.h"
#include "image/view.h"

static int check(const struct image *named, int fd, const struct image_content *c, struct image_error *e)
{
	struct image_content_work w = { .buffer = malloc(IMAGE_CONTENT_BLOCK) };
	uint64_t sum, bytes;
	struct stat st;
	bool reading;
	int r;

	if (!w.buffer || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != c->size) {
		r = !w.buffer ? image_say(named, e, IMAGE_MISSING, "no memory left to check it") :
				image_say(named, e, IMAGE_DAMAGED, "is damaged: it does not have the %llu bytes that its image says",
					  (unsigned long long)c->size);
		free(w.buffer);
		return r;
	}
	r = image_content_copy(&w, fd, -1, c->size, &sum, &bytes, &reading);
	free(w.buffer);
	if (r)
		return image_say(named, e, IMAGE_DAMAGED, "is damaged: it cannot be read: %s", strerror(-r));
	if (c->flags & IMAGE_CONTENT_HAS_SUM && sum != c->sum)
		return image_say(named, e, IMAGE_DAMAGED, "is damaged: it does not match its checksum");
	return 0;
}

int manifest_content_verify(const struct manifest *m, const struct image *i, const struct image_content *c, struct image_error *ret_error)
{
	char path[PATH_MAX + NAME_MAX + 2];
	const struct image named = { .name = path };
	int fd, r;

	*ret_error = (struct image_error){ .block = UINT64_MAX };
	snprintf(path, sizeof(path), "%s/%s", m->path, image_content_name(i, c));
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return image_say(&named, ret_error, IMAGE_DAMAGED, "%s", strerror(errno));
	r = check(&named, fd, c, ret_error);
	close(fd);
	return r;
}
