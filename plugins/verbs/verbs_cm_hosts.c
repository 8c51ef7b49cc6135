/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of hosts over a restart, for rdma_cm: programs that stood on several hosts are brought back on one, or on others, and go on asking for each other by the
 * addresses that they know. Each process publishes those that its own host has had in its lives ("verbs/host"), since when, and what leads to it in this one; each learns all of them,
 * and softrdma takes them for names of where their programs are now (softrdma/cm_here.c); so do those that are begun after it (fermata_common_map). A part of a job that comes back in parts
 * (fermata restart --host, --part) is known by its kernel and pid namespace.
 *
 * An address may have been two hosts' at different times: they have been exchanged, or both have stood on one machine. It is the name of the one that has had it first. What two have
 * had since the same life is nobody's name; where it is what a process's own host was called at first, the processes of one host have come back in two parts: then what they listen at, or
 * ask for, has no one place any more, and who has ids is refused. A host whose processes had no ids before it was exchanged with another one has no name.
 *
 * Owns the two lists. Written while the program stands still, or by its first look for a device.
 */
#include "plugins/verbs/verbs_cm.h"
#include "plugins/verbs/verbs_table.h"

#define ADDRESS sizeof(((struct host_name *)NULL)->address)

enum place { NOWHERE, HERE, THERE };

struct host {
	uint8_t address[ADDRESS], now[ADDRESS];
	uint32_t since; /* the life */
	uint32_t place;
};

struct hosts {
	uint32_t count, room;
	struct host *host;
};

static struct hosts own, all;
static uint32_t life; /* as all count it: a program that is begun in the third has its addresses since then */

static int hosts_add(struct hosts *hosts, const struct host *h)
{
	struct host *more;

	for (uint32_t i = 0; i < hosts->count; i++)
		if (!memcmp(hosts->host[i].address, h->address, ADDRESS))
			return 0;
	if (hosts->count == hosts->room) {
		more = fermata_alloc((size_t)(hosts->room * 2 + 8) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		if (hosts->count)
			memcpy(more, hosts->host, hosts->count * sizeof(*more));
		fermata_free(hosts->host);
		hosts->host = more;
		hosts->room = hosts->room * 2 + 8;
	}
	hosts->host[hosts->count++] = *h;
	return 0;
}

int verbs_cm_hosts_note(void)
{
	struct host h = { .since = life };

	for (uint32_t i = 0; verbs_backend.softrdma_cm_host && VERBS_DEVICE(verbs_backend.softrdma_cm_host(i, h.address)); i++)
		if (hosts_add(&own, &h))
			return fermata_fail(-ENOMEM, "no memory for the host's addresses");
	return 0;
}

/* ---- publishing ---- */

static int is_ipv4(const uint8_t address[ADDRESS])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(address, mapped, sizeof(mapped));
}

/* This host's, in this life, of the kind of @like; or another one; or zeros. */
static void address_now(const uint8_t *like, uint8_t ret[ADDRESS])
{
	uint8_t address[ADDRESS];

	memset(ret, 0, ADDRESS);
	for (uint32_t i = 0; verbs_backend.softrdma_cm_host && VERBS_DEVICE(verbs_backend.softrdma_cm_host(i, address)); i++) {
		if (!i || is_ipv4(address) == is_ipv4(like))
			memcpy(ret, address, ADDRESS);
		if (is_ipv4(address) == is_ipv4(like))
			return;
	}
}

static int publish_door(uint64_t part, uint32_t port)
{
	struct door_name door = { .part = part, .port = port, .pid = (uint32_t)raw_getpid() };

	if (!port || !own.count)
		return 0;
	address_now(own.host[0].address, door.address);
	return fermata_job_publish(NAME_DOOR, sizeof(NAME_DOOR), &door, sizeof(door));
}

int verbs_cm_hosts_publish(uint32_t door)
{
	struct host_name name = { .part = fermata_where() };
	const uint64_t begins = life + 1;
	int r = fermata_job_publish(NAME_PART, sizeof(NAME_PART), &name.part, sizeof(name.part));

	if (!r && own.count)
		r = fermata_job_publish(NAME_LIFE, sizeof(NAME_LIFE), &begins, sizeof(begins));
	for (uint32_t i = 0; !r && i < own.count; i++) {
		memcpy(name.address, own.host[i].address, ADDRESS);
		address_now(name.address, name.now);
		name.since = own.host[i].since;
		r = fermata_job_publish(NAME_HOST, sizeof(NAME_HOST), &name, sizeof(name));
	}
	return r ? r : publish_door(name.part, door);
}

/* ---- what all have published ---- */

static const void *names_at(uint64_t offset)
{
	return (const char *)verbs_names + offset;
}

int verbs_is_together(void)
{
	const uint64_t *part = verbs_names ? names_at(verbs_names->parts) : NULL, here = fermata_where();

	for (uint32_t i = 0; part && i < verbs_names->part_count; i++)
		if (part[i] != here)
			return 0;
	return 1;
}

/* Who has had the address of @of first; NULL: two at one time. */
static const struct host_name *first_of(const struct host_name *of)
{
	const struct host_name *name = names_at(verbs_names->hosts), *first = of;
	int tie = 0;

	for (uint32_t i = 0; i < verbs_names->host_count; i++) {
		if (memcmp(name[i].address, of->address, ADDRESS) != 0 || name[i].since > first->since)
			continue;
		tie = name[i].since < first->since ? 0 : tie || name[i].part != first->part;
		first = &name[i];
	}
	return tie ? NULL : first;
}

static int learn(const struct host_name *name)
{
	const struct host_name *first = first_of(name);
	struct host h = { .place = NOWHERE };

	memcpy(h.address, name->address, ADDRESS);
	if (first) {
		h.place = first->part == fermata_where() ? HERE : THERE;
		memcpy(h.now, first->now, ADDRESS);
	}
	return hosts_add(&all, &h);
}

int verbs_cm_hosts_learn(void)
{
	const struct host_name *name = names_at(verbs_names->hosts);
	int r = 0;

	life = verbs_names->life;
	all.count = 0;
	for (uint32_t i = 0; !r && i < verbs_names->host_count; i++)
		r = learn(&name[i]);
	return r;
}

/* Whether another part says of itself what this process says of its host. */
static int is_elsewhere(const struct host *h)
{
	const struct host_name *name = names_at(verbs_names->hosts);
	const uint64_t here = fermata_where();

	for (uint32_t i = 0; i < verbs_names->host_count; i++)
		if (name[i].part != here && name[i].since == h->since && !memcmp(name[i].address, h->address, ADDRESS))
			return 1;
	return 0;
}

int verbs_cm_hosts_clear(void)
{
	int r = own.count != 0;

	for (uint32_t i = 0; i < all.count && r; i++)
		r = all.host[i].place != NOWHERE || memcmp(all.host[i].address, own.host[0].address, ADDRESS) != 0;
	return verbs_is_together() || (r && !is_elsewhere(&own.host[0]));
}

/* ---- telling the library ---- */

void verbs_cm_hosts_tell(void)
{
	for (uint32_t i = 0; verbs_backend.softrdma_cm_here && i < all.count; i++)
		if (all.host[i].place == HERE)
			verbs_backend.softrdma_cm_here(all.host[i].address);
		else if (all.host[i].place == THERE)
			verbs_backend.softrdma_cm_there(all.host[i].address, all.host[i].now);
}

void verbs_cm_hosts_tell_anew(void)
{
	if (!verbs_backend.softrdma_cm_here)
		return;
	verbs_backend.softrdma_cm_hosts_forget();
	verbs_cm_hosts_tell();
}

int verbs_cm_hosts_tell_doors(void)
{
	const struct door_name *door = verbs_names ? names_at(verbs_names->doors) : NULL;
	const uint64_t here = fermata_where();
	int r = 0;

	for (uint32_t i = 0; !r && door && i < verbs_names->door_count; i++)
		if (door[i].part != here)
			r = VERBS_DEVICE(verbs_backend.softrdma_cm_door_at(door[i].address, (uint16_t)door[i].port, door[i].pid));
	return r ? fermata_fail(r, "no memory for where the job's other hosts are") : 0;
}
