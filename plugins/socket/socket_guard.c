/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guards: who may go on when, after a stuck sender's bytes have been taken out (socket_stuck.c). Owns the list of the guards that this
 * process waits for; the checkpoint thread is alone, no locks.
 *
 * A guard is a pair of connected unix sockets, made by the process that leads the stuck socket. Its two ends:
 *
 *     held      the maker holds it, and whoever takes the bytes holds a copy of it while the connection is in pieces
 *     watched   the maker, and every process that holds either end of the connection without leading it: it hangs up once
 *               nobody holds the other one any more
 *
 * On its way from this checkpoint to its program, however the checkpoint ended, each process closes what it holds and then waits,
 * without a limit, until what it watches has hung up. So
 *   - a process that got hold of the held end has proof that none of them has gone on, and that none will before it lets go. The
 *     inode tells a guard from what has the number later;
 *   - death lets go as well, nobody need notice it;
 *   - it cannot deadlock: all held ends are closed before the first wait, and who takes the bytes waits for no process.
 * In the image there is no guard: it is younger than the table of descriptors, and a restarted process forgets its list.
 *
 * Marks tell what has happened to the connection: a byte when the taking begins, another when all is back. A guard that hung up between
 * the two had its taker killed, and the stream has a hole. Who else holds the receiving end then resets the connection before its
 * program can read on. Where nobody does, the kernel has (SO_LINGER, in socket_stuck.c).
 *
 * Sockets, not a pipe: a mark for readers that have died would be a SIGPIPE. Numbers: above the program's, closed before it runs.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define PATIENCE_MS 5000 /* then the user is told why the program stands */

enum { UNTOUCHED, BEGUN, WHOLE_AGAIN };

struct guard {
	struct guard *next;
	int held; /* -EBADF where we are not the maker */
	int watched;
	int receiver; /* our number of the receiving end, if another process leads that; else -EBADF */
	struct linger linger; /* of it, as the program has it */
};
static struct guard *guards;

static struct guard *guard_new(void)
{
	struct guard *g = fermata_alloc(sizeof(*g));

	if (!g)
		return NULL;
	g->held = g->watched = g->receiver = -EBADF;
	g->next = guards;
	guards = g;
	return g;
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	return RAW2(SYS_fstat, fd, &st) == 0 ? st.st_ino : 0;
}

int socket_guard_make(int fd, struct socket_guard *ret)
{
	struct guard *g = guard_new();
	int ends[2], r;

	if (!g)
		return fermata_fail(-ENOMEM, "fd %d: no memory for the guard of its connection", fd);
	r = (int)RAW4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
	if (!r) {
		g->held = fdpass_park(ends[0]);
		g->watched = fdpass_park(ends[1]);
		r = g->held < 0 ? g->held : g->watched < 0 ? g->watched : 0;
	}
	if (r)
		return fermata_fail(r, "fd %d: no descriptors for the guard of its connection (errno %d)", fd, -r);
	fdpass_consent();
	*ret = (struct socket_guard){ .pid = fermata_pid(), .held = g->held, .watched = g->watched, .lock = socket_get_int(fd, SOL_SOCKET, SO_BUF_LOCK),
				      .held_ino = inode_of(g->held), .watched_ino = inode_of(g->watched) };
	return 0;
}

int socket_guard_watch(int fd, bool receives, const struct socket_guard *name)
{
	struct guard *g = guard_new();
	int copy;

	if (!g)
		return fermata_fail(-ENOMEM, "fd %d: no memory for the guard of its connection", fd);
	copy = fdpass_take((int)name->pid, name->watched);
	g->watched = copy < 0 ? copy : fdpass_park(copy);
	if (g->watched < 0)
		return fermata_fail(g->watched, "fd %d: the guard of its connection cannot be had from process %u (errno %d)", fd,
				    name->pid, -g->watched);
	if (!socket_is_inode(g->watched, name->watched_ino))
		return fermata_fail(-ESTALE, "fd %d: process %u has gone on meanwhile", fd, name->pid);
	if (receives) {
		g->receiver = fd;
		socket_get(fd, SOL_SOCKET, SO_LINGER, &g->linger, sizeof(g->linger));
	}
	return 0;
}

int socket_guard_hold(const struct socket_guard *name)
{
	int held = fdpass_take((int)name->pid, name->held);

	if (held < 0 || socket_is_inode(held, name->held_ino))
		return held;
	raw_close(held);
	return -ESTALE;
}

void socket_guard_mark(int held)
{
	RAW6(SYS_sendto, held, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0); /* room for two bytes there is; nobody may watch */
}

static long marks(const struct guard *g)
{
	char c[WHOLE_AGAIN];

	return RAW6(SYS_recvfrom, g->watched, c, sizeof(c), MSG_PEEK | MSG_DONTWAIT, 0, 0);
}

/* @g hangs up: true, if within that time. -1: without limit. */
static bool wait_for(const struct guard *g, int ms)
{
	int events;

	do
		events = socket_poll(g->watched, 0, ms);
	while (events == -EINTR || (events == 0 && ms < 0));
	return events != 0;
}

static void end_guard(struct guard *g)
{
	if (!wait_for(g, PATIENCE_MS)) {
		log_warn("this process waits until what was under way in one of its TCP connections is back there");
		wait_for(g, -1);
	}
	if (g->receiver >= 0 && marks(g) == BEGUN) {
		log_warn("fd %d: a process that shares this TCP connection was killed with a part of it in hand: it is reset",
			 g->receiver);
		socket_reset(g->receiver);
		socket_set(g->receiver, SOL_SOCKET, SO_LINGER, &g->linger, sizeof(g->linger));
	}
}

void socket_guards_end(void)
{
	for (struct guard *g = guards; g; g = g->next)
		if (g->held >= 0)
			raw_close(g->held);
	while (guards) {
		struct guard *g = guards;

		if (g->watched >= 0) {
			end_guard(g);
			raw_close(g->watched);
		}
		guards = g->next;
		fermata_free(g);
	}
}

void socket_guards_forget(void)
{
	while (guards) {
		struct guard *g = guards;

		guards = g->next;
		fermata_free(g);
	}
}
