/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs plugin needs of the agent, for tests without one: memory, descriptors, a sink that counts, and a name service
 * between forked test processes. Names lie in a shared mapping that fake_host_init() makes before the fork; like the
 * agent's, what is published in a phase can be resolved from the next one on, which fake_host_barrier() begins.
 *
 * As a preload library by itself it stands for a process without a coordinator: the plugin then merely passes through.
 */
#include "tests/lib/fake_verbs_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "fermata/plugin.h"

#define NAMES_MAX 4096

struct name {
	bool job;
	uint32_t key_length, length;
	uint8_t key[64], value[1024] __attribute__((aligned(16)));
};

struct shared {
	struct lock lock;
	uint32_t processes;
	_Atomic uint32_t arrived, turn;
	uint32_t count, visible;
	_Atomic int more;
	_Atomic int led; /* somebody makes what is common */
	struct name names[NAMES_MAX];
};

static struct arena arena;
static struct shared *shared;
static size_t sunk;
static int common = -1; /* what all have learnt; empty: nothing */

__thread struct fermata_thread_state fermata_thread;

EXPORT void fermata_stop_here(void)
{
}

EXPORT void *fermata_alloc(size_t size)
{
	return arena_alloc(&arena, size);
}

EXPORT void fermata_free(void *p)
{
	arena_free(&arena, p);
}

EXPORT int fermata_sink_write(struct fermata_sink *sink, const void *data, size_t len)
{
	sunk += len;
	return 0;
}

size_t fake_host_sunk(void)
{
	return sunk;
}

static char failure[512];

EXPORT int fermata_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fm_vformat(failure, sizeof(failure), fmt, ap);
	va_end(ap);
	log_error("%s", failure);
	return err;
}

EXPORT void fermata_waits(const char *fmt, ...)
{
}

const char *fake_host_failure(void)
{
	return failure;
}

EXPORT uint32_t fermata_host(void)
{
	return 0;
}

EXPORT uint64_t fermata_where(void)
{
	return 1;
}

EXPORT uint32_t fermata_member(void)
{
	return (uint32_t)getpid();
}

EXPORT uint32_t fermata_pid(void)
{
	return (uint32_t)getpid();
}

EXPORT uint32_t fermata_generation(void)
{
	return 0;
}

EXPORT int fermata_active(void)
{
	return 0;
}

EXPORT const char *fermata_libdir(void)
{
	const char *dir = getenv("FERMATA_LIBDIR");

	return dir ? dir : "";
}

struct path_map fake_moved;

EXPORT const char *fermata_path_now(const char *path, char *buf, size_t size)
{
	return path_map_apply(&fake_moved, path, buf, size);
}

int fake_system_answers;

EXPORT const char *fermata_option_rdma(void)
{
	if (!fake_system_answers)
		return "soft";
	fake_system_answers--;
	return "system";
}

EXPORT int fermata_device_fd_move(int fd, int want)
{
	if (fd == want)
		return 0;
	if (dup3(fd, want, O_CLOEXEC) < 0)
		return -errno;
	close(fd);
	return 0;
}

EXPORT void fermata_device_fd_note(int fd)
{
}

EXPORT void *fermata_device_map(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return mmap(at, len, prot, flags, fd, offset);
}

EXPORT int fermata_device_unmap(void *at, size_t len)
{
	return munmap(at, len);
}

EXPORT void fermata_libc_reserve(int surely)
{
	(void)surely;
}

EXPORT int fermata_libc_borrow(void)
{
	return 0;
}

EXPORT void fermata_libc_return(void *library)
{
	(void)library;
}

/* ---- names ---- */

static int publish(bool job, const void *key, size_t keylen, const void *value, size_t len)
{
	struct name *n;

	lock_acquire(&shared->lock);
	if (shared->count == NAMES_MAX)
		abort();
	n = &shared->names[shared->count++];
	n->job = job;
	n->key_length = (uint32_t)keylen;
	n->length = (uint32_t)len;
	memcpy(n->key, key, keylen);
	memcpy(n->value, value, len);
	lock_release(&shared->lock);
	return 0;
}

EXPORT int fermata_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return publish(false, key, keylen, value, len);
}

EXPORT int fermata_job_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return publish(true, key, keylen, value, len);
}

EXPORT int fermata_ask(const void *key, size_t keylen)
{
	return 0;
}

EXPORT int fermata_job_ask(const void *key, size_t keylen)
{
	return 0;
}

static const void *resolve(bool job, const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	for (uint32_t i = 0; i < shared->visible; i++) {
		struct name *n = &shared->names[i];

		if (n->job != job || n->key_length != keylen || memcmp(n->key, key, keylen) || index--)
			continue;
		*ret_len = n->length;
		return n->value;
	}
	return NULL;
}

EXPORT const void *fermata_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(false, key, keylen, index, ret_len);
}

EXPORT const void *fermata_job_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(true, key, keylen, index, ret_len);
}

EXPORT int fermata_common_lead(const char *name)
{
	return !atomic_exchange(&shared->led, 1);
}

EXPORT int fermata_common_write(const char *name, const void *data, size_t len)
{
	return ftruncate(common, 0) || pwrite(common, data, len, 0) != (ssize_t)len ? -EIO : 0;
}

EXPORT int fermata_common_map(const char *name, const void **ret, size_t *ret_len)
{
	struct stat st;

	if (!shared || fstat(common, &st) || !st.st_size)
		return 0;
	*ret = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, common, 0);
	*ret_len = (size_t)st.st_size;
	return *ret == MAP_FAILED ? -ENOMEM : 1;
}

/* ---- processes ---- */

void fake_host_init(unsigned int processes)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	common = memfd_create("common", MFD_CLOEXEC);
	if (shared == MAP_FAILED || common < 0)
		abort();
	shared->processes = processes;
}

void fake_host_barrier(void)
{
	uint32_t turn = atomic_load(&shared->turn);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == shared->processes) {
		atomic_store(&shared->arrived, 0);
		shared->visible = shared->count;
		atomic_store(&shared->turn, turn + 1);
		raw_futex((uint32_t *)&shared->turn, FUTEX_WAKE, INT32_MAX, NULL, 0);
	}
	while (atomic_load(&shared->turn) == turn)
		raw_futex((uint32_t *)&shared->turn, FUTEX_WAIT, turn, NULL, 0);
}

static void names_forget(void)
{
	shared->count = shared->visible = 0;
}

int fake_host_checkpoint(const struct fermata_plugin *p)
{
	int r = p->quiesce();

	if (r)
		return r;
	fake_host_barrier();
	names_forget();
	failure[0] = 0;
	fake_host_barrier();
	for (unsigned int round = 0;; round++) {
		atomic_store(&shared->more, 0);
		fake_host_barrier();
		r = p->drain(round);
		if (r)
			atomic_store(&shared->more, r);
		fake_host_barrier();
		r = atomic_load(&shared->more);
		fake_host_barrier();
		if (r <= 0)
			break;
		if (round == 10000)
			return -ETIMEDOUT;
	}
	if (!r)
		r = p->dump(NULL);
	fake_host_barrier();
	return r;
}

/* What is there has another number than any that comes back, or was dropped. */
static int hold(int fd)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), r = fd;

	if (null != fd && fcntl(fd, F_GETFD) < 0)
		r = dup3(null, fd, O_CLOEXEC);
	if (null != fd)
		close(null);
	return r < 0 ? -errno : 0;
}

int fake_host_restart(const struct fermata_plugin *p)
{
	int r;

	fake_host_barrier();
	names_forget();
	atomic_store(&shared->led, 0);
	fake_host_barrier();
	r = p->numbers ? p->numbers(hold) : 0;
	r = r ? r : p->recreate(NULL, 0);
	fake_host_barrier();
	if (!r && p->learn)
		r = p->learn();
	fake_host_barrier();
	if (!r)
		r = p->reconnect();
	fake_host_barrier();
	if (!r && p->refill)
		r = p->refill();
	fake_host_barrier();
	if (!r && p->restarted)
		p->restarted();
	return r;
}
