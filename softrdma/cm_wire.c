/* SPDX-License-Identifier: BSD-2-Clause */
/* The framing of rdma_cm messages: bounds and versions. No state. */
#include "softrdma/cm_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#ifndef AF_IB
#define AF_IB 27
#endif

/* IBA 12.6: the fields' sizes; a request over IP spends 36 bytes of its own on the addresses (annex A11). */
uint32_t cm_private_room(uint32_t type)
{
	switch (type) {
	case CM_MSG_REQ:
		return 56;
	case CM_MSG_REP:
		return 196;
	case CM_MSG_RTU:
		return 224;
	case CM_MSG_REJ:
		return 148;
	case CM_MSG_DREQ:
		return 220;
	case CM_MSG_DREP:
		return 224;
	case CM_MSG_SIDR_REQ:
		return 180;
	case CM_MSG_SIDR_REP:
		return 136;
	default:
		return 0;
	}
}

static int address_ok(const struct cm_wire_addr *a)
{
	return a->family == AF_INET || a->family == AF_INET6 || a->family == AF_IB;
}

uint32_t cm_wire_length(const void *head)
{
	struct cm_wire h = { 0 };

	memcpy(&h, head, CM_WIRE_HEAD);
	if (h.magic != CM_WIRE_MAGIC || h.length < sizeof(h) || h.length > CM_WIRE_MAX)
		return 0;
	return h.length;
}

int cm_wire_decode(const void *packet, size_t n, struct cm_message *m)
{
	struct cm_wire *h = &m->h;

	memset(m, 0, sizeof(*m));
	if (n < offsetof(struct cm_wire, reserved))
		return -EPROTO;
	memcpy(h, packet, n < sizeof(*h) ? n : sizeof(*h));
	if (h->magic != CM_WIRE_MAGIC)
		return -EPROTO;
	if (h->version != CM_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (n < sizeof(*h) || h->length != n || h->private_len > CM_PRIVATE_MAX || sizeof(*h) + h->private_len != n)
		return -EPROTO;
	if (!h->type || h->type >= CM_MSG_END || h->qpn >> 24 || h->psn >> 24)
		return -EPROTO;
	/* A request over AF_IB has the 36 bytes for itself. */
	if (h->private_len > cm_private_room(h->type) + (h->src.family == AF_IB ? 36 : 0))
		return -EPROTO;
	if ((h->type == CM_MSG_REQ || h->type == CM_MSG_SIDR_REQ || h->type == CM_MSG_JOIN) && (!address_ok(&h->src) || !address_ok(&h->dst)))
		return -EPROTO;
	memcpy(m->private, (const char *)packet + sizeof(*h), h->private_len);
	return 0;
}

size_t cm_wire_encode(struct cm_message *m, void *buf)
{
	m->h.magic = CM_WIRE_MAGIC;
	m->h.version = CM_WIRE_VERSION;
	m->h.length = (uint16_t)(sizeof(m->h) + m->h.private_len);
	memcpy(buf, &m->h, sizeof(m->h));
	memcpy((char *)buf + sizeof(m->h), m->private, m->h.private_len);
	return m->h.length;
}
