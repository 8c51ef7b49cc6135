/* SPDX-License-Identifier: BSD-2-Clause */
/* The measurements that benchmarks/softrdma_marks.c compares. Each gives the median of one round, in seconds. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/*
 * As fork() and wait(): until they end each has a processor of its own, if there are two. Left to the kernel, two that sleep in turns are on one
 * processor or on two by chance, which is a factor of 5.
 */
pid_t device_fork(void);
void device_wait(void);

/* One memcpy of @size bytes from private memory into memory that another process has made and touched. */
double device_copy(size_t size);

/* The same into another process's private memory, by process_vm_writev alone; one way of a ping-pong of 8 bytes by pwrite of /proc/PID/mem. */
double device_cross(size_t size);
double device_poke(void);

/* One way of a ping-pong of @size bytes over TCP on the loopback, TCP_NODELAY. */
double device_tcp(size_t size);

/* One way of a ping-pong over a cache line of shared memory that both processes watch; over two eventfds that they sleep on. */
double device_line(void);
double device_eventfd(void);

enum device_way {
	DEVICE_WRITE,
	DEVICE_READ,
	DEVICE_SEND,
	DEVICE_RATE,
	DEVICE_WRITE_PINGPONG,
	DEVICE_SEND_PINGPONG,
	DEVICE_EVENT_PINGPONG,
};

/*
 * RDMA on softrdma between two processes. DEVICE_WRITE, _READ, _SEND: from the post to the completion, the other process
 * asleep. DEVICE_RATE: one of many writes, a queue of 64 kept full by lists of 32. The ping-pongs: one way; the writes' arrival
 * is polled for in memory, the sends' in the CQ, DEVICE_EVENT_PINGPONG sleeps on the channel. @others: so many more queue
 * pairs are connected, on the same CQ.
 */
double device_verbs(enum device_way way, size_t size, unsigned int others);

/* The memory that device_verbs moves lies in whole huge pages, as in a large region that begins at one. */
extern int device_huge;

/* Seconds that one of @n queue pairs, of @n regions takes to make. */
double device_make_qps(unsigned int n);
double device_make_mrs(unsigned int n);
/* Seconds of processor time that a second of sleep on a connected device takes. */
double device_idle(void);
