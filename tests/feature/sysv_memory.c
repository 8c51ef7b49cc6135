/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V shared memory: ids, keys, sizes, permissions, creators (also one that has ended) and the numbers of attachments stay; memory
 * stays shared between processes at several addresses, also read-only; a segment marked for removal lives as long as its
 * attachments; one that nobody is attached to can be attached later, and has what was in it; shmdt finds its attachment, of
 * which a part may be unmapped; the last to attach a segment stays the last, whoever has to attach it for a checkpoint. The ids are in the file "segments", for who cleans up behind a program that was killed.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define SIZE (5 * PAGE + 100)

enum { MARKED, KEYED, LONELY, HOLED, READ_ONLY, KINDS };

struct shared {
	uint64_t count, stop, token, attached;
};

static struct segment {
	int id;
	key_t key;
	struct shmid_ds before;
} segments[KINDS];

static struct shared *marked, *again;
static unsigned char *keyed, *holed, *read_only;

static void make(struct segment *s, key_t key, int mode)
{
	FILE *f = fopen("segments", "a");

	s->id = shmget(key, SIZE, IPC_CREAT | IPC_EXCL | mode);
	CHECK(s->id >= 0 && f && fprintf(f, "%d\n", s->id) > 0 && fclose(f) == 0);
}

/* With a key that nobody else has, by a child that ends. */
static void make_keyed(struct segment *s)
{
	int status;
	pid_t pid;

	do
		s->key = (key_t)(feature_now(CLOCK_MONOTONIC) >> 10 ^ (uint64_t)getpid() << 16) & 0x7fffffff;
	while (s->key == IPC_PRIVATE || shmget(s->key, 0, 0) >= 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		make(s, s->key, 0640);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	s->id = shmget(s->key, 0, 0);
	CHECK(s->id >= 0);
}

static void *attach(const struct segment *s, int flags)
{
	void *at = shmat(s->id, NULL, flags);

	CHECK(at != (void *)-1);
	return at;
}

static void *attach_filled(const struct segment *s, uint64_t seed)
{
	void *at = attach(s, 0);

	pattern_fill(at, SIZE, seed);
	return at;
}

static void check_stat(const struct segment *s)
{
	struct shmid_ds d;

	CHECK(shmctl(s->id, IPC_STAT, &d) == 0);
	CHECK(d.shm_segsz == SIZE && d.shm_perm.__key == s->before.shm_perm.__key);
	CHECK(d.shm_perm.mode == s->before.shm_perm.mode && d.shm_perm.uid == getuid() && d.shm_perm.cuid == getuid());
	CHECK(d.shm_cpid == s->before.shm_cpid && d.shm_lpid == s->before.shm_lpid && d.shm_nattch == s->before.shm_nattch);
}

static int is_mapped(void *at)
{
	unsigned char there;

	return mincore(at, PAGE, &there) == 0;
}

static void check(void)
{
	for (int i = 0; i < KINDS; i++)
		check_stat(&segments[i]);
	CHECK(pattern_holds(keyed, SIZE, 1) && shmget(segments[KEYED].key, 0, 0) == segments[KEYED].id);
	CHECK(pattern_holds(holed, PAGE, 3) && !is_mapped(holed + PAGE) && !is_mapped(holed + 2 * PAGE));
	CHECK(pattern_holds(read_only, SIZE, 4));
	CHECK(mprotect(read_only, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	marked->token++;
	CHECK(again->token == marked->token);
}

/* It is the last to attach one that nobody has whole and writable. */
static void child(void)
{
	unsigned char *mine = attach(&segments[READ_ONLY], SHM_RDONLY);

	__atomic_store_n(&again->attached, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&again->stop, __ATOMIC_ACQUIRE)) {
		__atomic_add_fetch(&again->count, 1, __ATOMIC_RELAXED);
		CHECK(pattern_holds(keyed, SIZE, 1) && pattern_holds(mine, SIZE, 4));
	}
	_exit(0);
}

static void set_mode(struct segment *s, unsigned short mode)
{
	struct shmid_ds d;

	CHECK(shmctl(s->id, IPC_STAT, &d) == 0);
	d.shm_perm.mode = mode;
	CHECK(shmctl(s->id, IPC_SET, &d) == 0);
}

static void build(void)
{
	make(&segments[MARKED], IPC_PRIVATE, 0600);
	make_keyed(&segments[KEYED]);
	make(&segments[LONELY], IPC_PRIVATE, 0600);
	make(&segments[HOLED], IPC_PRIVATE, 0600);
	make(&segments[READ_ONLY], IPC_PRIVATE, 0600);
	marked = attach(&segments[MARKED], 0);
	again = attach(&segments[MARKED], 0);
	CHECK(shmctl(segments[MARKED].id, IPC_RMID, NULL) == 0);
	keyed = attach_filled(&segments[KEYED], 1);
	CHECK(shmdt(attach_filled(&segments[LONELY], 2)) == 0);
	holed = attach_filled(&segments[HOLED], 3);
	CHECK(munmap(holed + PAGE, 2 * PAGE) == 0 && mprotect(holed + 3 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(shmdt(attach_filled(&segments[READ_ONLY], 4)) == 0);
	set_mode(&segments[READ_ONLY], 0400);
	read_only = attach(&segments[READ_ONLY], SHM_RDONLY);
}

static void finish(pid_t pid)
{
	struct shmid_ds d;
	unsigned char *lonely;
	int status;

	__atomic_store_n(&marked->stop, 1, __ATOMIC_RELEASE);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	lonely = attach(&segments[LONELY], 0);
	CHECK(pattern_holds(lonely, SIZE, 2) && shmdt(lonely) == 0);
	CHECK(shmdt(holed) == 0 && !is_mapped(holed) && !is_mapped(holed + 3 * PAGE));
	holed = attach(&segments[HOLED], 0);
	CHECK(pattern_holds(holed, SIZE, 3) && shmdt(holed) == 0);
	CHECK(shmdt(keyed) == 0 && shmdt(read_only) == 0 && shmdt(marked) == 0);
	CHECK(shmctl(segments[MARKED].id, IPC_STAT, &d) == 0 && d.shm_nattch == 1);
	CHECK(shmdt(again) == 0);
	CHECK(shmctl(segments[MARKED].id, IPC_STAT, &d) == -1 && (errno == EINVAL || errno == EIDRM));
	for (int i = KEYED; i < KINDS; i++)
		CHECK(shmctl(segments[i].id, IPC_RMID, NULL) == 0);
}

int main(void)
{
	uint64_t before = 0;
	pid_t pid;

	build();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		child();
	while (!__atomic_load_n(&marked->attached, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int i = 0; i < KINDS; i++)
		CHECK(shmctl(segments[i].id, IPC_STAT, &segments[i].before) == 0);
	CHECK(segments[READ_ONLY].before.shm_lpid == pid);
	CHECK(segments[LONELY].before.shm_nattch == 0 && segments[MARKED].before.shm_nattch == 4);
	feature_ready();
	do {
		feature_work();
		check();
		CHECK(marked->count >= before && again->count >= before);
		before = marked->count;
	} while (feature_step());
	finish(pid);
	return 0;
}
