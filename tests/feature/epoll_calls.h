/* SPDX-License-Identifier: BSD-2-Clause */
/* What the features of epoll sets share: adding to a set, and eventfds that are counted up and read. */
#pragma once

#include "feature.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#define TAG 0xfeedbeef00000000u

static void add(int to, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = data };

	CHECK(epoll_ctl(to, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void put(int fd)
{
	uint64_t one = 1;

	CHECK(write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static uint64_t take(int fd)
{
	uint64_t n;

	CHECK(read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n));
	return n;
}
