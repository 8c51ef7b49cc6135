/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands in for the system's libibverbs, on a host that has no RDMA device: softrdma behind a library that behaves as libibverbs and its providers do, and
 * checks what it is owed. In each call that makes or ends an object it uses libc as they may (provider_want.c), and it keeps a note of each
 * object in malloc's memory, freed with the object, and in a page of a file of its own that it maps for it, as drivers map its queues.
 *
 * A restart is known by a page of this library's, which is the device's and hence gone. From then on a note of before is never to be seen again, nor such a page.
 * Whatever is not as it has to be ends the process with SIGABRT and a line that says what.
 *
 * Lock: @lock, over the notes.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/rdma/provider.h"
#include "tests/rdma/provider_vendor.h"

#define EXPORT __attribute__((visibility("default")))

/* softrdma's @name, typed as ours is. */
#define SOFT(name) ((__typeof__(&name))provider_to_##name)

struct note {
	const void *object;
	unsigned int life;
	char *words; /* an allocation of libc's own */
	char *page; /* begins with them */
	struct note *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes; /* those of former lives are at its end */
static unsigned int life;
static char *alive; /* a page of the device's */
static int queues = -1; /* the file of this life's pages */
static off_t queues_end;

/* ---- notes ---- */

static void note(const void *object)
{
	struct note *n;

	if (!object)
		return;
	MUST(alive && life && (n = malloc(sizeof(*n))));
	*n = (struct note){ .object = object, .life = life };
	MUST(asprintf(&n->words, "%p of life %u", object, life) > 0);
	pthread_mutex_lock(&lock);
	n->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, queues, queues_end);
	queues_end += 4096;
	MUST(n->page != MAP_FAILED && ftruncate(queues, queues_end) == 0);
	strcpy(n->page, n->words);
	n->next = notes;
	notes = n;
	pthread_mutex_unlock(&lock);
}

/* What is behind the object of before a restart must not be asked for. */
static struct note *known(const void *object)
{
	struct note *n;

	pthread_mutex_lock(&lock);
	for (n = notes; n && n->object != object; n = n->next)
		;
	pthread_mutex_unlock(&lock);
	MUST(n && n->life == life);
	return n;
}

static void forget(struct note *n)
{
	struct note **at;
	char words[64];

	snprintf(words, sizeof(words), "%p of life %u", n->object, life);
	MUST(strcmp(n->words, words) == 0 && strcmp(n->page, words) == 0 && munmap(n->page, 4096) == 0);
	pthread_mutex_lock(&lock);
	for (at = &notes; *at != n; at = &(*at)->next)
		;
	*at = n->next;
	pthread_mutex_unlock(&lock);
	free(n->words);
	free(n);
}

/* ---- devices ---- */

/* As libibverbs loads its drivers: once. */
static void load(void)
{
	const char *dir = getenv("FERMATA_LIBDIR");
	char *path = NULL;
	void *soft;

	if (provider_to_ibv_open_device)
		return;
	MUST(dir && asprintf(&path, "%s/libsoftrdma.so", dir) > 0 && (soft = dlopen(path, RTLD_NOW | RTLD_LOCAL)));
	free(path);
#define FIND(answer, name, parameters) provider_to_##name = dlsym(soft, #name);
	VERBS_NAMES(FIND)
#undef FIND
}

static bool is_mapped(const void *page)
{
	unsigned char there;

	return mincore((void *)(uintptr_t)page, 1, &there) == 0;
}

static void begin_life(void)
{
	if (alive && is_mapped(alive))
		return;
	for (const struct note *n = notes; n; n = n->next)
		MUST(!is_mapped(n->page) || strcmp(n->page, n->words) != 0);
	queues = memfd_create("queues", MFD_CLOEXEC);
	queues_end = 4096;
	alive = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, queues, 0);
	MUST(queues >= 0 && alive != MAP_FAILED);
	life++;
	if (getenv("PROVIDER_SAYS"))
		dprintf(2, "provider: life %u\n", life);
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;

	provider_want_libc();
	pthread_mutex_lock(&lock);
	load();
	begin_life();
	pthread_mutex_unlock(&lock);
	list = SOFT(ibv_get_device_list)(num);
	if (provider_is_vendor())
		provider_vendor_list(list);
	return list;
}

/* A call that makes an object out of others. */
#define MAKE(type, name, parameters, of, ...)              \
	EXPORT type *name parameters                       \
	{                                                  \
		type *made;                                \
                                                           \
		provider_want_libc();                      \
		known(of);                                 \
		note(made = SOFT(name)(__VA_ARGS__));      \
		return made;                               \
	}

/* A call that ends one. */
#define END(type, name)                                    \
	EXPORT int name(type *object)                      \
	{                                                  \
		struct note *n = known(object);            \
		int r;                                     \
                                                           \
		provider_want_libc();                      \
		r = SOFT(name)(object);                    \
		if (!r)                                    \
			forget(n);                         \
		return r;                                  \
	}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *c;

	provider_want_libc();
	note(c = SOFT(ibv_open_device)(provider_vendor_real(device)));
	if (c && provider_is_vendor())
		provider_vendor_context(c, device);
	return c;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return SOFT(ibv_get_device_index)(provider_vendor_real(device));
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return SOFT(ibv_get_device_guid)(provider_vendor_real(device));
}

END(struct ibv_context, ibv_close_device)
MAKE(struct ibv_pd, ibv_alloc_pd, (struct ibv_context *context), context, context)
END(struct ibv_pd, ibv_dealloc_pd)

/* As rxe's: a region that nobody else may reach has no key for others. */
static struct ibv_mr *region(struct ibv_mr *mr, unsigned int access)
{
	note(mr);
	if (mr && !(access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)))
		mr->rkey = 0;
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	provider_want_libc();
	known(pd);
	return region(SOFT(ibv_reg_mr)(pd, addr, length, access), (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	provider_want_libc();
	known(pd);
	return region(SOFT(ibv_reg_mr_iova2)(pd, addr, length, iova, access), access);
}

END(struct ibv_mr, ibv_dereg_mr)
MAKE(struct ibv_comp_channel, ibv_create_comp_channel, (struct ibv_context *context), context, context)
END(struct ibv_comp_channel, ibv_destroy_comp_channel)
MAKE(struct ibv_cq, ibv_create_cq, (struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector), context,
     context, cqe, cq_context, channel, vector)
END(struct ibv_cq, ibv_destroy_cq)
MAKE(struct ibv_srq, ibv_create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr), pd, pd, attr)
END(struct ibv_srq, ibv_destroy_srq)
MAKE(struct ibv_qp, ibv_create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr), pd, pd, attr)
END(struct ibv_qp, ibv_destroy_qp)
MAKE(struct ibv_ah, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr), pd, pd, attr)
END(struct ibv_ah, ibv_destroy_ah)

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	provider_want_libc();
	known(qp);
	return SOFT(ibv_modify_qp)(qp, attr, mask);
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	provider_want_libc();
	known(context);
	return SOFT(ibv_query_device)(context, attr);
}
