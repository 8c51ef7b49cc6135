/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of hosts, devices and ports: GUIDs, LIDs, MACs, addresses. No state.
 *
 * All names follow from the host's name, the device's number and the port's, so processes of a host agree on them
 * without a word, and one with two devices knows of the third of another. With a network (net.c) they follow from the host's
 * address there in place of its name, so that a name leads to its host: the address is the lower half of GUIDs and the last
 * four bytes of MACs, and its last bits are in LIDs.
 */
#include <endian.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "base/sys.h"
#include "softrdma/name.h"

#define GUID_BASE 0x0253524400000000ull
#define LID_STRIDE 0x511u
#define LIDS 0xbfffu

static uint64_t host_hash(void)
{
	struct utsname u;
	uint64_t h = 0xcbf29ce484222325ull;
	const char *s;

	if (uname(&u))
		return h;
	for (s = u.nodename; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

struct sr_host sr_name_host(void)
{
	struct sr_host h = { .name = host_hash() };

	h.address = sr_net_address(&h);
	h.mask |= ~((1u << SR_LID_HOST_BITS) - 1);
	return h;
}

static uint32_t host_id(const struct sr_host *h)
{
	return h->address ? h->address : (uint32_t)h->name;
}

static uint64_t device_guid(const struct sr_host *h, uint32_t device)
{
	return GUID_BASE + ((uint64_t)device << 32 | host_id(h));
}

uint64_t sr_device_guid(uint32_t device)
{
	const struct sr_host h = sr_name_host();

	return device_guid(&h, device);
}

uint64_t sr_name_port_guid(const struct sr_host *h, uint32_t device, uint32_t port)
{
	return device_guid(h, device) + ((uint64_t)(port - 1) << 40);
}

uint16_t sr_name_lid(const struct sr_host *h, uint32_t device, uint32_t port)
{
	uint32_t n = device * SR_MAX_PORTS + port - 1;

	if (h->address)
		return (uint16_t)(1 + (n << SR_LID_HOST_BITS | (h->address & ~h->mask)));
	return (uint16_t)(1 + (h->name + n * LID_STRIDE) % LIDS);
}

uint64_t sr_guid(void)
{
	return sr_device_guid(0);
}

/* A MAC of the locally administered ones. */
void sr_name_mac(const struct sr_host *host, uint32_t device, uint32_t port, uint8_t mac[6])
{
	uint32_t h = htobe32(host_id(host));

	mac[0] = 0x02;
	mac[1] = (uint8_t)(device * SR_MAX_PORTS + port - 1);
	memcpy(mac + 2, &h, sizeof(h));
}

uint32_t sr_name_number(const char *name, uint32_t max)
{
	const char *s = getenv(name);
	uint32_t n = 0;

	for (; s && *s >= '0' && *s <= '9' && n <= max; s++)
		n = n * 10 + (uint32_t)(*s - '0');
	return n < 1 ? 1 : n > max ? max : n;
}

uint32_t sr_devices(void)
{
	return sr_name_number("SOFTRDMA_DEVICES", SR_MAX_DEVICES);
}

uint64_t sr_name_mac_id(const struct sr_host *h, uint32_t device, uint32_t port)
{
	uint8_t m[6], id[8];
	uint64_t v;

	sr_name_mac(h, device, port, m);
	memcpy(id, (uint8_t[]){ m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5] }, sizeof(id));
	memcpy(&v, id, sizeof(v));
	return be64toh(v);
}

int sr_name_is_roce(void)
{
	const char *link = getenv("SOFTRDMA_LINK");

	return link && !strcmp(link, "roce");
}

static void first_gid(const struct sr_host *h, uint8_t gid[16])
{
	uint64_t half[2] = { htobe64(SR_SUBNET), htobe64(sr_name_is_roce() ? sr_name_mac_id(h, 0, 1) : device_guid(h, 0)) };

	memcpy(gid, half, sizeof(half));
}

void sr_first_gid(uint8_t gid[16])
{
	const struct sr_host h = sr_name_host();

	first_gid(&h, gid);
}

void sr_first_place(uint64_t *ret_guid, uint8_t gid[16], uint16_t *ret_lid)
{
	const struct sr_host h = sr_name_host();

	*ret_guid = device_guid(&h, 0);
	first_gid(&h, gid);
	*ret_lid = sr_name_lid(&h, 0, 1);
}

void sr_first_names(uint32_t address, uint8_t gid[16], uint16_t *ret_lid)
{
	struct sr_host h = sr_name_host();

	h.address = address;
	first_gid(&h, gid);
	*ret_lid = sr_name_lid(&h, 0, 1);
}

uint32_t sr_first_gid_host(const uint8_t gid[16])
{
	uint8_t would_be[16];
	uint32_t address;
	uint16_t lid;

	memcpy(&address, gid + 12, sizeof(address));
	address = be32toh(address);
	if (sr_name_is_roce()) /* a MAC's, with ff:fe in its middle */
		address = (uint32_t)gid[10] << 24 | (address & 0xffffff);
	sr_first_names(address, would_be, &lid);
	return memcmp(gid, would_be, sizeof(would_be)) ? 0 : address;
}

/* As 16 bytes. */
static void address_fill(const uint8_t prefix[12], uint32_t address, uint8_t ret[16])
{
	const uint32_t be = htobe32(address);

	memcpy(ret, prefix, 12);
	memcpy(ret + 12, &be, sizeof(be));
}

int sr_name_addresses(const struct sr_host *h, int (*fn)(struct sr_port *p, const uint8_t ip[16]), struct sr_port *p)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ifreq req[32];
	struct ifconf conf = { .ifc_len = sizeof(req), .ifc_req = req };
	int fd, found = 0;
	uint8_t ip[16];
	size_t i;

	if (h->address) {
		address_fill(h->prefix, h->address, ip);
		return fn(p, ip);
	}
	fd = (int)RAW3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	if (RAW3(SYS_ioctl, fd, SIOCGIFCONF, &conf))
		conf.ifc_len = 0;
	raw_close(fd);
	for (i = 0; !found && i < (size_t)conf.ifc_len / sizeof(*req); i++) {
		struct sockaddr_in sin;

		memcpy(&sin, &req[i].ifr_addr, sizeof(sin));
		if (sin.sin_family != AF_INET || be32toh(sin.sin_addr.s_addr) >> 24 == 127)
			continue;
		address_fill(mapped, be32toh(sin.sin_addr.s_addr), ip);
		found = fn(p, ip);
	}
	return found;
}
