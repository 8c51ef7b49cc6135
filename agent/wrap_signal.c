/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hides our signal: the program can neither block it, nor take it, nor replace its handler. Each wrapper takes it out of the sets
 * that it passes on; asking for its action answers SIG_DFL, setting it is accepted and forgotten.
 *
 * On which stack our handler runs. Some run their code on stacks that have no room for a signal's frame, and have signal stacks for that: Go's goroutines, fibers (OCaml 5). There ours has to be on the signal stack, too; it and
 * its frame take less than 5 KiB. But a C program may have one that has room for its own handler alone.
 *   Go	 always. It makes its signal stacks by a call of its own, but sets each signal's action, ours too, with SA_ONSTACK by libc. A library built by it (-buildmode=c-shared) sets some signals' alone: there it is known by
 *	 the note that its linker leaves (.note.go.buildid), in the object that the handler is in.
 *   else	 if all signal stacks that the program has had have SIGNAL_STACK_ROOM
 * Owns what is known of that.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/signalfd.h>

#include "agent/agent.h"
#include "agent/wait.h"
#include "agent/wrap.h"

#define GO_NOTE_BUILD_ID 4
#define SIGNAL_STACK_ROOM 8192 /* bytes: SIGSTKSZ */

static struct {
	_Atomic bool go, small, large; /* there are such */
} stacks;

static bool is_ours(int sig)
{
	return agent.active && sig == agent.signal;
}

static bool stacks_have_room(void)
{
	atomic_thread_fence(memory_order_seq_cst); /* after a library's constructor that came before ours, and whose threads run on */
	return stacks.go || (stacks.large && !stacks.small);
}

/* What is known only grows; of two threads in here the last to set it looks once more after that. */
void wrap_signal_stacks(void)
{
	bool on;

	if (!agent.active)
		return;
	do {
		on = stacks_have_room();
		stop_on_signal_stack(on);
	} while (stacks_have_room() != on);
}

static bool is_go_note(const ElfW(Nhdr) *n)
{
	return n->n_type == GO_NOTE_BUILD_ID && n->n_namesz == sizeof("Go") + 1 && !memcmp(n + 1, "Go\0", n->n_namesz);
}

static bool has_go_note(uintptr_t at, uintptr_t end)
{
	while (at + sizeof(ElfW(Nhdr)) + sizeof("Go") < end) {
		const ElfW(Nhdr) *n = (const void *)at;

		if (is_go_note(n))
			return true;
		at += sizeof(*n) + ((n->n_namesz + 3ul) & ~3ul) + ((n->n_descsz + 3ul) & ~3ul);
	}
	return false;
}

static bool is_go_code(const void *at)
{
	const ElfW(Ehdr) *e;
	const ElfW(Phdr) *p;
	uintptr_t base, note;
	Dl_info info;

	if (!dladdr(at, &info))
		return false;
	e = info.dli_fbase;
	p = (const void *)((const char *)e + e->e_phoff);
	base = e->e_type == ET_DYN ? (uintptr_t)e : 0;
	for (size_t i = 0; i < e->e_phnum; i++) {
		note = base + p[i].p_vaddr;
		if (p[i].p_type == PT_NOTE && has_go_note(note, note + p[i].p_filesz))
			return true;
	}
	return false;
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction copy;

	WRAP_READY(sigaction);
	if (act && act->sa_flags & SA_ONSTACK && !stacks.go && (is_ours(sig) || is_go_code((const void *)act->sa_handler))) {
		stacks.go = true;
		wrap_signal_stacks();
	}
	if (is_ours(sig)) {
		if (old)
			memset(old, 0, sizeof(*old));
		return 0;
	}
	if (act && agent.active) {
		copy = *act;
		sigdelset(&copy.sa_mask, agent.signal);
		act = &copy;
	}
	return real.sigaction(sig, act, old);
}

EXPORT int sigaltstack(const stack_t *stack, stack_t *old)
{
	const bool is_one = stack && !(stack->ss_flags & SS_DISABLE);
	int r;

	WRAP_READY(sigaltstack);
	if (is_one && stack->ss_size < SIGNAL_STACK_ROOM && !stacks.small) {
		stacks.small = true;
		wrap_signal_stacks();
	}
	r = real.sigaltstack(stack, old);
	if (is_one && !r && !stacks.large && stack->ss_size >= SIGNAL_STACK_ROOM) {
		stacks.large = true;
		wrap_signal_stacks();
	}
	return r;
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	WRAP_READY(signal);
	return is_ours(sig) ? SIG_DFL : real.signal(sig, handler);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	WRAP_READY(sigprocmask);
	return real.sigprocmask(how, wait_without_ours(set, &copy), old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t copy;

	WRAP_READY(pthread_sigmask);
	return real.pthread_sigmask(how, wait_without_ours(set, &copy), old);
}

EXPORT int sigwait(const sigset_t *set, int *sig)
{
	sigset_t copy;

	WRAP_READY(sigwait);
	return real.sigwait(wait_without_ours(set, &copy), sig);
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
	sigset_t copy;

	WRAP_READY(sigwaitinfo);
	return real.sigwaitinfo(wait_without_ours(set, &copy), info);
}

EXPORT int signalfd(int fd, const sigset_t *set, int flags)
{
	sigset_t copy;

	WRAP_READY(signalfd);
	return real.signalfd(fd, wait_without_ours(set, &copy), flags);
}
