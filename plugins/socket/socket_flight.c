/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors in flight: sent with SCM_RIGHTS and not yet received, so that no process holds them. Owns the list of them; the checkpoint
 * thread is alone, no lock within the process.
 *
 * For the time of a checkpoint, and of a restart, each process holds what lies in the queues of its unix sockets under numbers of
 * its own, out of the way of the program's. So the agent sees descriptors like all others, saves them, brings them back, and the messages
 * are sent again with them. The agent closes these numbers (agent/fd_found.c); at a restart who does not lead the socket does so early.
 *
 * Where they are, the kernel tells in fdinfo (scm_fds, kernel 5.8). A socket that several processes hold is looked into by one at a time:
 * SO_PEEK_OFF is the socket's. An abstract name, which death gives back, is the lock.
 *
 * Not covered: closing a number lets go the POSIX locks that this process has on that file (fcntl(2)), if it holds one and is sent the file as well.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define LOCK_TRIES 5000

struct flight {
	struct flight *next;
	uint64_t ino; /* of the socket in whose queue it lies; those of one socket in their order */
	int fd;
	bool led; /* we lead that socket, and send it again */
};
static struct flight *flights;

static bool carries(int fd)
{
	char path[48], text[512] = "", *at;

	fm_format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
	raw_read_file(path, text, sizeof(text) - 1);
	at = strstr(text, "scm_fds:");
	if (!at)
		return false;
	at += 8 + strspn(at + 8, " \t");
	return *at > '0' && *at <= '9';
}

static int lock_socket(uint64_t ino)
{
	struct socket_name n = { 0 };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = fd;

	fm_format(un.sun_path + 1, sizeof(un.sun_path) - 1, "fermata/queue/%llu", (unsigned long long)ino);
	n.length = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un.sun_path + 1));
	memcpy(n.bytes, &un, n.length);
	if (fd < 0)
		return fd;
	for (int i = 0; (r = socket_bind(fd, &n)) == -EADDRINUSE && i < LOCK_TRIES; i++)
		socket_pause();
	if (!r)
		return fd;
	raw_close(fd);
	return r;
}

static int take(void *arg, int fd)
{
	struct flight *f = fermata_alloc(sizeof(*f)), **tail = &flights;

	fd = fdpass_park(fd);
	if (fd < 0 || !f) {
		if (fd >= 0)
			raw_close(fd);
		fermata_free(f);
		return fd < 0 ? fd : -ENOMEM;
	}
	*f = (struct flight){ NULL, *(const uint64_t *)arg, fd, false };
	while (*tail)
		tail = &(*tail)->next;
	*tail = f;
	return fermata_fd_found(fd);
}

int socket_flight_unpack(struct fermata_desc *d)
{
	uint64_t ino = d->st.st_ino;
	int lock, r;

	if (!S_ISSOCK(d->st.st_mode) || d->status & O_PATH || socket_get_int(d->fd, SOL_SOCKET, SO_DOMAIN) != AF_UNIX || !carries(d->fd) ||
	    socket_get_int(d->fd, SOL_SOCKET, SO_ACCEPTCONN) > 0)
		return 0;
	lock = lock_socket(ino);
	if (lock < 0)
		return fermata_fail(lock, "fd %d: its queue cannot be looked into (errno %d)", d->fd, -lock);
	r = socket_peek_descriptors(d->fd, socket_get_int(d->fd, SOL_SOCKET, SO_TYPE), ino, take, &ino);
	raw_close(lock);
	return r;
}

int socket_flight_assign(int fd, uint64_t ino, struct socket_messages *all)
{
	struct flight *f = flights;

	for (size_t at = 0; at < all->length;) {
		struct socket_message *m = (void *)(all->bytes + at);
		int32_t *numbers = (void *)(m + 1);

		for (uint32_t i = 0; i < m->fd_count; i++) {
			while (f && f->ino != ino)
				f = f->next;
			if (!f)
				return fermata_fail(-EAGAIN, "fd %d has a descriptor in its queue that was sent to it, which this kernel does "
						    "not tell: receive it before the checkpoint", fd);
			f->led = true;
			numbers[i] = f->fd;
			f = f->next;
		}
		at += m->size;
	}
	return 0;
}

int socket_flight_refill(void)
{
	for (const struct flight *f = flights; f; f = f->next)
		if (!f->led)
			fermata_fd_drop(f->fd);
	return 0;
}

void socket_flight_end(void)
{
	while (flights) {
		struct flight *f = flights;

		flights = f->next;
		fermata_free(f);
	}
}
