/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of hosts, and the key of the fabric: doc/softrdma-protocol.md says what follows from what. No state.
 *
 * Interfaces are asked for by ioctl(2): getifaddrs allocates.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium/crypto_auth_hmacsha512256.h>
#include <sodium/crypto_verify_32.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "softrdma/net.h"

#define INTERFACES 64
#define KEY_MIN 16

/* ---- the own address ---- */

static uint32_t address_of(const struct sockaddr *sa)
{
	struct sockaddr_in in;

	memcpy(&in, sa, sizeof(in));
	return ntohl(in.sin_addr.s_addr);
}

/* a.b.c.d, and nothing else; 0: it is none. */
static uint32_t parse(const char *s)
{
	uint32_t address = 0, part, i;

	for (i = 0; i < 4; i++, s++) {
		if (*s < '0' || *s > '9')
			return 0;
		for (part = 0; *s >= '0' && *s <= '9' && part < 256; s++)
			part = part * 10 + (uint32_t)(*s - '0');
		if (part > 255 || *s != (i < 3 ? '.' : 0))
			return 0;
		address = address << 8 | part;
	}
	return address;
}

static int wanted(int fd, const struct ifreq *r, const char *want)
{
	struct ifreq flags = *r;

	if (ioctl(fd, SIOCGIFFLAGS, &flags))
		return 0;
	if (want && parse(want))
		return address_of(&r->ifr_addr) == parse(want);
	if (want)
		return !strcmp(r->ifr_name, want);
	return (flags.ifr_flags & IFF_UP) && !(flags.ifr_flags & IFF_LOOPBACK);
}

static int interfaces_ask(int fd, const char *want, uint32_t *ret_address, uint32_t *ret_mask)
{
	struct ifreq list[INTERFACES];
	struct ifconf conf = { .ifc_len = sizeof(list), .ifc_req = list };
	size_t i;

	if (ioctl(fd, SIOCGIFCONF, &conf))
		return -errno;
	for (i = 0; i < (size_t)conf.ifc_len / sizeof(*list); i++) {
		if (list[i].ifr_addr.sa_family != AF_INET || !wanted(fd, &list[i], want))
			continue;
		*ret_address = address_of(&list[i].ifr_addr);
		if (!ioctl(fd, SIOCGIFNETMASK, &list[i]))
			*ret_mask = address_of(&list[i].ifr_netmask);
		return 0;
	}
	return -ENOENT;
}

int net_address_find(uint32_t *ret_address, uint32_t *ret_mask)
{
	const char *want = getenv("SOFTRDMA_ADDRESS");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	if (want && !*want)
		want = NULL;
	*ret_mask = 0;
	err = interfaces_ask(fd, want, ret_address, ret_mask);
	close(fd);
	if (err && want && parse(want)) { /* one of the loopback's many, say */
		*ret_address = parse(want);
		err = 0;
	}
	return err;
}

void net_map(uint8_t gid[16], uint32_t address)
{
	const uint32_t be = htonl(address);

	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, &be, 4);
}

/* ---- the key ---- */

static int key_path(char *path, size_t size)
{
	const char *file = getenv("SOFTRDMA_KEY"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	size_t n;

	if (file && *file)
		n = fm_format(path, size, "%s", file);
	else if (config && *config)
		n = fm_format(path, size, "%s/softrdma/key", config);
	else if (home && *home)
		n = fm_format(path, size, "%s/.config/softrdma/key", home);
	else
		return -ENOENT;
	return n < size ? 0 : -ENAMETOOLONG;
}

/* Its first line's end is not part of it. */
static long key_load(int fd, const char *path, uint8_t key[NET_KEY_MAX], int complain)
{
	struct stat st;
	long n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)) {
		if (complain)
			log_error("%s is not used: a key must be a file of ours with mode 0600", path);
		return -EACCES;
	}
	n = raw_pread(fd, key, NET_KEY_MAX, 0);
	if (n > 0 && key[n - 1] == '\n')
		n--;
	if (n >= 0 && (n < KEY_MIN || st.st_size > NET_KEY_MAX)) {
		if (complain)
			log_error("%s is not used: a key has 16 to 256 bytes", path);
		return -EINVAL;
	}
	return n;
}

int net_key_read(uint8_t key[NET_KEY_MAX], uint32_t *ret_length, int complain)
{
	char path[512];
	int fd, err = key_path(path, sizeof(path));
	long n;

	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	n = key_load(fd, path, key, complain);
	close(fd);
	if (n < 0)
		return (int)n;
	*ret_length = (uint32_t)n;
	return 0;
}

void net_key_proof(const uint8_t *key, uint32_t length, char side, const struct net_hello *dialler,
		   const struct net_hello *listener, uint8_t ret[NET_MAC])
{
	crypto_auth_hmacsha512256_state state;

	_Static_assert(NET_MAC == crypto_auth_hmacsha512256_BYTES, "wire format");
	crypto_auth_hmacsha512256_init(&state, key, length);
	crypto_auth_hmacsha512256_update(&state, (const unsigned char *)&side, 1);
	crypto_auth_hmacsha512256_update(&state, (const unsigned char *)dialler, NET_HELLO_SIGNED);
	crypto_auth_hmacsha512256_update(&state, (const unsigned char *)listener, NET_HELLO_SIGNED);
	crypto_auth_hmacsha512256_final(&state, ret);
}

void net_proof(const struct sr_net *net, char side, const struct net_hello *dialler, const struct net_hello *listener,
	       uint8_t ret[NET_MAC])
{
	net_key_proof(net->key, net->key_length, side, dialler, listener, ret);
}

int net_proof_equal(const uint8_t a[NET_MAC], const uint8_t b[NET_MAC])
{
	return !crypto_verify_32(a, b);
}
