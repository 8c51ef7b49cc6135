/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a coordinator and the relays of other hosts have to agree upon before they meet: how addresses are written, and the key. The key is a file of the user's own,
 * which all of the hosts have (a common home, or a copy); for each job another one is made of it. Owns nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "coordinator/internal.h"
#include "protocol/link.h"

int network_address(const char *text, bool passive, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0 };
	const char *colon = strrchr(text, ':');
	char host[256];
	struct addrinfo *found;
	int r;

	if (!colon || !colon[1] || colon - text >= (int)sizeof(host))
		return -EINVAL;
	if (text[0] == '[' && colon > text + 1 && colon[-1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)(colon - text - 2), text + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	r = getaddrinfo(host[0] && strcmp(host, "*") ? host : NULL, colon + 1, &hints, &found);
	if (r)
		return r == EAI_SYSTEM ? -errno : -EADDRNOTAVAIL;
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	*ret_len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

int network_options(int fd, unsigned int silence_s)
{
	unsigned int idle = silence_s < 6 ? 1 : silence_s / 3, interval = silence_s < 12 ? 1 : silence_s / 6;
	unsigned int count = silence_s <= idle + interval ? 1 : (silence_s - idle) / interval, silence = silence_s * 1000;
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 || setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence)) < 0)
		return -errno;
	return 0;
}

static int key_path(char *ret, size_t size)
{
	const char *given = getenv("FERMATA_KEY"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n;

	if (given && *given)
		n = snprintf(ret, size, "%s", given);
	else if (config && *config)
		n = snprintf(ret, size, "%s/fermata/key", config);
	else
		n = snprintf(ret, size, "%s/.config/fermata/key", home ? home : "");
	return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* Written under another name and linked: of several that do so at once one's key is everybody's, and none is seen half written. */
static int key_create(const char *path)
{
	uint8_t key[PROTOCOL_KEY_SIZE];
	char partial[512], *slash;
	int fd, r = 0;

	snprintf(partial, sizeof(partial), "%s", path);
	for (slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(partial, 0700);
		*slash = '/';
	}
	if (snprintf(partial, sizeof(partial), "%s.%d", path, (int)getpid()) >= (int)sizeof(partial))
		return -ENAMETOOLONG;
	fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	randombytes_buf(key, sizeof(key));
	if (write(fd, key, sizeof(key)) != sizeof(key) || fsync(fd) < 0)
		r = -EIO;
	close(fd);
	if (!r && link(partial, path) < 0 && errno != EEXIST)
		r = -errno;
	unlink(partial);
	sodium_memzero(key, sizeof(key));
	return r;
}

int network_key(const char *job, bool create, uint8_t ret[PROTOCOL_KEY_SIZE])
{
	uint8_t key[PROTOCOL_KEY_SIZE];
	char path[400];
	int r = key_path(path, sizeof(path));

	if (!r)
		r = link_read_key(path, key);
	if (r == -ENOENT && create) {
		r = key_create(path);
		r = r < 0 ? r : link_read_key(path, key);
	}
	if (r < 0)
		log_error("key for jobs on several hosts, %s: %s%s", path, strerror(-r),
			  r == -ENOENT ? ": copy it from the host that the job was begun on" :
			  r == -EPERM ? ": it must be a file of your own with mode 0600" : "");
	else
		crypto_generichash(ret, PROTOCOL_KEY_SIZE, (const uint8_t *)job, strlen(job), key, sizeof(key));
	sodium_memzero(key, sizeof(key));
	return r;
}
