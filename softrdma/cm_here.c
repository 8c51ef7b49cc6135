/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hosts of lives before. A restart brings programs of several hosts back on one, or on others: the addresses that they knew each other by are names from then on, and lead to
 * where the programs of that host are now, whatever interface has them:
 *
 *   here     this host, though no interface of it may have the address
 *   there    another one, at an address of this life, also where this host itself has the address now
 *
 * Owns the list of those, which outlives channels. Who brings processes back begins it anew and adds to it while the program stands still; a name that is in it stays as it is.
 *
 * Addresses have 16 bytes, of IPv4 mapped ones. One of InfiniBand's own is looked at by the last 4, which are all of a host's that a GID has. Programs are told GIDs of their own, which
 * mean some of this life when they come here (plugins/verbs/verbs_cm_names.c): where hosts have come back apart only those of ids that are brought back, once, are names.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>

#include "softrdma/device.h"
#include "softrdma/name.h"
#include "softrdma/net.h"

#define HOSTS 1024

static struct host {
	uint8_t address[16];
	uint8_t now[16]; /* there: at this one */
	int here;
} hosts[HOSTS];
static uint32_t count;
static int apart; /* some are there */

static const struct host *find(const uint8_t *end, size_t from)
{
	for (uint32_t i = 0; i < count; i++)
		if (!memcmp(hosts[i].address + from, end, 16 - from))
			return &hosts[i];
	return NULL;
}

EXPORT void softrdma_cm_hosts_forget(void)
{
	count = 0;
	apart = 0;
}

static int add(const void *address, const void *now)
{
	struct host h = { .here = !now };

	if (find(address, 0))
		return 0;
	if (count == HOSTS)
		return -ENOSPC;
	memcpy(h.address, address, 16);
	if (now)
		memcpy(h.now, now, 16);
	hosts[count++] = h;
	apart |= !h.here;
	return 0;
}

EXPORT int softrdma_cm_here(const void *address)
{
	return add(address, NULL);
}

EXPORT int softrdma_cm_there(const void *address, const void *now)
{
	return add(address, now);
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

static const struct host *host_of(const union cm_addr *a)
{
	uint8_t ip[16] = { 0 };
	uint32_t address;

	if (!count)
		return NULL;
	if (a->family != AF_IB) {
		cm_address_gid(a, ip);
		return find(ip, 0);
	}
	address = __builtin_bswap32(sr_first_gid_host(a->ib.addr));
	memcpy(ip + 12, &address, 4);
	return address ? find(ip + 12, 12) : NULL;
}

int cm_here(const union cm_addr *a)
{
	const struct host *h = a->family == AF_IB && apart ? NULL : host_of(a);

	return h && h->here;
}

int cm_there(const union cm_addr *a, union cm_addr *ret_now)
{
	const struct host *h = a->family == AF_IB ? NULL : host_of(a);

	if (!h || h->here)
		return 0;
	cm_address_of_ip(h->now, 0, ret_now);
	return 1;
}

void cm_here_renew(union cm_addr *a)
{
	const struct host *h = a->family == AF_IB && apart ? host_of(a) : NULL;
	uint32_t address;
	uint16_t lid;

	if (!h)
		return;
	if (h->here) {
		cm_gid(a->ib.addr);
		return;
	}
	memcpy(&address, h->now + 12, sizeof(address));
	sr_first_names(__builtin_bswap32(address), a->ib.addr, &lid);
}

void cm_here_name(union cm_addr *a)
{
	uint16_t port = cm_address_port(a);
	union cm_addr name;

	for (uint32_t i = 0; i < count; i++) {
		cm_address_of_ip(hosts[i].address, port, &name);
		if (!hosts[i].here || name.family != a->family)
			continue;
		*a = name;
		return;
	}
}
