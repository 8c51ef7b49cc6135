/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of what comes over the network: a hello, then frames with their payloads, as a stream. What the decoder takes is
 * within its bounds, so that whoever goes on with it needs no check of sizes.
 */
#include "softrdma/net_wire.h"
#include "tests/fuzz/fuzz.h"

static void frame_check(const struct net_frame *f)
{
	fuzz_require(f->type >= NET_REQUEST && f->type <= NET_PING);
	fuzz_require(f->length <= NET_PAYLOAD_MAX && f->to >> 24 == 0 && f->from >> 24 == 0);
	if (f->type == NET_REQUEST || f->type == NET_DATA) {
		fuzz_require(f->total <= NET_MESSAGE_MAX);
		fuzz_require((uint64_t)f->offset + f->length <= f->total);
		fuzz_require(f->opcode <= NET_FETCH_ADD || f->opcode == NET_SEND_INV || f->type == NET_DATA);
		if (f->length)
			fuzz_require(!(f->flags & NET_LAST) == (f->offset + f->length < f->total));
	}
	if (f->type == NET_DATAGRAM)
		fuzz_require(f->length >= 40 && f->length <= NET_DATAGRAM_MAX);
	if (f->type == NET_ACK || f->type == NET_NAK || f->type == NET_READY || f->type == NET_PING)
		fuzz_require(!f->length);
}

/* A message to a group, of which nothing but its bounds can be seen before it is opened. */
static void group_check(const uint8_t *data, size_t size)
{
	uint8_t *p = fuzz_copy(data, size);
	struct net_group h;

	if (!net_group_decode(p, size, &h)) {
		fuzz_require(h.version == NET_VERSION && h.length == sizeof(h));
		fuzz_require(size >= sizeof(h) + sizeof(struct net_frame) + NET_GROUP_TAG);
		fuzz_require(size <= sizeof(h) + sizeof(struct net_frame) + NET_DATAGRAM_MAX + NET_GROUP_TAG);
	}
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_hello h;
	struct net_frame f;
	size_t n = size < sizeof(h) ? size : sizeof(h);
	uint8_t *p = fuzz_copy(data, n);
	int err = net_hello_decode(p, n, &h);

	free(p);
	group_check(data, size);
	if (err)
		return 0;
	fuzz_require(h.index && h.index < NET_INDEXES && h.version == NET_VERSION);
	for (data += n, size -= n;; data += n, size -= n) {
		n = size < sizeof(f) ? size : sizeof(f);
		p = fuzz_copy(data, n);
		err = net_frame_decode(p, n, &f);
		free(p);
		if (err)
			return 0;
		frame_check(&f);
		n += f.length;
		if (n > size)
			return 0;
	}
}
