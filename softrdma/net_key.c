/* SPDX-License-Identifier: BSD-2-Clause */
/* The key that makes hosts a fabric, and its proof: doc/softrdma-protocol.md. No state. */
#include <errno.h>
#include <fcntl.h>
#include <sodium/crypto_auth_hmacsha512256.h>
#include <sodium/crypto_verify_32.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

#define KEY_MIN 16

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
