/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP: what a socket is, who its peer is, and when nothing is under way any more. No state of its own.
 *
 * The two ends of a connection find each other by name: each publishes its (local, remote) pair and asks for the swapped one,
 * IPv4 addresses written as mapped ones (of one that is being set up: socket_connecting.c). A connection whose other end nobody in the job holds is
 *   far	 if somebody on another host of the job has it (socket_far.c)
 *   lone	 otherwise (socket_lone.c)
 *
 * Rounds of the drain, all processes in step:
 *   0..2  a sender whose bytes have not all arrived asks for another round
 *   3	   a sender that still has some is stuck behind a closed window: it makes a guard (socket_guard.c), or none if it has shut down, and
 *	   publishes that under its inode; receivers ask, and so does who shares either end without leading it
 *   4	   the latter take the guard's watched end
 *   5	   the receiver of a stuck sender takes the bytes out and puts them back (socket_stuck.c); if that has shut down, it lets them in
 */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"
#include "plugins/socket/socket_tcp.h"

#define ROUND_STUCK 3
#define ROUND_WATCH 4
#define ROUND_TAKE 5
#define ARRIVAL_MS 20

struct tcp_key {
	char tag[7]; /* "socket/" */
	char kind[4]; /* "tcp/" */
	struct socket_end a, b;
} PACKED;

struct stuck_key {
	char tag[7];  /* "socket/" */
	char kind[6]; /* "stuck/" */
	uint64_t ino;
} PACKED;

static struct tcp_key key_of(const struct socket_name *a, const struct socket_name *b)
{
	struct tcp_key k = { .a = socket_end_of(a), .b = socket_end_of(b) };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "tcp/", sizeof(k.kind));
	return k;
}

static struct stuck_key stuck_of(uint64_t ino)
{
	struct stuck_key k = { .ino = ino };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "stuck/", sizeof(k.kind));
	return k;
}

int socket_tcp_refuse(struct fermata_desc *d, const struct socket_state *s, int err, const char *why)
{
	char local[72], remote[72];

	socket_name_text(&s->record.local, local, sizeof(local));
	socket_name_text(&s->record.remote, remote, sizeof(remote));
	return fermata_fail(err, "fd %d: the TCP connection from %s to %s %s", d->fd, local, remote, why);
}

int socket_tcp_info(const struct fermata_desc *d, struct tcp_info *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = socket_get(d->fd, IPPROTO_TCP, TCP_INFO, ret, sizeof(*ret));
	return r < 0 ? fermata_fail(r, "fd %d does not tell its TCP state (errno %d)", d->fd, -r) : 0;
}

static int claim_connected(struct socket_state *s)
{
	struct tcp_key own = key_of(&s->record.local, &s->record.remote);
	struct tcp_key other = key_of(&s->record.remote, &s->record.local);
	struct socket_peer self = { fermata_pid(), s->record.maker_fd, s->record.domain, 0, s->record.ino, 0, (uint32_t)socket_get_int(s->record.maker_fd, SOL_SOCKET, SO_RCVBUF), 0 };
	int r = fermata_publish(&own, sizeof(own), &self, sizeof(self));

	if (!r)
		r = fermata_ask(&other, sizeof(other));
	s->foreign = !socket_is_local(&s->record.remote);
	return r || !s->foreign ? r : socket_far_claim(s, &own, &other, sizeof(own));
}

int socket_tcp_claim(struct fermata_desc *d, struct socket_state *s)
{
	struct tcp_info info;
	char layer[17] = "";
	int r = socket_tcp_info(d, &info);

	if (!r && socket_get(d->fd, IPPROTO_TCP, TCP_ULP, layer, sizeof(layer) - 1) > 0 && *layer)
		r = socket_tcp_refuse(d, s, -EOPNOTSUPP, "is encrypted by the kernel (TCP_ULP), which is not supported: have the program do that itself");
	if (r)
		return r;
	if (STATE(info.tcpi_state) & STATES_CONNECTED) {
		s->record.kind = SOCKET_CONNECTED;
		return socket_name_get(d->fd, true, &s->record.remote) < 0 ? 0 : claim_connected(s);
	}
	if (info.tcpi_state == TCP_LISTEN) {
		s->record.kind = SOCKET_LISTENING;
		s->record.backlog = info.tcpi_sacked; /* so a listener reports them */
		s->pending = info.tcpi_unacked;
		return socket_listening_claim(d, s);
	}
	if (info.tcpi_state == TCP_SYN_SENT)
		return socket_connecting_claim(d, s);
	if (info.tcpi_state != TCP_CLOSE)
		return socket_tcp_refuse(d, s, -EAGAIN, "is being set up: try again");
	socket_lone_claim(d, s);
	return 0;
}

/* Several hosts of the job may stand on this machine. */
int socket_tcp_ask_elsewhere(struct socket_state *s)
{
	struct tcp_key own = key_of(&s->record.local, &s->record.remote), other = key_of(&s->record.remote, &s->record.local);
	int r = socket_far_claim(s, &own, &other, sizeof(own));

	s->elsewhere = true;
	return r ? r : FERMATA_DRAIN_MORE;
}

/* Round 0: the peer, and what is shut. Round 1 for who has asked elsewhere. @ends: it has read an end, or has shut down reading; known before the state, or an end that comes meanwhile looked like the latter. */
static int find_peer(struct fermata_desc *d, struct socket_state *s, const struct tcp_info *info, bool ends)
{
	uint32_t state = info->tcpi_state;
	struct tcp_key other = key_of(&s->record.remote, &s->record.local);
	struct socket_peer peer;
	bool far;

	if (STATE(state) & STATES_SENT_FIN)
		s->record.flags |= SOCKET_WRITE_SHUT;
	far = !socket_peer_resolve(false, &other, sizeof(other), &peer);
	if (far && ((!s->foreign && !s->elsewhere) || !socket_far_resolve(s, &other, sizeof(other), &peer)))
		return socket_lone_found(d, s, info);
	if (!far && peer.ino == s->record.ino)
		return socket_tcp_refuse(d, s, -EOPNOTSUPP, "is a connection to itself, which is not supported");
	if (STATE(state) & STATES_GOT_FIN)
		s->record.flags |= SOCKET_END_OF_FILE;
	else if (ends)
		s->record.flags |= SOCKET_READ_SHUT;
	far ? socket_far_found(s, &peer) : socket_peer_found(d, s, &peer);
	return FERMATA_DRAINED;
}

bool socket_tcp_arrived(int sender, int receiver)
{
	struct tcp_info from = { 0 }, to = { 0 };
	int need = (int)(offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof(from.tcpi_bytes_retrans));
	bool got_fin;

	if (socket_queued(sender, SIOCOUTQ) == 0)
		return true;
	if (socket_queued(sender, SIOCOUTQNSD) != 0)
		return false;
	if (socket_get(sender, IPPROTO_TCP, TCP_INFO, &from, sizeof(from)) < need ||
	    socket_get(receiver, IPPROTO_TCP, TCP_INFO, &to, sizeof(to)) < need)
		return false; /* a kernel before 4.19 */
	got_fin = STATE(to.tcpi_state) & STATES_GOT_FIN;
	if (!(STATE(from.tcpi_state) & STATES_SENT_FIN) == got_fin)
		return false;
	return from.tcpi_bytes_sent - from.tcpi_bytes_retrans == to.tcpi_bytes_received - got_fin;
}

static bool has_arrived(const struct fermata_desc *d, const struct socket_state *s)
{
	bool arrived;
	int peer_end;

	if (socket_queued(d->fd, SIOCOUTQ) == 0)
		return true;
	if (socket_queued(d->fd, SIOCOUTQNSD) != 0)
		return false;
	peer_end = fdpass_take((int)s->peer.pid, s->peer.fd);
	if (peer_end < 0)
		return false;
	arrived = socket_tcp_arrived(d->fd, peer_end);
	raw_close(peer_end);
	return arrived;
}

static bool arrives_soon(const struct fermata_desc *d, const struct socket_state *s)
{
	const struct timespec step = { 0, 1000000 };

	for (int i = 0; i < ARRIVAL_MS; i++) {
		if (has_arrived(d, s))
			return true;
		RAW2(SYS_nanosleep, &step, NULL);
	}
	return false;
}

static int announce_stuck(struct fermata_desc *d, struct socket_state *s, uint32_t state)
{
	struct stuck_key key = stuck_of(s->record.ino);
	struct socket_guard guard = { .lock = SOCKET_GUARD_NONE };
	int r = STATE(state) & STATES_SENT_FIN ? 0 : socket_guard_make(d->fd, &guard);

	if (!r)
		r = fermata_publish(&key, sizeof(key), &guard, sizeof(guard));
	s->stuck = true;
	return r ? r : FERMATA_DRAIN_MORE;
}

static int drain_sending(struct fermata_desc *d, struct socket_state *s, unsigned int round, uint32_t state)
{
	if (round > ROUND_STUCK)
		return s->stuck && round < ROUND_TAKE ? FERMATA_DRAIN_MORE : FERMATA_DRAINED;
	if (round == ROUND_STUCK - 1 ? arrives_soon(d, s) : has_arrived(d, s))
		return FERMATA_DRAINED;
	return round == ROUND_STUCK ? announce_stuck(d, s, state) : FERMATA_DRAIN_MORE;
}

/* False: nobody there is stuck. */
static bool guard_of(const struct stuck_key *key, struct socket_guard *ret)
{
	size_t len;
	const void *value = fermata_resolve(key, sizeof(*key), 0, &len);

	if (!value || len < sizeof(*ret))
		return false;
	memcpy(ret, value, sizeof(*ret));
	return true;
}

/* A sender on another host knows only by the kernel's answer that its data has arrived, which it may keep back for 200 ms: now it is due. */
static void answer_sender(int fd)
{
	socket_set_int(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

static int drain_receiving(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	struct stuck_key key = stuck_of(s->record.peer_ino);
	struct socket_guard guard;
	int r;

	if (round < ROUND_STUCK)
		answer_sender(d->fd);
	if (round == ROUND_STUCK) {
		s->lock = socket_get_int(d->fd, SOL_SOCKET, SO_BUF_LOCK);
		return fermata_ask(&key, sizeof(key));
	}
	if (round != ROUND_TAKE || !guard_of(&key, &guard))
		return 0;
	if (guard.lock == SOCKET_GUARD_NONE) {
		s->record.flags |= SOCKET_END_OF_FILE;
		return socket_lone_let_in(d, s);
	}
	r = socket_check_urgent(d->fd, &s->record); /* before the sender's bytes are between the two */
	return r ? r : socket_stuck_take(d, s, &guard);
}

int socket_tcp_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	const bool looks = round == 0 || (round == 1 && s->elsewhere);
	struct tcp_info info;
	int events, r;

	if (s->record.kind == SOCKET_LISTENING || s->record.kind == SOCKET_PENDING)
		return socket_pending_drain(d, s, round);
	if (s->record.kind == SOCKET_CONNECTING)
		return socket_connecting_drain(d, s);
	if (s->record.kind != SOCKET_CONNECTED)
		return FERMATA_DRAINED;
	events = looks ? socket_poll(d->fd, POLLRDHUP, 0) : 0;
	r = socket_tcp_info(d, &info);
	if (!r && looks)
		r = find_peer(d, s, &info, events > 0 && events & POLLRDHUP);
	if (r || s->record.kind != SOCKET_CONNECTED || (round == 0 && s->elsewhere))
		return r;
	if (s->record.flags & SOCKET_FAR)
		return socket_far_drain(d, s, round);
	r = drain_receiving(d, s, round);
	return r < 0 ? r : drain_sending(d, s, round, info.tcpi_state);
}

int socket_tcp_drained(struct fermata_desc *d, struct socket_state *s)
{
	struct tcp_info info;
	int r = s->record.kind == SOCKET_CONNECTED ? socket_tcp_info(d, &info) : 0;

	if (!r && s->record.kind == SOCKET_CONNECTED && STATE(info.tcpi_state) & STATES_GOT_FIN)
		s->record.flags |= SOCKET_END_OF_FILE;
	return r;
}

static int watch(struct fermata_desc *d, uint64_t sender, bool receives)
{
	struct stuck_key key = stuck_of(sender);
	struct socket_guard guard;

	return guard_of(&key, &guard) && guard.lock != SOCKET_GUARD_NONE ? socket_guard_watch(d->fd, receives, &guard) : 0;
}

/* Another process leads this end; its other end may be stuck, or it may itself. */
int socket_tcp_follow(struct fermata_desc *d, struct socket_state *s, unsigned int round)
{
	struct stuck_key own = stuck_of(s->record.ino), other;
	struct tcp_key peer_key = key_of(&s->record.remote, &s->record.local);
	struct socket_peer peer;
	int r;

	if (s->record.kind != SOCKET_CONNECTED || (round != ROUND_STUCK && round != ROUND_WATCH))
		return 0;
	if (round == ROUND_WATCH) {
		r = watch(d, s->record.ino, false);
		return r ? r : watch(d, s->record.peer_ino, true);
	}
	r = fermata_ask(&own, sizeof(own));
	if (r || !socket_peer_resolve(false, &peer_key, sizeof(peer_key), &peer))
		return r;
	s->record.peer_ino = peer.ino;
	other = stuck_of(peer.ino);
	return fermata_ask(&other, sizeof(other));
}
