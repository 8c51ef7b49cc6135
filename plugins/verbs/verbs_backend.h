/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's library and how it is called; memory and locks of the plugin. What every file of it stands on.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/macro.h"
#include "fermata/plugin.h"
#include "plugins/verbs/verbs_names.h"

/* verbs.h wraps these in macros that call the symbol; here the symbols are defined. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct verbs_backend {
	void *handle;
	int soft; /* softrdma */
#define VERBS_MEMBER(answer, name, parameters) answer(*name) parameters;
	VERBS_NAMES(VERBS_MEMBER)
	VERBS_SOFT_NAMES(VERBS_MEMBER) /* all NULL but with softrdma, */
	VERBS_CM_NAMES(VERBS_MEMBER)   /* and where it does rdma_cm for the kernel's devices */
#undef VERBS_MEMBER
};
extern struct verbs_backend verbs_backend HIDDEN;

/* Loads the device's library once; 0 or -errno. Not to be called between fermata_enter and leave: it takes libc's locks. */
int verbs_backend_load(void);
/* Restart: which of those that are loaded it is in this life. 0 or -errno, said. */
int verbs_backend_renew(void);
void verbs_backend_forked(void);

extern struct lock verbs_lock HIDDEN; /* lists, handle tables */

/* A process with one thread takes no lock: glibc keeps the word, and the checkpoint thread stops us outside. */
extern char __libc_single_threaded __attribute__((weak));

static inline int verbs_lock_acquire(struct lock *l)
{
	if (likely(&__libc_single_threaded && __libc_single_threaded))
		return 0;
	lock_acquire(l);
	return 1;
}
static inline void verbs_lock_release(struct lock *l, int held)
{
	if (unlikely(held))
		lock_release(l);
}

static inline int verbs_list_add(struct list *head, struct list *link)
{
	lock_acquire(&verbs_lock);
	list_add_tail(head, link);
	lock_release(&verbs_lock);
	return 0;
}
static inline void verbs_list_del(struct list *link)
{
	lock_acquire(&verbs_lock);
	list_del(link);
	lock_release(&verbs_lock);
}

/* Memory at a cache line's start; freed by verbs_free_aligned. */
static inline void *verbs_alloc_aligned(size_t size)
{
	char *p = fermata_alloc(size + 64), *at;

	if (!p)
		return NULL;
	at = (char *)ALIGN_UP((uintptr_t)p + sizeof(void *), (uintptr_t)64);
	memcpy(at - sizeof(void *), &p, sizeof(p));
	return at;
}

static inline void verbs_free_aligned(void *at)
{
	void *p;

	if (!at)
		return;
	memcpy(&p, (char *)at - sizeof(void *), sizeof(p));
	fermata_free(p);
}

static inline void *verbs_unsupported(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/*
 * The head of each exported function: the device's own call back into libibverbs goes straight through, and a backend that
 * lacks the function answers for itself.
 */
#define VERBS_PASS(name, missing, ...)                                \
	do {                                                          \
		if (unlikely(!verbs_backend.name)) {                  \
			errno = EOPNOTSUPP;                           \
			return missing;                               \
		}                                                     \
		if (unlikely(fermata_in_device()))                    \
			return verbs_backend.name(__VA_ARGS__);       \
	} while (0)

/*
 * Runs a call of the device's library; the value of @call. As it is left a checkpoint may be taken, and the thread may go on in another life. So what a
 * restart replaces (a real object, its operations, an address) is looked up in @call itself; and where an object is made, ends or is changed by it,
 * its shadow says so before it is left: there a region around both takes the place of this.
 */
#define VERBS_DEVICE(call)                       \
	({                                       \
		__typeof__(call) answer_;        \
		fermata_device_enter();          \
		answer_ = (call);                \
		fermata_device_leave();          \
		answer_;                         \
	})

/* One of libibverbs' operations below the public context, of the device's; NULL: it has none. */
#define VERBS_REAL_OP(real, op)                                                                             \
	({                                                                                                  \
		struct verbs_context *v_ = verbs_get_ctx(real);                                             \
		v_ && v_->sz >= sizeof(*v_) - offsetof(struct verbs_context, op) ? v_->op : NULL;           \
	})
