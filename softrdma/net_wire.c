/* SPDX-License-Identifier: BSD-2-Clause */
/* The bounds of what comes over the network. No state. */
#include "softrdma/net_wire.h"

#include <errno.h>
#include <string.h>

#define QPN_MAX 0xffffffu

static int hello_decode(const void *bytes, size_t n, struct net_hello *h)
{
	if (n < sizeof(*h))
		return -EPROTO;
	memcpy(h, bytes, sizeof(*h));
	if (h->magic != NET_MAGIC)
		return -EPROTO;
	if (h->version != NET_VERSION)
		return -EPROTONOSUPPORT;
	return h->length == sizeof(*h) ? 0 : -EPROTO;
}

int net_hello_decode(const void *bytes, size_t n, struct net_hello *h)
{
	int err = hello_decode(bytes, n, h);

	if (!err && (!h->index || h->index >= NET_INDEXES))
		return -EPROTO;
	return err;
}

int net_cm_hello_decode(const void *bytes, size_t n, struct net_hello *h)
{
	int err = hello_decode(bytes, n, h);

	return !err && h->index ? -EPROTO : err;
}

int net_group_decode(const void *bytes, size_t n, struct net_group *h)
{
	if (n < sizeof(*h) + sizeof(struct net_frame) + NET_GROUP_TAG ||
	    n > sizeof(*h) + sizeof(struct net_frame) + NET_DATAGRAM_MAX + NET_GROUP_TAG)
		return -EPROTO;
	memcpy(h, bytes, sizeof(*h));
	return h->magic == NET_GROUP_MAGIC && h->version == NET_VERSION && h->length == sizeof(*h) ? 0 : -EPROTO;
}

/* Which flags a type may have, and the longest payload. */
static const struct {
	uint8_t flags;
	uint32_t payload;
} limits[NET_TYPES] = {
	[NET_REQUEST] = { NET_FIRST | NET_LAST | NET_SOLICITED | NET_UNRELIABLE, NET_PAYLOAD_MAX },
	[NET_ACK] = { 0, 0 },
	[NET_NAK] = { 0, 0 },
	[NET_DATA] = { NET_FIRST | NET_LAST, NET_PAYLOAD_MAX },
	[NET_READY] = { 0, 0 },
	[NET_DATAGRAM] = { NET_SOLICITED | NET_IMMEDIATE | NET_ROUTED, NET_DATAGRAM_MAX },
	[NET_PING] = { 0, 0 },
};

static int fragment_ok(const struct net_frame *f, uint64_t payload)
{
	uint64_t end = (uint64_t)f->offset + payload;

	if (f->total > NET_MESSAGE_MAX || end > f->total || !(f->flags & NET_FIRST) != (f->offset != 0))
		return 0;
	/* Only a message without data has a fragment without data. */
	if (!payload && f->total)
		return 0;
	return !(f->flags & NET_LAST) == (end != f->total);
}

static int request_ok(const struct net_frame *f)
{
	switch (f->opcode) {
	case NET_WRITE:
	case NET_WRITE_IMM:
	case NET_SEND:
	case NET_SEND_IMM:
	case NET_SEND_INV:
		return fragment_ok(f, f->length);
	case NET_READ:
		return !f->length && !f->offset && f->total <= NET_MESSAGE_MAX &&
		       f->flags == (NET_FIRST | NET_LAST);
	case NET_COMPARE_SWAP:
	case NET_FETCH_ADD:
		return !f->length && !f->offset && f->total == 8 && f->flags == (NET_FIRST | NET_LAST);
	default:
		return 0;
	}
}

int net_frame_decode(const void *bytes, size_t n, struct net_frame *f)
{
	if (n < sizeof(*f))
		return -EPROTO;
	memcpy(f, bytes, sizeof(*f));
	if (!f->type || f->type >= NET_TYPES || (f->flags & ~limits[f->type].flags) ||
	    f->length > limits[f->type].payload || f->to > QPN_MAX || f->from > QPN_MAX)
		return -EPROTO;
	switch (f->type) {
	case NET_REQUEST:
		return request_ok(f) ? 0 : -EPROTO;
	case NET_DATA:
		return fragment_ok(f, f->length) ? 0 : -EPROTO;
	case NET_NAK:
		return f->status && f->status < NET_STATUSES ? 0 : -EPROTO;
	case NET_DATAGRAM:
		return f->length >= 40 ? 0 : -EPROTO;
	default:
		return 0;
	}
}
