/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A system call that our signal interrupted goes on, and the program sees no EINTR of ours (but for one kind, below).
 *
 * Our handler has SA_RESTART, so the kernel restarts most calls by itself (the frame's rip then stands before the instruction). The
 * others (poll, nanosleep, sigsuspend, semop, ... : signal(7)) come with rip behind the instruction and rax = -EINTR. For
 * those, call_continue() puts the frame back: rip to the instruction, rax to the number, and a relative time-out to what is left
 * of it. Which call it is call_number.c says.
 *
 * A signal of the program's own that became pending meanwhile must end the call with EINTR, as it would have: then the
 * frame is left alone, and the handler runs on the way out. A call that the kernel has made ready to be restarted is
 * ended so, too, if that handler has no SA_RESTART. Signals that are blocked in the frame are no matter: a call that
 * opens them for its duration (sigsuspend, ppoll) does so again, atomically, when it is executed again, and once a handler has
 * run in it it is not interrupted by us (wrap_suspend.c). A signal that comes after the look at the pending ones is call_woken.c's.
 *
 * Time-outs that only the wrapper knew (poll, epoll_wait, nanosleep without a rest, ..) are in fermata_thread.deadline_ns:
 * wait.h. CLOCK_MONOTONIC goes on over a restart, so deadlines hold there too. Of those that the kernel has told (nanosleep's rest, which sleep(3) and C++ ask for, ppoll, select) the time that
 * the thread has stood is taken off. A socket's (SO_RCVTIMEO) begins anew.
 *
 * A relative time-out of which nobody knows how much has gone: the program makes the call itself, without libc (Go). It would begin anew at each checkpoint, and never end where those come more often. So this
 * call does end with EINTR, as epoll_wait does by the kernel itself when a process was stopped and goes on (signal(7)). Who makes such calls knows that: Go's runtime looks at the clock and waits for the rest.
 * Only a call of libc's own, or one that was taken from libc past us (dlsym with a handle, ctypes), begins anew: of these not all are ready for an EINTR.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "agent/call_number.h"
#include "agent/wait.h"

enum how {
	AGAIN = 1,   /* same arguments: no time-out, or an absolute one */
	MS_ARG,	     /* relative milliseconds in an argument */
	TIMESPEC_ARG, /* pointer to a relative timespec in an argument */
	REST_TIMESPEC, REST_TIMEVAL, /* the same, in which the kernel has left the rest */
	SLEEP_ARG,   /* nanosleep: the rest, if asked for, is in the next argument; flags before may say absolute */
	FUTEX_ARG,
	TERMINAL,    /* an ioctl that waits until what was written has gone: tcdrain, tcsendbreak */
};

static const struct rule {
	uint16_t call;
	uint8_t how, arg; /* arg counts from 0 */
} rules[] = {
	{ SYS_poll, MS_ARG, 2 },
	{ SYS_epoll_wait, MS_ARG, 3 },
	{ SYS_epoll_pwait, MS_ARG, 3 },
	{ SYS_epoll_pwait2, TIMESPEC_ARG, 3 },
	{ SYS_nanosleep, SLEEP_ARG, 0 },
	{ SYS_clock_nanosleep, SLEEP_ARG, 2 },
	{ SYS_rt_sigtimedwait, TIMESPEC_ARG, 2 },
	{ SYS_semtimedop, TIMESPEC_ARG, 3 },
	{ SYS_futex, FUTEX_ARG, 3 },
	{ SYS_pause, AGAIN, 0 },
	{ SYS_rt_sigsuspend, AGAIN, 0 },
	{ SYS_ppoll, REST_TIMESPEC, 2 },
	{ SYS_pselect6, REST_TIMESPEC, 4 },
	{ SYS_select, REST_TIMEVAL, 4 },
	{ SYS_semop, AGAIN, 0 },
	{ SYS_msgsnd, AGAIN, 0 },
	{ SYS_msgrcv, AGAIN, 0 },
	{ SYS_mq_timedsend, AGAIN, 0 },
	{ SYS_mq_timedreceive, AGAIN, 0 },
	{ SYS_io_getevents, AGAIN, 0 },
	{ SYS_fallocate, AGAIN, 0 }, /* of memory */
	{ SYS_ioctl, TERMINAL, 1 },
	{ SYS_read, AGAIN, 0 }, /* sockets with a time-out */
	{ SYS_readv, AGAIN, 0 },
	{ SYS_write, AGAIN, 0 },
	{ SYS_writev, AGAIN, 0 },
	{ SYS_recvfrom, AGAIN, 0 },
	{ SYS_recvmsg, AGAIN, 0 },
	{ SYS_recvmmsg, AGAIN, 0 },
	{ SYS_sendto, AGAIN, 0 },
	{ SYS_sendmsg, AGAIN, 0 },
	{ SYS_sendmmsg, AGAIN, 0 },
	{ SYS_sendfile, AGAIN, 0 },
	{ SYS_splice, AGAIN, 0 },
	{ SYS_connect, AGAIN, 0 },
	{ SYS_accept, AGAIN, 0 },
	{ SYS_accept4, AGAIN, 0 },
};

/* Calls that a handler without SA_RESTART ends with EINTR, and one with it restarts (ERESTARTSYS). Others always restart. */
static const uint16_t restarted_calls[] = {
	SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev,
	SYS_pwritev2, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_accept, SYS_accept4,
	SYS_connect, SYS_wait4, SYS_waitid, SYS_ioctl, SYS_flock, SYS_fcntl, SYS_open, SYS_openat, SYS_splice, SYS_tee,
	SYS_sendfile, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_futex,
};

static const struct rule *rule_of(long number)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].call == number)
			return &rules[i];
	return NULL;
}

static __thread struct timespec rest __attribute__((tls_model("initial-exec")));

/* True if a handler of the program's is due as soon as we return: one whose flags have none of @without. */
static bool handler_is_due(const ucontext_t *f, uint64_t without)
{
	uint64_t pending = 0, blocked;

	memcpy(&blocked, &f->uc_sigmask, sizeof(blocked));
	RAW2(SYS_rt_sigpending, &pending, RAW_SIGSET_SIZE);
	pending &= ~blocked & ~(1ull << (agent.signal - 1));
	for (int sig = 1; pending; sig++, pending >>= 1) {
		struct image_sigaction sa;

		if ((pending & 1) && RAW4(SYS_rt_sigaction, sig, NULL, &sa, RAW_SIGSET_SIZE) == 0 && sa.handler > 1 &&
		    !(sa.flags & without))
			return true;
	}
	return false;
}

/* True if the kernel has put the frame before the instruction, for the call to be restarted. */
static bool frame_before_call(const ucontext_t *f, const struct stop_thread *t)
{
	const greg_t *g = f->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP];

	return t->call >= 0 && t->call_pc == (uint64_t)pc + 2 && t->call_sp == (uint64_t)g[REG_RSP] &&
	       g[REG_RAX] == t->call && pc[0] == 0x0f && pc[1] == 0x05;
}

/* The kernel restarts the call, unless a handler without SA_RESTART has run. */
static bool is_restarted(const ucontext_t *f, const struct stop_thread *t)
{
	const long op = t->args[1] & 0x7f;

	if (!frame_before_call(f, t))
		return false;
	if (t->call == SYS_futex && op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(restarted_calls); i++)
		if (restarted_calls[i] == t->call)
			return true;
	return false;
}

/* Nanoseconds until the deadline that the wrapper noted; 0 when it has passed. */
static uint64_t left(void)
{
	uint64_t now = raw_now_ns();

	return fermata_thread.deadline_ns > now ? fermata_thread.deadline_ns - now : 0;
}

static void rest_to(greg_t *arg)
{
	uint64_t ns = left();

	rest.tv_sec = (time_t)(ns / 1000000000u);
	rest.tv_nsec = (long)(ns % 1000000000u);
	*arg = (greg_t)&rest;
}

/* How long it has stood, in nanoseconds. */
static uint64_t stood(const struct stop_thread *t)
{
	const uint64_t now = raw_now_ns();

	return t->came_ns && t->came_ns < now ? now - t->came_ns : 0;
}

/* The two numbers at @at, seconds and parts of @part_ns each, less @ns. */
static void read_less(greg_t at, uint64_t part_ns, uint64_t ns, int64_t ret[2])
{
	uint64_t all;

	memcpy(ret, (const void *)at, 2 * sizeof(*ret));
	if ((uint64_t)ret[0] > WAIT_LONGEST_S)
		return;
	all = (uint64_t)ret[0] * 1000000000u + (uint64_t)ret[1] * part_ns;
	all = all > ns ? all - ns : 0;
	ret[0] = (int64_t)(all / 1000000000u);
	ret[1] = (int64_t)(all % 1000000000u / part_ns);
}

/* It may lie where only the kernel has found that it cannot be written. */
static void shorten(greg_t at, uint64_t part_ns, uint64_t ns)
{
	int64_t left[2];
	const struct iovec from = { left, sizeof(left) }, to = { (void *)at, sizeof(left) };

	read_less(at, part_ns, ns, left);
	RAW6(SYS_process_vm_writev, agent.pid, &from, 1, &to, 1, 0);
}

static void sleep_again(ucontext_t *f, const struct rule *r, const struct stop_thread *t)
{
	greg_t *req = call_arg(f, r->arg), *rem = call_arg(f, r->arg + 1u);
	const int clock = r->arg ? (int)*call_arg(f, 0) : CLOCK_MONOTONIC;
	const bool of_processor = clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID;

	if (r->arg && (*call_arg(f, r->arg - 1u) & TIMER_ABSTIME))
		return;
	if (*rem) { /* the kernel has put the rest there, and would not again if a signal came before the call (call_woken.c) */
		shorten(*rem, 1, of_processor ? 0 : stood(t));
		memcpy(&rest, (const void *)*rem, sizeof(rest));
		*req = (greg_t)&rest;
	} else if (fermata_thread.deadline_ns) {
		rest_to(req);
	}
}

/* False: the call must not be executed again. */
static bool adjust(ucontext_t *f, const struct rule *r, const struct stop_thread *t)
{
	greg_t *arg = call_arg(f, r->arg);

	switch (r->how) {
	case REST_TIMESPEC:
	case REST_TIMEVAL:
		if (*arg)
			shorten(*arg, r->how == REST_TIMEVAL ? 1000 : 1, stood(t));
		break;
	case MS_ARG:
		if ((int)*arg <= 0)
			break;
		if (!fermata_thread.deadline_ns)
			return call_is_of_libc(f);
		*arg = (greg_t)((left() + 999999u) / 1000000u);
		break;
	case TIMESPEC_ARG:
		if (!*arg)
			break;
		if (!fermata_thread.deadline_ns)
			return call_is_of_libc(f);
		rest_to(arg);
		break;
	case SLEEP_ARG:
		sleep_again(f, r, t);
		break;
	case FUTEX_ARG: /* only FUTEX_WAIT has a relative time-out */
		if (!*arg || (*call_arg(f, 1) & 0x7f) != FUTEX_WAIT)
			break;
		if (!fermata_thread.deadline_ns)
			return call_is_of_libc(f);
		rest_to(arg);
		break;
	case TERMINAL:
		return *arg == TCSBRK || *arg == TCSBRKP;
	}
	return true;
}

/*
 * A connect that the kernel has made ready to be restarted looks after its connection when it is executed again. A socket that a
 * restart has re-created is connected already and would say EISCONN. What the thread was in may not be known: it may have
 * entered the call after it was looked at.
 */
static bool connect_is_done(ucontext_t *f, const struct stop_thread *t)
{
	const uint8_t *pc = (const uint8_t *)f->uc_mcontext.gregs[REG_RIP];
	uint8_t peer[128];
	uint32_t length = sizeof(peer);

	if (f->uc_mcontext.gregs[REG_RAX] != SYS_connect || pc[0] != 0x0f || pc[1] != 0x05)
		return false;
	if (t->call >= 0 && !frame_before_call(f, t))
		return false;
	return RAW3(SYS_getpeername, *call_arg(f, 0), peer, &length) == 0;
}

/* The call has been ended for our sake: it begins again. False: it does not, or was not. */
static bool begin_again(ucontext_t *f, const struct stop_thread *t)
{
	greg_t *g = f->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP];
	const struct rule *rule;
	long number;

	if (g[REG_RAX] != -EINTR || pc[-2] != 0x0f || pc[-1] != 0x05)
		return false;
	number = call_number(f, t);
	rule = rule_of(number);
	if (!rule || !adjust(f, rule, t))
		return false;
	g[REG_RAX] = number;
	g[REG_RIP] -= 2;
	return true;
}

/* The thread stands right behind a call that has done something: all that it was to do, or what it had done when we came (agent/whole.h). */
static void note_cut(const ucontext_t *f)
{
	const greg_t *g = f->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP];

	if (g[REG_RAX] > 0 && pc[-2] == 0x0f && pc[-1] == 0x05)
		fermata_thread.cut = g[REG_RAX];
}

bool call_continue(ucontext_t *f, const struct stop_thread *t, bool restarted, uint64_t *ret_without)
{
	greg_t *g = f->uc_mcontext.gregs;
	bool again = false;

	*ret_without = 0;
	if (t->before_call && !is_restarted(f, t)) { /* as if it had got there */
		g[REG_RAX] = -EINTR;
		g[REG_RIP] += 2;
	}
	if (!handler_is_due(f, 0)) {
		note_cut(f);
		again = begin_again(f, t);
	}
	if (restarted && connect_is_done(f, t)) {
		g[REG_RAX] = 0;
		g[REG_RIP] += 2;
		return false;
	}
	if (again || !is_restarted(f, t))
		return again;
	*ret_without = SA_RESTART;
	if (!handler_is_due(f, SA_RESTART))
		return true;
	g[REG_RAX] = -EINTR;
	g[REG_RIP] += 2;
	return false;
}
