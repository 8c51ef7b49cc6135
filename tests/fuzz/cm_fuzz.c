/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of rdma_cm's messages between processes. What the decoder takes is within its bounds, its private data ends in zeros, and
 * encodes to the same bytes again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "softrdma/cm_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cm_message m;
	uint8_t again[CM_WIRE_MAX];
	uint8_t *packet = malloc(size ? size : 1); /* a read behind its end is one behind the allocation */
	size_t i;

	if (!packet)
		return 0;
	memcpy(packet, data, size);
	if (!cm_wire_decode(packet, size, &m)) {
		if (m.h.private_len > cm_private_room(m.h.type) + 36 || m.h.length != size || m.h.qpn >> 24)
			abort();
		for (i = m.h.private_len; i < CM_PRIVATE_MAX; i++)
			if (m.private[i])
				abort();
		if (cm_wire_encode(&m, again) != size || memcmp(again, packet, size))
			abort();
	}
	free(packet);
	return 0;
}
