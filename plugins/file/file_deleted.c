/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regular files that have been deleted, but are still open, and directories, which are empty then. Nobody but the job can reach them, so their content belongs to the
 * checkpoint (fermata_content_keep). Several descriptions may name one file; all holders publish theirs in QUIESCE, and agree in the drain on the maker: the lowest
 * (pid, fd), whose process is the one that saves the content. At restart
 *
 *   RECREATE   the maker makes a file in the same directory, wherever that is now (else in /tmp), deletes it at once, and puts the content into it
 *   RECONNECT  the others open /proc/MAKER/fd/N, which gives a description of their own of the same file
 *   REFILL     the file gets its mode, which may forbid what is open already, and its seals, which forbid what was done to make it
 *
 * A memfd is such a file; it is made as one again. Its seals are those of the inode, so the maker sets them.
 *
 * One that is mapped shared as well comes back with the memory: the job's first process holds the new object, and each holder opens it there (restore_shared); the maker puts into it
 * what nobody maps. No state but in priv.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/shared_name.h"
#include "base/sys.h"
#include "plugins/file/file.h"

struct file_end {
	uint32_t pid;
	int32_t fd;
	uint32_t shared; /* it is mapped shared */
	uint32_t seals;	 /* as the record's; read when the maker is known */
};

struct file_key {
	char tag[8]; /* "file" */
	uint64_t dev, ino;
};

static struct file_key key_of(const struct fermata_desc *d)
{
	return (struct file_key){ .tag = "file", .dev = d->st.st_dev, .ino = d->st.st_ino };
}

int file_deleted_claim(struct fermata_desc *d)
{
	struct file_key key = key_of(d);
	struct file_end end = { fermata_pid(), d->fd, 0, 0 };
	int r;

	if (!S_ISREG(d->st.st_mode) && !S_ISDIR(d->st.st_mode))
		return fermata_fail(-EOPNOTSUPP, "fd %d is a device that has been deleted (%s), which is not supported: close it "
				    "before the checkpoint", d->fd, d->link);
	d->priv = fermata_alloc(sizeof(struct file_end));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	r = fermata_publish(&key, sizeof(key), &end, sizeof(end));
	if (!r)
		r = fermata_ask(&key, sizeof(key));
	if (!r)
		r = fermata_ask_mapped(&d->st);
	if (!r && S_ISREG(d->st.st_mode))
		r = fermata_content_keep(d);
	return r ? r : 1;
}

#define MEMFD "/memfd:"
#define TMPFILE 020000000 /* O_TMPFILE, but for O_DIRECTORY */
#define MEMFD_NAME_MAX 249
#define SEALABLE 0x80000000u /* in a record: the seals are known */
#define ADD_SEALS 1033
#define GET_SEALS 1034
#define SEAL_SEAL 1
#define SEAL_WRITE 8

static uint32_t read_seals(int fd)
{
	long seals = raw_fcntl(fd, GET_SEALS, 0);

	return seals < 0 ? 0 : (uint32_t)seals | SEALABLE;
}

static bool is_maker(const struct fermata_desc *d, uint32_t pid, int fd)
{
	return pid == fermata_pid() && fd == d->fd;
}

/* What is written into a file of huge pages is not taken. */
static bool is_huge(int fd)
{
	struct statfs fs;

	return RAW2(SYS_fstatfs, fd, &fs) < 0 || fs.f_type == HUGETLBFS_MAGIC;
}

static int check_shared(const struct fermata_desc *d, struct file_end *maker)
{
	int mapped = fermata_is_mapped(&d->st);

	maker->shared = mapped != 0;
	maker->seals = read_seals(d->fd);
	if (mapped == 1 && is_huge(d->fd))
		return fermata_fail(-EOPNOTSUPP, "fd %d is a file of huge pages that has been deleted (%s) and is shared memory as well, of which a part is "
				    "mapped by nobody, which is not supported yet: close it before the checkpoint", d->fd, d->link);
	if (mapped && maker->seals & SEAL_WRITE) /* the new object is mapped through a descriptor that may write, which that seal forbids */
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) is shared memory that is mapped and sealed against writing, which is not supported yet: "
				    "close it before the checkpoint", d->fd, d->link);
	return FERMATA_DRAINED;
}

int file_deleted_drain(struct fermata_desc *d, unsigned int round)
{
	struct file_key key = key_of(d);
	struct file_end *maker = d->priv, end;
	const void *value;
	size_t len;

	if (!maker || round)
		return FERMATA_DRAINED;
	*maker = (struct file_end){ fermata_pid(), d->fd, 0, 0 };
	for (unsigned int i = 0; (value = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		if (len < sizeof(end))
			return fermata_fail(-EPROTO, "a name for fd %d has %zu bytes", d->fd, len);
		memcpy(&end, value, sizeof(end));
		if (end.pid < maker->pid || (end.pid == maker->pid && end.fd < maker->fd))
			*maker = end;
	}
	return check_shared(d, maker);
}

void file_deleted_describe(const struct fermata_desc *d, struct file_record *r)
{
	const struct file_end *maker = d->priv;

	r->maker_pid = maker->pid;
	r->maker_fd = maker->fd;
	r->shared = maker->shared;
	if (is_maker(d, maker->pid, maker->fd))
		r->seals = maker->seals;
}

int file_open_own(int fd, int flags)
{
	char path[48];

	fm_format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	return raw_open_again(path, (flags & ~O_NOFOLLOW) | O_CLOEXEC);
}

static int make_in(const char *directory, size_t length, int number, bool is_directory)
{
	char name[FILE_PATH_MAX + 64];
	int made, fd;

	memcpy(name, directory, length);
	fm_format(name + length, sizeof(name) - length, "/.fermata-%u-%d", fermata_pid(), number);
	made = is_directory ? (int)RAW2(SYS_mkdir, name, 0700) : raw_create(AT_FDCWD, name, O_RDWR);
	if (made < 0)
		return made;
	fd = is_directory ? raw_open(name, O_DIRECTORY | O_CLOEXEC, 0) : made;
	RAW3(SYS_unlinkat, AT_FDCWD, name, is_directory ? AT_REMOVEDIR : 0);
	return fd;
}

/* @path: "/memfd:NAME (deleted)". */
static int make_memfd(const char *path)
{
	char name[MEMFD_NAME_MAX + 1];
	size_t length = strlen(path) - strlen(MEMFD), word = sizeof(" (deleted)") - 1;

	length = length > word ? length - word : 0;
	length = length < MEMFD_NAME_MAX ? length : MEMFD_NAME_MAX;
	memcpy(name, path + strlen(MEMFD), length);
	name[length] = 0;
	return (int)RAW2(SYS_memfd_create, name, 3 /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
}

/* A file or directory without a name in the directory of @path, or in /tmp where that is gone. */
static int make(const char *was, int number, bool is_directory)
{
	char buf[FILE_PATH_MAX];
	const char *path = fermata_path_now(was, buf, sizeof(buf)), *slash = path ? strrchr(path, '/') : NULL;
	int fd = slash ? make_in(path, (size_t)(slash - path), number, is_directory) : -ENOENT;

	return fd < 0 ? make_in("/tmp", 4, number, is_directory) : fd;
}

/*
 * What was opened by O_TMPFILE can be given a name (linkat), and so can this one: it is the description, too, so that a later restart knows it as well. -errno, as where the directory is gone: then it
 * comes back without that.
 */
static int make_linkable(const char *was, int flags)
{
	char buf[FILE_PATH_MAX], directory[FILE_PATH_MAX];
	const char *path = fermata_path_now(was, buf, sizeof(buf)), *slash = path ? strrchr(path, '/') : NULL;
	size_t length = slash ? (size_t)(slash - path) : 0;

	if (!slash || length >= sizeof(directory) - 1)
		return -ENOENT;
	memcpy(directory, path, length);
	memcpy(directory + length, "/", 2);
	return raw_open(directory, (flags & ~(O_NOFOLLOW | O_APPEND | O_DIRECT)) | O_TMPFILE | O_CLOEXEC, 0600);
}

static int fill_linkable(struct fermata_desc *d, const struct file_record *r, int fd)
{
	int err = fermata_content_put(d, r->dev, r->ino, fd);

	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

struct search {
	const char *want; /* what the link of the descriptor says */
	const char *folder;
	char path[48];
};

static int look_at(const char *name, void *arg)
{
	struct search *s = arg;
	char path[sizeof(s->path)], link[96];
	long n;

	fm_format(path, sizeof(path), "%s/%s", s->folder, name);
	n = RAW4(SYS_readlinkat, AT_FDCWD, path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = 0;
	if (strcmp(link, s->want) == 0)
		memcpy(s->path, path, sizeof(path));
	return 0;
}

/* Takes @fd over, which may not be for writing. */
static int restore_part(struct fermata_desc *d, const struct file_record *r, const char *path, int fd)
{
	int own = raw_open(path, O_RDWR | O_CLOEXEC, 0), err = own;

	if (own >= 0) {
		err = fermata_content_put(d, r->dev, r->ino, own);
		raw_close(own);
	}
	if (!err)
		return fd;
	raw_close(fd);
	return err;
}

/* The object was made before any process, and the job's first process holds it. */
static int restore_shared(struct fermata_desc *d, const struct file_record *r)
{
	unsigned long device = (unsigned long)major(r->dev) << 20 | minor(r->dev);
	char want[96], folder[32];
	struct search s = { .want = want, .folder = folder };
	int fd;

	fm_format(want, sizeof(want), "/memfd:" SHARED_NAME " (deleted)", device, (unsigned long)r->ino);
	fm_format(folder, sizeof(folder), "/proc/%u/fd", fermata_init_pid());
	fd = raw_dir_each(folder, look_at, &s);
	if (!fd)
		fd = *s.path ? raw_open(s.path, ((int)r->flags & ~O_NOFOLLOW) | O_CLOEXEC, 0) : -ENOENT;
	if (fd >= 0)
		RAW2(SYS_truncate, s.path, r->size); /* what was mapped are whole pages */
	if (fd >= 0 && is_maker(d, r->maker_pid, r->maker_fd))
		return restore_part(d, r, s.path, fd);
	return fd < 0 ? fermata_fail(fd, "fd %d: the shared memory that was %s is not there (errno %d)", d->fd, d->link, -fd) : fd;
}

int file_deleted_restore(struct fermata_desc *d, const struct file_record *r)
{
	const char *path = (const char *)(r + 1);
	int made, fd;

	if (r->shared)
		return restore_shared(d, r);
	if (!is_maker(d, r->maker_pid, r->maker_fd))
		return FERMATA_FD_LATER;
	made = d->status & TMPFILE ? make_linkable(path, (int)r->flags) : -ENOENT;
	if (made >= 0)
		return fill_linkable(d, r, made);
	made = r->seals && !strncmp(path, MEMFD, strlen(MEMFD)) ? make_memfd(path) : make(path, d->fd, S_ISDIR(r->mode));
	if (made < 0)
		return fermata_fail(made, "fd %d: neither in the directory of %s nor in /tmp can a file be made (errno %d)", d->fd, path, -made);
	fd = S_ISDIR(r->mode) ? 0 : fermata_content_put(d, r->dev, r->ino, made);
	if (!fd)
		fd = file_open_own(made, (int)r->flags);
	raw_close(made);
	return fd;
}

int file_deleted_reconnect(struct fermata_desc *d, const struct file_record *r)
{
	char path[FDPASS_NAME];
	int copy = fdpass_name(path, (int)r->maker_pid, r->maker_fd), fd = raw_open_again(path, ((int)r->flags & ~O_NOFOLLOW) | O_CLOEXEC);

	if (copy >= 0)
		raw_close(copy);
	return fd < 0 ? fermata_fail(fd, "fd %d: fd %d of process %u cannot be opened (errno %d)", d->fd, r->maker_fd, r->maker_pid, -fd) : fd;
}

/* By a description that may write, whatever the program's own may. A file of a disk, in place of one in memory whose directory is gone, takes none: as one in memory that may get no others. */
static int put_seals(const struct fermata_desc *d, uint32_t seals, int fd)
{
	uint32_t has = read_seals(d->fd);
	long err = 0;

	if ((has & ~SEALABLE) != seals && (has || seals != SEAL_SEAL))
		err = fd < 0 ? fd : raw_fcntl(fd, ADD_SEALS, (long)seals);
	return err < 0 ? fermata_fail((int)err, "fd %d (%s) does not take its seals %x (errno %ld)", d->fd, d->link, seals, -err) : 0;
}

int file_deleted_refill(struct fermata_desc *d, const struct file_record *r)
{
	char path[48];
	int fd, err = 0;

	if (!r->maker_pid || !is_maker(d, r->maker_pid, r->maker_fd))
		return 0;
	fd = r->seals ? file_open_own(d->fd, O_RDWR) : -EBADF;
	fm_format(path, sizeof(path), "/proc/thread-self/fd/%d", d->fd);
	RAW2(SYS_chmod, path, r->mode & 07777); /* a descriptor of O_PATH takes no fchmod */
	if (r->seals)
		err = put_seals(d, r->seals & ~SEALABLE, fd);
	if (fd >= 0)
		raw_close(fd);
	return err;
}
