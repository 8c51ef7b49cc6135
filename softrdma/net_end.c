/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a context's connections end. A datagram that has completed is sent, and what was executed is acknowledged: an adapter has done both before the
 * program knows of either. So all that is begun or owed goes to the kernel, and is sent, before the sockets are closed: one that is
 * closed with something to be read throws away what is to be sent.
 *
 *   ibv_close_device   net_conn_close: the thread has ended already, and nobody takes in any more what comes
 *   exit()             most programs close nothing. The library's destructor asks each context's thread (net_exit_ask), waits for a second
 *                      at most, and leaves all as it is: other threads, and destructors that come later, may still use the device
 *
 *     destructor: waited_for++, leaving = 1, event  ..........waits..........  exit_group: the kernel closes
 *     thread:                                 net_leave: takes in, says, is sent, waited_for--
 *
 * The destructor takes no lock: exit() may have been called by a signal handler that interrupted a holder.
 *
 * Owns the table of the process's networks. A context may be gone from it without a word, with its memory (device.c): one is believed that has the
 * cookie it had. Only the destructor looks into a context of the table, and who takes one out waits until it does not. In a forked
 * child its parent's are strangers.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/export.h"
#include "softrdma/net.h"

#define LOOK_NS (2 * NET_MS)
#define EXIT_NS NET_SECOND
#define ROUNDS 4 /* of taking in; more may come all the time */

/* ---- letting go ---- */

/* Nobody reads it any more. False: the other end has gone. */
static int discard(struct net_conn *c)
{
	long n;

	do
		n = RAW6(SYS_recvfrom, c->fd, NULL, INT32_MAX, MSG_DONTWAIT | MSG_TRUNC, 0, 0);
	while (n > 0 || n == -EINTR);
	return n == -EAGAIN;
}

static int is_sent(const struct net_conn *c)
{
	int unsent = 0;

	RAW3(SYS_ioctl, c->fd, SIOCOUTQNSD, &unsent);
	return !unsent;
}

static void let_go(struct net_conn *c, uint64_t limit_ns)
{
	struct timespec look = { .tv_nsec = LOOK_NS };
	struct pollfd p = { .fd = c->fd };
	int r;

	for (;;) {
		r = net_hand_over(c);
		if (!discard(c) || (r && r != -EAGAIN) || net_now() >= limit_ns || (!r && is_sent(c)))
			return;
		p.events = (short)(POLLIN | (r ? POLLOUT : 0));
		RAW5(SYS_ppoll, &p, 1, &look, NULL, 0);
	}
}

void net_conn_close(struct net_conn *c, uint64_t limit_ns)
{
	lock_acquire(&c->lock);
	if (c->state == NET_UP)
		let_go(c, limit_ns);
	net_probe_end(c);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->state = NET_DOWN;
	lock_release(&c->lock);
}

/* The program is at its end: what has come is executed, as an adapter would have done, and what is begun or owed goes. */
static int is_settled(struct net_conn *c)
{
	int i, r;

	for (i = 0; i < ROUNDS && c->state == NET_UP && net_receive(c); i++)
		;
	if (c->state != NET_UP)
		return 1;
	r = net_hand_over(c);
	return r ? r != -EAGAIN : is_sent(c);
}

static int all_settled(struct sr_net *net)
{
	struct net_conn *c;
	int all = 1;

	for (c = net_conn_next(net, NULL); c; c = net_conn_next(net, c)) {
		lock_acquire(&c->lock);
		all &= is_settled(c);
		lock_release(&c->lock);
	}
	return all;
}

/* ---- the process's end ---- */

#define CLAIMED ((struct sr_net *)1)

static struct known {
	struct sr_net *_Atomic net;
	uint64_t cookie;
	int pid;
} known[SR_MAX_CTX];

static _Atomic uint32_t waited_for; /* networks that have not settled yet; here, as a context may vanish */
static _Atomic int looking;	    /* the process whose destructor looks into contexts of the table */
static void (*bracket[2])(void);

EXPORT void softrdma_exit_bracket(void (*enter)(void), void (*leave)(void))
{
	bracket[0] = enter;
	bracket[1] = leave;
}

/* It is ours, and its memory is there. */
static int is_there(const struct known *k, struct sr_net *net)
{
	uint64_t cookie = 0;
	struct iovec here = { &cookie, sizeof(cookie) }, there = { &net->cookie, sizeof(net->cookie) };
	int pid = raw_getpid();

	return k->pid == pid && RAW6(SYS_process_vm_readv, raw_gettid(), &here, 1, &there, 1, 0) == sizeof(cookie) && cookie == k->cookie;
}

static int claim(struct known *k, struct sr_net *net, int stale)
{
	struct sr_net *was = atomic_load(&k->net);

	if (was == CLAIMED || (was && (!stale || is_there(k, was))) || !atomic_compare_exchange_strong(&k->net, &was, CLAIMED))
		return 0;
	k->cookie = net->cookie;
	k->pid = raw_getpid();
	atomic_store(&k->net, net);
	return 1;
}

void net_exit_know(struct sr_net *net)
{
	uint32_t i;

	for (i = 0; i < 2 * SR_MAX_CTX; i++)
		if (claim(&known[i % SR_MAX_CTX], net, i >= SR_MAX_CTX))
			return;
}

void net_exit_forget(struct sr_net *net)
{
	uint32_t i;

	for (i = 0; i < SR_MAX_CTX; i++)
		if (atomic_load(&known[i].net) == net && known[i].pid == raw_getpid())
			atomic_store(&known[i].net, NULL);
	while (atomic_load(&looking) == raw_getpid())
		RAW0(SYS_sched_yield);
}

/* By the thread. */
void net_leave(struct sr_net *net)
{
	struct timespec look = { .tv_nsec = LOOK_NS };
	uint64_t limit = net_now() + EXIT_NS;

	if (!atomic_exchange(&net->leaving, 0))
		return;
	while (!all_settled(net) && net_now() < limit)
		RAW5(SYS_ppoll, NULL, 0, &look, NULL, 0);
	atomic_fetch_sub(&waited_for, 1);
	raw_futex((uint32_t *)&waited_for, FUTEX_WAKE, INT32_MAX, NULL, 0);
}

static void all_ask(void)
{
	uint64_t one = 1;
	uint32_t i;

	for (i = 0; i < SR_MAX_CTX; i++) {
		struct sr_net *net = atomic_load(&known[i].net);

		if (!net || net == CLAIMED || !is_there(&known[i], net))
			continue;
		atomic_fetch_add(&waited_for, 1);
		atomic_store(&net->leaving, 1);
		raw_write(net->event_fd, &one, sizeof(one));
	}
}

__attribute__((destructor)) static void net_exit_ask(void)
{
	uint64_t limit = net_now() + EXIT_NS, now;
	uint32_t left;

	if (bracket[0])
		bracket[0]();
	atomic_store(&looking, raw_getpid());
	all_ask();
	atomic_store(&looking, 0);
	if (bracket[1])
		bracket[1]();
	while ((left = atomic_load(&waited_for)) && (now = net_now()) < limit) {
		struct timespec rest = { .tv_nsec = (long)(limit - now < NET_SECOND ? limit - now : NET_SECOND - 1) };

		raw_futex((uint32_t *)&waited_for, FUTEX_WAIT, left, &rest, 0);
	}
}
