/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private side of softrdma: what a context's own process knows. Everything hangs off struct sr_context; there
 * is no mutable global but what rdma_cm (cm.h) and the end of the process (net_end.c) need.
 */
#pragma once

#include <infiniband/verbs.h>
#include <time.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/lock.h"
#include "softrdma/shm.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SR_MAX_DEVICES 8u
#define SR_MAX_PORTS 2u
#define SR_MAX_GIDS 16u
#define SR_MAX_PKEYS 16u
#define SR_MAX_RD_ATOMIC 16
#define SR_PATH_MAX 96
#define SR_WAKES 8u
#define SR_CLASSES 112u
#define SR_SLACK 512 /* behind objects that newer headers make longer */

/* Another context's segment, mapped here. The context itself is one too. */
struct sr_peer {
	struct list link;
	struct sr_seg *seg;
	uint32_t token;
	int local;  /* lives in this process: memory is ours */
	int pid;    /* as we see it */
	int mem_fd; /* /proc/PID/mem, or -1 */
	int no_vm;  /* process_vm_* is refused */
	_Atomic int dead;
	int apart; /* in another pid namespace, its memory out of reach: spoken to as on another host (net_apart.c). Always dead, too */
	_Atomic uint64_t checked_ns;
	uint32_t refs;
	int kept; /* for datagrams; one of the refs */
	int known; /* a buffer of our own, which is there: what a move fails at is the other end of it */
};

/* Numbers 0..n-1. One that was given back comes again when at least @rest others have been given back since. */
struct sr_ids {
	uint32_t *ring; /* given back */
	uint32_t n, rest, used;
	uint32_t start, fresh; /* handed out for the first time: start, start + 1, .. */
	uint32_t first, back;  /* in the ring */
	void **object;
};

struct sr_port {
	uint16_t lid, gids;
	uint8_t gid_type[SR_MAX_GIDS];
	union ibv_gid gid[SR_MAX_GIDS];
};

/* What the names of a host follow from. */
struct sr_host {
	uint64_t name;	  /* of its name, */
	uint32_t address; /* or its address on the network, of IPv6 the end of it; 0: there is none */
	uint32_t mask;	  /* the bits of that which no LID tells */
	uint8_t prefix[12]; /* what comes before that in an address of 16 bytes */
	uint32_t interface; /* IPv6: where the address is */
};

/* A socket that is connected to another's: a path need not be walked each time. */
struct sr_wake {
	uint32_t index, number; /* index 0: none */
	int fd;
};

struct sr_context {
	struct arena arena;
	struct sr_seg *seg;
	struct sr_peer self;
	int seg_fd;	/* holds the lock that says we live */
	int wake_fd;	/* unbound datagram socket that wakes others */
	struct sr_wake wakes[SR_WAKES]; /* connected ones, to those that were woken last */
	struct lock wakes_lock;
	int async_sock; /* bound: woken for asynchronous events */
	int timer_fd;	/* runs while a send queue is stalled */
	_Atomic uint32_t ticks; /* how often it, or a channel's, had run down when it was looked at */
	uint64_t cookie;
	uint32_t device, ports, pkeys;
	int ethernet; /* RoCE */
	uint16_t pkey[SR_MAX_PKEYS];
	struct sr_host host;
	struct sr_port port[SR_MAX_PORTS];
	struct sr_net *net; /* other hosts; NULL: there are none */
	struct lock apart_lock; /* while that is opened for contexts of this machine */
	char dir[SR_PATH_MAX];
	struct rlock *atomics; /* shared by all contexts of the user */
	struct sr_groups *groups; /* as well; NULL until there is a need */
	uint64_t seg_bump;
	uint64_t seg_reserved; /* memory is there up to this offset */
	uint64_t seg_free[SR_CLASSES]; /* by size */
	uint64_t qp_free;      /* QPs' memory stays QPs': a peer may still look at one that is gone */
	struct lock lock;      /* objects, ids, the segment's allocator */
	struct list peers;
	struct lock peers_lock;
	struct sr_peer *route[SR_MAX_CTX]; /* by index; under peers_lock */
	struct list stalled; /* QPs whose send queue waits */
	struct lock stalled_lock;
	_Atomic uint32_t nr_stalled;
	_Atomic uint32_t failures; /* a queue pair's failure has been seen, and not seen to */
	uint64_t timer_due; /* under stalled_lock; 0: it does not run */
	uint64_t rng;
	uint32_t objects; /* that the program has not destroyed */
	uint32_t next_pd;
	_Atomic uint32_t pds, ahs;
	uint32_t windows;
	uint64_t huge_ns; /* spent on putting huge pages together */
	struct sr_ids mrs, qps, cqs, srqs, channels;
	struct lock async_take;
	uint64_t slack_verbs[64]; /* newer headers look for more operations down here, guarded by sz */
	struct verbs_context verbs;
};

/*
 * Locks between threads of the program alone: the network's thread takes none of them. A process with one thread, which glibc
 * says of itself, need not lock its bus, which costs more than all the rest of an empty poll; the word it keeps all the same, for one that
 * makes a thread between start_poll and end_poll.
 */
extern char __libc_single_threaded __attribute__((weak));

static inline int sr_is_single_threaded(void)
{
	return likely(&__libc_single_threaded != NULL) && __libc_single_threaded;
}

static inline void sr_thread_lock(struct lock *l)
{
	if (sr_is_single_threaded() && !atomic_load_explicit(&l->word, memory_order_relaxed))
		atomic_store_explicit(&l->word, 1, memory_order_relaxed);
	else
		lock_acquire(l);
}

static inline void sr_thread_unlock(struct lock *l)
{
	if (sr_is_single_threaded())
		atomic_store_explicit(&l->word, 0, memory_order_release);
	else
		lock_release(l);
}

/* By the vdso, which raw calls do not reach. */
static inline uint64_t sr_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline struct sr_context *sr_context(struct ibv_context *c)
{
	return container_of(c, struct sr_context, verbs.context);
}
