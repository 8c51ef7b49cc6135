/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's library that does nothing but make threads, as the system's libibverbs would be found: the feature program device_threads has the
 * agent open it. Each ibv_get_device_list makes, in a mapping of its own (a "world"), a bare clone and a pthread that never end, and
 * which all the time open, map, close and unmap things; the pthread makes threads in turn. ibv_fork_init makes threads that end. Of a world that
 * has vanished (a restart) nothing is needed.
 */
#include "fake_device.h"

#include <ctype.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK (64u << 10)
#define TLS (2u << 20) /* the program has a megabyte: device_threads.c */
#define PAGE 4096u
#define FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | \
	       CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static struct ibv_device device = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "fake0" };
static struct world *world;
static uint32_t worlds;

static void must(int holds)
{
	if (!holds)
		abort();
}

static void call_it(void)
{
	prctl(PR_SET_NAME, "device");
}

static void nap(void)
{
	struct timespec ts = { 0, 20000 };

	nanosleep(&ts, NULL);
}

/* What is made here is the device's at every moment. */
static void stir(void)
{
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = eventfd(0, EFD_CLOEXEC);

	must(p != MAP_FAILED && fd >= 0);
	memset(p, 1, 16 * PAGE);
	must(!close(fd));
	must(!munmap(p, 16 * PAGE));
}

static int bare_main(void *arg)
{
	struct world *w = arg;

	call_it();
	for (;;) {
		stir();
		atomic_fetch_add(&w->bare, 1);
		nap();
	}
	return 0;
}

static int bare_ends(void *arg)
{
	struct world *w = arg;

	call_it();
	stir();
	atomic_fetch_add(&w->ended, 1);
	if (atomic_load(&w->ended) & 1)
		syscall(SYS_exit, 0); /* behind everybody's back */
	return 0;
}

/* @tid: the kernel's word for its end. */
static char *bare_start(int (*fn)(void *), struct world *w, int *tid)
{
	char *p = mmap(NULL, STACK + TLS + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *tcb = p + STACK + TLS;
	uint64_t word;

	must(p != MAP_FAILED);
	memcpy(tcb, &tcb, 8);
	memcpy(tcb + 16, &tcb, 8);
	__asm__("movq %%fs:40, %0" : "=r"(word));
	memcpy(tcb + 40, &word, 8);
	__asm__("movq %%fs:48, %0" : "=r"(word));
	memcpy(tcb + 48, &word, 8);
	must(clone(fn, p + STACK, FLAGS, w, tid, tcb, tid) > 0);
	return p;
}

static void *short_main(void *arg)
{
	struct world *w = arg;

	call_it();
	atomic_fetch_add(&w->ended, 1);
	if (atomic_load(&w->ended) & 1)
		pthread_exit(w);
	return w;
}

static void short_ones(struct world *w)
{
	pthread_attr_t attr;
	pthread_t t;
	void *result;

	must(!pthread_create(&t, NULL, short_main, w));
	must(!pthread_join(t, &result) && result == w);
	must(!pthread_attr_init(&attr) && !pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
	must(!pthread_create(&t, &attr, short_main, w));
	must(!pthread_create(&t, NULL, short_main, w) && !pthread_detach(t));
}

static void *pthread_forever(void *arg)
{
	struct world *w = arg;

	call_it();
	for (unsigned int n = 0;; n++) {
		must(!pthread_mutex_lock(&w->mutex) && !pthread_mutex_lock(&w->mutex)); /* a recursive one: it knows its owner */
		must(isalpha('a') && pthread_equal(pthread_self(), pthread_self()));
		must(!pthread_mutex_unlock(&w->mutex) && !pthread_mutex_unlock(&w->mutex));
		stir();
		if (n % 16 == 0)
			short_ones(w);
		atomic_fetch_add(&w->pthread, 1);
		nap();
	}
	return NULL;
}

static void world_make(void)
{
	struct world *w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attr;
	pthread_t t;

	must(w != MAP_FAILED);
	w->number = ++worlds;
	must(!pthread_mutexattr_init(&attr) && !pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
	must(!pthread_mutex_init(&w->mutex, &attr));
	bare_start(bare_main, w, &w->bare_tid);
	must(!pthread_create(&t, NULL, pthread_forever, w));
	world = w;
}

#define PUBLIC __attribute__((visibility("default")))

PUBLIC struct world *fake_world(void)
{
	return world;
}

PUBLIC struct ibv_device **ibv_get_device_list(int *num)
{
	static struct ibv_device *list[] = { &device, NULL };

	world_make();
	if (num)
		*num = 1;
	return list;
}

PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	(void)d;
	errno = ENODEV;
	return NULL;
}

/* Threads that are made and end. */
PUBLIC int ibv_fork_init(void)
{
	int tid = 0, seen;
	char *p = bare_start(bare_ends, world, &tid);

	short_ones(world);
	while ((seen = __atomic_load_n(&tid, __ATOMIC_ACQUIRE)))
		syscall(SYS_futex, &tid, FUTEX_WAIT, seen, NULL, NULL, 0);
	must(!munmap(p, STACK + TLS + PAGE));
	return 0;
}
