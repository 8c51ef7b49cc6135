/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cm_load.c has made finds its other ends again.
 *
 * A connection's two ends find each other by its name (cm_name.c): on one host, whatever they were on before, or on two, through the door of the other (cm_door.c). Whoever brings
 * them back says which others' programs are here, and where the rest is (softrdma_cm_here, _there, _door_at), between load and join.
 *
 *      who was asked                          who has asked
 *      load: listens at NAME, opens a door    load
 *                       ---- all have loaded ----
 *      ...                                    join(0): connects to NAME, or dials the doors; says JOIN, with its place of this life (and process). A request that nobody had been told is
 *                                             said to who listens
 *                       ---- all have connected, or dial ----
 *      join(1): accepts, takes JOIN           join(1)
 *               says JOINED, with its place   takes JOINED
 *               the name, and the door, is gone
 *
 * In join(1) each waits for what the other has said, or its host's thread has brought: JOIN was said before, and nobody waits for a JOINED before he has said all of his own, so there is
 * no circle. What does not come (a host is lost) is given up after PATIENCE_MS.
 *
 * The name is an abstract one: nothing of it is left wherever this is cut off. Anybody may connect to such, so both ends look whether the other is of their user, and
 * strangers are hung up on. Nobody may be in another call: no lock is taken, no state but the ids'.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/cm_saved.h"
#include "softrdma/device.h"

#define PATIENCE_MS 30000

static int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec left = { PATIENCE_MS / 1000, 0 };
	long r;

	do
		r = RAW5(SYS_ppoll, &p, 1, &left, 0, 0); /* the kernel writes what is left */
	while (r == -EINTR);
	return r < 0 ? (int)r : r ? 0 : -ETIMEDOUT;
}

static int say(struct cm_id *id, uint8_t type)
{
	struct cm_message m = { .h = { .type = type, .ps = id->ps, .qp_type = id->qp_type, .qpn = id->conn.qpn, .psn = id->conn.psn } };

	cm_address_to_wire(&id->src, &m.h.src);
	cm_address_to_wire(&id->dst, &m.h.dst);
	cm_message_place(&m, id);
	m.h.qkey = type == CM_MSG_JOIN ? id->conn.remote_pid : 0;
	return cm_send(id, &m);
}

/* What the other end says first, with its place. */
static int hear(struct cm_id *id, uint8_t type)
{
	char packet[CM_WIRE_MAX];
	struct cm_message m;
	int err = readable(id->sock);
	long n = err ? err : RAW6(SYS_recvfrom, id->sock, packet, sizeof(packet), MSG_DONTWAIT, 0, 0);

	if (n <= 0)
		return n ? (int)n : -EPIPE;
	if (cm_wire_decode(packet, (size_t)n, &m) || m.h.type != type)
		return -ECONNREFUSED;
	cm_message_place_take(id, &m);
	return 0;
}

static int meet_connect(struct cm_id *id)
{
	union cm_addr door;
	uint8_t name[CM_NAME];

	cm_name(id, 1, name);
	id->sock = cm_door_knock(name, 0);
	if (id->sock == -ECONNREFUSED && cm_door_address(0, 0, &door) && cm_net_here())
		id->sock = cm_net_connect();
	return id->sock < 0 ? id->sock : say(id, CM_MSG_JOIN);
}

static int accept_from(struct cm_id *id, int listening)
{
	int err = readable(listening);

	id->sock = err ? -1 : accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (id->sock < 0)
		return err ? err : -ECONNREFUSED;
	err = cm_same_user(id->sock) ? hear(id, CM_MSG_JOIN) : -EPIPE;
	if (err) {
		close(id->sock);
		id->sock = -1;
	}
	return err;
}

/* Strangers, and doors that have seen that they are not the one, go without a word. */
static int meet_accept(struct cm_id *id)
{
	int listening = id->sock, err;

	do
		err = accept_from(id, listening);
	while (err == -EPIPE);
	close(listening);
	return err ? err : say(id, CM_MSG_JOINED);
}

static int met(struct cm_id *id, int err)
{
	id->rejoin = REJOIN_NOT;
	return !err && id->watched ? cm_watch(id->channel, id->sock, id->handle) : err;
}

static int ask_again(struct cm_id *id)
{
	id->rejoin = REJOIN_NOT;
	return cm_connect_again(id);
}

static int begin(struct cm_id *id)
{
	switch (id->rejoin) {
	case REJOIN_CONNECT:
		return meet_connect(id);
	case REJOIN_ASK:
		return ask_again(id);
	case REJOIN_QUERY:
		id->rejoin = REJOIN_NOT;
		return cm_resolve_again(id);
	default:
		return 0;
	}
}

static int take_in(struct cm_id *id)
{
	return id->rejoin == REJOIN_ACCEPT ? met(id, meet_accept(id)) : 0;
}

static int end(struct cm_id *id)
{
	return id->rejoin == REJOIN_CONNECT ? met(id, hear(id, CM_MSG_JOINED)) : 0;
}

static int each(int (*fn)(struct cm_id *id))
{
	struct cm_channel *ch;
	struct cm_id *id;
	int err = 0;

	list_each(ch, &cm_process->channels, link)
		list_each(id, &ch->ids, link)
			err = err ? err : fn(id);
	return err;
}

/* Names of this host, and of others as they are now: of ids that have not connected yet, and in what services have answered. */
static void names_renew(struct cm_channel *ch)
{
	struct cm_event *ev;
	union cm_addr now;
	struct cm_id *id;

	list_each(id, &ch->ids, link) {
		cm_here_renew(&id->dst);
		if (id->dst.family && (!id->is_far || cm_here(&id->dst) || cm_there(&id->dst, &now)))
			cm_place_remote(id);
	}
	list_each(ev, &ch->events, link) {
		id = ev->id;
		if (id->qp_type == IBV_QPT_UD && ev->resp.event == CM_EVENT_ESTABLISHED)
			cm_ah_fill(id, &ev->resp.param.ud.ah_attr, id->conn.remote_lid, id->conn.remote_gid);
	}
}

EXPORT int softrdma_cm_join(int accept)
{
	struct cm_channel *ch;
	int err;

	if (!cm_process)
		return 0;
	if (!accept) {
		list_each(ch, &cm_process->channels, link)
			names_renew(ch);
		return each(begin);
	}
	err = each(take_in);
	err = err ? err : each(end);
	cm_net_unlisten(NULL); /* the door */
	return err;
}
