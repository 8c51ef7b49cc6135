/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits that our handler lets go on (agent/call_woken.c), with real signals: one that comes after our handler has looked ends them, as one that comes later does, on whichever stack; their rest, mask and answers are those of the call itself; a thread
 * can be cancelled in them, leave by a jump, and be looked through by a debugger.
 */
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/woken.h"
#include "agent/call_number.h"
#include "agent/call_woken.h"
#include "agent/wait.h"
#include "agent/wrap.h"
#include "call_waits.h"

#define NS 1000000000ll
#define MS 1000000ll
#define OURS SIGRTMAX
#define LONG 20 /* seconds, in which a wait that has missed its signal would end after all */
#define TRAP 0x100 /* EFLAGS.TF */
#define STEPS 7	 /* of woken.S, where the call is made: behind each instruction but the call itself and the last */
#define NAP 40	/* milliseconds */

struct agent agent;
struct wrap_real real;
__thread struct fermata_thread_state fermata_thread;

static char room[65536];
static const stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) }, no_stack = { .ss_flags = SS_DISABLE };

/* Of one wait: how often ours is to stop it, and what else comes. */
static struct {
	int stops, wanted;
	int steps, step_wanted; /* within woken.S, and after which it is to stop once more */
	int flags;	/* of the program's action */
	bool aside;	/* ours runs on the signal stack */
	bool in_gap;	/* the program's signal, between our look and the call */
	bool wakes;	/* or later, from another thread */
	bool fills;	/* there is something to read */
	bool in_woken;	/* it was stopped in woken.S */
	pthread_t waiter;
	int waiter_tid;
} now;

static int came;
static sigjmp_buf *jump;
static void *trace[32];
static int traced;

/* Whether it waits, and in which call: of one that the kernel restarts it is known, as by call_note. */
static bool waits(ucontext_t *f, struct stop_thread *t)
{
	const greg_t *g = f->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP];

	*t = (struct stop_thread){ .call = -1 };
	if (g[REG_RAX] == -EINTR)
		return pc[-2] == 0x0f && pc[-1] == 0x05;
	if (pc[0] != 0x0f || pc[1] != 0x05)
		return false;
	t->call = g[REG_RAX];
	t->call_pc = (uint64_t)pc + 2;
	t->call_sp = (uint64_t)g[REG_RSP];
	for (unsigned int i = 0; i < 6; i++)
		t->args[i] = *call_arg(f, i);
	return true;
}

static void ours(int sig, siginfo_t *info, void *context)
{
	ucontext_t *f = context;
	const greg_t behind = (greg_t)arch_woken_called - f->uc_mcontext.gregs[REG_RIP];
	struct stop_thread t;
	uint64_t without;
	bool before_call;

	before_call = call_woken_undo(f);
	if (!waits(f, &t))
		return; /* not yet */
	if (before_call)
		call_is_next(&t, f);
	if (!call_continue(f, &t, false, &without))
		return; /* or a handler is due */
	now.in_woken |= before_call || behind == 0;
	call_woken(f, without);
	f->uc_mcontext.gregs[REG_EFL] |= now.step_wanted ? TRAP : 0;
	if (__atomic_add_fetch(&now.stops, 1, __ATOMIC_SEQ_CST) == now.wanted && now.in_gap)
		raise(SIGUSR1);
}

/* After each instruction: ours once more after the one that is wanted, and as often as it comes there again. */
static void step(int sig, siginfo_t *info, void *context)
{
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;

	if (g[REG_RIP] - (greg_t)arch_woken_begins > (greg_t)(arch_woken_leaves - arch_woken_begins))
		g[REG_EFL] &= ~TRAP;
	else if (++now.steps == now.step_wanted) {
		g[REG_EFL] &= ~TRAP;
		ours(sig, info, context);
		g[REG_EFL] &= ~TRAP;
	}
}

static void theirs(int sig)
{
	came++;
	traced = backtrace(trace, ARRAY_SIZE(trace));
	if (jump)
		siglongjmp(*jump, 1);
}

/* Sends ours until the wait has been stopped as often as is wanted. */
static void *stop_it(void *arg)
{
	while (__atomic_load_n(&now.stops, __ATOMIC_SEQ_CST) < now.wanted) {
		pthread_kill(now.waiter, OURS);
		usleep(1000);
	}
	while (now.step_wanted && now.wakes && raw_process_state(now.waiter_tid) != 'S') /* what comes where it steps, and ours as well, is lost: agent/call_woken.c */
		usleep(1000);
	if (now.wakes)
		pthread_kill(now.waiter, SIGUSR1);
	if (now.fills)
		assert_int_equal(write(call_waits_ends[1], "", 1), 1);
	return NULL;
}

static pthread_t begin(int wanted)
{
	struct sigaction a = { .sa_sigaction = ours, .sa_flags = SA_SIGINFO | SA_RESTART | (now.aside ? SA_ONSTACK : 0) }, b = { .sa_handler = theirs, .sa_flags = now.flags };
	pthread_t helper;

	sigfillset(&a.sa_mask);
	assert_int_equal(sigaction(OURS, &a, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &b, NULL), 0);
	call_woken_look();
	now.stops = came = 0;
	now.wanted = wanted;
	now.in_woken = false;
	now.waiter = pthread_self();
	now.waiter_tid = raw_gettid();
	call_waits_rest = (struct timespec){ 0, 0 };
	assert_int_equal(pthread_create(&helper, NULL, stop_it, NULL), 0);
	return helper;
}

static void all_is_as_before(void)
{
	sigset_t mask;

	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		assert_int_equal(sigismember(&mask, sig), sig == SIGUSR2);
}

static void is_interrupted(const struct call_wait *k, int stops)
{
	const uint64_t before = raw_now_ns();
	pthread_t helper = begin(stops);

	assert_int_equal(k->wait(LONG * 1000), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(came, 1);
	assert_true(raw_now_ns() - before < LONG / 2 * NS);
	if (k->has_rest)
		assert_true(call_waits_rest.tv_sec <= LONG && call_waits_rest.tv_sec >= LONG / 2); /* the kernel counts its slack in */
	all_is_as_before();
	pthread_join(helper, NULL);
	assert_true(stops == 1 || now.in_woken);
}

static void all_are_interrupted(void)
{
	for (size_t i = 0; i < CALL_WAITS; i++)
		for (int stops = 1; stops < 4; stops++)
			if (!(now.flags & SA_RESTART && call_waits[i].restarts))
				is_interrupted(&call_waits[i], stops);
}

static void test_signal_in_the_gap(void **state)
{
	now.in_gap = true;
	all_are_interrupted();
}

/* Ours on the signal stack or not, and the program's. */
static void test_signal_stacks(void **state)
{
	now.in_gap = true;
	assert_int_equal(sigaltstack(&stack, NULL), 0);
	all_are_interrupted();
	now.aside = true;
	all_are_interrupted();
	now.flags = SA_ONSTACK;
	all_are_interrupted();
	assert_int_equal(sigaltstack(&no_stack, NULL), 0);
	all_are_interrupted();
}

/* It ends what it would have ended anyway, and nothing else. */
static void test_restarting_handler(void **state)
{
	now.in_gap = now.fills = true;
	now.flags = SA_RESTART;
	for (size_t i = 0; i < CALL_WAITS; i++)
		if (call_waits[i].takes)
			for (int stops = 1; stops < 4; stops++) {
				pthread_t helper = begin(stops);

				assert_int_equal(call_waits[i].wait(0), 1);
				assert_int_equal(came, 1);
				all_is_as_before();
				pthread_join(helper, NULL);
			}
	now.fills = false;
	all_are_interrupted();
}

static void test_signal_later(void **state)
{
	now.wakes = true;
	for (size_t i = 0; i < CALL_WAITS; i++)
		is_interrupted(&call_waits[i], 2);
}

/* In all the time that can be said, which is more than nanoseconds of 64 bits. */
static void test_endless(void **state)
{
	const struct timespec t = { INT64_MAX, NS - 1 };
	struct timeval v = { INT64_MAX, 999999 };
	struct timespec left = t;
	pthread_t helper;

	now.wakes = true;
	for (int i = 0; i < 4; i++) {
		helper = begin(3);
		assert_int_equal(i == 0 ? WAIT_NOTED(wait_ns(&t), nanosleep(&t, NULL)) : i == 1 ? nanosleep(&t, &call_waits_rest) : i == 2 ? select(0, NULL, NULL, NULL, &v) : ppoll(NULL, 0, &left, NULL), -1);
		assert_int_equal(errno, EINTR);
		assert_int_equal(came, 1);
		assert_true(now.in_woken);
		pthread_join(helper, NULL);
	}
}

/* No sooner than it should, and no signal's handler is run. */
static void test_time(void **state)
{
	for (size_t i = 0; i < CALL_WAITS; i++) {
		const uint64_t before = raw_now_ns();
		pthread_t helper;

		if (call_waits[i].endless)
			continue;
		helper = begin(3);
		assert_int_equal(call_waits[i].wait(NAP), 0);
		assert_true(raw_now_ns() - before >= NAP * MS);
		assert_int_equal(came, 0);
		all_is_as_before();
		__atomic_store_n(&now.stops, now.wanted, __ATOMIC_SEQ_CST); /* where the time was too short for all */
		pthread_join(helper, NULL);
	}
}

static void test_something_to_read(void **state)
{
	char byte;

	now.fills = true;
	for (size_t i = 0; i < CALL_WAITS; i++) {
		pthread_t helper;

		if (!call_waits[i].reads)
			continue;
		call_waits_polled.revents = POLLIN; /* where it is no poll */
		helper = begin(2);
		assert_int_equal(call_waits[i].wait(LONG * 1000), 1);
		assert_true(now.in_woken);
		assert_int_equal(call_waits_polled.revents, POLLIN);
		pthread_join(helper, NULL);
		all_is_as_before();
		assert_int_equal(read(call_waits_ends[0], &byte, 1), 1);
	}
}

/* Stopped again between the instructions that lead into the call and out of it: what it answers is the program's, and a signal that comes then ends it. */
static void test_each_instruction(void **state)
{
	const struct sigaction sa = { .sa_sigaction = step, .sa_flags = SA_SIGINFO | SA_ONSTACK }; /* its own frame must not be taken for theirs */
	char byte;

	assert_int_equal(sigaltstack(&stack, NULL), 0);
	assert_int_equal(sigaction(SIGTRAP, &sa, NULL), 0);
	for (size_t i = 0; i < CALL_WAITS; i++)
		for (now.step_wanted = 1; now.step_wanted <= STEPS; now.step_wanted++) {
			pthread_t helper;

			if (!call_waits[i].reads && !call_waits[i].takes)
				continue;
			now.steps = 0;
			now.fills = true;
			helper = begin(1);
			assert_int_equal(call_waits[i].wait(LONG * 1000), 1);
			pthread_join(helper, NULL);
			assert_true(now.steps >= now.step_wanted);
			all_is_as_before();
			if (call_waits[i].reads)
				assert_int_equal(read(call_waits_ends[0], &byte, 1), 1);
			now.fills = false;
		}
	now.wakes = true;
	for (size_t i = 0; i < CALL_WAITS; i++)
		for (now.step_wanted = 1; now.step_wanted <= STEPS; now.step_wanted++) {
			now.steps = 0;
			is_interrupted(&call_waits[i], 1);
		}
	now.step_wanted = 0;
	assert_int_equal(sigaltstack(&no_stack, NULL), 0);
}

/* A handler that runs there sees who waits. */
static void test_looked_through(void **state)
{
	bool seen = false;

	now.wakes = true;
	is_interrupted(&call_waits[0], 2);
	for (int i = 0; i < traced; i++)
		seen |= (uint64_t)trace[i] - (uint64_t)is_interrupted < 4096;
	assert_true(seen);
}

static void test_jump(void **state)
{
	sigjmp_buf there;

	now.wakes = true;
	for (size_t i = 0; i < CALL_WAITS; i++) {
		pthread_t helper = begin(2);

		if (sigsetjmp(there, 1) == 0) {
			jump = &there;
			call_waits[i].wait(LONG * 1000);
			fail();
		}
		jump = NULL;
		assert_true(now.in_woken);
		fermata_thread.deadline_ns = 0;
		all_is_as_before();
		pthread_join(helper, NULL);
	}
}

static bool clean;

static void clean_up(void *arg)
{
	clean = true;
}

static void *wait_for_end(void *kind)
{
	pthread_cleanup_push(clean_up, NULL);
	((const struct call_wait *)kind)->wait(LONG * 1000);
	pthread_cleanup_pop(0);
	return NULL;
}

/* One that is cancelled in it runs its clean-up handlers, and ends. */
static void test_cancelled(void **state)
{
	for (size_t i = 0; i < CALL_WAITS; i++) {
		pthread_t thread;
		void *answer;

		if (call_waits[i].lasts)
			continue;
		clean = false;
		pthread_join(begin(0), NULL);
		now.wanted = 2;
		assert_int_equal(pthread_create(&thread, NULL, wait_for_end, (void *)&call_waits[i]), 0);
		now.waiter = thread;
		stop_it(NULL);
		assert_true(now.in_woken);
		assert_int_equal(pthread_cancel(thread), 0);
		assert_int_equal(pthread_join(thread, &answer), 0);
		assert_ptr_equal(answer, PTHREAD_CANCELED);
		assert_true(clean);
	}
}

static int nothing_comes(void **state)
{
	now.in_gap = now.wakes = now.fills = now.aside = false;
	now.flags = now.step_wanted = 0;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_signal_in_the_gap, nothing_comes),
		cmocka_unit_test_setup(test_signal_stacks, nothing_comes),
		cmocka_unit_test_setup(test_restarting_handler, nothing_comes),
		cmocka_unit_test_setup(test_signal_later, nothing_comes),
		cmocka_unit_test_setup(test_endless, nothing_comes),
		cmocka_unit_test_setup(test_time, nothing_comes),
		cmocka_unit_test_setup(test_something_to_read, nothing_comes),
		cmocka_unit_test_setup(test_each_instruction, nothing_comes),
		cmocka_unit_test_setup(test_looked_through, nothing_comes),
		cmocka_unit_test_setup(test_jump, nothing_comes),
		cmocka_unit_test_setup(test_cancelled, nothing_comes),
	};
	sigset_t other;
	int failed;

	agent = (struct agent){ .pid = (uint32_t)getpid(), .signal = OURS };
	call_find_libc();
	sigemptyset(&other);
	sigaddset(&other, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &other, NULL);
	if (!call_waits_init())
		return 1;
	backtrace(trace, 1); /* it loads a library the first time */
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return !call_waits_end() || failed;
}
