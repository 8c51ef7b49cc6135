/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Partition keys. A queue pair names one by its place in the port's table, which the subnet's manager fills in an order of its own on each host; so, as with GIDs, the program goes on
 * to see the table that it saw first, and a place there means the key that it had (InfiniBand Architecture Specification vol. 1, 10.9).
 *
 * A partition that the port is no member of in this life cannot be had. The queue pair is then in the default partition, which every port is in; so it is for all of the
 * partition where a job comes back on another fabric, on a laptop, say.
 */
#include "plugins/verbs/verbs_internal.h"

#include "base/log.h"

#define DEFAULT_PARTITION 0x7fff

static unsigned int partition(uint16_t pkey)
{
	return __builtin_bswap16(pkey) & 0x7fff; /* without the bit that tells full members */
}

void verbs_pkeys_read(struct verbs_port *p, struct ibv_context *real, unsigned int port, unsigned int length)
{
	memset(p->real_pkey, 0, sizeof(p->real_pkey));
	for (unsigned int i = 0; verbs_backend.ibv_query_pkey && i < length && i < VERBS_PKEYS; i++)
		if (verbs_backend.ibv_query_pkey(real, (uint8_t)port, (int)i, &p->real_pkey[i]))
			break;
}

void verbs_pkeys_name(struct verbs_port *p, unsigned int length)
{
	memcpy(p->virtual_pkey, p->real_pkey, sizeof(p->virtual_pkey));
	p->pkey_count = (uint16_t)(length < VERBS_PKEYS ? length : VERBS_PKEYS);
}

static int is_full(uint16_t pkey)
{
	return __builtin_bswap16(pkey) >> 15;
}

/* The first place of that partition, of a full member if there is one. -1: there is none. */
static int find(const struct verbs_port *p, unsigned int wanted)
{
	int found = -1;

	for (int i = 0; i < (int)VERBS_PKEYS; i++)
		if (partition(p->real_pkey[i]) == wanted && (found < 0 || (is_full(p->real_pkey[i]) && !is_full(p->real_pkey[found]))))
			found = i;
	return found;
}

uint16_t verbs_pkey_index_real(const struct verbs_port *own, uint16_t index)
{
	static _Atomic int told;
	uint16_t pkey = index < VERBS_PKEYS ? own->virtual_pkey[index] : 0;
	int at;

	if (!partition(pkey) || own->real_pkey[index] == pkey)
		return index;
	for (uint16_t i = 0; i < VERBS_PKEYS; i++)
		if (own->real_pkey[i] == pkey)
			return i;
	at = find(own, partition(pkey));
	if (at >= 0)
		return (uint16_t)at;
	if (!atomic_exchange(&told, 1))
		log_warn("this port is not in partition 0x%x: a queue pair that was there is in the default partition now", partition(pkey));
	at = find(own, DEFAULT_PARTITION);
	return (uint16_t)(at < 0 ? 0 : at);
}

/* The port, if the program was told of its keys before a restart. */
static const struct verbs_port *known(struct ibv_context *context, uint8_t port)
{
	const struct shadow_device *d = shadow_context(context)->device;

	return verbs_moved && port >= 1 && port <= d->ports ? &d->port[port] : NULL;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	const struct verbs_port *p = fermata_in_device() ? NULL : known(context, port);

	VERBS_PASS(ibv_query_pkey, -1, context, port, index, pkey);
	if (!p)
		return VERBS_DEVICE(verbs_backend.ibv_query_pkey(shadow_context(context)->real, port, index, pkey));
	if (index < 0 || index >= p->pkey_count) {
		errno = EINVAL;
		return -1;
	}
	*pkey = p->virtual_pkey[index];
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	const struct verbs_port *p = fermata_in_device() ? NULL : known(context, port);

	VERBS_PASS(ibv_get_pkey_index, -1, context, port, pkey);
	if (!p)
		return VERBS_DEVICE(verbs_backend.ibv_get_pkey_index(shadow_context(context)->real, port, pkey));
	for (int i = 0; i < p->pkey_count; i++)
		if (p->virtual_pkey[i] == pkey)
			return i;
	errno = EINVAL;
	return -1;
}
