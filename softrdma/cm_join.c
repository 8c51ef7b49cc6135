/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cm_load.c has made finds its other ends again.
 *
 * A connection's two ends find each other by its name (cm_name.c). That they were on two hosts is of no matter any more: whoever brings them back brings them
 * to one, and says which others' programs are here (softrdma_cm_here), between load and join.
 *
 *      who was asked                          who has asked
 *      load: listens at NAME                  load
 *                       ---- all have loaded ----
 *      ...                                    join(0): connects to NAME; a request that nobody had been told is said to who listens here
 *                       ---- all have connected ----
 *      join(1): accepts; the name is gone
 *
 * The name is an abstract one: nothing of it is left wherever this is cut off. Anybody may connect to such, so both ends look whether the other is of their user, and
 * strangers are hung up on. Nobody may be in another call: no lock is taken, no state but the ids'.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/cm_saved.h"
#include "softrdma/device.h"

static int meet_connect(struct cm_id *id)
{
	struct sockaddr_un sa;
	int len = cm_meeting_address(id, &sa), r;

	id->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id->sock < 0)
		return -errno;
	r = (int)RAW3(SYS_connect, id->sock, &sa, len);
	return r || cm_same_user(id->sock) ? r : -ECONNREFUSED;
}

static int meet_accept(struct cm_id *id)
{
	int listening = id->sock, sock;

	do {
		sock = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0 && cm_same_user(sock))
			break;
		if (sock >= 0)
			close(sock);
	} while (sock >= 0);
	id->sock = sock;
	close(listening);
	return sock < 0 ? -ECONNREFUSED : 0;
}

static int meet(struct cm_id *id, int accept)
{
	int err = accept ? meet_accept(id) : meet_connect(id);

	id->rejoin = REJOIN_NOT;
	cm_place_remote(id); /* whoever was on another host is on this one */
	return !err && id->watched ? cm_watch(id->channel, id->sock, id->handle) : err;
}

static int ask_again(struct cm_id *id)
{
	id->rejoin = REJOIN_NOT;
	return cm_connect_again(id);
}

static int join_one(struct cm_id *id, int accept)
{
	if (accept)
		return id->rejoin == REJOIN_ACCEPT ? meet(id, 1) : 0;
	switch (id->rejoin) {
	case REJOIN_CONNECT:
		return meet(id, 0);
	case REJOIN_ASK:
		return ask_again(id);
	case REJOIN_QUERY:
		id->rejoin = REJOIN_NOT;
		return cm_resolve_again(id);
	default:
		return 0;
	}
}

/* Names of this host, and of others that are this one now: of ids that have not connected yet, and in what services have answered. */
static void names_renew(struct cm_channel *ch)
{
	struct cm_event *ev;
	struct cm_id *id;

	list_each(id, &ch->ids, link)
		if (id->dst.family && (!id->is_far || cm_here(&id->dst)))
			cm_place_remote(id);
	list_each(ev, &ch->events, link) {
		id = ev->id;
		if (id->qp_type == IBV_QPT_UD && ev->resp.event == CM_EVENT_ESTABLISHED)
			cm_ah_fill(id, &ev->resp.param.ud.ah_attr, id->conn.remote_lid, id->conn.remote_gid);
	}
}

EXPORT int softrdma_cm_join(int accept)
{
	struct cm_channel *ch;
	struct cm_id *id;
	int err = 0;

	if (!cm_process)
		return 0;
	list_each(ch, &cm_process->channels, link) {
		names_renew(ch);
		list_each(id, &ch->ids, link)
			err = err ? err : join_one(id, accept);
	}
	return err;
}
