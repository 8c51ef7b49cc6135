/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libc at a restart, for the library of a kernel's RDMA device.
 *
 * At a restart the checkpoint thread makes the device's objects anew, while every thread of the program stands where it was cut: in malloc, in fopen,
 * in dlopen. softrdma needs nothing of libc there. libibverbs and its providers call all of these. What they touch is of four kinds, and each has
 * an answer of its own:
 *
 *   thread state	(thread-local memory with its dtv, number, locale): the checkpoint thread gets it as pthread_create gives it, by the function of
 *			the dynamic linker that fills a thread's TLS. Its dtv is a part of its block, so nothing is allocated.
 *   locks		of the dynamic linker and of stdio's list of streams: a stopped thread may hold one, and would hold it for ever. So at the stop a thread
 *			of ours, the probe, takes each of them once. Where it does not come through soon, everybody is let go for a moment and stopped again,
 *			as for threads that end (stop.c): an image is written only when all of them are free. So they are at its restart. From the second
 *			attempt on the probe has the linker's lock before anybody is stopped, or a program that loads libraries all the time would
 *			hardly ever be met without it. (Only that lock: a child that is forked meanwhile gets it anew from libc; nobody but dlopen waits for it.)
 *			A probe of an attempt that was given up takes no further lock, and ends as soon as it has the one that it waits for. libc takes a program
 *			for one with a single thread, whatever the agent has, and unlocks in it without a wake-up. So who waits is woken by us: the program by the
 *			probe, the probe at the next stop; and the lock is not held beforehand there: what libc does instead of an atomic exchange would not see it.
 *			For the same reason nobody goes on before a probe that is given up sleeps or has ended.
 *   malloc		no lock tells: a program with one thread is cut in malloc while it holds none, and not every malloc is libc's. So until the
 *			program goes on, malloc is another function (libc_borrow.c).
 *   state of its own	drivers, devices, which are in memory of the program's: libibverbs is not called in the checkpoint thread before the restart, the
 *			program's threads are never stopped in it, so what comes back is whole. It looks for devices again at each ibv_get_device_list.
 *			What its old contexts are is never touched again.
 *
 * Who pays: processes that have looked for RDMA devices, at a stop, with the start of one thread. With softrdma the locks are not waited for long: such a
 * job restarts on softrdma without them, and only its way to another device is then closed. A standard error whose lock
 * a stopped thread holds is used without that lock.
 *
 * What is not covered: locks of other libraries that the program shares with the device's (libnl), of atexit and of setenv.
 *
 * Owns what was found at the last stop. It is written by the watch thread and read by the checkpoint thread, never both at once.
 */
#include "agent/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/thread.h"

#define PROBE_NS 20000000u
#define HOLD_NS 300000000
#define SOFT_TRIES 5u /* of a job whose device needs no libc */
#define DTV_ENTRIES (THREAD_DTV / sizeof(struct dtv))

enum want { WANT_NOT, WANT_PERHAPS, WANT_SURELY };
enum { PROBE_WAITS, PROBE_GOES, PROBE_ENDS }; /* libc.go */

/* An element of a thread's dtv: the first holds how many follow, the second, at which the tcb points, a generation. */
struct dtv {
	uint64_t count;
	void *to_free;
};

/* Where struct pthread has the thread's number: libc tells debuggers, as { bits, elements, offset }. NULL: it does not. */
static const uint32_t *tid_place;
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak)); /* glibc 2.32 */

/* Of the dynamic linker and of libc; not in any header. */
static struct {
	void *(*tls_init)(void *tcb, bool first);
	void (*list_lock)(void), (*list_unlock)(void);
	int (*mutex_lock)(pthread_mutex_t *), (*mutex_unlock)(pthread_mutex_t *); /* for the linker's own */
} private;

static struct {
	_Atomic uint32_t want;
	bool free;
	bool failed;		 /* in this stop */
	uint32_t tries;
	struct thread_block probe;
	_Atomic uint32_t held, go; /* futexes: the probe has the linker's lock; what it is to do then */
	pthread_mutex_t *linker; /* NULL: not found */
	char at[32];		 /* which lock the probe is at */
} libc;

void libc_resolve(void)
{
	const uint32_t *place = dlsym(RTLD_NEXT, "_thread_db_pthread_tid");

	tid_place = place && place[0] == 32 && place[2] < FM_PAGE_SIZE / 2 ? place : NULL;
}

static bool resolve_private(void)
{
	const uint32_t *size = dlsym(RTLD_NEXT, "_thread_db_sizeof_pthread");

#define LOOK_UP(member, name) private.member = (__typeof__(private.member))dlsym(RTLD_NEXT, name)
	LOOK_UP(tls_init, "_dl_allocate_tls_init");
	LOOK_UP(list_lock, "_IO_list_lock");
	LOOK_UP(list_unlock, "_IO_list_unlock");
	LOOK_UP(mutex_lock, "pthread_mutex_lock");
	LOOK_UP(mutex_unlock, "pthread_mutex_unlock");
#undef LOOK_UP
	return private.tls_init && private.list_lock && private.list_unlock && tid_place && size && *size <= FM_PAGE_SIZE;
}

/* The mutex at @at is a recursive one; if @held, ours. (On x86-64: lock, count, owner, users, kind.) */
static bool is_recursive(const pthread_mutex_t *at, bool held)
{
	return at->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP && (!held || (at->__data.__count == 1 && at->__data.__owner == raw_gettid()));
}

struct globals {
	char *at;
	size_t size;
};

/* dl_iterate_phdr holds the lock of the list of objects, which stands behind that of loading. */
static int find_in_globals(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct globals *g = arg;

	for (size_t i = sizeof(pthread_mutex_t); i + sizeof(pthread_mutex_t) <= g->size; i += 8) {
		pthread_mutex_t *m = (pthread_mutex_t *)(void *)(g->at + i);

		if (is_recursive(m, true) && is_recursive(m - 1, false)) {
			libc.linker = m - 1;
			return 1;
		}
	}
	return 1;
}

static void find_linker_lock(void)
{
	struct globals g = { .at = dlsym(RTLD_NEXT, "_rtld_global") };
	ElfW(Sym) *symbol = NULL;
	Dl_info info;

	if (!g.at || !dladdr1(g.at, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
		return;
	g.size = symbol->st_size;
	dl_iterate_phdr(find_in_globals, &g);
}

void fermata_libc_reserve(int surely)
{
	uint32_t want = surely ? WANT_SURELY : WANT_PERHAPS;

	if (atomic_load(&libc.want) >= want)
		return;
	if (!resolve_private()) {
		log_debug("this libc does not lend itself: no restart on a kernel's RDMA device");
		return;
	}
	libc_borrow_resolve();
	find_linker_lock();
	atomic_store(&libc.want, want);
}

void libc_probe_forget(void)
{
	libc.probe.thread.tid = 0;
}

void libc_thread_number(char *tcb)
{
	if (tid_place)
		*(uint32_t *)(tcb + tid_place[2]) = (uint32_t)raw_gettid();
	if (&__rseq_offset)
		*(int32_t *)(tcb + __rseq_offset + 4) = -2; /* cpu_id: not registered */
	uselocale(LC_GLOBAL_LOCALE);
}

/* Takes the dynamic linker's lock of thread-local memory, for a moment. The block has room for all of it (raw_thread_local_size). */
static void fill(const struct thread_block *b)
{
	char *tcb = thread_block_tcb(b);
	struct dtv *dtv = (struct dtv *)thread_block_dtv(b), *first = dtv + 1;

	dtv->count = DTV_ENTRIES - 2;
	memcpy(tcb + 8, &first, sizeof(first));
	private.tls_init(tcb, true);
	libc_thread_number(tcb);
}

void libc_thread_begin(const struct thread_block *b)
{
	if (libc.free)
		fill(b);
}

bool libc_is_free(void)
{
	return libc.free;
}

/* ---- the locks ---- */

static int first_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	return 1;
}

#define AT(lock) memcpy(libc.at, lock, sizeof(lock))

static void linker_unlock(void)
{
	if (!libc.linker)
		return;
	private.mutex_unlock(libc.linker);
	raw_futex((uint32_t *)&libc.linker->__data.__lock, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
}

static void take_loading(void *arg)
{
	Dl_info info;

	dladdr(arg, &info);
}

static void take_objects(void *arg)
{
	(void)arg;
	dl_iterate_phdr(first_object, NULL);
}

static void take_local_memory(void *arg)
{
	(void)arg;
	fill(&libc.probe);
}

static void take_streams(void *arg)
{
	(void)arg;
	AT("that of all streams");
	private.list_lock();
	private.list_unlock();
}

/* One after the other, as long as it is not given up. The thread-local memory comes before the objects: dl_iterate_phdr looks up the program's own, if it has any. */
static void take_the_others(void *arg)
{
	static void (*const takes[])(void *) = { take_loading, take_local_memory, take_objects, take_streams };

	for (size_t i = 0; i < ARRAY_SIZE(takes) && atomic_load(&libc.go) == PROBE_GOES; i++)
		takes[i](arg);
}

static void probe_main(void *arg)
{
	AT("the dynamic linker's");
	libc_thread_number(thread_block_tcb(&libc.probe));
	if (libc.linker)
		private.mutex_lock(libc.linker);
	atomic_store(&libc.held, 1);
	raw_futex((uint32_t *)&libc.held, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	while (atomic_load(&libc.go) == PROBE_WAITS)
		raw_futex((uint32_t *)&libc.go, FUTEX_WAIT_PRIVATE, PROBE_WAITS, NULL, 0);
	linker_unlock();
	take_the_others(arg);
}

/* Until @word is @value no more, for so long. */
static bool await_change(uint32_t *word, uint32_t value, int op, uint64_t ns)
{
	uint64_t until = raw_now_ns() + ns, now;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value) {
		struct timespec left = { 0 };

		now = raw_now_ns();
		if (now >= until)
			return false;
		left.tv_nsec = (long)(until - now);
		raw_futex(word, op, value, &left, 0);
	}
	return true;
}

/* True when it has ended. */
static bool probe_ended(uint64_t ns)
{
	uint32_t tid = __atomic_load_n(&libc.probe.thread.tid, __ATOMIC_ACQUIRE);

	return !tid || await_change(&libc.probe.thread.tid, tid, FUTEX_WAIT, ns);
}

static bool probe_start(uint32_t go)
{
	atomic_store(&libc.held, 0);
	atomic_store(&libc.go, go);
	return !thread_block_prepare(&libc.probe) && !thread_block_run(&libc.probe, true, probe_main, (void *)probe_main);
}

static void probe_tell(uint32_t go)
{
	atomic_store(&libc.go, go);
	raw_futex((uint32_t *)&libc.go, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
}

/* Whatever lock it waits for. */
static void probe_wake(void)
{
	struct stop_thread t = { .tid = libc_probe_tid() };

	if (!t.tid)
		return;
	call_note(&t);
	if (t.call == SYS_futex)
		raw_futex((uint32_t *)t.args[0], FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, 0);
}

void libc_probe_begin(void)
{
	libc.tries = 0;
	libc.free = libc.failed = false;
}

/*
 * One that an earlier attempt has left waiting for a lock says nothing of those that it has taken before this stop. One that is still to be told has taken
 * none but the linker's, which then nobody else has.
 */
static bool probe_passes(void)
{
	probe_wake();
	if (libc_probe_tid() && atomic_load(&libc.go) == PROBE_WAITS) {
		probe_tell(PROBE_GOES);
		return probe_ended(PROBE_NS);
	}
	return probe_ended(PROBE_NS) && probe_start(PROBE_GOES) && probe_ended(PROBE_NS);
}

bool libc_probe(void)
{
	uint32_t want = atomic_load(&libc.want);

	if (want == WANT_NOT)
		return true;
	libc.free = probe_passes();
	libc.failed |= !libc.free;
	if (libc.free)
		return true;
	libc_probe_release();
	return want == WANT_PERHAPS && ++libc.tries >= SOFT_TRIES;
}

/* Without touching it: see above. */
static void await_unlocked(void)
{
	const struct timespec step = { 0, 1000000 };

	for (int i = 0; i < HOLD_NS / step.tv_nsec && __atomic_load_n(&libc.linker->__data.__lock, __ATOMIC_ACQUIRE); i++)
		RAW2(SYS_nanosleep, &step, NULL);
}

void libc_probe_again(void)
{
	if (!libc.failed || !libc.linker)
		return;
	if (&__libc_single_threaded && __libc_single_threaded)
		await_unlocked();
	else if (probe_ended(HOLD_NS) && probe_start(PROBE_WAITS))
		await_change((uint32_t *)&libc.held, 0, FUTEX_WAIT_PRIVATE, HOLD_NS);
}

void libc_probe_release(void)
{
	int tid = libc_probe_tid();

	if (!tid)
		return;
	probe_tell(PROBE_ENDS);
	stop_await_one(tid);
}

int libc_probe_tid(void)
{
	return (int)__atomic_load_n(&libc.probe.thread.tid, __ATOMIC_ACQUIRE);
}

int libc_name_the_cause(void)
{
	return libc.failed ? fermata_fail(-ETIMEDOUT, "a thread holds a lock of libc (%s) all the time, which a restart on an RDMA device of the kernel "
					  "would need", libc.at) : 0;
}
