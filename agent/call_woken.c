/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call that begins again, and that a signal of the program's must end. call.c looks at the pending signals; between that and the call there is a while (our handler's return, and all the time that the thread has to
 * wait for a processor), in which a signal would have its handler run, and the call wait on: its wake-up lost. Who is to wake others after a time, which was over while both stood, sends its signal in that while, as both go on.
 *
 * So the thread does not go on at the call but in woken.S, a few instructions before it. A signal that comes in that while puts its frame on the stack there, and the frame has the thread's mask in it. Where that word
 * will lie is known before: at the same distance as in our own frame. What is no mask is put there; woken.S finds another value, and answers EINTR instead of making the call. Mask, stack and registers
 * are the program's all the time: its handlers look at them (with all signals blocked around a call that opens them, SBCL ends).
 *
 * What is left is the instruction between that look and the call. The kernel has such a gap itself, where a process is stopped and goes on (SIGSTOP): its last look at the signals comes before the return to the call.
 *
 * Which signals: those open in the frame that have a handler. A call that the kernel restarts must not be ended by one with SA_RESTART, and which has come is not seen: only if there is none of these. Where: below the stack pointer, or on the
 * signal stack (SA_ONSTACK). One word can be watched: if ours lies on the signal stack and the program has handlers for either, those of the other. The word is within what the kernel may write at any moment, and so nobody's: below
 * our own frame, or in a part of it that sigreturn does not look at. A frame of another size than ours, after a restart on another processor, is not seen, and the call waits on.
 *
 * Wherever our signal comes: before the call, in it, or where it is ready to be restarted, the frame is put back to the program's, and all is as at the first time (call_woken_undo). But if it comes before the call when the program's has come and gone there
 * that one is lost: twice in a few instructions. Behind the call woken.S's answer is the call's. While a handler of the program's runs in the call, it may wait itself, in the same way: what woken.S
 * has to know lies on the stack. Jumps, cancellations and exceptions leave it as they leave the call.
 *
 * Only in calls of libc, and of our wrappers: what runs elsewhere may have a stack of any size (Go). Owns which signals have handlers, as it was when the process last stood.
 */
#include "agent/call_woken.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "agent/arch/x86_64/woken.h"
#include "agent/call_number.h"
#include "agent/libc.h"
#include "agent/signal_stack.h"

#define FXSAVE_SOFTWARE 464u /* where the kernel says how large its frame is: asm/sigcontext.h */
#define ALIGNED 64u	     /* what XSAVE wants */
_Static_assert(ARCH_WOKEN_BELOW % ALIGNED == 0 && ARCH_MASK_OF_FRAME - ARCH_WOKEN_BELOW == offsetof(ucontext_t, uc_mcontext.__reserved1), "sigreturn does not look at the word");
_Static_assert(ARCH_OLDMASK_OF_FRAME == offsetof(ucontext_t, uc_mcontext.gregs[REG_OLDMASK]), "nor at this");

static struct {
	uint64_t handled, restarting, on_stack;
} actions;

/* Ours, libc's, and what a fault raises in the thread itself, which is in no call then. */
static bool is_apart(int sig)
{
	static const uint64_t faults = 1ull << SIGSEGV | 1ull << SIGBUS | 1ull << SIGFPE | 1ull << SIGILL | 1ull << SIGTRAP | 1ull << SIGSYS;

	return sig == agent.signal || sig == LIBC_SIGNAL_SETXID || faults >> sig & 1;
}

void call_woken_look(void)
{
	struct image_sigaction sa;
	uint64_t bit;

	memset(&actions, 0, sizeof(actions));
	for (int sig = 1; sig <= 64; sig++) {
		if (is_apart(sig) || RAW4(SYS_rt_sigaction, sig, NULL, &sa, RAW_SIGSET_SIZE) || sa.handler <= 1)
			continue;
		bit = 1ull << (sig - 1);
		actions.handled |= bit;
		actions.restarting |= sa.flags & SA_RESTART && sig != LIBC_SIGNAL_CANCEL ? bit : 0; /* who is cancelled does not come back */
		actions.on_stack |= sa.flags & SA_ONSTACK ? bit : 0;
	}
}

/* Where the frame would be of a signal that came below @sp; 0: not known. Ours tells how large one is. */
static uint64_t frame_below(const ucontext_t *f, uint64_t sp)
{
	const struct _fpx_sw_bytes *room = (const void *)((const char *)f->uc_mcontext.fpregs + FXSAVE_SOFTWARE);
	const uint64_t to_fpregs = (uint64_t)f->uc_mcontext.fpregs - (uint64_t)f;

	if (!f->uc_mcontext.fpregs || room->magic1 != FP_XSTATE_MAGIC1)
		return 0;
	return ((sp - ARCH_WOKEN_RED_ZONE - room->extended_size) & ~(ALIGNED - 1ull)) - to_fpregs;
}

/* The same for one of the program's, and of @signals those that come there. */
static uint64_t frame_of_theirs(const ucontext_t *f, uint64_t sp, uint64_t *signals)
{
	const bool has_stack = f->uc_stack.ss_size && !signal_stack_holds(&f->uc_stack, sp); /* where some would be */
	const uint64_t at_sp = has_stack ? *signals & ~actions.on_stack : *signals;

	if (has_stack && signal_stack_holds(&f->uc_stack, (uint64_t)f) && !at_sp)
		return (uint64_t)f;
	*signals = at_sp;
	return frame_below(f, sp);
}

/* Its word to be watched. That lies in ours, if the stack is the same, where sigreturn does not look. 0: none. */
static uint64_t place(const ucontext_t *f, uint64_t sp, uint64_t frame)
{
	if (frame == (uint64_t)f)
		return frame + ARCH_OLDMASK_OF_FRAME;
	if (frame == (uint64_t)f - ARCH_WOKEN_BELOW || (frame && signal_stack_holds(&f->uc_stack, (uint64_t)f) && !signal_stack_holds(&f->uc_stack, sp)))
		return frame + ARCH_MASK_OF_FRAME;
	return 0;
}

/* At the stack's end there may be no room. */
static bool put(uint64_t at, uint64_t word)
{
	const struct iovec from = { &word, sizeof(word) }, to = { (void *)at, sizeof(word) };

	return RAW6(SYS_process_vm_writev, agent.pid, &from, 1, &to, 1, 0) == sizeof(word);
}

#pragma GCC visibility push(hidden)
extern const char __ehdr_start[], etext[]; /* ours, by the linker */
#pragma GCC visibility pop

static bool is_by_libc(const ucontext_t *f)
{
	const uint64_t rip = (uint64_t)f->uc_mcontext.gregs[REG_RIP];

	return call_is_of_libc(f) || rip - (uint64_t)__ehdr_start < (uint64_t)(etext - __ehdr_start);
}

void call_woken(ucontext_t *f, uint64_t without)
{
	greg_t *g = f->uc_mcontext.gregs;
	const uint64_t sp = (uint64_t)g[REG_RSP] - ARCH_WOKEN_BELOW;
	uint64_t signals, at;

	memcpy(&signals, &f->uc_sigmask, sizeof(signals));
	signals = actions.handled & ~signals;
	if (!signals || !is_by_libc(f))
		return;
	at = place(f, sp, frame_of_theirs(f, sp, &signals));
	if (!at || !signals || (without & SA_RESTART && signals & actions.restarting) || !put(at, (uint64_t)ARCH_WOKEN_NONE))
		return;
	g[REG_RCX] = (greg_t)at;
	g[REG_R11] = g[REG_RAX];
	g[REG_RAX] = g[REG_RIP] + 2;
	g[REG_RIP] = (greg_t)arch_woken_begins;
	g[REG_RSP] = (greg_t)sp;
}

bool call_woken_undo(ucontext_t *f)
{
	greg_t *g = f->uc_mcontext.gregs;
	const uint64_t rip = (uint64_t)g[REG_RIP];
	uint64_t pc;

	if (rip - (uint64_t)arch_woken_begins > (uint64_t)(arch_woken_leaves - arch_woken_begins))
		return false;
	if (rip > (uint64_t)arch_woken_called && g[REG_RAX] == -EINTR)
		return false; /* it is not ours */
	if (rip == (uint64_t)arch_woken_leaves) {
		g[REG_RIP] = g[REG_RCX];
		return false;
	}
	pc = rip == (uint64_t)arch_woken_begins ? (uint64_t)g[REG_RAX] : *arch_woken_pc((uint64_t)g[REG_RSP]);
	if (rip < (uint64_t)arch_woken_calls)
		g[REG_RAX] = g[REG_R11];
	g[REG_RIP] = (greg_t)(rip < (uint64_t)arch_woken_called ? pc - 2 : pc);
	g[REG_RSP] += ARCH_WOKEN_BELOW;
	return rip <= (uint64_t)arch_woken_calls;
}

void call_woken_seen(uint64_t *pc, uint64_t *sp)
{
	uint64_t seen;
	const struct iovec to = { &seen, sizeof(seen) }, from = { arch_woken_pc(*sp), sizeof(seen) };

	if (*pc != (uint64_t)arch_woken_called || RAW6(SYS_process_vm_readv, agent.pid, &to, 1, &from, 1, 0) != sizeof(seen))
		return;
	*pc = seen;
	*sp += ARCH_WOKEN_BELOW;
}
