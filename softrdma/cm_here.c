/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hosts that are this one now. A restart brings programs of several hosts back on one: the addresses that they knew each other by lead here from then on,
 * though no interface has them. Owns the list of those, which grows only and outlives channels. Who brings processes back adds to it while the program
 * stands still.
 *
 * Addresses have 16 bytes, of IPv4 mapped ones. One of InfiniBand's own is looked at by the last 4, which are all of a host's that a GID has.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>

#include "softrdma/device.h"
#include "softrdma/name.h"
#include "softrdma/net.h"

#define HOSTS 1024

static uint8_t hosts[HOSTS][16];
static uint32_t count;

static int knows(const uint8_t *end, size_t from)
{
	for (uint32_t i = 0; i < count; i++)
		if (!memcmp(hosts[i] + from, end, 16 - from))
			return 1;
	return 0;
}

EXPORT int softrdma_cm_here(const void *address)
{
	if (knows(address, 0))
		return 0;
	if (count == HOSTS)
		return -ENOSPC;
	memcpy(hosts[count++], address, 16);
	return 0;
}

/* The kernel's ports have several, softrdma has one. */
EXPORT int softrdma_cm_host(uint32_t nth, void *ret_address)
{
	struct sr_host h;
	uint32_t address;

	if (cm_place_is_kernel())
		return cm_place_address(nth, ret_address);
	address = nth ? 0 : sr_net_address(&h);
	if (address)
		net_name_fill(&h, address, ret_address);
	return address != 0;
}

static int here_gid(const uint8_t gid[16])
{
	uint32_t address = count ? __builtin_bswap32(sr_first_gid_host(gid)) : 0;
	uint8_t ip[16] = { 0 };

	memcpy(ip + 12, &address, 4);
	return address && knows(ip + 12, 12);
}

int cm_here(const union cm_addr *a)
{
	uint8_t ip[16];

	if (!count)
		return 0;
	if (a->family == AF_IB)
		return here_gid(a->ib.addr);
	cm_address_gid(a, ip);
	return knows(ip, 0);
}
