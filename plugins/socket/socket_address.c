/* SPDX-License-Identifier: BSD-2-Clause */
/* The addresses of IP by which this machine can be reached, and which network it is in. No state. */
#include <linux/if.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <string.h>

#include "base/sys.h"
#include "plugins/socket/socket.h"

#define INTERFACES 64

bool socket_is_local(const struct socket_name *n)
{
	struct socket_name any = *n;
	uint16_t family;
	int fd, r;

	memcpy(&family, n->bytes, sizeof(family));
	memset(any.bytes + 2, 0, 2); /* port 0 */
	fd = (int)RAW3(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = fd < 0 ? fd : socket_bind(fd, &any);
	if (fd >= 0)
		raw_close(fd);
	return r >= 0;
}

bool socket_is_loopback(const struct socket_name *n)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff }, six[16] = { [15] = 1 };
	struct socket_end e = socket_end_of(n);

	return (!memcmp(e.address, mapped, sizeof(mapped)) && e.address[12] == 127) || !memcmp(e.address, six, sizeof(six));
}

/* A number that processes of one network namespace have in common, and nobody else has. */
uint64_t socket_network(void)
{
	char boot[64] = "";
	uint64_t h = 14695981039346656037u;
	struct stat st = { 0 };

	raw_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	RAW4(SYS_newfstatat, AT_FDCWD, "/proc/thread-self/ns/net", &st, 0);
	for (const char *c = boot; *c; c++)
		h = (h ^ (uint8_t)*c) * 1099511628211u;
	return (h ^ st.st_ino) * 1099511628211u;
}

static uint32_t add_ip4(uint8_t all[SOCKET_ADDRESSES][16], uint32_t n)
{
	struct ifreq list[INTERFACES];
	struct ifconf all4 = { .ifc_len = sizeof(list), .ifc_req = list };
	int fd = (int)RAW3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a;

	if (fd < 0)
		return n;
	if (raw_ioctl(fd, SIOCGIFCONF, &all4) < 0)
		all4.ifc_len = 0;
	raw_close(fd);
	for (int i = 0; i < all4.ifc_len / (int)sizeof(list[0]) && n < SOCKET_ADDRESSES; i++) {
		memcpy(&a, &list[i].ifr_addr, sizeof(a));
		if (a.sin_family != AF_INET || ntohl(a.sin_addr.s_addr) >> 24 == 127)
			continue;
		memset(all[n], 0, 16);
		all[n][10] = all[n][11] = 0xff;
		memcpy(all[n++] + 12, &a.sin_addr, 4);
	}
	return n;
}

static uint8_t hex(char c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* "20010db8000000000000000000000001 02 40 00 80 eth0": address, interface, length, scope (00: global). */
static uint32_t add_ip6(uint8_t all[SOCKET_ADDRESSES][16], uint32_t n)
{
	char text[4096];
	long length = raw_read_file("/proc/thread-self/net/if_inet6", text, sizeof(text) - 1);
	char *line = text;

	text[length > 0 ? length : 0] = 0;
	while (n < SOCKET_ADDRESSES && strlen(line) > 43) {
		char *end = strchr(line, '\n');

		if (line[39] == '0' && line[40] == '0') {
			for (int i = 0; i < 16; i++)
				all[n][i] = (uint8_t)(hex(line[2 * i]) << 4 | hex(line[2 * i + 1]));
			n++;
		}
		if (!end)
			break;
		line = end + 1;
	}
	return n;
}

uint32_t socket_addresses(bool ip6, uint8_t ret[SOCKET_ADDRESSES][16])
{
	uint32_t n = add_ip4(ret, 0);

	return ip6 ? add_ip6(ret, n) : n;
}
