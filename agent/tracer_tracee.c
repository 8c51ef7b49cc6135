/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread that this process traces, over a checkpoint. All of it runs in the thread that traces, stopped and lent (stop_lend.c): the kernel lets no other.
 *
 *                 stand                    hold                          take again
 *   runs      --SIGSTOP--> stands  --our signal, DETACH--> in traced_hold()  --ATTACH, LET_GO, up to the return from the signal--> stands --> runs
 *   stands    -----------> stands  ...                                                                                             stands --> stands
 *
 * stand. Whether a thread that stands has been told of to its tracer is what waitid says, asked after its state was seen: a stop that comes between the two is then reported, not taken for
 * a known one. A thread that runs is sent SIGSTOP; if it stands for something else first, that is what it stands for, and the SIGSTOP is taken out: with all signals blocked the thread is let go as
 * far as to that. A SIGSTOP that its tracer has sent and not yet heard of (gdb has such) is taken out, too, and waits for the thread again at the end.
 *
 * hold. Nothing of the program may run between DETACH and our handler. So all signals but ours are blocked first: a handler of the program's for one that waits would run before. The mask
 * that was goes along (traced.c). Where libc has blocked its own signals, a thread that begins or ends, no handler may run; and where a wrapper has blocked ours and a call has just been interrupted
 * (wrap_suspend.c), ours would be taken for the reason. Both last for an instant, unless the thread stands there: -EAGAIN, -EINPROGRESS.
 *
 * take again. The thread leaves our handler, system call by system call, and stands at the exit of rt_sigreturn: registers, mask and stack are those of then, nothing of the program has run. There a
 * signal of the number that it stood for is sent, with all others blocked, and what comes with it is set as it was: a tracer that goes on with that signal, or without, or asks for it, sees no difference.
 * An event stop (a thread is born, ..) comes back as the SIGTRAP that it is, and what makes it an event is told by the wrappers (wrap_ptrace.c). If it was not told of yet it is not now, so
 * a tracer in waitpid wakes.
 *
 * Not made again: stops at system calls (PTRACE_SYSCALL), seized threads, group stops: strace. They are refused by name, before anything of them is touched. Debug registers are.
 *
 * A traced process that is killed meanwhile is seen by its end, which is left for its tracer. A tracer that is killed takes it along, if it has asked the kernel for that (PTRACE_O_EXITKILL); but between ATTACH and the stop that
 * it brings it leaves a stopped thread behind, as whoever attaches does, unless that is of its child (traced.c).
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/libc.h"
#include "agent/tracer.h"

#define STAND_NS 1000000000ull
#define YIELDS 100u
#define MANY_LOOKS 10000u
#define ALL_SIGNALS (~0ull)
#define BIT(sig) (1ull << ((sig) - 1))
#define TRACE(request, tid, addr, data) RAW4(SYS_ptrace, request, tid, addr, data)

/* Longer where it lasts: it may be stopped by its user. */
static void nap(uint32_t looks)
{
	struct timespec ts = { 0, looks < MANY_LOOKS ? 100000 : 10000000 };

	RAW2(SYS_nanosleep, &ts, NULL);
}

/* The next news of it that have not been read, with @flags; they stay unread with WNOWAIT. 1, 0: none, or -errno. */
static int news(const struct tracee *t, int flags, siginfo_t *ret)
{
	long r;

	memset(ret, 0, sizeof(*ret));
	r = RAW5(SYS_waitid, P_PID, t->tid, ret, WSTOPPED | WEXITED | __WALL | flags, NULL);
	return r < 0 ? (int)r : ret->si_pid != 0;
}

static bool has_ended(const struct tracee *t)
{
	char state = raw_process_state(t->tid);

	return !state || state == 'Z' || state == 'X';
}

static bool is_stop(const siginfo_t *info)
{
	return info->si_code == CLD_TRAPPED || info->si_code == CLD_STOPPED;
}

/*
 * Waits until it stands, and reads of that if @read. 0, or -ESRCH: it has ended. The end of a first thread is no news as long as another of the process, ended
 * likewise, has not been read of, and that is for its tracer to do: so who waits looks.
 */
static int await_stop(struct tracee *t, bool read, siginfo_t *ret)
{
	for (uint32_t looks = 0;; looks++) {
		int r = news(t, WNOHANG | WNOWAIT, ret);

		if (r < 0 || (r && !is_stop(ret)) || (!r && has_ended(t))) {
			t->gone = true;
			return -ESRCH;
		}
		if (r)
			return read && news(t, WNOHANG, ret) < 0 ? -ESRCH : 0;
		if (looks < YIELDS)
			RAW0(SYS_sched_yield);
		else
			nap(looks);
	}
}

/* Who stands for its tracer does so until that goes on, which may have a second's work. */
static int again(const struct tracee *t, const char *why)
{
	return fermata_fail(t->seen && !t->running ? -EINPROGRESS : -EAGAIN, "thread %d of process %d, which process %u traces, %s", t->tid, t->pid, agent.pid, why);
}

static int refuse(const struct tracee *t, const char *how)
{
	return fermata_fail(-EOPNOTSUPP, "process %u traces process %d, which is of the job, too, %s: a checkpoint can be taken when it has let go, or of the program without it",
			    agent.pid, t->pid, how);
}

static bool stop_waits(const struct tracee *t)
{
	char path[64];

	fm_format(path, sizeof(path), "/proc/%d/status", t->tid);
	return pending_status_in(path, "SigPnd") & BIT(SIGSTOP);
}

/* Until it stands; @ret is what it has not told of it, if @t->unread. */
static int await_standing(struct tracee *t, siginfo_t *ret)
{
	const uint64_t limit = raw_now_ns() + STAND_NS;

	for (;; nap(0)) {
		char state = raw_process_state(t->tid);
		int r = news(t, WNOHANG | WNOWAIT, ret);

		if (r == -ECHILD || state == 'Z' || !state) {
			t->gone = true;
			return r == 1 && t->tid != t->pid ? again(t, "has ended, and it has not been told") : 0;
		}
		if (r < 0)
			return fermata_fail(r, "process %u cannot ask how its thread %d is (errno %d)", agent.pid, t->tid, -r);
		if (r && !is_stop(ret))
			continue; /* a zombie in an instant */
		t->unread = r;
		if (r || state == 't')
			return 0;
		if (!t->running) {
			t->running = true;
			t->owes_stop = stop_waits(t);
			if (!t->owes_stop)
				raw_tgkill(t->pid, t->tid, SIGSTOP);
		} else if (raw_now_ns() > limit) {
			return again(t, "does not stand still: it sleeps in the kernel and takes no signal");
		}
	}
}

/* The kernel goes on to the SIGSTOP that waits, before anything of the program. */
static int take_stop_out(struct tracee *t)
{
	const uint64_t all = ALL_SIGNALS;
	siginfo_t info;

	t->touched = true;
	TRACE(PTRACE_SETSIGMASK, t->tid, RAW_SIGSET_SIZE, &all);
	return TRACE(PTRACE_CONT, t->tid, 0, 0) < 0 ? -ESRCH : await_stop(t, true, &info);
}

static int look(struct tracee *t)
{
	long r = TRACE(PTRACE_GETSIGINFO, t->tid, 0, &t->info);

	if (r == -EINVAL)
		return again(t, "is stopped by job control");
	if (r >= 0)
		r = TRACE(PTRACE_GETSIGMASK, t->tid, RAW_SIGSET_SIZE, &t->mask);
	for (size_t i = 0; i < ARRAY_SIZE(t->debug) && r >= 0; i++)
		if (i != 4 && i != 5)
			r = TRACE(PTRACE_PEEKUSER, t->tid, offsetof(struct user, u_debugreg[i]), &t->debug[i]);
	if (r >= 0)
		r = TRACE(PTRACE_GETEVENTMSG, t->tid, 0, &t->message);
	return r < 0 ? fermata_fail((int)r, "process %u cannot ask for what thread %d stands (errno %ld)", agent.pid, t->tid, -r) : 0;
}

/* Before it is touched: what it stands for then could not be made again, and its tracer would take that for a signal. */
static int check_note(const struct tracee *t)
{
	if (t->note.seized)
		return refuse(t, "by PTRACE_SEIZE, as strace does");
	if (t->note.resumed != PTRACE_CONT && t->note.resumed != PTRACE_SINGLESTEP)
		return refuse(t, "from one system call to the next");
	return 0;
}

static int check(const struct tracee *t)
{
	uint32_t event = t->info.si_signo == SIGTRAP && t->info.si_code > 0 ? (uint32_t)t->info.si_code >> 8 : 0;
	struct user_regs_struct regs;
	long r;

	if (event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_EXEC || event == PTRACE_EVENT_EXIT || event == PTRACE_EVENT_SECCOMP)
		return again(t, "stands in the middle of vfork, exec or its end");
	r = TRACE(PTRACE_GETREGS, t->tid, 0, &regs);
	if (r < 0)
		return fermata_fail((int)r, "process %u cannot read the registers of thread %d (errno %ld)", agent.pid, t->tid, -r);
	if (t->mask & BIT(LIBC_SIGNAL_SETXID) || (t->mask & BIT(agent.signal) && (long)regs.rax == -EINTR))
		return again(t, "stands where no signal may be delivered");
	return 0;
}

int tracee_stand(struct tracee *t)
{
	siginfo_t info;
	bool asked;
	int r;

	ptrace_note_of(t->pid, t->tid, &t->note);
	r = check_note(t);
	if (!r)
		r = await_standing(t, &info);
	if (r || t->gone)
		return r;
	asked = t->running && !t->owes_stop;
	t->running = asked && t->unread && info.si_status == SIGSTOP;
	if (t->running) {
		t->unread = false;
		t->touched = true;
		news(t, WNOHANG, &info);
	}
	r = look(t);
	if (r)
		return r;
	t->seen = true;
	if (t->unread)
		t->event = (uint32_t)info.si_status >> 8;
	ptrace_event_kept(t);
	t->owes_stop = !t->running && stop_waits(t);
	if (t->owes_stop)
		r = take_stop_out(t);
	t->owes_stop &= !asked;
	return r == -ESRCH ? 0 : r ? r : check(t);
}

int tracee_hold(struct tracee *t, uint32_t attempt)
{
	const uint64_t mask = ~BIT(agent.signal);
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_code = SI_QUEUE;
	info.si_pid = (int)agent.pid;
	info.si_errno = (int)(uint32_t)t->mask;
	info.si_uid = (uint32_t)(t->mask >> 32);
	if (t->note.options & PTRACE_O_EXITKILL)
		attempt |= TRACER_KILLS;
	info.si_value.sival_ptr = (void *)((uint64_t)TRACER_HOLD << 32 | attempt);
	if (RAW4(SYS_rt_tgsigqueueinfo, t->pid, t->tid, agent.signal, &info) < 0)
		return again(t, "takes no signal");
	t->touched = true;
	TRACE(PTRACE_SETSIGMASK, t->tid, RAW_SIGSET_SIZE, &mask);
	t->held = TRACE(PTRACE_DETACH, t->tid, 0, 0) >= 0;
	return 0;
}

static void let_go(const struct tracee *t)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_code = SI_QUEUE;
	info.si_pid = (int)agent.pid;
	info.si_value.sival_ptr = (void *)((uint64_t)TRACER_LET_GO << 32);
	RAW4(SYS_rt_tgsigqueueinfo, t->pid, t->tid, agent.signal, &info);
}

/*
 * From its stop at ATTACH, or any system call of our handler's, to where it returns to the program. It may not have come into the handler yet, if no processor was
 * free for it: then what holds it is shown to us first, and passed on.
 */
static int leave_handler(struct tracee *t)
{
	struct user_regs_struct regs;
	siginfo_t info;
	bool last = false;
	int sig = 0, r;

	let_go(t);
	for (;;) {
		if (TRACE(PTRACE_SYSCALL, t->tid, 0, sig) < 0)
			return -ESRCH;
		r = await_stop(t, true, &info);
		if (r)
			return r;
		sig = info.si_status == agent.signal ? agent.signal : 0;
		if (info.si_status != (SIGTRAP | 0x80))
			continue;
		if (last)
			return 0;
		if (TRACE(PTRACE_GETREGS, t->tid, 0, &regs) < 0)
			return -ESRCH;
		last = regs.orig_rax == SYS_rt_sigreturn;
	}
}

static int attach(struct tracee *t)
{
	siginfo_t info;
	long r = TRACE(PTRACE_ATTACH, t->tid, 0, 0);

	if (r < 0)
		return has_ended(t) ? -ESRCH : (int)r;
	do {
		r = await_stop(t, true, &info);
		if (r)
			return (int)r;
	} while (info.si_status != SIGSTOP && TRACE(PTRACE_CONT, t->tid, 0, info.si_status) >= 0);
	TRACE(PTRACE_SETOPTIONS, t->tid, 0, PTRACE_O_TRACESYSGOOD | (t->note.options & PTRACE_O_EXITKILL)); /* we may die before it has all of them */
	r = leave_handler(t);
	for (size_t i = 0; i < ARRAY_SIZE(t->debug) && !r; i++)
		if (t->debug[i])
			TRACE(PTRACE_POKEUSER, t->tid, offsetof(struct user, u_debugreg[i]), t->debug[i]);
	return (int)r;
}

/* It stands at the registers that it had: it stands for what it stood for. */
static int stand_again(struct tracee *t)
{
	const uint64_t others = ~BIT(t->info.si_signo);
	siginfo_t info;
	int r;

	TRACE(PTRACE_SETSIGMASK, t->tid, RAW_SIGSET_SIZE, &others);
	raw_tgkill(t->pid, t->tid, t->info.si_signo);
	if (TRACE(PTRACE_CONT, t->tid, 0, 0) < 0)
		return -ESRCH;
	r = await_stop(t, !t->unread, &info);
	if (r)
		return r;
	TRACE(PTRACE_SETSIGINFO, t->tid, 0, &t->info);
	if (t->event || (t->info.si_signo == SIGTRAP && t->info.si_code > 0xff))
		ptrace_event_keep(t);
	if (t->owes_stop)
		raw_tgkill(t->pid, t->tid, SIGSTOP);
	return 0;
}

int tracee_take_again(struct tracee *t)
{
	int r = 0;

	if (t->gone || !t->touched)
		return 0;
	if (t->held)
		r = attach(t);
	if (!r && !t->running)
		r = stand_again(t);
	if (r)
		return r == -ESRCH ? 0 : r; /* its tracer will see its end */
	TRACE(PTRACE_SETSIGMASK, t->tid, RAW_SIGSET_SIZE, &t->mask);
	TRACE(PTRACE_SETOPTIONS, t->tid, 0, t->note.options);
	if (t->running)
		TRACE(t->note.resumed, t->tid, 0, 0);
	return 0;
}
