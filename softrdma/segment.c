/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the shared directory and the own segment's file and memory.
 *
 *   DIR            $SOFTRDMA_DIR, else the first of /dev/shm/softrdma-UID, softrdma-UID.1, .. that is ours with mode
 *                  0700 or can be made: in a user namespace another's directory may bear our number
 *   DIR/ctx-III    a context's segment, mode 0600; III: its index in hex, the upper half of its QP numbers
 *   DIR/wk-III-N   its sockets for waking: completion channel N, or 0 for asynchronous events
 *   DIR/new-R      a segment being made
 *   DIR/atomics-L  locks of the atomic operations, for all contexts of layout L
 *   DIR/groups-L   the multicast groups, for all of them
 *   DIR/key-L      net_apart.c
 *
 * Life of a segment's file: it is made and locked (an open-file-description lock, so it works across pid
 * namespaces and goes with its process) under a name of its own, then linked to the first free index: link(2) lets
 * one win. Who finds a ctx-III that nobody locks, locks it, makes sure that the name still leads to the same file,
 * and removes it; as only the holder of a file's lock removes its name, a living one is never removed.
 *
 * What is allocated in a segment: shm_alloc.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

#define NAMES 16
/* A segment's memory from the beginning: its header and the first page of its keys. */
#define BACKED ALIGN_UP(offsetof(struct sr_seg, key) + FM_PAGE_SIZE, FM_PAGE_SIZE)

/* xorshift64*, seeded by the kernel at open. Only for names and tags. */
uint64_t sr_random(struct sr_context *ctx)
{
	ctx->rng ^= ctx->rng >> 12;
	ctx->rng ^= ctx->rng << 25;
	ctx->rng ^= ctx->rng >> 27;
	return ctx->rng * 0x2545f4914f6cdd1dull;
}

/* 0: @dir is there, ours and closed to others; 1: it is another's. */
static int directory_try(const char *dir)
{
	struct stat st;

	/* Room for "/cm-P-PORT-" and 12 more in a socket's address. */
	if (strlen(dir) > SR_PATH_MAX - 16)
		return -ENAMETOOLONG;
	if (mkdir(dir, 0700) && errno != EEXIST)
		return sr_space(-errno);
	if (lstat(dir, &st))
		return -errno;
	return !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077);
}

int sr_directory_find(char dir[SR_PATH_MAX])
{
	const char *env = getenv("SOFTRDMA_DIR");
	unsigned int uid = geteuid(), i;
	int err = 1;

	if (env && *env) {
		fm_format(dir, SR_PATH_MAX, "%s", env);
		err = directory_try(dir);
	}
	for (i = 0; err == 1 && !(env && *env) && i < NAMES; i++) {
		fm_format(dir, SR_PATH_MAX, i ? "/dev/shm/softrdma-%u.%u" : "/dev/shm/softrdma-%u", uid, i);
		err = directory_try(dir);
	}
	if (!err)
		return 0;
	log_error("%s must be a directory of ours with mode 0700, or SOFTRDMA_DIR name one (error %d)", dir,
		  err < 0 ? -err : EPERM);
	return err < 0 ? err : -EPERM;
}

static void path_of(struct sr_context *ctx, char *path, uint32_t index)
{
	fm_format(path, SR_PATH_MAX + 32, "%s/ctx-%03x", ctx->dir, index);
}

int sr_socket_path(struct sr_context *ctx, struct sockaddr_un *sa, uint32_t index, uint32_t number)
{
	sa->sun_family = AF_UNIX;
	return (int)(offsetof(struct sockaddr_un, sun_path) + 1 +
		     fm_format(sa->sun_path, sizeof(sa->sun_path), "%s/wk-%03x-%u", ctx->dir, index, number));
}

static int lock_file(int fd)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_SETLK, &fl))
		return -errno;
	return 0;
}

int sr_segment_open(struct sr_context *ctx, uint32_t index)
{
	char path[SR_PATH_MAX + 32];
	int fd;

	path_of(ctx, path, index);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* Memory now, or an error: never a SIGBUS later. */
static int reserve(int fd, uint64_t off, uint64_t len)
{
	long r;

	do /* a signal cuts it short */
		r = RAW4(SYS_fallocate, fd, 0, off, len);
	while (r == -EINTR);
	return (int)r;
}

int sr_shm_reserve(struct sr_context *ctx, uint64_t off, uint64_t len)
{
	return reserve(ctx->seg_fd, off, len);
}

struct sweep {
	struct sr_context *ctx;
	uint32_t index; /* remove the sockets of this one */
};

static int sweep_socket(const char *name, void *arg)
{
	struct sweep *s = arg;
	char prefix[16], path[SR_PATH_MAX + 300];

	fm_format(prefix, sizeof(prefix), "wk-%03x-", s->index);
	if (!strncmp(name, prefix, strlen(prefix))) {
		fm_format(path, sizeof(path), "%s/%s", s->ctx->dir, name);
		unlink(path);
	}
	return 0;
}

static uint32_t parse_hex(const char *s)
{
	uint32_t v = 0;

	for (; (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f'); s++)
		v = v << 4 | (uint32_t)(*s <= '9' ? *s - '0' : *s - 'a' + 10);
	return v % SR_MAX_CTX;
}

static int sweep_entry(const char *name, void *arg)
{
	struct sweep *s = arg, one = { s->ctx, 0 };
	char path[SR_PATH_MAX + 300];
	struct stat of_fd, of_path;
	int fd, is_ctx = !strncmp(name, "ctx-", 4);

	if (!is_ctx && strncmp(name, "new-", 4))
		return 0;
	fm_format(path, sizeof(path), "%s/%s", s->ctx->dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	if (!lock_file(fd) && !fstat(fd, &of_fd) && !lstat(path, &of_path) &&
	    of_fd.st_ino == of_path.st_ino && of_fd.st_dev == of_path.st_dev) {
		one.index = parse_hex(name + 4);
		if (is_ctx)
			raw_dir_each(s->ctx->dir, sweep_socket, &one);
		unlink(path);
	}
	close(fd);
	return 0;
}

/* Removes what dead processes have left. */
void sr_segment_sweep(struct sr_context *ctx)
{
	struct sweep s = { ctx, 0 };

	raw_dir_each(ctx->dir, sweep_entry, &s);
}

static int file_make(struct sr_context *ctx, char *path)
{
	int fd, err;

	fm_format(path, SR_PATH_MAX + 32, "%s/new-%016lx", ctx->dir, (unsigned long)sr_random(ctx));
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return sr_space(-errno);
	err = lock_file(fd);
	if (!err && ftruncate(fd, SR_SEG_SIZE))
		err = -errno;
	if (!err && reserve(fd, 0, BACKED))
		err = -ENOMEM;
	if (err) {
		unlink(path);
		close(fd);
		return err;
	}
	return fd;
}

static int file_link(struct sr_context *ctx, const char *from)
{
	char path[SR_PATH_MAX + 32];
	uint32_t first = (uint32_t)sr_random(ctx), i, index;

	for (i = 0; i < SR_MAX_CTX; i++) {
		index = (first + i) % SR_MAX_CTX;
		if (!index)
			continue;
		/* The port on the network goes with the index: both are ours, or neither. */
		if (sr_net_claim(ctx, index))
			continue;
		path_of(ctx, path, index);
		if (!link(from, path))
			return (int)index;
		if (errno != EEXIST)
			return sr_space(-errno);
	}
	return -ENOMEM;
}

static void header_fill(struct sr_context *ctx, uint32_t index)
{
	struct sr_seg *seg = ctx->seg;
	struct stat st;

	ctx->cookie = sr_random(ctx);
	seg->magic = SR_MAGIC;
	seg->layout = SR_LAYOUT;
	seg->index = index;
	seg->token = ((uint32_t)sr_random(ctx) << SR_CTX_BITS | index) & ~RLOCK_WAITERS;
	seg->pid = raw_getpid();
	seg->pid_ns = stat("/proc/self/ns/pid", &st) ? 0 : (uint32_t)st.st_ino;
	seg->cookie = ctx->cookie;
	seg->cookie_addr = (uintptr_t)&ctx->cookie;
	atomic_store(&seg->keys, (BACKED - offsetof(struct sr_seg, key)) / sizeof(struct sr_key));
	ctx->seg_bump = ctx->seg_reserved = ALIGN_UP(sizeof(struct sr_seg), FM_PAGE_SIZE);
}

int sr_segment_create(struct sr_context *ctx)
{
	char path[SR_PATH_MAX + 32];
	int err, index, tries;

	err = sr_directory_find(ctx->dir);
	if (err)
		return err;
	sr_segment_sweep(ctx);
	/* A sweeper may take the file between its making and its locking: once more then. */
	for (tries = 0; tries < 8; tries++) {
		ctx->seg_fd = file_make(ctx, path);
		if (ctx->seg_fd == -EAGAIN || ctx->seg_fd == -EEXIST)
			continue;
		if (ctx->seg_fd < 0)
			return ctx->seg_fd;
		ctx->seg = sr_memory.map(NULL, SR_SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, ctx->seg_fd, 0);
		if (ctx->seg == MAP_FAILED) {
			err = -errno;
			ctx->seg = NULL;
			unlink(path);
			close(ctx->seg_fd);
			return err;
		}
		index = file_link(ctx, path);
		unlink(path);
		if (index > 0) {
			header_fill(ctx, (uint32_t)index);
			return 0;
		}
		sr_memory.unmap(ctx->seg, SR_SEG_SIZE);
		ctx->seg = NULL;
		close(ctx->seg_fd);
		if (index != -ENOENT)
			return index;
	}
	return -EBUSY;
}

void sr_segment_destroy(struct sr_context *ctx)
{
	struct sweep s = { ctx, ctx->seg->index };
	char path[SR_PATH_MAX + 32];

	if (ctx->seg->pid == raw_getpid()) {
		atomic_store(&ctx->seg->ready, SR_CLOSED);
		raw_dir_each(ctx->dir, sweep_socket, &s);
		path_of(ctx, path, ctx->seg->index);
		unlink(path);
	}
	sr_memory.unmap(ctx->seg, SR_SEG_SIZE);
	close(ctx->seg_fd);
}

struct sr_seg *sr_segment_map(struct sr_context *ctx, uint32_t index)
{
	int fd = sr_segment_open(ctx, index);
	struct sr_seg *seg;
	struct stat st;

	if (fd < 0)
		return NULL;
	seg = MAP_FAILED;
	if (!fstat(fd, &st) && st.st_uid == geteuid() && st.st_size == (off_t)SR_SEG_SIZE)
		seg = sr_memory.map(NULL, SR_SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (seg == MAP_FAILED)
		return NULL;
	/* A core dump of ours wants no part of it. */
	RAW3(SYS_madvise, seg, SR_SEG_SIZE, MADV_DONTDUMP);
	if (atomic_load(&seg->ready) != SR_READY || seg->magic != SR_MAGIC || seg->layout != SR_LAYOUT ||
	    seg->index != index) {
		sr_memory.unmap(seg, SR_SEG_SIZE);
		return NULL;
	}
	return seg;
}

/* A file of all contexts of the user, made on first use; zeros are its beginning. */
int sr_shared_map(struct sr_context *ctx, const char *name, size_t size, void **ret)
{
	char path[SR_PATH_MAX + 32];
	int fd, err = 0;
	void *p;

	fm_format(path, sizeof(path), "%s/%s-%u", ctx->dir, name, SR_LAYOUT);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return sr_space(-errno);
	if (reserve(fd, 0, size))
		err = -ENOMEM;
	p = err ? MAP_FAILED : sr_memory.map(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!err && p == MAP_FAILED)
		err = -errno;
	close(fd);
	if (!err)
		*ret = p;
	return err;
}
