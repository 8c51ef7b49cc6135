/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File locks: of a process (POSIX), of a description (OFD), and those of flock. fdinfo tells of the first kind in the process that holds them only, of the
 * others in every process that has the description: setting one of these twice is setting it once.
 *
 * Owns the list of locks that this process has seen: filled as descriptors are claimed, in the image with the rest of the memory, used in REFILL,
 * when every descriptor of the job is in its place and nobody runs. Whoever waits for a lock asks again by himself. Leases are refused.
 */
#include <errno.h>
#include <string.h>
#include <sys/file.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/file/file.h"

enum kind { KIND_FLOCK, KIND_POSIX, KIND_OFD };

struct file_lock {
	int32_t fd;
	uint32_t kind;
	uint32_t exclusive, reserved;
	int64_t start, length; /* 0: to the end, wherever that is */
};

static struct file_lock *locks;
static uint32_t count, room;

void file_lock_forget(void)
{
	fermata_free(locks);
	locks = NULL;
	count = room = 0;
}

int file_lock_begin(void)
{
	file_lock_forget();
	return 0;
}

static int add(const struct file_lock *l)
{
	struct file_lock *more;

	if (count == room) {
		more = fermata_alloc((room * 2 + 8) * sizeof(*more));
		if (!more)
			return fermata_fail(-ENOMEM, "no memory to note the locks of fd %d", l->fd);
		if (count)
			memcpy(more, locks, count * sizeof(*more));
		fermata_free(locks);
		locks = more;
		room = room * 2 + 8;
	}
	locks[count++] = *l;
	return 0;
}

/* The next word of a line, or "" at its end. */
static const char *word(const char **at, char *to, size_t size)
{
	size_t n = 0;

	while (**at == ' ' || **at == '\t')
		(*at)++;
	for (; **at && **at != ' ' && **at != '\t' && **at != '\n'; (*at)++)
		if (n + 1 < size)
			to[n++] = **at;
	to[n] = 0;
	return to;
}

static int64_t number(const char *s)
{
	int64_t v = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (*s - '0');
	return v;
}

/* "1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF" */
static int take(const struct fermata_desc *d, const char *line)
{
	struct file_lock l = { .fd = d->fd };
	char w[32], kind[32];

	word(&line, w, sizeof(w));
	word(&line, kind, sizeof(kind));
	l.kind = !strcmp(kind, "FLOCK") ? KIND_FLOCK : !strcmp(kind, "POSIX") ? KIND_POSIX : KIND_OFD;
	if (l.kind == KIND_OFD && strcmp(kind, "OFDLCK"))
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) holds a lock of the kind %s, which is not supported: give it back before the checkpoint",
				    d->fd, d->link, kind);
	word(&line, w, sizeof(w));
	l.exclusive = !strcmp(word(&line, w, sizeof(w)), "WRITE");
	word(&line, w, sizeof(w));
	word(&line, w, sizeof(w));
	l.start = number(word(&line, w, sizeof(w)));
	l.length = strcmp(word(&line, w, sizeof(w)), "EOF") ? number(w) - l.start + 1 : 0;
	return add(&l);
}

static int take_all(const struct fermata_desc *d, const char *text)
{
	int r = 0;

	while (!r && (text = strstr(text, "\nlock:"))) {
		text += 6;
		r = take(d, text);
	}
	return r;
}

/* Of many locks the text is long: its size is found by trying. */
int file_lock_note(const struct fermata_desc *d)
{
	char few[16384], proc[48], *text = few;
	long n;
	int r;

	fm_format(proc, sizeof(proc), "/proc/thread-self/fdinfo/%d", d->fd);
	n = raw_read_file(proc, few, sizeof(few));
	for (size_t size = 2 * sizeof(few); n == -EFBIG; size *= 2) {
		if (text != few)
			fermata_free(text);
		text = fermata_alloc(size);
		n = text ? raw_read_file(proc, text, size) : -ENOMEM;
	}
	r = n < 0 ? fermata_fail((int)n, "what fd %d (%s) holds cannot be read (errno %ld)", d->fd, d->link, -n) : take_all(d, text);
	if (text != few)
		fermata_free(text);
	return r;
}

static long set(const struct file_lock *l)
{
	struct flock f = { .l_type = l->exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET, .l_start = l->start, .l_len = l->length };

	if (l->kind == KIND_FLOCK)
		return RAW2(SYS_flock, l->fd, (l->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
	return raw_fcntl(l->fd, l->kind == KIND_OFD ? F_OFD_SETLK : F_SETLK, (long)&f);
}

int file_lock_refill(void)
{
	for (uint32_t i = 0; i < count; i++) {
		long r = set(&locks[i]);

		if (r < 0)
			return fermata_fail((int)r, r == -EAGAIN || r == -EACCES ? "fd %d: somebody who is not of the job holds the lock that it had (errno %ld)" :
										"fd %d: the lock that it had cannot be had again (errno %ld)",
					    locks[i].fd, -r);
	}
	return 0;
}
