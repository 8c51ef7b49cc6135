/* SPDX-License-Identifier: BSD-2-Clause */
/* The measurements that benchmarks/softrdma_marks.c compares. Each gives the median of one round, in seconds. */
#pragma once

#include <stddef.h>

/* One memcpy of @size bytes from private memory into memory that another process has made and touched. */
double device_copy(size_t size);

/* One way of a ping-pong of @size bytes over TCP on the loopback, TCP_NODELAY. */
double device_tcp(size_t size);

enum device_way { DEVICE_WRITE, DEVICE_WRITE_PINGPONG, DEVICE_SEND_PINGPONG };

/*
 * RDMA on softrdma between two processes. DEVICE_WRITE: from the post to the completion, the other process asleep.
 * The ping-pongs: one way; the writes' arrival is polled for in memory, the sends' in the CQ.
 */
double device_verbs(enum device_way way, size_t size);
