/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The beginning of a line on the wire: hellos and proofs, as between contexts but that the index is 0 (doc/softrdma-protocol.md), then the
 * request. Until a guest has shown its proof it may be anybody: it has 5 seconds, and a hello's and a proof's bytes are all that is read of it. By
 * who carries alone (cm_net.h).
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "softrdma/cm_net.h"

#define COMPLAIN_NS (100 * NET_MS) /* a line in so much time, */
#define COMPLAINTS 16	   /* after so many */
#define GREET_NS (2 * NET_SECOND)

static void name_show(const union cm_addr *a, char *to, size_t size)
{
	const uint8_t *b = a->in6.sin6_addr.s6_addr;

	if (a->family == AF_INET)
		b = (const uint8_t *)&a->in.sin_addr;
	else if (IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		b += 12;
	else
		fm_format(to, size, "%02x%02x:%02x%02x:...:%02x%02x", b[0], b[1], b[2], b[3], b[14], b[15]);
	if (a->family == AF_INET || b != a->in6.sin6_addr.s6_addr)
		fm_format(to, size, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
}

void cm_line_show(const struct cm_line *l, char *to, size_t size)
{
	char name[INET6_ADDRSTRLEN];

	name_show(&l->peer, name, sizeof(name));
	if (l->name[0] == 'a')
		fm_format(to, size, "to %s, port %u", name, cm_address_port(&l->dst));
	else
		fm_format(to, size, "from %s to port %u", name, l->port);
}

static void complain(struct cm_line *l, const char *what, const char *why)
{
	struct cm_net *net = l->net;
	uint64_t now = net_now();
	char name[INET6_ADDRSTRLEN];

	if (now <= net->complain_ns)
		return;
	if (now - net->complain_ns > COMPLAINTS * COMPLAIN_NS)
		net->complain_ns = now - COMPLAINTS * COMPLAIN_NS;
	net->complain_ns += COMPLAIN_NS;
	name_show(&l->peer, name, sizeof(name));
	log_error("rdma_cm: connection %s %s closed: %s", what, name, why);
}

static int hello_make(const struct cm_net *net, struct net_hello *h)
{
	*h = (struct net_hello){ .magic = NET_MAGIC, .version = NET_VERSION, .length = sizeof(*h) };
	net_name_fill(&net->host, net->host.address, h->gid);
	return RAW3(SYS_getrandom, h->nonce, sizeof(h->nonce), 0) == sizeof(h->nonce) ? 0 : -EIO;
}

static const char *hello_wrong(int err)
{
	return err == -EPROTONOSUPPORT ? "it speaks another version of the protocol" : "it is no rdma_cm of softrdma";
}

/* ---- who dials ---- */

void cm_hello_dialled(struct cm_line *l)
{
	if (hello_make(l->net, &l->ours) || cm_line_say(l, &l->ours, sizeof(l->ours))) {
		cm_line_slot_next(l, 1);
		return;
	}
	l->state = LINE_GREETING;
	cm_line_clock(l, net_now() + l->limit_ns + GREET_NS);
}

void cm_hello_answer(struct cm_line *l)
{
	struct cm_net *net = l->net;
	uint8_t proof[NET_MAC];
	int r = cm_line_read(l, sizeof(l->theirs)), err;

	if (!r)
		return;
	if (r < 0) {
		cm_line_slot_next(l, 0); /* a stranger's */
		return;
	}
	l->got = 0;
	err = net_cm_hello_decode(l->in, sizeof(l->theirs), &l->theirs);
	if (!err) {
		net_key_proof(net->key, net->key_length, 'S', &l->ours, &l->theirs, proof);
		err = net_proof_equal(proof, l->theirs.proof) ? 0 : -EACCES;
	}
	if (err) {
		complain(l, "to", err == -EACCES ? "it has another key" : hello_wrong(err));
		cm_line_slot_next(l, 0);
		return;
	}
	net_key_proof(net->key, net->key_length, 'C', &l->ours, &l->theirs, proof);
	if (cm_line_say(l, proof, sizeof(proof)) || cm_line_say(l, l->request, l->request_len)) {
		cm_line_slot_next(l, 1);
		return;
	}
	/* Its thread answers at once if it is not the one; else the program may take its time, for which the id has a clock. */
	l->state = LINE_ASKED;
	l->due = 0;
	l->said = 1;
	l->heard = 0;
	l->net->moved++;
}

/* ---- who is dialled ---- */

void cm_hello_guest(struct cm_line *l)
{
	int r = cm_line_read(l, sizeof(l->theirs)), err;

	if (r < 0)
		cm_line_end(l);
	if (r <= 0)
		return;
	l->got = 0;
	err = net_cm_hello_decode(l->in, sizeof(l->theirs), &l->theirs);
	memcpy(&l->theirs, l->in, sizeof(l->theirs));
	if ((err && err != -EPROTONOSUPPORT) || hello_make(l->net, &l->ours)) {
		complain(l, "from", hello_wrong(err));
		cm_line_end(l);
		return;
	}
	net_key_proof(l->net->key, l->net->key_length, 'S', &l->theirs, &l->ours, l->ours.proof);
	cm_line_say(l, &l->ours, sizeof(l->ours));
	l->state = LINE_GUEST_PROOF;
	if (err) { /* it has seen our version */
		complain(l, "from", hello_wrong(err));
		cm_line_end(l);
	}
}

void cm_hello_guest_proof(struct cm_line *l)
{
	uint8_t proof[NET_MAC];
	int r = cm_line_read(l, sizeof(proof));

	if (r < 0)
		cm_line_end(l);
	if (r <= 0)
		return;
	l->got = 0;
	net_key_proof(l->net->key, l->net->key_length, 'C', &l->theirs, &l->ours, proof);
	if (!net_proof_equal(proof, (const uint8_t *)l->in)) {
		complain(l, "from", "it has another key");
		cm_line_end(l);
		return;
	}
	l->state = LINE_GUEST_REQUEST;
}

static int listener_find(struct cm_line *l, const struct cm_message *m)
{
	union cm_addr dst;

	if (l->space == CM_DOOR)
		return -ECONNREFUSED;
	cm_address_from_wire(&m->h.dst, &dst);
	/* Another listener's port may lead here. */
	if (cm_port_space(m->h.ps, &dst) != l->space || cm_address_port(&dst) != l->port)
		return -ECONNREFUSED;
	return cm_port_knock(l->net->dir, m->h.ps, &dst);
}

void cm_hello_guest_request(struct cm_line *l, const struct cm_message *m, size_t n)
{
	char packet[CM_WIRE_MAX];
	int fd = -EPROTO;

	cm_name_of_request(m, 1, l->name);
	if (m->h.type == CM_MSG_REQ || m->h.type == CM_MSG_SIDR_REQ)
		fd = listener_find(l, m);
	else if (m->h.type == CM_MSG_JOIN && l->space == CM_DOOR)
		fd = cm_door_knock(l->name, 1);
	if (fd == -EPROTO) {
		complain(l, "from", "it asks for nothing");
		cm_line_end(l);
		return;
	}
	if (fd >= 0) {
		cm_line_listened(l, fd);
		RAW6(SYS_sendto, fd, l->in, n, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
		return;
	}
	n = cm_line_refusal(m, fd == -EAGAIN, packet);
	cm_line_say(l, packet, n);
	l->state = LINE_CLOSING;
}
