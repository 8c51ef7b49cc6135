/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's two threads: how they are made and what they stand on. Owns their stacks.
 *
 *   watch thread	lives with the process. Its table of descriptors is its own, with the link in it and nothing else: a table that
 *			two threads share makes the kernel count every use of a descriptor, which a program with one thread would
 *			pay in each system call. It waits for SUSPEND and stops the program's threads.
 *   checkpoint thread	lives while the threads stand still, and in the image. It has the program's table. Only a thread that has
 *			that table can make it: a stopped one does (stop_lend).
 *
 * Never do both run: the watch thread waits for the end of the checkpoint thread, which the kernel tells by clearing its tid.
 *
 * Both are bare clones. libc does not know them: `__libc_single_threaded` stays true, the program's last pthread_exit ends
 * the process. The thread pointer names the end of a zeroed block (thread.h), which is enough for our own TLS words and for errno; any libc
 * function with more thread state would fail there. Where a device's library may want libc, the checkpoint thread gets that state (libc_state.c).
 * All signals are blocked in them: a signal for the process always goes to a thread of the program.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/device.h"
#include "agent/libc.h"
#include "agent/thread.h"
#include "base/agent_seen.h"

#define THREAD_STACK (1u << 20)
#define THREAD_TCB FM_PAGE_SIZE
#define FDS_MAX 65536u
#define LISTED_NS 100000000
#define LISTED_TRIES 1000

static struct thread_block watch, checkpoint;
static char inherited[16]; /* the name that the watch thread had from who has made it */
static _Atomic uint32_t apart; /* the watch thread has its own table */
static _Atomic int listed; /* the checkpoint thread's number, as long as the kernel counts it: some moments longer than it runs */

static size_t block_size(void)
{
	return FM_PAGE_SIZE + THREAD_STACK + raw_thread_local_size() + THREAD_TCB + THREAD_DTV;
}

char *thread_block_dtv(const struct thread_block *b)
{
	return b->start + block_size() - THREAD_DTV;
}

char *thread_block_tcb(const struct thread_block *b)
{
	return thread_block_dtv(b) - THREAD_TCB;
}

/* Copies the stack canary and the pointer guard of the calling thread: code compiled with them reads them there. */
void thread_tcb_fill(char *tcb)
{
	uint64_t canary, guard, self = (uint64_t)tcb;

	__asm__("movq %%fs:40, %0" : "=r"(canary));
	__asm__("movq %%fs:48, %0" : "=r"(guard));
	memcpy(tcb, &self, sizeof(self));
	memcpy(tcb + 16, &self, sizeof(self));
	memcpy(tcb + 40, &canary, 8);
	memcpy(tcb + 48, &guard, 8);
}

int thread_block_prepare(struct thread_block *b)
{
	if (b->start) {
		RAW3(SYS_madvise, b->start + FM_PAGE_SIZE, block_size() - FM_PAGE_SIZE, 4 /* MADV_DONTNEED */);
	} else {
		char *p = raw_mmap(NULL, block_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (raw_is_error(p))
			return (int)(long)p;
		raw_mprotect(p, FM_PAGE_SIZE, PROT_NONE);
		b->start = p;
	}
	thread_tcb_fill(thread_block_tcb(b));
	return 0;
}

int thread_block_run(struct thread_block *b, bool own_files, void (*body)(void *), void *arg)
{
	return raw_thread_spawn_apart(&b->thread, thread_block_tcb(b), own_files, body, arg, b->start + FM_PAGE_SIZE, THREAD_STACK);
}

/* Debuggers of the job see by it that this process is a member, and who lets it run though it is stopped which threads are to go first. */
static void thread_name(void)
{
	RAW5(SYS_prctl, PR_SET_NAME, AGENT_THREAD_NAME, 0, 0, 0);
}

void thread_program_name(char ret[16])
{
	if (raw_gettid() == agent.watch_tid)
		memcpy(ret, inherited, sizeof(inherited));
	else
		RAW5(SYS_prctl, PR_GET_NAME, ret, 0, 0, 0);
}

static void close_stretch(unsigned int first, unsigned int last)
{
	if (!RAW3(SYS_close_range, first, last, 0)) /* Linux 5.9; a container's filter may not know it */
		return;
	for (unsigned int fd = first; fd <= last && fd < FDS_MAX; fd++)
		raw_close((int)fd);
}

/* Descriptors are closed here for this table alone; the program's, and its file locks, are not touched by that. */
static void watch_main(void *body)
{
	const unsigned int fd = (unsigned int)agent.link.fd;

	agent.watch_tid = raw_gettid();
	RAW5(SYS_prctl, PR_GET_NAME, inherited, 0, 0, 0);
	thread_name();
	if (fd)
		close_stretch(0, fd - 1);
	close_stretch(fd + 1, ~0u);
	atomic_store(&apart, 1);
	raw_futex((uint32_t *)&apart, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	((void (*)(void))body)();
}

int thread_watch_start(void (*body)(void))
{
	int r = thread_block_prepare(&watch);

	if (atomic_load(&listed) != raw_gettid()) /* that is the parent's, which has forked as soon as it went on */
		atomic_store(&listed, 0);
	atomic_store(&apart, 0);
	if (!r)
		r = thread_block_run(&watch, true, watch_main, (void *)body);
	while (!r && !atomic_load(&apart)) /* until then it holds copies of the program's descriptors */
		raw_futex((uint32_t *)&apart, FUTEX_WAIT_PRIVATE, 0, NULL, 0);
	return r;
}

void thread_checkpoint_begins(void)
{
	atomic_store(&listed, raw_gettid());
}

static void checkpoint_main(void *body)
{
	thread_checkpoint_begins();
	thread_name();
	libc_thread_begin(&checkpoint);
	((void (*)(void))body)();
}

/* Runs in a stopped thread. */
static int checkpoint_spawn(void *body)
{
	int r = thread_block_prepare(&checkpoint);

	return r ? r : thread_block_run(&checkpoint, false, checkpoint_main, body);
}

/* Later its number may be another's. A debugger from outside may keep it for long: that is not waited for. */
static void await_unlisted(void)
{
	const struct timespec step = { 0, LISTED_NS / LISTED_TRIES };

	for (int i = 0; i < LISTED_TRIES && !RAW3(SYS_tgkill, raw_getpid(), atomic_load(&listed), 0); i++)
		RAW2(SYS_nanosleep, &step, NULL);
	atomic_store(&listed, 0);
}

void thread_checkpoint_await(void)
{
	raw_thread_join(&checkpoint.thread);
	await_unlisted();
}

int thread_checkpoint_run(void (*body)(void))
{
	int r = stop_lend(0, checkpoint_spawn, (void *)body);

	if (!r)
		thread_checkpoint_await();
	return r;
}

unsigned int thread_foreign_count(void)
{
	const int pid = raw_getpid(), tid = atomic_load(&listed);

	if (RAW3(SYS_tgkill, pid, agent.watch_tid, 0))
		return 0;
	return 1 + (tid && !RAW3(SYS_tgkill, pid, tid, 0)) + (libc_probe_tid() != 0) + device_threads_count();
}

void thread_fail(int err)
{
	if (err == -ENOMEM)
		fermata_fail(err, "process %u has no memory for a thread (errno %d): raise its limit of address space (ulimit -v), or keep it from lowering that", agent.pid, -err);
	else
		fermata_fail(err, "process %u may have no more threads (errno %d): raise its limit of processes (ulimit -u), or keep it from setting that to 0", agent.pid, -err);
}

void thread_checkpoint_record(struct image_thread *ret)
{
	ret->tid = checkpoint.thread.tid;
	ret->fs_base = (uint64_t)thread_block_tcb(&checkpoint);
	ret->clear_child_tid = (uint64_t)&checkpoint.thread.tid;
}
