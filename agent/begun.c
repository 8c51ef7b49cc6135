/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the job's programs have from whoever began it (base/begun.h): inherited by fork with the memory, by exec with the environment; at a restart it is what `fermata restart` gives.
 *
 * Filters of system calls that a process has besides those are its own. No call tells what is in them unless root asks, so they could not be made again, and a process that came back
 * without would have more rights than it had given up. And they may refuse what a checkpoint calls, or end who calls it. So such a process is not even stopped: wrappers of prctl and
 * syscall note when one is made, and tell the coordinator that the process ends without a word from now on, or does not where none came of it; the kernel's count tells of those that came over an exec, or were made past libc by the first thread.
 *
 * The same is true of what else a process has confined itself to, or keeps in the kernel: Landlock, securebits, dispatch of its system calls, keyrings, which the kernel does not tell of, so that the wrappers note them; and
 * namespaces and a root directory of its own, which it does tell of for the first thread, and in general wants rights to make again.
 *
 * And of users and groups, which only root may give back, and which a program of root's has as a rule given up for good.
 *
 * And a program with the run-time library of a sanitizer in it would be ended by it: that stands in for libc's memcpy and its kin in our threads, too, and takes what an image is
 * written from for an error of the program's.
 *
 * Owns what was begun with, and the notes.
 */
#include "base/begun.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"

static struct begun begun;
static _Atomic uint32_t own_filters;
static const char *sanitizer; /* NULL: none is in it */

static const void *object_of(const char *symbol)
{
	Dl_info info;
	void *at = dlsym(RTLD_DEFAULT, symbol);

	return at && dladdr(at, &info) ? info.dli_fbase : NULL;
}

/* Those that stand in for memcpy do for __tls_get_addr, too, which is the dynamic linker's; linked into a program they may have no name of their own to be found. */
static void find_sanitizer(void)
{
	const void *copies = object_of("memcpy");

	if (!copies || object_of("__tls_get_addr") != copies)
		return;
	sanitizer = dlsym(RTLD_DEFAULT, "__tsan_init") ? "ThreadSanitizer" : dlsym(RTLD_DEFAULT, "__msan_init") ? "MemorySanitizer" : "AddressSanitizer or one of its kin";
}

void begun_init(void)
{
	find_sanitizer();
	if (begun_take(getenv("FERMATA_BEGUN"), agent.where, &begun)) {
		begun_note(&begun);
		begun.time_s = 0; /* not known: nothing is older */
	}
	begun.unseen &= ~(uint64_t)BEGUN_PROGRAMS; /* of what has become this one */
}

void begun_forked(void)
{
	begun.unseen &= ~(uint64_t)BEGUN_PROGRAMS;
}

void begun_restarted(void)
{
	begun_note(&begun);
	begun.pgid = (uint32_t)RAW1(SYS_getpgid, agent.restart.init); /* it stays where `fermata restart` is */
	begun.sid = (uint32_t)RAW1(SYS_getsid, agent.restart.init);
}

const struct begun *fermata_begun(void)
{
	return &begun;
}

/* The child of a vfork has the parent's memory. Behind the call the thread may not even ask for its pid. */
bool begun_filter_begin(void)
{
	bool noted = agent.active && (uint32_t)raw_getpid() == agent.pid;

	own_filters += noted;
	if (noted)
		exit_foretold(true); /* at its end it may not */
	return noted;
}

/* Where that crosses what another thread foretells, the end of the process is at worst taken for a crash, and a checkpoint fails by it. */
void begun_filter_failed(bool noted)
{
	if (noted && !--own_filters)
		exit_foretold(false);
}

void begun_mark(uint32_t unseen)
{
	if (!agent.active || (uint32_t)raw_getpid() != agent.pid)
		return;
	__atomic_fetch_or(&begun.unseen, unseen, __ATOMIC_RELAXED);
	environment_begun_again();
}

bool begun_filtered(void)
{
	return own_filters;
}

static int refuse(const char *what)
{
	return fermata_fail(-EOPNOTSUPP, "process %u has %s, which cannot be made again: a checkpoint can be taken before it sets one, or when it has ended", agent.pid, what);
}

static int refuse_confined(bool leader_gone)
{
	uint64_t unseen = __atomic_load_n(&begun.unseen, __ATOMIC_RELAXED);
	char status[48], process[32] = "/proc/thread-self"; /* has those of its beginning: all that is left to be seen where the first thread has ended */

	if (sanitizer)
		return fermata_fail(-EOPNOTSUPP, "process %u has %s in it, which would end it for what a checkpoint does: build the program without (-fsanitize)", agent.pid, sanitizer);
	if (!leader_gone)
		fm_format(process, sizeof(process), "/proc/%u", agent.pid);
	if (own_filters || begun_filters("/proc/self/status") > begun.filters)
		return refuse("a seccomp filter of its own");
	if (unseen & BEGUN_LANDLOCK)
		return refuse("a Landlock domain of its own");
	if (unseen & BEGUN_SECUREBITS)
		return refuse("securebits of its own (prctl)");
	if (unseen & BEGUN_DISPATCH)
		return refuse("a dispatch of its system calls (PR_SET_SYSCALL_USER_DISPATCH)");
	if (unseen & (BEGUN_KEYS | BEGUN_SESSION_KEYRING))
		return refuse(unseen & BEGUN_KEYS ? "keys of its own, or of a thread's (keyctl)" : "a session keyring of its own (keyctl)");
	if (unseen & BEGUN_SESSION_KEYS)
		return refuse("keys of its own in the keyring of its session (keyctl)");
	if (unseen & BEGUN_NAMESPACE || begun_places(process) != begun.places)
		return refuse("a namespace or a root directory of its own (unshare, setns, chroot)");
	fm_format(status, sizeof(status), "%s/status", process); /* last: who has confined itself may not be able to read it */
	if (begun_rights(status) != begun.rights)
		return refuse("a user or groups of its own (setuid, setgid, setgroups)");
	return 0;
}

/* The first thread may end in between: then what is not to be read of it any more says nothing. */
int begun_refuse(void)
{
	const bool gone = stop_is_zombie((int)agent.pid);
	int r = refuse_confined(gone);

	if (!r || gone || !stop_is_zombie((int)agent.pid))
		return r;
	agent.fail_text[0] = 0;
	return refuse_confined(true);
}
