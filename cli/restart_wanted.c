/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The numbers that restarts without a capsule wait for (restart_walk.c). Owns the file that says ours. One job at a time walks to its own, and leaves the kernel's counter just behind
 * them: where the numbers of the next job may be, which waits for its turn. So each says beforehand which it wants, in a file that all can read, and no process of fermata
 * that stays is made on any of them.
 *
 * The file is there from before the lock is asked for until all threads are made, so whoever has the lock has seen the files of all who wait for it, but for those
 * that have come since he has looked last: he looks each time that he leads the counter. A file counts for as long as its writer has a lock on it; who finds one without
 * removes it. No restart depends on it: where the file cannot be written, or another user's says nonsense, the worst is a number in use, which is said (check_free()).
 *
 *   /dev/shm/fermata-walk-NAMESPACE-PID: uint32_t ids[], locked by fcntl(2), which a child does not inherit. NAMESPACE is the inode of /proc/self/ns/pid:
 *   containers may have the folder in common, but not the numbers.
 */
#include "cli/restart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "fermata-walk-" /* of all namespaces */
#define NAME_SIZE 64
#define IDS_MAX (4u << 20) /* PID_MAX_LIMIT of Linux: no number is greater */

struct restart_wanted {
	char prefix[NAME_SIZE]; /* of the files of this namespace */
	char own[NAME_SIZE];	/* our file's name; "": there is none */
	int fd;
	uint8_t others[IDS_MAX / 8]; /* a bit for each number that another restart wants */
};

static int lock(int fd, int command, short *ret_holder)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int err = fcntl(fd, command, &l) < 0 ? -errno : 0;

	if (ret_holder)
		*ret_holder = l.l_type;
	return err;
}

static void own_path(const struct restart_wanted *w, char path[2 * NAME_SIZE])
{
	snprintf(path, 2 * NAME_SIZE, FOLDER "/%s", w->own);
}

/* Nobody sees the file before it is whole and locked: it gets its name then. */
static int publish(struct restart_wanted *w, const struct plan_turns *t)
{
	char self[32], path[2 * NAME_SIZE];
	ssize_t size = (ssize_t)(t->count * sizeof(*t->ids));
	int err;

	w->fd = open(FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
	if (w->fd < 0)
		return -errno;
	err = write(w->fd, t->ids, (size_t)size) == size ? lock(w->fd, F_SETLK, NULL) : -ENOSPC;
	if (err)
		return err;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", w->fd);
	snprintf(w->own, sizeof(w->own), "%.48s%d", w->prefix, (int)getpid());
	own_path(w, path);
	unlink(path); /* of a process that had our number */
	if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	w->own[0] = '\0';
	return -errno;
}

static void add_file(struct restart_wanted *w, int fd)
{
	uint32_t ids[1024];
	ssize_t n;

	for (off_t at = 0; at < (off_t)(IDS_MAX * sizeof(*ids)); at += n) {
		n = pread(fd, ids, sizeof(ids), at);
		if (n <= 0)
			return;
		for (size_t i = 0; i < (size_t)n / sizeof(*ids); i++)
			if (ids[i] < IDS_MAX)
				w->others[ids[i] / 8] |= (uint8_t)(1u << ids[i] % 8);
	}
}

static void look_at(struct restart_wanted *w, int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	short holder = F_WRLCK;
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && lock(fd, F_GETLK, &holder) == 0) {
		if (holder == F_UNLCK)
			unlinkat(folder, name, 0);
		else if (!strncmp(name, w->prefix, strlen(w->prefix)))
			add_file(w, fd);
	}
	close(fd);
}

void restart_wanted_look(const struct restart *r)
{
	struct restart_wanted *w = r->wanted;
	DIR *d = w ? opendir(FOLDER) : NULL;
	const struct dirent *e;

	if (!d)
		return;
	memset(w->others, 0, sizeof(w->others));
	while ((e = readdir(d)))
		if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)) && strcmp(e->d_name, w->own) != 0)
			look_at(w, dirfd(d), e->d_name);
	closedir(d);
}

bool restart_wanted_by_others(const struct restart *r, uint32_t id)
{
	return r->wanted && id < IDS_MAX && (r->wanted->others[id / 8] & 1u << id % 8);
}

void restart_wanted_publish(struct restart *r)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) == 0)
		r->wanted = calloc(1, sizeof(*r->wanted));
	if (!r->wanted)
		return;
	snprintf(r->wanted->prefix, sizeof(r->wanted->prefix), PREFIX "%llu-", (unsigned long long)st.st_ino);
	if (publish(r->wanted, r->turns) < 0)
		restart_wanted_withdraw(r); /* those of others are looked at all the same */
}

void restart_wanted_withdraw(struct restart *r)
{
	struct restart_wanted *w = r->wanted;
	char path[2 * NAME_SIZE];

	if (!w)
		return;
	own_path(w, path);
	if (*w->own)
		unlink(path);
	w->own[0] = '\0';
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}
