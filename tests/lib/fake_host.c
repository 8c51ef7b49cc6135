/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_host.h. Owns one shared mapping a runner: barrier, statuses, names. Names are kept in order of publication. */
#include "tests/lib/fake_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd.h"
#include "agent/fd_table.h"
#include "base/fdpass.h"
#include "base/macro.h"
#include "fermata/plugin.h"

#define NAMES_MAX 4096

struct name {
	bool job;
	uint32_t phase, keylen, len;
	uint8_t key[64], value[1024];
};

struct shared {
	pthread_barrier_t barrier;
	pthread_mutex_t lock;
	uint32_t members;
	int error, more;
	uint32_t name_count;
	struct name names[NAMES_MAX];
};

static struct shared *shared;
static struct {
	bool job;
	uint32_t phase, keylen;
	uint8_t key[64];
} asked[NAMES_MAX];
static uint32_t asked_count, phase = 1;
static char meeting[64]; /* where the members find each other */
char fake_text[512];
struct path_map fake_moved;
void (*fake_before_round)(unsigned int round);

bool fd_is_reserved(int fd)
{
	return fd >= FAKE_RESERVED;
}

bool device_owns_fd(int fd)
{
	return false;
}

int fermata_option_external(void)
{
	return FERMATA_EXTERNAL_FAIL;
}

int fermata_bound_elsewhere(void)
{
	return 0;
}

int fermata_outputs_at_end(void)
{
	return 0;
}

void device_list_begin(void)
{
}

void device_list_end(void)
{
}

_Noreturn void fake_die(const char *file, int line, const char *what)
{
	dprintf(2, "%s:%d: %s (errno %d, %s)\n", file, line, what, errno, fake_text);
	_exit(1);
}

int fermata_fail(int err, const char *fmt, ...)
{
	va_list ap;

	if (fake_text[0])
		return err;
	va_start(ap, fmt);
	vsnprintf(fake_text, sizeof(fake_text), fmt, ap);
	va_end(ap);
	return err;
}

void *fermata_alloc(size_t size)
{
	return calloc(1, size);
}

void fermata_free(void *p)
{
	free(p);
}

/* There is no wrapper that would have noted any. */
const char *fermata_inotify_path(int wd, unsigned int nth, uint32_t *ret_flags)
{
	(void)wd;
	(void)nth;
	(void)ret_flags;
	return NULL;
}

const char *fermata_path_now(const char *path, char *buf, size_t size)
{
	const char *now = path_map_apply(&fake_moved, path, buf, size);

	return now ? now : (fermata_fail(-ENAMETOOLONG, "%s is too long now", path), NULL);
}

int fermata_in_capsule(void)
{
	return 1;
}

uint32_t fermata_init_pid(void)
{
	return 1;
}

uint32_t fermata_pid(void)
{
	return (uint32_t)getpid();
}

static int publish(bool job, const void *key, size_t keylen, const void *value, size_t len)
{
	struct name *n;

	CHECK(keylen <= sizeof(n->key) && len <= sizeof(n->value));
	pthread_mutex_lock(&shared->lock);
	CHECK(shared->name_count < NAMES_MAX);
	n = &shared->names[shared->name_count++];
	n->phase = phase;
	n->job = job;
	n->keylen = (uint32_t)keylen;
	n->len = (uint32_t)len;
	memcpy(n->key, key, keylen);
	memcpy(n->value, value, len);
	pthread_mutex_unlock(&shared->lock);
	return 0;
}

static int ask(bool job, const void *key, size_t keylen)
{
	CHECK(asked_count < NAMES_MAX && keylen <= sizeof(asked[0].key));
	asked[asked_count].phase = phase;
	asked[asked_count].job = job;
	asked[asked_count].keylen = (uint32_t)keylen;
	memcpy(asked[asked_count++].key, key, keylen);
	return 0;
}

static const void *resolve(bool job, const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	for (uint32_t a = 0; a < asked_count; a++) {
		if (asked[a].job != job || asked[a].phase >= phase || asked[a].keylen != keylen || memcmp(asked[a].key, key, keylen))
			continue;
		for (uint32_t i = 0; i < shared->name_count; i++) {
			struct name *n = &shared->names[i];

			if (n->job != job || n->phase > asked[a].phase || n->keylen != keylen || memcmp(n->key, key, keylen) || index--)
				continue;
			*ret_len = n->len;
			return n->value;
		}
	}
	return NULL;
}

int fermata_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return publish(false, key, keylen, value, len);
}

int fermata_ask(const void *key, size_t keylen)
{
	return ask(false, key, keylen);
}

const void *fermata_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(false, key, keylen, index, ret_len);
}

int fermata_job_publish(const void *key, size_t keylen, const void *value, size_t len)
{
	return publish(true, key, keylen, value, len);
}

int fermata_job_ask(const void *key, size_t keylen)
{
	return ask(true, key, keylen);
}

const void *fermata_job_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len)
{
	return resolve(true, key, keylen, index, ret_len);
}

uint32_t fermata_host(void)
{
	return 0;
}

int fermata_ask_mapped(const struct stat *st)
{
	return fermata_ask(&st->st_ino, sizeof(st->st_ino));
}

int fermata_is_mapped(const struct stat *st)
{
	size_t len;

	return fermata_resolve(&st->st_ino, sizeof(st->st_ino), 0, &len) != NULL;
}

/* The contents that this member has been asked to keep, as of the claim. */
static struct {
	struct stat st;
	char *data;
} kept[16];
static unsigned int kept_count;

int fermata_content_keep(const struct fermata_desc *d)
{
	char path[48];
	int fd;

	CHECK(kept_count < sizeof(kept) / sizeof(kept[0]) && d->st.st_size < 1 << 20);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", d->fd);
	kept[kept_count].st = d->st;
	kept[kept_count].data = malloc((size_t)d->st.st_size + 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && pread(fd, kept[kept_count].data, (size_t)d->st.st_size, 0) == d->st.st_size && close(fd) == 0);
	kept_count++;
	return 0;
}

int fermata_content_put(const struct fermata_desc *d, uint64_t dev, uint64_t ino, int fd)
{
	(void)d;
	for (unsigned int i = kept_count; i-- > 0;)
		if (kept[i].st.st_dev == dev && kept[i].st.st_ino == ino)
			return pwrite(fd, kept[i].data, (size_t)kept[i].st.st_size, 0) == kept[i].st.st_size ? 0 : -EIO;
	return -ENODATA;
}

void fake_barrier(void)
{
	pthread_barrier_wait(&shared->barrier);
}

/* All members come together with their results: the first error, or whether one wants more. */
static int together(int r)
{
	int all;

	pthread_mutex_lock(&shared->lock);
	if (r < 0 && !shared->error)
		shared->error = r;
	shared->more |= r == FERMATA_DRAIN_MORE;
	pthread_mutex_unlock(&shared->lock);
	fake_barrier();
	all = shared->error ? shared->error : shared->more;
	fake_barrier();
	shared->error = shared->more = 0;
	phase++;
	fake_barrier();
	return all;
}

static int emit(void *arg, const struct image_resource *r, const void *record, size_t len, const struct image_fd *fds)
{
	CHECK(r->length == len && r->fd_count > 0 && r->plugin[0]);
	return 0;
}

int fake_checkpoint(void)
{
	int r;

	fake_text[0] = 0;
	r = together(fd_quiesce("/nonexistent"));
	if (r < 0)
		return r;
	for (unsigned int round = 0;; round++) {
		if (fake_before_round)
			fake_before_round(round);
		r = together(fd_drain(round));
		if (r <= 0)
			break;
	}
	return r < 0 ? r : together(fd_dump(emit, NULL));
}

static void names_clear(void)
{
	fake_barrier();
	shared->name_count = 0;
	asked_count = 0;
	fake_barrier();
}

void fake_resume(void)
{
	fd_resume(0);
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++)
		if ((*p)->resume)
			(*p)->resume();
	names_clear();
}

void fake_kill(void)
{
	for (int i = 0; i < 3; i++)
		dup2(i, FAKE_RESERVED + i);
	close_range(0, FAKE_RESERVED - 1, 0);
	for (int i = 0; i < 3; i++) {
		dup2(FAKE_RESERVED + i, i);
		close(FAKE_RESERVED + i);
	}
	names_clear();
}

int fake_restart(void)
{
	struct image_restart where = { .size = sizeof(where), .image_fd = UINT32_MAX, .stdio = { 0, 1, 2 },
				       .exe_fd = UINT32_MAX };
	int r = together(fd_recreate(&where));

	r = r ? r : together(0);
	r = r ? r : together(fd_reconnect());
	r = r ? r : together(fd_refill());
	fd_restarted();
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++)
		if ((*p)->restarted)
			(*p)->restarted();
	names_clear();
	return r;
}

void fake_checkpoint_resume(void)
{
	CHECK(fake_checkpoint() == 0);
	fake_resume();
}

void fake_checkpoint_restart(void)
{
	int before = fake_fd_count();

	CHECK(fake_checkpoint() == 0);
	fake_kill();
	CHECK(fake_restart() == 0);
	CHECK(fake_fd_count() == before);
}

int fake_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	CHECK(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.' && atoi(e->d_name) < FAKE_RESERVED && atoi(e->d_name) != dirfd(dir);
	closedir(dir);
	return n;
}

int fake_member(void (*body)(void))
{
	int pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	alarm(20);
	fdpass_job(meeting, getpid());
	body();
	_exit(0);
}

void fake_reap(int pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void shared_new(unsigned int members)
{
	pthread_barrierattr_t b;
	pthread_mutexattr_t m;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	shared->members = members;
	pthread_barrierattr_init(&b);
	pthread_barrierattr_setpshared(&b, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &b, members);
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &m);
}

void fake_run(unsigned int members, void (*body)(void))
{
	int status, pid;

	shared_new(members);
	snprintf(meeting, sizeof(meeting), "/tmp/fermata-fake-XXXXXX");
	assert_non_null(mkdtemp(meeting));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(20);
		close_range(3, ~0u, 0); /* what the runner of the tests left open is not ours */
		fdpass_job(meeting, getpid());
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(meeting), 0); /* no name is left behind */
	munmap(shared, sizeof(*shared));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* One process has both ends. */
int fermata_peer_pid(int fd)
{
	return 0;
}

int fermata_peer_restore(int fd, int pid)
{
	return 0;
}
