/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Restores the threads. The process's first task becomes the image's leader, the others are cloned with their old ids. Each
 * sets what a thread has for itself, says that it is ready and waits; when all are ready, timers are started, then all jump. Signals that
 * waited for the process are the agent's to queue again. A process whose leader has ended before (pthread_exit in main) gets no leader either: its first task ends
 * here, and the kernel lets the others go then (set_tid_address), since they may unmap the code that it runs.
 *
 * Capabilities of the capsule are dropped here by all threads but the checkpoint thread, which needs them until it has
 * re-created the process's resources. A root of its user namespace keeps them, as root had them before.
 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/rseq.h>
#include <stddef.h>

#include "arch/x86_64/arch.h"
#include "base/pid_walk.h"
#include "base/speculation.h"
#include "restorer.h"

struct start { /* at the top of a thread's stack in the hole */
	struct restorer *r;
	const struct image_thread *t;
};

static void check(struct restorer *r, const struct image_thread *t, const char *step, long ret)
{
	if (ret < 0)
		fail(r, step, t->tid, ret);
}

static void set_rseq(struct restorer *r, const struct image_thread *t)
{
	if (!t->rseq_length)
		return;
	/* A critical section cannot be under way: the thread stands in a signal handler, and that aborted it. */
	((volatile struct rseq *)t->rseq)->rseq_cs = 0;
	check(r, t, "registering rseq of thread", RAW4(SYS_rseq, t->rseq, t->rseq_length, 0, t->rseq_signature));
}

static void set_altstack(struct restorer *r, const struct image_thread *t)
{
	stack_t stack = {
		.ss_sp = (void *)t->altstack_sp,
		.ss_flags = (int)(t->altstack_flags & ~(uint32_t)SS_ONSTACK),
		.ss_size = t->altstack_size,
	};

	if (t->altstack_flags & SS_DISABLE || !t->altstack_size)
		return;
	check(r, t, "setting the signal stack of thread", RAW2(SYS_sigaltstack, &stack, NULL));
}

static void set_memory_policy(struct restorer *r, const struct image_thread *t)
{
	int err = (int)RAW3(SYS_set_mempolicy, t->memory_policy, t->memory_nodes, t->memory_policy ? 8 * sizeof(t->memory_nodes) : 0);

	if (err && t->memory_policy && !__atomic_exchange_n(&r->policy_told, 1, __ATOMIC_RELAXED))
		warn(r, "pages come from where this host has them: it has not the memory policy of thread", t->tid, err);
}

void threads_place_memory(struct restorer *r)
{
	set_memory_policy(r, &r->threads[0]);
}

/* What `fermata restart` has forbidden for good stays so (EPERM), and protects no less. */
static void set_speculation(struct restorer *r, const struct image_thread *t)
{
	for (uint32_t kind = 0; kind < SPECULATION_KINDS; kind++) {
		long has = speculation_ask(kind);
		uint32_t wanted = speculation_wanted(t->speculation, kind, has);

		if (wanted)
			RAW5(SYS_prctl, PR_SET_SPECULATION_CTRL, kind, wanted, 0, 0);
		else if (speculation_lacks(t->speculation, kind, has) && !__atomic_exchange_n(&r->speculation_told, 1, __ATOMIC_RELAXED))
			warn(r, "the processor speculates as this host has it: nobody may choose here, as had thread", t->tid, 0);
	}
}

/* What threads and programs that it begins have from it. */
static void set_heritable(struct restorer *r, const struct image_thread *t)
{
	RAW1(SYS_personality, t->personality);
	if (t->timer_slack_ns)
		RAW5(SYS_prctl, PR_SET_TIMERSLACK, t->timer_slack_ns, 0, 0, 0);
	if (t->machine_check)
		RAW5(SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_SET, t->machine_check - 1, 0, 0);
	set_speculation(r, t);
	set_memory_policy(r, t);
}

static void set_thread(struct restorer *r, const struct image_thread *t)
{
	set_heritable(r, t);
	if (t->death_signal)
		RAW5(SYS_prctl, PR_SET_PDEATHSIG, t->death_signal, 0, 0, 0);
	if (t->robust_list)
		check(r, t, "setting the robust list of thread",
		      RAW2(SYS_set_robust_list, t->robust_list, t->robust_length));
	RAW1(SYS_set_tid_address, t->clear_child_tid);
	set_rseq(r, t);
	RAW5(SYS_prctl, PR_SET_NAME, t->comm, 0, 0, 0);
	set_altstack(r, t);
	if (t->gs_base)
		check(r, t, "setting gs of thread", arch_set_gs(t->gs_base));
	for (int sig = 1; sig <= 64; sig++)
		if (t->pending & 1ull << (sig - 1))
			check(r, t, "sending a pending signal to thread", raw_tgkill((int)r->pid, (int)t->tid, sig));
}

static void drop_capabilities(struct restorer *r, const struct image_thread *t)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	if (!r->plan->restart.caps || t->flags & IMAGE_THREAD_AGENT)
		return;
	check(r, t, "dropping the capabilities of thread", RAW2(SYS_capset, &head, none));
}

static _Noreturn void leave(struct restorer *r, const struct image_thread *t)
{
	drop_capabilities(r, t);
	raw_sigprocmask(SIG_SETMASK, &t->sigmask, NULL);
	arch_jump(&t->context);
}

static void thread_main(void *arg)
{
	struct start *s = arg;
	struct restorer *r = s->r;

	if (raw_gettid() != (int)s->t->tid)
		raw_exit_thread(0); /* walked past */
	set_thread(r, s->t);
	__atomic_fetch_add(&r->ready, 1, __ATOMIC_ACQ_REL);
	wake_all(&r->ready);
	while (__atomic_load_n(&r->hold, __ATOMIC_ACQUIRE))
		raw_futex(&r->hold, FUTEX_WAIT, 1, NULL, 0);
	raw_futex(&r->hold, FUTEX_WAKE, 1, NULL, 0);
	leave(r, s->t);
}

static void await_turn(struct restorer *r, uint32_t tid)
{
	struct plan_turns *turns = r->turns;
	uint32_t seen;

	/* Behind the last: somebody has given up, and all are about to be ended. */
	while ((seen = __atomic_load_n(&turns->turn, __ATOMIC_ACQUIRE)) >= turns->count || turns->ids[seen] != tid)
		raw_futex(&turns->turn, FUTEX_WAIT, seen, NULL, 0);
}

/* Whoever was to be waited for when somebody fails is ended with the whole restart. */
static void pass_turn(struct restorer *r)
{
	char mark = PLAN_PROGRESS;

	__atomic_fetch_add(&r->turns->turn, 1, __ATOMIC_ACQ_REL);
	raw_futex(&r->turns->turn, FUTEX_WAKE, INT32_MAX, NULL, 0);
	raw_write((int)r->plan->log_fd, &mark, 1);
}

/* A thread that got another number ends at once, on the stack that the next one gets. */
static long clone_until(struct restorer *r, struct clone_args *args, struct start *s)
{
	long got;

	do {
		__atomic_store_n(&r->stranger, 1, __ATOMIC_RELEASE);
		got = arch_clone(args, thread_main, s);
		if (got < 0 || got == (long)s->t->tid)
			return got;
		while (__atomic_load_n(&r->stranger, __ATOMIC_ACQUIRE))
			raw_futex(&r->stranger, FUTEX_WAIT, 1, NULL, 0);
	} while (got < (long)s->t->tid);
	return -EEXIST;
}

/* The tid, or -errno. */
static long walk_to_thread(struct restorer *r, struct clone_args *args, struct start *s)
{
	long got = -EEXIST;

	args->flags |= CLONE_CHILD_CLEARTID;
	args->child_tid = (uint64_t)&r->stranger;
	await_turn(r, s->t->tid);
	for (uint32_t i = 0; i < PID_WALK_TRIES && got == -EEXIST; i++) {
		got = pid_walk_near(s->t->tid, (int)r->plan->log_fd, PLAN_PROGRESS);
		if (!got)
			got = clone_until(r, args, s);
	}
	if (got > 0)
		pass_turn(r);
	return got;
}

static void thread_start(struct restorer *r, const struct image_thread *t, uint32_t index)
{
	struct start *s = (struct start *)(stack_top(r, index) - sizeof(*s));
	int tid = (int)t->tid;
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			 CLONE_SETTLS,
		.tls = t->fs_base,
		.stack = stack_top(r, index) - PLAN_HOLE_STACK,
		.stack_size = PLAN_HOLE_STACK - 64,
		.set_tid = (uint64_t)&tid,
		.set_tid_size = r->turns ? 0 : 1,
	};

	long got;

	_Static_assert(sizeof(*s) <= 64, "the stack ends below it");
	s->r = r;
	s->t = t;
	got = r->turns ? walk_to_thread(r, &args, s) : arch_clone(&args, thread_main, s);
	check(r, t, got == -EEXIST ? "another process has taken the number of thread" : "making thread", got);
}

/* The kernel zeroes the word and wakes one: who is awake wakes the next. */
static _Noreturn void end_first_task(struct restorer *r)
{
	RAW1(SYS_set_tid_address, &r->hold);
	raw_exit_thread(0);
}

void threads_restore(struct restorer *r)
{
	const struct image_thread *leader = NULL;
	uint32_t others = 0, seen;

	r->hold = 1;
	for (uint32_t i = 0; i < r->plan->thread_count; i++) {
		if (r->threads[i].flags & IMAGE_THREAD_LEADER)
			leader = &r->threads[i];
		else
			thread_start(r, &r->threads[i], ++others);
	}
	while ((seen = __atomic_load_n(&r->ready, __ATOMIC_ACQUIRE)) < others)
		raw_futex(&r->ready, FUTEX_WAIT_PRIVATE, seen, NULL, 0);
	if (leader) {
		set_thread(r, leader);
		check(r, leader, "setting fs of thread", arch_set_fs(leader->fs_base));
	}
	process_start_timers(r);
	if (r->plan->log_fd > 2)
		raw_close((int)r->plan->log_fd); /* the reader sees its end once every process is restored */
	if (!leader)
		end_first_task(r);
	__atomic_store_n(&r->hold, 0, __ATOMIC_RELEASE);
	raw_futex(&r->hold, FUTEX_WAKE, INT32_MAX, NULL, 0);
	leave(r, leader);
}
