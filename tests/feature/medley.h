/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of medley.c, in memory that all its processes share. */
#pragma once

#include "feature.h"

#include <pthread.h>

enum { PROCESSES = 3, THREADS = 2, FILE_SIZE = 32768, PAGES = 32, PAGE = 4096, MESSAGE_MAX = 2000, SIGNALS_MAX = 16 };
enum kind { PIPE, NAMED, STREAM, TCP, TERMINAL, PACKETS, DATAGRAMS, MESSAGES, QUEUE, LISTENER, TCP_LISTENER, COUNTER, PLAIN, UNLINKED, MEMFD, KINDS };
enum { EACH = 3, OBJECTS = KINDS * EACH };

struct object {
	pthread_mutex_t lock;
	int fds[2], other; /* write end, read end; of files the same twice, and another description */
	uint64_t in, out;  /* bytes, messages, or what is counted */
	uint64_t lengths[64];
	uint64_t offset;
	ino_t inode;
	int locked;
	unsigned char content[FILE_SIZE];
	unsigned char *map;
};

static struct object *objects; /* shared */
static int own[OBJECTS];       /* another number of this process for the read end; -1: none; under the object's lock, too */
static int all;		       /* epoll */
static __thread uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

static unsigned char byte_at(const struct object *o, uint64_t position)
{
	return (unsigned char)((position * 2654435761u + (uint64_t)(o - objects) * 97) >> 8);
}

static enum kind kind_of(const struct object *o)
{
	return (enum kind)((o - objects) / EACH);
}

/* The number through which it is read: the first one, or one of this process's own. */
static int reader(const struct object *o)
{
	const int mine = own[o - objects];

	return mine >= 0 && draw(2) ? mine : o->fds[1];
}
