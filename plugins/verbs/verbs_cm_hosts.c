/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of hosts over a restart, for rdma_cm: programs that stood on several hosts are brought back on one, and go on asking for each other by the
 * addresses that they know. Each process publishes those that its own host has had in its lives ("verbs/host"), each learns all of them, and softrdma
 * takes them for this host's (softrdma/cm_here.c); so do those that are begun after it (fermata_names_keep). Owns the two lists. Written while the program
 * stands still, or by its first look for a device.
 *
 * Where a job comes back in parts (fermata restart --part), hosts of another part are no longer here, and who has ids of rdma_cm is refused: what stands between two processes there
 * is made again within one host only. A part is known by its kernel and pid namespace.
 */
#include "base/host_id.h"
#include "plugins/verbs/verbs_cm.h"

#define ADDRESS 16

struct hosts {
	uint32_t count, room;
	uint8_t (*address)[ADDRESS];
};

static struct hosts own, all;
static const char name_host[] = "verbs/host", name_part[] = "verbs/part";

struct host_name {
	uint8_t address[ADDRESS];
	uint64_t part;
};

static int hosts_add(struct hosts *h, const void *address)
{
	uint8_t (*more)[ADDRESS];

	for (uint32_t i = 0; i < h->count; i++)
		if (!memcmp(h->address[i], address, ADDRESS))
			return 0;
	if (h->count == h->room) {
		more = fermata_alloc((size_t)(h->room * 2 + 8) * ADDRESS);
		if (!more)
			return -ENOMEM;
		if (h->count)
			memcpy(more, h->address, h->count * ADDRESS);
		fermata_free(h->address);
		h->address = more;
		h->room = h->room * 2 + 8;
	}
	memcpy(h->address[h->count++], address, ADDRESS);
	return 0;
}

int verbs_cm_hosts_note(void)
{
	uint8_t address[ADDRESS];

	if (!verbs_backend.softrdma_cm_host || !VERBS_DEVICE(verbs_backend.softrdma_cm_host(address)))
		return 0;
	return hosts_add(&own, address) ? fermata_fail(-ENOMEM, "no memory for the host's addresses") : 0;
}

int verbs_cm_hosts_publish(void)
{
	struct host_name name = { .part = host_id_where() };
	int r = fermata_job_publish(name_part, sizeof(name_part), &name.part, sizeof(name.part));

	for (uint32_t i = 0; !r && i < own.count; i++) {
		memcpy(name.address, own.address[i], ADDRESS);
		r = fermata_job_publish(name_host, sizeof(name_host), &name, sizeof(name));
	}
	if (!r)
		r = fermata_job_ask(name_part, sizeof(name_part));
	return r ? r : fermata_job_ask(name_host, sizeof(name_host));
}

int verbs_cm_hosts_together(void)
{
	uint64_t here = host_id_where();
	const void *other;
	size_t len;

	for (unsigned int i = 0; (other = fermata_job_resolve(name_part, sizeof(name_part), i, &len)); i++)
		if (len == sizeof(here) && memcmp(other, &here, sizeof(here)) != 0)
			return 0;
	return 1;
}

int verbs_cm_hosts_learn(void)
{
	const struct host_name *name;
	uint64_t here = host_id_where();
	size_t len;
	int r = 0;

	for (unsigned int i = 0; !r && (name = fermata_job_resolve(name_host, sizeof(name_host), i, &len)); i++)
		r = len == sizeof(*name) && name->part == here ? hosts_add(&all, name->address) : 0;
	return r;
}

void verbs_cm_hosts_tell(void)
{
	for (uint32_t i = 0; verbs_backend.softrdma_cm_here && i < all.count; i++)
		verbs_backend.softrdma_cm_here(all.address[i]);
}
