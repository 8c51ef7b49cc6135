/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where an address leads to among the devices: ids may be softrdma's own, or of the kernel's devices (softrdma_cm_kernel), for which this library is the rdma_cm alone: their
 * queue pairs, and what goes over them, are no matter of it.
 *
 * softrdma has one port for all addresses. A kernel's RoCE port has those in its table of GIDs, as sysfs tells it; for RoCE v2, where it speaks that. What is no port's is
 * refused as the kernel does (ENODEV), but for the loopback, and after a restart for hosts that are this one now (cm_here.c): both lead to the first port that is up. Ports
 * of InfiniBand are not among them, whose names follow from no address, nor iWARP's, which connect by themselves.
 *
 * Owns the table of those ports; under cm_lock. It is read when an address is not in it, or no longer where it says: a port may have got another.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

#define ENTRIES 256u
#define NAME_MAX_LEN 64
#define PORTS 8u	/* of a device, that are looked at */
#define GIDS 256u	/* of a port, that are: an index has a byte */
#define ROOT_MAX 64
#define ROCE_HEADERS 96 /* of a packet, at most: GRH or IP, UDP, BTH, the longest extensions, ICRC */

struct entry {
	struct cm_place place;
	char device[NAME_MAX_LEN];
};

static struct {
	char root[ROOT_MAX]; /* as /sys/class/infiniband; empty: softrdma is the device */
	uint32_t count;
	struct entry entry[ENTRIES];
} kernel;

/* ---- reading ---- */

__attribute__((format(printf, 3, 4))) static long read_text(char *to, size_t size, const char *format, ...)
{
	char path[256];
	va_list ap;
	long n;

	va_start(ap, format);
	fm_vformat(path, sizeof(path), format, ap);
	va_end(ap);
	n = raw_read_file(path, to, size);
	if (n <= 0)
		to[0] = 0;
	return n;
}

/* Bytes in hexadecimal, with or without colons between. */
static void parse_bytes(const char *s, uint8_t *to, size_t n)
{
	memset(to, 0, n);
	for (size_t digit = 0; *s && digit < 2 * n; s++) {
		uint32_t c = (uint8_t)*s | 32u, v = c <= '9' ? c - '0' : c - 'a' + 10;

		if (*s == ':')
			continue;
		if (v > 15)
			break;
		to[digit / 2] |= (uint8_t)(digit % 2 ? v : v << 4);
		digit++;
	}
}

static uint32_t parse_number(const char *s)
{
	uint32_t v = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (uint32_t)(*s - '0');
	return v;
}

static long read_gid(const char *device, uint32_t port, uint32_t index, uint8_t gid[16])
{
	char text[64];
	long n = read_text(text, sizeof(text), "%s/%s/ports/%u/gids/%u", kernel.root, device, port, index);

	parse_bytes(text, gid, 16);
	return n;
}

static uint8_t mtu_of(const char *device, uint32_t port, uint32_t index)
{
	char interface[64], text[32];
	uint32_t bytes, mtu = 1;

	read_text(interface, sizeof(interface), "%s/%s/ports/%u/gid_attrs/ndevs/%u", kernel.root, device, port, index);
	interface[strcspn(interface, "\n")] = 0;
	read_text(text, sizeof(text), "%s/../net/%s/mtu", kernel.root, interface);
	bytes = parse_number(text);
	while (mtu < CM_PATH_MTU && (128u << (mtu + 1)) + ROCE_HEADERS <= bytes)
		mtu++;
	return (uint8_t)mtu;
}

/* 0: the table ends before it. */
static int entry_read(const struct entry *of_port, uint32_t index)
{
	struct entry e = *of_port;
	static const uint8_t zeros[16];
	char type[32];

	if (read_gid(e.device, e.place.port, index, e.place.gid) == -ENOENT)
		return 0;
	if (!memcmp(e.place.gid, zeros, 16))
		return 1;
	read_text(type, sizeof(type), "%s/%s/ports/%u/gid_attrs/types/%u", kernel.root, e.device, e.place.port, index);
	e.place.v2 = !strncmp(type, "RoCE v2", 7);
	e.place.gid_index = (uint8_t)index;
	e.place.mtu = mtu_of(e.device, e.place.port, index);
	if (kernel.count < ENTRIES)
		kernel.entry[kernel.count++] = e;
	return 1;
}

static int device_says(const struct entry *e, const char *file, const char *what)
{
	char text[64];

	read_text(text, sizeof(text), "%s/%s/%s", kernel.root, e->device, file);
	return !strncmp(text, what, strlen(what));
}

static int port_says(const struct entry *e, const char *file, const char *what)
{
	char text[64];

	read_text(text, sizeof(text), "%s/%s/ports/%u/%s", kernel.root, e->device, e->place.port, file);
	return !strncmp(text, what, strlen(what));
}

static int device_read(const char *name, void *arg)
{
	struct entry e = { .device = "" };
	char text[64];
	uint8_t guid[8];
	uint32_t i;

	fm_format(e.device, sizeof(e.device), "%s", name);
	if (!device_says(&e, "node_type", "1:")) /* a channel adapter: no iWARP */
		return 0;
	read_text(text, sizeof(text), "%s/%s/node_guid", kernel.root, name);
	parse_bytes(text, guid, sizeof(guid));
	memcpy(&e.place.guid, guid, sizeof(guid));
	e.place.guid = __builtin_bswap64(e.place.guid);
	for (e.place.port = 1; e.place.port <= PORTS; e.place.port++) {
		if (!port_says(&e, "link_layer", "Ethernet") || !port_says(&e, "state", "4:"))
			continue;
		for (i = 0; i < GIDS && entry_read(&e, i); i++) {}
	}
	return 0;
}

static void table_read(void)
{
	kernel.count = 0;
	raw_dir_each(kernel.root, device_read, NULL);
}

EXPORT int softrdma_cm_kernel(const char *root)
{
	fm_format(kernel.root, sizeof(kernel.root), "%s", root ? root : "");
	kernel.count = 0;
	if (root)
		table_read();
	return (int)kernel.count;
}

int cm_place_is_kernel(void)
{
	return kernel.root[0] != 0;
}

/* ---- looking ---- */

static int is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* RoCE v2 goes before v1, then what leads further, as libfermata has it (plugins/verbs/verbs_gid.c), and then who comes first. @gid NULL: any. */
static const struct entry *entry_find(const uint8_t *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct entry *best = NULL;
	uint32_t rank, best_rank = 0;

	for (uint32_t i = 0; i < kernel.count; i++) {
		const struct entry *e = &kernel.entry[i];

		if (gid && memcmp(e->place.gid, gid, 16))
			continue;
		rank = 3u * e->place.v2 + (!memcmp(e->place.gid, mapped, sizeof(mapped)) ? 3 : is_link_local(e->place.gid) ? 1 : 2);
		if (rank > best_rank) {
			best = e;
			best_rank = rank;
		}
	}
	return best;
}

/* The table may be older than the port's. */
static const struct entry *entry_now(const uint8_t *gid)
{
	const struct entry *e = entry_find(gid);
	uint8_t there[16];

	if (e && read_gid(e->device, e->place.port, e->place.gid_index, there) > 0 && !memcmp(there, e->place.gid, 16))
		return e;
	table_read();
	return entry_find(gid);
}

static int is_anywhere(const union cm_addr *a)
{
	if (cm_address_any(a) || cm_here(a))
		return 1;
	if (a->family == AF_INET)
		return (uint8_t)a->in.sin_addr.s_addr == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

int cm_place_find(const union cm_addr *a, struct cm_place *ret)
{
	const struct entry *e;
	uint8_t gid[16];

	if (!cm_place_is_kernel()) {
		*ret = (struct cm_place){ .port = 1, .mtu = CM_PATH_MTU };
		sr_first_place(&ret->guid, ret->gid, &ret->lid);
		return 0;
	}
	if (a->family != AF_INET && a->family != AF_INET6)
		return -ENODEV;
	cm_address_gid(a, gid);
	e = entry_now(gid);
	if (!e && is_anywhere(a))
		e = entry_now(NULL);
	if (!e)
		return -ENODEV;
	*ret = e->place;
	return 0;
}

void cm_place_of(const struct cm_id *id, struct cm_place *ret)
{
	if (cm_place_find(&id->src, ret))
		*ret = (struct cm_place){ .port = 1, .mtu = 1 };
}

/* Over softrdma they follow from an IPv4 address; where only another is known, the other end's answer tells. */
void cm_place_far(struct cm_id *id, const union cm_addr *at)
{
	uint32_t address = 0;

	if (cm_place_is_kernel()) {
		cm_address_gid(at, id->conn.remote_gid);
		id->conn.remote_lid = 0;
		return;
	}
	if (at->family == AF_INET)
		memcpy(&address, &at->in.sin_addr, sizeof(address));
	else if (IN6_IS_ADDR_V4MAPPED(&at->in6.sin6_addr))
		memcpy(&address, at->in6.sin6_addr.s6_addr + 12, sizeof(address));
	if (address)
		sr_first_names(__builtin_bswap32(address), id->conn.remote_gid, &id->conn.remote_lid);
}

void cm_place_remote(struct cm_id *id)
{
	struct cm_place p = { .lid = 0 };
	union cm_addr now;

	if (cm_there(&id->dst, &now)) {
		cm_place_far(id, &now);
		return;
	}
	if (cm_place_find(&id->dst, &p))
		cm_address_gid(&id->dst, p.gid);
	memcpy(id->conn.remote_gid, p.gid, 16);
	id->conn.remote_lid = p.lid;
}

/* 1: once for each bit. */
static int first_time(uint32_t bit)
{
	static uint32_t told;
	int first = cm_place_is_kernel() && !(told & bit);

	told |= bit;
	return first;
}

void cm_place_no_network(void)
{
	if (first_time(1))
		log_error("rdma_cm: to other hosts there is none without a key (softrdma-run --make-key, once; see the manual of softrdma-run), but for the kernel's: "
			  "FERMATA_RDMA_CM=kernel, without checkpoints meanwhile");
}

void cm_place_nobody(const struct cm_id *id)
{
	if (!first_time(2))
		return;
	log_error("rdma_cm: nobody of the job listens at port %u; programs that are not run by fermata are reached with FERMATA_RDMA_CM=kernel, without checkpoints meanwhile",
		  cm_address_port(&id->dst));
}

int cm_place_address(uint32_t nth, uint8_t address[16])
{
	for (uint32_t i = 0; i < kernel.count; i++) {
		const uint8_t *gid = kernel.entry[i].place.gid;

		if (is_link_local(gid) || nth--)
			continue;
		memcpy(address, gid, 16);
		return 1;
	}
	return 0;
}
