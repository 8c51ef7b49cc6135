/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of unix sockets that are bound to a path. The kernel has the name that was given to bind(2), and the file's number: a program may have taken the file away since, or given it another
 * name, as those do that bind to a name of their own and put the file in its place when they listen. A relative name that does not lead to the file may be one of another directory, from which
 * the program has gone since: that is refused. At a restart a socket is bound to the name again, under which others of the job connect. Before anybody runs the file has also got the name that it had (REFILL); when all
 * connections are there, the other one goes. Where a file cannot have two names, or somebody else's is still in the way, it is renamed then, and who runs already may miss it for a moment.
 *
 * Owns, in a restart, the list of the files that do.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/other_name.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define PATH_SIZE (sizeof(((struct socket_name *)0)->bytes) + 1)
#define SUN_PATH_MAX 108u
#define NOREPLACE 1u /* renameat2 */

struct passing {
	struct passing *next;
	char path[PATH_SIZE], to[PATH_SIZE]; /* @to empty: it is removed */
	bool linked; /* it has both */
};
static struct passing *passings;

static void path_of(const struct socket_name *n, char ret[PATH_SIZE])
{
	memset(ret, 0, PATH_SIZE);
	memcpy(ret, n->bytes + 2, n->length - 2);
}

static bool is_path(const struct socket_name *n)
{
	return n->length > 2 && n->bytes[2];
}

/* ---- at a checkpoint ---- */

static bool is_socket(const char *path, struct stat *ret)
{
	return RAW4(SYS_newfstatat, AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(ret->st_mode);
}

static bool is_file(const struct stat *st, const void *ino)
{
	return S_ISSOCK(st->st_mode) && (uint32_t)st->st_ino == *(const uint32_t *)ino;
}

static int note_moved(const struct fermata_desc *d, struct socket_record *r, const char *path, const char *now)
{
	struct socket_name *n = &r->remote;
	struct stat st;

	if (r->kind != SOCKET_LISTENING && r->kind != SOCKET_FRESH)
		return fermata_fail(-EOPNOTSUPP, "fd %d is a connected datagram socket whose file %s has the name %s now, which is not supported: close it before the checkpoint",
				    d->fd, path, now);
	if (strlen(now) >= SUN_PATH_MAX)
		return fermata_fail(-EOPNOTSUPP, "fd %d is a unix socket whose file %s has a name of more than %u bytes now (%s), which is not supported: close it before the checkpoint",
				    d->fd, path, SUN_PATH_MAX - 1, now);
	r->flags |= SOCKET_PATH_MOVED;
	r->mode = is_socket(now, &st) ? st.st_mode & 07777 : 0;
	memcpy(n->bytes, r->local.bytes, 2);
	strcpy((char *)n->bytes + 2, now);
	n->length = (uint32_t)(2 + strlen(now) + 1);
	return 0;
}

int socket_path_note(const struct fermata_desc *d, struct socket_record *r, uint32_t ino)
{
	char path[PATH_SIZE], now[PATH_SIZE + NAME_MAX];
	struct stat st;
	bool there;

	if (!is_path(&r->local))
		return 0;
	path_of(&r->local, path);
	there = is_socket(path, &st);
	if (ino && !(there && (uint32_t)st.st_ino == ino) && other_name(path, is_file, &ino, now, sizeof(now)))
		return note_moved(d, r, path, now);
	if (path[0] != '/' && !(there && (!ino || (uint32_t)st.st_ino == ino)) && (r->kind == SOCKET_LISTENING || r->kind == SOCKET_FRESH) && fermata_bound_elsewhere())
		return fermata_fail(-EOPNOTSUPP, "fd %d is a unix socket that was bound to %s, from another directory than the present one: let the program bind it by a path that begins with /, or "
				    "not leave that directory", d->fd, path);
	if (there) {
		r->flags |= SOCKET_PATH_PRESENT;
		r->mode = st.st_mode & 07777;
	}
	return 0;
}

/* ---- in a restart ---- */

void socket_path_clear(const struct socket_name *n)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	char path[PATH_SIZE];
	int r = -EPROTOTYPE;

	if (!is_path(n))
		return;
	path_of(n, path);
	for (size_t i = 0; i < ARRAY_SIZE(types) && r == -EPROTOTYPE; i++) { /* which says that a socket of another type is there */
		int fd = (int)RAW3(SYS_socket, AF_UNIX, types[i] | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			return;
		r = socket_connect(fd, n);
		raw_close(fd);
	}
	if (r == -ECONNREFUSED)
		RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
}

void socket_path_prepare(const struct socket_record *r)
{
	char path[PATH_SIZE];

	path_of(&r->local, path);
	socket_path_clear(&r->local);
	raw_make_parents(path);
}

static int pass(const struct socket_record *r, const char *path)
{
	struct passing *p = fermata_alloc(sizeof(*p));

	if (!p)
		return -ENOMEM;
	memset(p, 0, sizeof(*p));
	strcpy(p->path, path);
	if (r->flags & SOCKET_PATH_MOVED) {
		path_of(&r->remote, p->to);
		socket_path_clear(&r->remote);
	}
	p->next = passings;
	passings = p;
	return 0;
}

int socket_path_bound(const struct socket_record *r)
{
	char path[PATH_SIZE];
	int err = 0;

	path_of(&r->local, path);
	if (r->flags & (SOCKET_PATH_PRESENT | SOCKET_PATH_MOVED))
		err = (int)RAW3(SYS_fchmodat, AT_FDCWD, path, r->mode);
	return err || r->flags & SOCKET_PATH_PRESENT ? err : pass(r, path);
}

void socket_path_link(void)
{
	for (struct passing *p = passings; p; p = p->next)
		p->linked = *p->to && RAW5(SYS_linkat, AT_FDCWD, p->path, AT_FDCWD, p->to, 0) == 0;
}

void socket_path_end(void)
{
	while (passings) {
		struct passing *p = passings;
		long err = *p->to && !p->linked ? RAW5(SYS_renameat2, AT_FDCWD, p->path, AT_FDCWD, p->to, NOREPLACE) : RAW3(SYS_unlinkat, AT_FDCWD, p->path, 0);

		if (err < 0 && *p->to && !p->linked)
			log_warn("the file of a socket, %s, does not get its name %s again (errno %ld)", p->path, p->to, -err);
		passings = p->next;
		fermata_free(p);
	}
}
