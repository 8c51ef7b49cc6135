/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of hosts over a restart, for rdma_cm: programs that stood on several hosts are brought back on one, and go on asking for each other by the
 * addresses that they know. Each process publishes those that its own host has had in its lives ("verbs/host"), each learns all of them, and softrdma
 * takes them for this host's (softrdma/cm_here.c); so do those that are begun after it (fermata_common_map). Owns the two lists. Written while the program
 * stands still, or by its first look for a device.
 *
 * Where a job comes back in parts (fermata restart --part), hosts of another part are no longer here, and who has ids of rdma_cm is refused: what stands between two processes there
 * is made again within one host only. A part is known by its kernel and pid namespace.
 */
#include "base/host_id.h"
#include "plugins/verbs/verbs_cm.h"
#include "plugins/verbs/verbs_table.h"

#define ADDRESS sizeof(((struct host_name *)NULL)->address)

struct hosts {
	uint32_t count, room;
	uint8_t (*address)[ADDRESS];
};

static struct hosts own, all;

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

	for (uint32_t i = 0; verbs_backend.softrdma_cm_host && VERBS_DEVICE(verbs_backend.softrdma_cm_host(i, address)); i++)
		if (hosts_add(&own, address))
			return fermata_fail(-ENOMEM, "no memory for the host's addresses");
	return 0;
}

int verbs_cm_hosts_publish(void)
{
	struct host_name name = { .part = host_id_where(host_id_boot()) };
	int r = fermata_job_publish(NAME_PART, sizeof(NAME_PART), &name.part, sizeof(name.part));

	for (uint32_t i = 0; !r && i < own.count; i++) {
		memcpy(name.address, own.address[i], ADDRESS);
		r = fermata_job_publish(NAME_HOST, sizeof(NAME_HOST), &name, sizeof(name));
	}
	return r;
}

int verbs_cm_hosts_together(void)
{
	const uint64_t *part = verbs_names ? (const void *)((const char *)verbs_names + verbs_names->parts) : NULL, here = host_id_where(host_id_boot());

	for (uint32_t i = 0; part && i < verbs_names->part_count; i++)
		if (part[i] != here)
			return 0;
	return 1;
}

int verbs_cm_hosts_learn(void)
{
	const struct host_name *name = (const void *)((const char *)verbs_names + verbs_names->hosts);
	uint64_t here = host_id_where(host_id_boot());
	int r = 0;

	for (uint32_t i = 0; !r && i < verbs_names->host_count; i++)
		r = name[i].part == here ? hosts_add(&all, name[i].address) : 0;
	return r;
}

void verbs_cm_hosts_tell(void)
{
	for (uint32_t i = 0; verbs_backend.softrdma_cm_here && i < all.count; i++)
		verbs_backend.softrdma_cm_here(all.address[i]);
}
