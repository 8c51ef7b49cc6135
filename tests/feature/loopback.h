/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port for a listener that is bound to again after a restart: below those that the kernel hands out, or a connection of another test
 * might have got it meanwhile. And below those of harness.py (free_port).
 */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "feature.h"

static void bind_loopback(int fd, struct sockaddr_in *ret)
{
	int r = -1;

	CHECK(fd >= 0);
	for (unsigned int i = 0; r && i < 100; i++) {
		*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		ret->sin_port = htons((uint16_t)(10000 + ((unsigned int)getpid() * 7 + i) % 12000));
		r = bind(fd, (struct sockaddr *)ret, sizeof(*ret));
		CHECK(!r || errno == EADDRINUSE);
	}
	CHECK(r == 0);
}

/* A connection's two ends. */
__attribute__((unused)) static void connect_loopback(int ends[2])
{
	int l = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a;

	bind_loopback(l, &a);
	CHECK(listen(l, 1) == 0);
	CHECK((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(ends[0], (struct sockaddr *)&a, sizeof(a)) == 0);
	CHECK((ends[1] = accept(l, NULL, NULL)) >= 0 && close(l) == 0);
}
