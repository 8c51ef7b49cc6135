/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regular files, directories, and character devices without state (/dev/null and its kin). Owns nothing between calls.
 *
 * The content of a file that has a name is the agent's matter (agent/content.c), and is put back before anything here runs. Restore opens the same
 * absolute path, as it is now, without creating or truncating, and seeks. What the path no longer leads to is told at the checkpoint already: a replaced
 * file and one seen from another root are refused by name. Locks: file_lock.c. Deleted files: file_deleted.c. What is left of a
 * process that has ended, below /proc: file_gone.c. The end of a file of /proc: file_proc.c.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/open_path.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/file/file.h"

#define FLAGS_KEPT                                                                                                     \
	(O_ACCMODE | O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME | O_SYNC | O_DSYNC | O_DIRECTORY | O_PATH | O_NOFOLLOW)

static int is_plain_device(const struct stat *st)
{
	static const uint8_t minors[] = { 3 /* null */, 5 /* zero */, 7 /* full */, 8 /* random */, 9 /* urandom */ };

	for (size_t i = 0; i < sizeof(minors); i++)
		if (st->st_rdev == (1u << 8 | minors[i]))
			return 1;
	return 0;
}

static int refuse_path(const struct fermata_desc *d, const char *path)
{
	struct stat st;
	bool reached = RAW4(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) != -EACCES;

	return fermata_fail(-EOPNOTSUPP, reached ? "fd %d: %s is no longer the file that was opened: close it before the checkpoint" :
						   "fd %d: %s cannot be reached by the process, whose user is another now, so it could not be opened again: close it before the checkpoint",
			    d->fd, d->link);
}

/* The kernel tells of them by the owner alone, which a directory has for nothing else (fs/notify/dnotify). */
static int refuse_notes(const struct fermata_desc *d)
{
	struct {
		int type, pid;
	} owner = { 0 };

	if (!S_ISDIR(d->st.st_mode) || d->status & O_PATH || raw_fcntl(d->fd, F_GETOWN_EX, (long)&owner) || !owner.pid)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "fd %d: changes in %s are told of by signal (F_NOTIFY), which is not supported: have the program use inotify, or close it before the checkpoint",
			    d->fd, d->link);
}

static int file_fd_claim(struct fermata_desc *d)
{
	char path[FILE_PATH_MAX];
	long n;
	int r;

	if (!S_ISREG(d->st.st_mode) && !S_ISDIR(d->st.st_mode) && !(d->status & O_PATH && d->link[0] == '/') &&
	    !(S_ISCHR(d->st.st_mode) && is_plain_device(&d->st)))
		return 0;
	if (!strncmp(d->link, "anon_inode:", 11)) /* a pidfd of newer kernels looks like a file */
		return 0;
	if (d->link[0] != '/')
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) has no path from here: close it before the checkpoint", d->fd,
				    d->link);
	if (S_ISREG(d->st.st_mode) && (n = file_lock_note(d)))
		return (int)n;
	r = refuse_notes(d);
	if (r)
		return r;
	if (!d->st.st_nlink)
		return file_deleted_claim(d);
	n = open_path(d->fd, &d->st, path, sizeof(path));
	if (n < 0)
		return fermata_fail((int)n, "fd %d (%s) has no readable path (errno %ld)", d->fd, d->link, -n);
	r = file_gone_check(d, path);
	if (r < 0)
		return fermata_fail(r, "fd %d: %s could not be opened again (errno %d): close it before the checkpoint", d->fd, path, -r);
	return r || path_leads_to(path, &d->st) ? 1 : refuse_path(d, path);
}

static int file_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct file_record r = {
		.version = FILE_RECORD_VERSION, .mode = d->st.st_mode, .flags = d->status & FLAGS_KEPT,
		.dev = d->st.st_dev, .ino = d->st.st_ino,
	};
	char path[FILE_PATH_MAX];
	struct stat st;
	long n;

	if (!S_ISDIR(d->st.st_mode))
		r.flags &= ~(uint32_t)O_DIRECTORY; /* it is a part of O_TMPFILE */
	n = open_path(d->fd, &d->st, path, sizeof(path));
	if (n >= 0)
		n++; /* the end, too */
	if (n >= 0 && RAW2(SYS_fstat, d->fd, &st) < 0)
		n = -EIO;
	if (n < 0)
		return fermata_fail((int)n, "fd %d (%s) cannot be read (errno %ld)", d->fd, d->link, -n);
	r.path_length = (uint32_t)n;
	r.size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	r.mtime_sec = st.st_mtim.tv_sec;
	r.mtime_nsec = (uint32_t)st.st_mtim.tv_nsec;
	r.offset = d->status & O_PATH ? -1 : raw_lseek(d->fd, 0, SEEK_CUR);
	if (r.offset < 0)
		r.offset = -1;
	if (st.st_nlink)
		r.proc = file_gone_check(d, path) == 1 ? FILE_PROC_GONE : file_proc_is_at_end(d, r.offset) ? FILE_PROC_AT_END : FILE_PROC_NOTHING;
	else
		file_deleted_describe(d, &r);
	n = fermata_sink_write(sink, &r, sizeof(r));
	return n ? (int)n : fermata_sink_write(sink, path, r.path_length);
}

/*
 * Where to go on. What was read or written up to the offset must still be there; holes beyond the end were holes before. A
 * standard output goes on at the end of a file that is shorter now: `fermata restart DIR >log` has emptied it.
 */
static int find_offset(int fd, const struct file_record *r, int number, const char *path, int64_t *ret)
{
	uint64_t need = r->offset < 0 || (uint64_t)r->offset > r->size ? r->size : (uint64_t)r->offset;
	struct stat st;
	long err = RAW2(SYS_fstat, fd, &st);

	if (err < 0)
		return fermata_fail((int)err, "fd %d: %s cannot be examined (errno %ld)", number, path, -err);
	if ((st.st_mode & S_IFMT) != (r->mode & S_IFMT))
		return fermata_fail(-ESTALE, "fd %d: %s is of another type than at the checkpoint", number, path);
	*ret = r->offset;
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > r->size && fermata_outputs_at_end() && (number == 1 || number == 2) &&
	    (r->flags & O_ACCMODE) != O_RDONLY) {
		*ret = st.st_size;
		return 0;
	}
	if (!S_ISREG(st.st_mode) || r->offset < 0 || (uint64_t)st.st_size >= need)
		return 0;
	*ret = st.st_size;
	if ((number == 1 || number == 2) && (r->flags & O_ACCMODE) == O_WRONLY)
		return 0;
	return fermata_fail(-ESTALE, "fd %d: %s has %llu bytes, but had been read or written up to byte %llu: put back the file of "
			    "the checkpoint", number, path, (unsigned long long)st.st_size, (unsigned long long)need);
}

/*
 * ext4 (seen in Linux 6.18): a directory that is moved to its end before anything has been read of it stays empty when the program goes back to its
 * beginning: the hash that it would go on from is the end's, and position 0 looks like the one that it had. Reading first gives it another one.
 */
static void read_first(int fd)
{
	_Alignas(8) char entries[1024];

	RAW3(SYS_getdents64, fd, entries, sizeof(entries));
}

/* Takes @fd over: at its offset, or closed and -errno. */
static int settle(struct fermata_desc *d, int fd, const struct file_record *r, const char *path)
{
	int64_t offset = 0;
	long err = find_offset(fd, r, d->fd, path, &offset);

	if (!err && offset > 0) {
		if (S_ISDIR(r->mode))
			read_first(fd);
		err = raw_lseek(fd, offset, SEEK_SET);
		err = err < 0 ? fermata_fail((int)err, "fd %d: cannot seek in %s (errno %ld)", d->fd, path, -err) : 0;
	}
	if (!err)
		return fd;
	raw_close(fd);
	return (int)err;
}

/*
 * A directory that is gone was taken away since the checkpoint: mpirun removes its own when a rank dies. It is made again; what was in it is there as far as the job had it
 * open (or by launch --with).
 */
static int open_again(const struct fermata_desc *d, const struct file_record *r, const char *path)
{
	int fd = raw_open_again(path, (int)r->flags | O_CLOEXEC | O_NOCTTY);

	if (fd != -ENOENT || !S_ISDIR(r->mode))
		return fd;
	raw_make_parents(path);
	if (!RAW2(SYS_mkdir, path, 0700) && !RAW2(SYS_chmod, path, r->mode & 07777))
		log_warn("fd %d: the directory %s was missing and is made again", d->fd, path);
	return raw_open(path, (int)r->flags | O_CLOEXEC | O_NOCTTY, 0);
}

static int file_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	const struct file_record *r = record;
	const char *path = (const char *)(r + 1);
	char buf[FILE_PATH_MAX];
	int fd;

	if (len < sizeof(*r) || len - sizeof(*r) < r->path_length || !r->path_length || path[r->path_length - 1])
		return fermata_fail(-EBADMSG, "fd %d: the record of its file is cut", d->fd);
	if (r->maker_pid)
		fd = file_deleted_restore(d, r);
	else if (r->proc == FILE_PROC_GONE)
		fd = file_gone_open(path, (int)r->flags | O_CLOEXEC);
	else if (!(path = fermata_path_now(path, buf, sizeof(buf))))
		fd = -ENAMETOOLONG;
	else
		fd = open_again(d, r, path);
	if (fd == FERMATA_FD_LATER)
		return fd;
	if (fd < 0)
		return fermata_fail(fd, fd == -ENOENT ? "fd %d: %s is missing (errno %d): put it back, or say where it is now (--map OLD=NEW)" :
							"fd %d: %s cannot be opened as it was (errno %d)",
				    d->fd, path, -fd);
	if (r->proc == FILE_PROC_AT_END)
		file_proc_read_to_end(fd);
	return r->proc ? fd : settle(d, fd, r, path);
}

static int file_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	const struct file_record *r = record;
	int fd = file_deleted_reconnect(d, r);

	(void)len;
	return fd < 0 ? fd : settle(d, fd, r, (const char *)(r + 1));
}

static int file_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	(void)len;
	return file_deleted_refill(d, record);
}

extern const struct fermata_plugin plugin_file;
const struct fermata_plugin plugin_file = {
	.api = FERMATA_PLUGIN_API,
	.name = "file",
	.fd_claim = file_fd_claim,
	.fd_drain = file_deleted_drain,
	.fd_dump = file_fd_dump,
	.fd_restore = file_fd_restore,
	.fd_reconnect = file_fd_reconnect,
	.fd_refill = file_fd_refill,
	.quiesce = file_lock_begin,
	.resume = file_lock_forget,
	.refill = file_lock_refill,
	.restarted = file_lock_forget,
};
