/* SPDX-License-Identifier: BSD-2-Clause */
/* What kin.c knows of its processes, in memory that all of them share. */
#pragma once

#include "feature.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

enum { KIN = 14, WAITING = 8, TABLE_FD = 90, EXECUTING = 2 };
enum state { NONE, LIVE, DYING, DEAD }; /* DYING: ended, and may not be seen as such yet; DEAD: nobody has waited for it */

struct kin {
	enum state state;
	pid_t pid, group, session;
	int parent; /* a place in the table */
	int executed; /* a child that has executed a program cannot be put into another group */
	int reaper;
	int code, status;     /* of its end, as waitid tells it */
	unsigned int in, out; /* signals that it was sent, and has taken */
	pid_t senders[WAITING];
};

struct table {
	pthread_mutex_t lock;
	struct kin kin[KIN];
};

static struct table *table;
static int self; /* the place of this process */
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed = seed * CHAIN_A + CHAIN_C;
	return (seed >> 33) % below;
}

static struct kin *me(void)
{
	return &table->kin[self];
}

/* Ended by a signal or by itself, where its parent can see it: its children have another parent then. */
static void settle(struct kin *k)
{
	int fd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int heir = k->parent;

	CHECK(fd >= 0);
	while (poll(&p, 1, -1) < 0)
		CHECK(errno == EINTR);
	CHECK(p.revents & POLLIN && close(fd) == 0);
	while (!(table->kin[heir].reaper && table->kin[heir].state == LIVE))
		heir = table->kin[heir].parent;
	for (int i = 1; i < KIN; i++)
		if (table->kin[i].state && table->kin[i].parent == (int)(k - table->kin))
			table->kin[i].parent = heir;
	k->state = DEAD;
}

/* Nobody sleeps for the lock: who is ended must not have had another's turn. */
static void lock(void)
{
	int r;

	while ((r = pthread_mutex_trylock(&table->lock)) == EBUSY) {
		usleep(100);
		if (self && kill(table->kin[0].pid, 0))
			_exit(1);
	}
	CHECK(r == 0);
	for (int i = 1; i < KIN; i++)
		if (table->kin[i].state == DYING)
			settle(&table->kin[i]);
}

static void unlock(void)
{
	CHECK(pthread_mutex_unlock(&table->lock) == 0);
}

/* Any of those that a condition holds for; NULL: none. */
#define ANY(k, condition)                                                               \
	({                                                                              \
		struct kin *any_found = NULL;                                           \
		int any_begin = (int)draw(KIN);                                         \
		for (int any_i = 0; any_i < KIN && !any_found; any_i++) {               \
			struct kin *k = &table->kin[(any_begin + any_i) % KIN];         \
			if (condition)                                                  \
				any_found = k;                                          \
		}                                                                       \
		any_found;                                                              \
	})
