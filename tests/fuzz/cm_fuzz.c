/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of rdma_cm's messages between processes and hosts. What the decoder takes is within its bounds, its private data ends in zeros, and
 * encodes to the same bytes again. As a stream it is taken apart by what the messages' heads say, and a hello goes ahead of it.
 */
#include "softrdma/cm_wire.h"
#include "softrdma/net_wire.h"
#include "tests/fuzz/fuzz.h"

static void packet_check(const uint8_t *data, size_t size)
{
	static struct cm_message m;
	uint8_t again[CM_WIRE_MAX], *packet = fuzz_copy(data, size);
	size_t i;

	if (!cm_wire_decode(packet, size, &m)) {
		if (m.h.private_len > cm_private_room(m.h.type) + 36 || m.h.length != size || m.h.qpn >> 24 ||
		    cm_wire_length(packet) != size)
			abort();
		for (i = m.h.private_len; i < CM_PRIVATE_MAX; i++)
			if (m.private[i])
				abort();
		if (cm_wire_encode(&m, again) != size || memcmp(again, packet, size))
			abort();
	}
	free(packet);
}

static void stream_check(const uint8_t *data, size_t size)
{
	uint32_t n;
	uint8_t *head;

	for (; size >= CM_WIRE_HEAD; data += n, size -= n) {
		head = fuzz_copy(data, CM_WIRE_HEAD);
		n = cm_wire_length(head);
		free(head);
		if (n && (n < sizeof(struct cm_wire) || n > CM_WIRE_MAX))
			abort();
		if (!n || n > size)
			return;
		packet_check(data, n);
	}
}

static void hello_check(const uint8_t *data, size_t size)
{
	size_t n = size < sizeof(struct net_hello) ? size : sizeof(struct net_hello);
	uint8_t *hello = fuzz_copy(data, n);
	struct net_hello h, other;

	if (!net_cm_hello_decode(hello, n, &h)) {
		/* A context would not take it, nor an end of rdma_cm a context's. */
		if (h.index || h.version != NET_VERSION || !net_hello_decode(hello, n, &other))
			abort();
		stream_check(data + n, size - n);
	}
	free(hello);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	packet_check(data, size);
	stream_check(data, size);
	hello_check(data, size);
	return 0;
}
