/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the connections to other contexts: one for each, made when it is first named, kept until the context is closed,
 * with a socket or without.
 *
 *   DOWN -- something to send --> DIALLING -- connected, HELLO sent --> GREETING -- their HELLO, our PROOF --> UP
 *   DOWN -- a guest has shown its proof (net_guest.c) --> UP          any -- break --> DOWN
 *
 * A break loses nothing but time: each queue pair begins again with its oldest request that is not complete. But what the other end has said may be its
 * last words: so where nothing can be said any more the connection is mute until all that has come has been taken in. What is unreliable cannot begin again, so it is not
 * said before the connection is known to stay: of two dials that cross both may be up at who dialled, and the listener drops one of them.
 * So a listener says a word as it adopts a guest, and a dialler that has not heard it keeps to what can be said again.
 *
 *   a < b      a: dial, proof sent, UP -------.   .------- b: dial, proof sent, UP
 *                                             | X |
 *              refuses b's: a's is lower <----'   '----> adopts a's, drops its own; a word ----> a: heard
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

#define DIAL_FIRST_NS (60 * NET_MS) /* for a connection; then doubled */
#define GREET_NS NET_SECOND	    /* and for the other's hello */
#define DIAL_LONGEST_NS (4 * NET_SECOND)
#define CROSSING_NS (250 * NET_MS)
#define DIAL_AGAIN_NS (10 * NET_MS)
#define OLD_ROUNDS 256

struct net_conn *net_conn_get(struct sr_net *net, const struct net_name *name)
{
	struct net_conn *c;
	uint32_t i;

	lock_acquire(&net->lock);
	list_each(c, &net->conns, link)
		if (c->name.index == name->index && !memcmp(c->name.gid, name->gid, sizeof(name->gid)))
			goto out;
	c = arena_alloc(&net->ctx->arena, sizeof(*c));
	if (c && net_buffer_make(net, c)) {
		arena_free(&net->ctx->arena, c);
		c = NULL;
	}
	if (!c)
		goto out;
	c->net = net;
	c->name = *name;
	c->fd = -1;
	for (i = 0; i < NET_PROBES; i++)
		c->probe[i].fd = -1;
	c->dial_limit_ns = DIAL_FIRST_NS;
	list_init(&c->qps);
	list_init(&c->sending);
	list_init(&c->due);
	list_init(&c->busy);
	list_add_tail(&net->conns, &c->link);
out:
	lock_release(&net->lock);
	return c;
}

static void single_renew(struct sr_net *net)
{
	struct net_conn *c, *single = NULL;
	uint32_t n = 0;

	lock_acquire(&net->lock);
	list_each(c, &net->conns, link) {
		if (c->state == NET_DOWN)
			continue;
		single = c;
		n++;
	}
	atomic_store(&net->single, n == 1 ? single : NULL);
	atomic_store(&net->nr_open, n);
	lock_release(&net->lock);
}

void net_conn_watch(struct net_conn *c, int out)
{
	struct epoll_event ev = { .events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = c };

	if (out == c->watched_out)
		return;
	c->watched_out = out;
	RAW4(SYS_epoll_ctl, c->net->sockets_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

static void fd_take(struct net_conn *c, int fd, int out)
{
	struct epoll_event ev = { .events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = c };

	c->fd = fd;
	c->watched_out = out;
	c->in_at = c->in_end = c->out_at = c->out_end = 0;
	c->in_frame = 0;
	net_tcp_options(fd);
	RAW4(SYS_epoll_ctl, c->net->sockets_fd, EPOLL_CTL_ADD, fd, &ev);
}

static void fd_close(struct net_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* What waits to be sent is worth nothing any more. */
static void fd_abort(struct net_conn *c)
{
	struct linger now = { .l_onoff = 1 };

	RAW5(SYS_setsockopt, c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(c);
}

static void complain(const struct net_conn *c, const char *why)
{
	char name[64];

	if (!why)
		return;
	net_name_show(c->name.gid, NET_PORT + c->name.index, name, sizeof(name));
	log_error("connection to %s closed: %s", name, why);
}

/* Whoever reads comes to the end then. */
void net_conn_mute(struct net_conn *c, const char *why)
{
	complain(c, why);
	c->mute = 1;
	c->source = NET_FROM_NOTHING;
	c->out_at = c->out_end = 0;
	net_conn_watch(c, 0);
	RAW2(SYS_shutdown, c->fd, SHUT_RDWR);
}

void net_conn_break(struct net_conn *c, const char *why)
{
	struct net_qp *n;

	complain(c, why);
	/* One that has just come up was not wanted, as a rule: the other's comes. */
	c->dial_next = net_now() + (c->state == NET_UP && !why && net_now() - c->up_since > CROSSING_NS ? 0 : DIAL_AGAIN_NS);
	fd_abort(c);
	c->state = NET_DOWN;
	c->source = NET_FROM_NOTHING;
	c->out_at = c->out_end = c->in_at = c->in_end = 0;
	c->in_frame = c->urgent = c->heard = c->mute = c->redial = 0;
	list_each(n, &c->qps, link) {
		net_respond_reset(n);
		net_request_again(c, n);
	}
	if (!list_empty(&c->busy))
		net_timer_set(c->net, c->dial_next);
	single_renew(c->net);
}

int net_dial_socket(const struct net_conn *c, union net_sockaddr *ret_to, socklen_t *ret_length)
{
	union net_sockaddr from;
	int fd, one = 1;

	*ret_length = net_sockaddr_fill(c->name.gid, NET_PORT + c->name.index, ret_to);
	fd = sr_socket(ret_to->sa.sa_family, SOCK_STREAM);
	if (fd < 0)
		return fd;
	net_sockaddr_fill(c->net->gid, 0, &from);
	RAW5(SYS_setsockopt, fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	RAW3(SYS_bind, fd, &from, *ret_length);
	return fd;
}

static int dial(struct net_conn *c)
{
	union net_sockaddr to;
	socklen_t len;
	int fd = net_dial_socket(c, &to, &len);
	long r;

	if (fd < 0)
		return fd;
	fd_take(c, fd, 1);
	r = RAW3(SYS_connect, fd, &to, len);
	return r == -EINPROGRESS ? 0 : (int)r;
}

/* A dial that gets nowhere: a lost first packet is said again by TCP after a second only. */
void net_conn_dial(struct net_conn *c)
{
	uint64_t now = net_now();
	int err;

	if (now < c->dial_next)
		return;
	c->state = NET_DIALLING;
	c->dialled = 1;
	c->dial_since = now;
	err = dial(c);
	single_renew(c->net);
	net_timer_set(c->net, now + c->dial_limit_ns);
	if (err) {
		c->refused = err == -ECONNREFUSED;
		net_conn_break(c, NULL);
	}
}

void net_hello_make(struct sr_net *net, struct net_hello *h)
{
	*h = (struct net_hello){ .magic = NET_MAGIC, .version = NET_VERSION, .length = sizeof(*h),
				 .index = net->ctx->seg->index };
	memcpy(h->gid, net->gid, sizeof(h->gid));
	if (RAW3(SYS_getrandom, h->nonce, sizeof(h->nonce), 0) != sizeof(h->nonce))
		log_error("no random numbers");
}

static int connected(struct net_conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);
	long n;

	RAW5(SYS_getsockopt, c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	c->refused = err == ECONNREFUSED;
	if (err)
		return -err;
	net_hello_make(c->net, &c->hello);
	n = RAW6(SYS_sendto, c->fd, &c->hello, sizeof(c->hello), MSG_NOSIGNAL, 0, 0);
	if (n == -EAGAIN) /* not yet: who polls asks without an event */
		return 0;
	if (n != sizeof(c->hello))
		return -EPIPE;
	c->state = NET_GREETING;
	net_conn_watch(c, 0);
	return 0;
}

static const char *hello_check(struct net_conn *c, struct net_hello *theirs)
{
	uint8_t proof[NET_MAC];
	int err = net_hello_decode(c->in, sizeof(*theirs), theirs);

	if (err == -EPROTONOSUPPORT)
		return "it speaks another version of the protocol";
	if (err)
		return "what answers is no softrdma";
	net_proof(c->net, 'S', &c->hello, theirs, proof);
	if (!net_proof_equal(proof, theirs->proof))
		return "it has another key";
	if (theirs->index != c->name.index || memcmp(theirs->gid, c->name.gid, sizeof(theirs->gid)))
		return "it has another name";
	return NULL;
}

void net_conn_up(struct net_conn *c, int dialled)
{
	const struct net_frame word = { .type = NET_PING };
	struct net_qp *n;

	c->state = NET_UP;
	c->up_since = net_now();
	c->dialled = dialled;
	c->heard = !dialled;
	c->refused = 0;
	c->dial_limit_ns = DIAL_FIRST_NS;
	net_probe_end(c);
	if (!dialled)
		net_frame_put(c, &word, 0);
	list_each(n, &c->qps, link)
		net_request_start(c, n);
	single_renew(c->net);
	net_pump(c);
}

void net_conn_heard(struct net_conn *c)
{
	struct net_qp *n;

	c->heard = 1;
	list_each(n, &c->qps, link)
		if (n->unreliable)
			net_request_start(c, n);
	net_pump(c);
}

static void greeted(struct net_conn *c)
{
	struct net_hello theirs;
	const char *wrong;
	uint8_t proof[NET_MAC];
	long n = RAW6(SYS_recvfrom, c->fd, c->in + c->in_end, sizeof(theirs) - c->in_end, MSG_DONTWAIT, 0, 0);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		net_conn_break(c, NULL);
		return;
	}
	c->in_end += (uint32_t)n;
	if (c->in_end < sizeof(theirs))
		return;
	wrong = hello_check(c, &theirs);
	if (wrong) {
		c->dial_next = 0;
		net_conn_break(c, wrong);
		c->dial_next = net_now() + NET_SECOND;
		return;
	}
	c->in_end = 0;
	net_proof(c->net, 'C', &c->hello, &theirs, proof);
	if (RAW6(SYS_sendto, c->fd, proof, sizeof(proof), MSG_NOSIGNAL, 0, 0) != sizeof(proof))
		net_conn_break(c, NULL);
	else
		net_conn_up(c, 1);
}

void net_conn_greet(struct net_conn *c)
{
	if (c->state == NET_DIALLING && connected(c))
		net_conn_break(c, NULL);
	if (c->state == NET_GREETING)
		greeted(c);
}

static int is_lower(const struct net_conn *c)
{
	const struct sr_net *net = c->net;
	int order = memcmp(net->gid, c->name.gid, sizeof(c->name.gid));

	return order ? order < 0 : net->ctx->seg->index < c->name.index;
}

/* Is a dial of ours under way, or has it come through while the other's was? */
static int is_crossing(const struct net_conn *c)
{
	if (c->state == NET_DIALLING || c->state == NET_GREETING)
		return 1;
	return c->state == NET_UP && c->dialled && net_now() - c->up_since < CROSSING_NS;
}

/* Its other end has gone meanwhile: it was given up for our own. */
static int is_over(int fd)
{
	char byte;
	long n = RAW6(SYS_recvfrom, fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, 0, 0);

	return n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR);
}

/* Of two dials that cross that of the lower name stays. Later, who dials has lost his connection, and the old one is worth no more than what has come by it. */
int net_conn_adopt(struct net_conn *c, int fd)
{
	int i;

	if ((is_crossing(c) && is_lower(c)) || is_over(fd))
		return -EEXIST;
	for (i = 0; i < OLD_ROUNDS && c->state == NET_UP && net_receive(c); i++)
		;
	if (c->state != NET_DOWN)
		net_conn_break(c, NULL);
	fd_take(c, fd, 0);
	net_conn_up(c, 0);
	return 0;
}

/* Dials that take too long. */
void net_conn_clock(struct net_conn *c, uint64_t now)
{
	uint64_t end;

	if (c->state != NET_DIALLING && c->state != NET_GREETING)
		return;
	end = c->dial_since + c->dial_limit_ns + (c->state == NET_GREETING ? GREET_NS : 0);
	if (now < end) {
		net_timer_set(c->net, end);
		return;
	}
	if (c->dial_limit_ns < DIAL_LONGEST_NS)
		c->dial_limit_ns *= 2;
	net_conn_break(c, NULL);
}
