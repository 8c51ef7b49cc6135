/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the other side finds us. The host's address is asked of ssh itself (`ssh -G`), which knows its configuration; ours is the one that the kernel
 * would send from to there. A listener has that address and a port of the kernel's choice, until the other side has come. No state.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/remote.h"

#define ADDRESS_WORDS_MAX 256
#define ADDRESS_BACKLOG 8

/* The standard output of `ssh -G ..`, for reading; NULL: none. */
static FILE *address_ask(const char *ssh, char *const argv[], const struct remote_options *p, pid_t *ret_pid)
{
	char *words[ADDRESS_WORDS_MAX + 2];
	int out[2];

	if (p->command >= ADDRESS_WORDS_MAX || pipe(out) < 0)
		return NULL;
	remote_options_copy(argv, p, words + 1);
	words[0] = words[1];
	words[1] = (char *)"-G";
	*ret_pid = fork();
	if (*ret_pid == 0) {
		dup2(out[1], 1);
		close(2);
		syscall(SYS_close_range, 3, ~0u, 0);
		execvp(ssh, words);
		_exit(127);
	}
	close(out[1]);
	return fdopen(out[0], "r");
}

/* Without a configuration it is what stands between user@ and the end. */
static void address_of_destination(const char *host, char *ret, size_t size)
{
	const char *at = strrchr(host, '@');

	snprintf(ret, size, "%s", at ? at + 1 : host);
}

static void address_host(const char *ssh, char *const argv[], const struct remote_options *p, char *ret, size_t size)
{
	const char *slash = strrchr(ssh, '/');
	char line[256]; /* a longer one names no host */
	pid_t pid = -1;
	FILE *f;

	address_of_destination(p->host, ret, size);
	if (strcmp(slash ? slash + 1 : ssh, "ssh"))
		return;
	f = address_ask(ssh, argv, p, &pid);
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "hostname ", 9) && line[9])
			snprintf(ret, size, "%s", line + 9);
	}
	if (f)
		fclose(f);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static int address_route(const struct addrinfo *to, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;

	*ret_len = sizeof(*ret);
	if (fd < 0)
		return -errno;
	if (connect(fd, to->ai_addr, to->ai_addrlen) < 0 || getsockname(fd, (struct sockaddr *)ret, ret_len) < 0)
		r = -errno;
	close(fd);
	return r;
}

static void address_set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET6)
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)a)->sin_port = htons(port);
}

/* A listener at @local, and where that is, as text. */
static int address_bind(struct sockaddr_storage *local, socklen_t len, struct remote_order *o)
{
	int fd = socket(local->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int room = REMOTE_SOCKET_ROOM, on = 1;
	char port[16];

	address_set_port(local, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)local, len) < 0 || listen(fd, ADDRESS_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)local, &len) < 0 ||
	    getnameinfo((struct sockaddr *)local, len, o->address, sizeof(o->address), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV)) {
		int r = -errno;

		close(fd);
		return r ? r : -EADDRNOTAVAIL;
	}
	o->port = (uint16_t)atoi(port);
	return fd;
}

static int address_towards(const char *host, char *ret, size_t size)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *list = NULL;
	struct sockaddr_storage local;
	socklen_t len;
	int r = -EHOSTUNREACH;

	if (getaddrinfo(host, "9", &hints, &list))
		return r;
	for (struct addrinfo *a = list; a && r < 0; a = a->ai_next)
		r = address_route(a, &local, &len);
	freeaddrinfo(list);
	if (!r && getnameinfo((struct sockaddr *)&local, len, ret, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
		r = -EADDRNOTAVAIL;
	return r;
}

int remote_address_towards(const char *ssh, char *const argv[], const struct remote_options *p, char *ret, size_t size)
{
	char host[256];

	address_host(ssh, argv, p, host, sizeof(host));
	return address_towards(host, ret, size);
}

int remote_address_listen(const char *ssh, char *const argv[], const struct remote_options *p, struct remote_order *o)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *list = NULL;
	struct sockaddr_storage local;
	char host[256];
	socklen_t len;
	int r, e;

	address_host(ssh, argv, p, host, sizeof(host));
	e = getaddrinfo(host, "9", &hints, &list);
	if (e) {
		log_warn("%s: what is started there is not under checkpoint control: %s: %s", p->host, host, gai_strerror(e));
		return -EHOSTUNREACH;
	}
	r = -EHOSTUNREACH;
	for (struct addrinfo *a = list; a && r < 0; a = a->ai_next) {
		r = address_route(a, &local, &len);
		if (r == 0)
			r = address_bind(&local, len, o);
	}
	freeaddrinfo(list);
	if (r < 0)
		log_warn("%s: what is started there is not under checkpoint control: no address to be reached at from there: %s", p->host,
			 strerror(-r));
	return r;
}
