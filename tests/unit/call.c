/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread's frame becomes when it goes on in a call that our signal has ended (agent/call.c): the call is found where the kernel has another number for it; a rest that the kernel has told is less by the time that the thread has stood, one of processor time is not; one that nobody knows ends the call, but where that is libc's; and what a
 * call has done is told to its wrapper only where the thread stands right behind it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/call_number.h"
#include "agent/wait.h"
#include "agent/wrap.h"

#define NS 1000000000ll
#define STOOD 2
#define GIVEN 5 /* seconds; what is left is less by the time that this test itself takes */

struct agent agent;
struct wrap_real real;
__thread struct fermata_thread_state fermata_thread;
static uint64_t without; /* what this test does not look at: call_woken.c */

static const uint8_t whole_code[] = { 0x90, 0x90, 0x90, 0x90, 0xb8, SYS_nanosleep, 0, 0, 0, 0x0f, 0x05, 0x90 }; /* ..; mov $nanosleep, %eax; syscall; nop */
static const uint8_t *const code = whole_code + 9;

/* As the kernel leaves @number, with @args, to a handler of a signal: it answers @answer. */
static void leave(long number, const long args[6], long answer, ucontext_t *frame, struct stop_thread *t)
{
	static const uint8_t regs[] = { REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9 };
	greg_t *g = frame->uc_mcontext.gregs;

	agent = (struct agent){ .pid = (uint32_t)getpid(), .signal = 60 };
	memset(frame, 0, sizeof(*frame));
	memset(t, 0, sizeof(*t));
	g[REG_RIP] = (greg_t)&code[2];
	g[REG_RAX] = answer;
	t->call = number;
	t->call_pc = (uint64_t)g[REG_RIP];
	for (size_t i = 0; i < 6; i++)
		g[regs[i]] = t->args[i] = args[i];
	t->came_ns = raw_now_ns() - STOOD * NS;
}

static void is_again(const ucontext_t *frame, long number)
{
	assert_int_equal(frame->uc_mcontext.gregs[REG_RIP], (greg_t)&code[0]);
	assert_int_equal(frame->uc_mcontext.gregs[REG_RAX], number);
}

static void is_about(long long ns, long long seconds)
{
	assert_true(ns <= seconds * NS && ns > (seconds - 1) * NS);
}

static void test_select(void **state)
{
	struct timeval left = { GIVEN, 0 };
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	leave(SYS_select, (long[]){ 0, 0, 0, 0, (long)&left, 0 }, -EINTR, &frame, &t);
	call_continue(&frame, &t, false, &without);
	is_again(&frame, SYS_select);
	is_about(left.tv_sec * NS + left.tv_usec * 1000, GIVEN - STOOD);
	left = (struct timeval){ STOOD / 2, 0 };
	call_continue(&frame, &t, false, &without); /* it is before the call: nothing to be done */
	assert_int_equal(left.tv_sec, STOOD / 2);
	leave(SYS_select, (long[]){ 0, 0, 0, 0, (long)&left, 0 }, -EINTR, &frame, &t);
	call_continue(&frame, &t, false, &without);
	assert_true(left.tv_sec == 0 && left.tv_usec == 0);
}

static void polls_again(const struct timespec *left)
{
	struct stop_thread t;
	ucontext_t frame;

	leave(SYS_ppoll, (long[]){ 0, 0, (long)left, 0, 8, 0 }, -EINTR, &frame, &t);
	call_continue(&frame, &t, false, &without);
	is_again(&frame, SYS_ppoll);
}

/* More than nanoseconds of 64 bits can say. */
static void test_endless(void **state)
{
	const struct timespec endless = { INT64_MAX, NS - 1 };
	struct timespec left = endless;

	(void)state;
	polls_again(&left);
	assert_int_equal(left.tv_sec, INT64_MAX);
	assert_true(wait_ns(&endless) > 100ull * 365 * 24 * 3600 * NS && raw_now_ns() + wait_ns(&endless) > wait_ns(&endless));
}

static void test_poll_of_read_only_time(void **state)
{
	static const struct timespec left = { GIVEN, 0 };

	(void)state;
	polls_again(&left);
	assert_int_equal(left.tv_sec, GIVEN);
}

/* It was stopped a second time before it had begun again. */
static void test_before_call(void **state)
{
	struct timespec left = { GIVEN, 0 };
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	leave(SYS_ppoll, (long[]){ 0, 0, (long)&left, 0, 8, 0 }, SYS_ppoll, &frame, &t);
	frame.uc_mcontext.gregs[REG_RIP] -= 2;
	call_is_next(&t, &frame);
	assert_true(call_continue(&frame, &t, false, &without));
	is_again(&frame, SYS_ppoll);
	is_about(left.tv_sec * NS + left.tv_nsec, GIVEN - STOOD);
	leave(SYS_wait4, (long[]){ -1, 0, 0, 0, 0, 0 }, SYS_wait4, &frame, &t);
	frame.uc_mcontext.gregs[REG_RIP] -= 2;
	call_is_next(&t, &frame);
	assert_true(call_continue(&frame, &t, false, &without));
	is_again(&frame, SYS_wait4);
	assert_int_equal(without, SA_RESTART);
}

static long time_of_epoll(long ms, uint64_t noted_ns, ucontext_t *frame)
{
	struct stop_thread t;

	leave(SYS_epoll_pwait, (long[]){ 3, 0, 1, ms, 0, 8 }, -EINTR, frame, &t);
	fermata_thread.deadline_ns = noted_ns;
	call_continue(frame, &t, false, &without);
	fermata_thread.deadline_ns = 0;
	return (long)frame->uc_mcontext.gregs[REG_R10];
}

/* One that the program makes itself ends where it has a limit of time: nobody knows how much of that is left. */
static void test_without_libc(void **state)
{
	ucontext_t frame;

	(void)state;
	is_about(time_of_epoll(GIVEN * 1000, raw_now_ns() + NS, &frame) * 1000000ll, 1);
	is_again(&frame, SYS_epoll_pwait);
	assert_int_equal(time_of_epoll(-1, 0, &frame), -1);
	is_again(&frame, SYS_epoll_pwait);
	assert_int_equal(time_of_epoll(GIVEN * 1000, 0, &frame), GIVEN * 1000);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RIP], (greg_t)&code[2]);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RAX], -EINTR);
}

/* One of libc's that has not come by a wrapper begins anew. */
static void test_past_wrappers(void **state)
{
	const uint8_t *in_poll = dlsym(RTLD_DEFAULT, "poll");
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	while (in_poll[0] != 0x0f || in_poll[1] != 0x05)
		in_poll++;
	call_find_libc();
	leave(SYS_poll, (long[]){ 0, 0, GIVEN * 1000, 0, 0, 0 }, -EINTR, &frame, &t);
	frame.uc_mcontext.gregs[REG_RIP] = (greg_t)(t.call_pc = (uint64_t)&in_poll[2]);
	call_continue(&frame, &t, false, &without);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RAX], SYS_poll);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RIP], (greg_t)in_poll);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RDX], GIVEN * 1000);
}

/* What it sleeps now, and is told as its rest if it is ended before. */
static long long sleeps_now(long clock, int flags)
{
	struct timespec asked = { 2 * GIVEN, 0 }, rest = { GIVEN, 0 }, now;
	struct stop_thread t;
	ucontext_t frame;

	leave(SYS_clock_nanosleep, (long[]){ clock, flags, (long)&asked, (long)&rest, 0, 0 }, -EINTR, &frame, &t);
	call_continue(&frame, &t, false, &without);
	is_again(&frame, SYS_clock_nanosleep);
	memcpy(&now, (const void *)frame.uc_mcontext.gregs[REG_RDX], sizeof(now));
	if (!(flags & TIMER_ABSTIME))
		assert_memory_equal(&rest, &now, sizeof(now));
	return now.tv_sec * NS + now.tv_nsec;
}

static void test_sleep(void **state)
{
	clockid_t mine;

	(void)state;
	assert_int_equal(clock_getcpuclockid(0, &mine), 0);
	is_about(sleeps_now(CLOCK_REALTIME, 0), GIVEN - STOOD);
	assert_true(sleeps_now(CLOCK_PROCESS_CPUTIME_ID, 0) == GIVEN * NS);
	assert_true(sleeps_now(mine, 0) == GIVEN * NS);
	assert_true(sleeps_now(CLOCK_MONOTONIC, TIMER_ABSTIME) == 2 * GIVEN * NS);
}

/* A call that SIGCONT has let go on is known to the kernel by another number. */
static void test_second_time(void **state)
{
	struct timespec asked = { GIVEN, 0 };
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	leave(SYS_restart_syscall, (long[]){ (long)&asked, 0, 0, 0, 0, 0 }, -EINTR, &frame, &t);
	call_continue(&frame, &t, false, &without);
	is_again(&frame, SYS_nanosleep);
	leave(SYS_restart_syscall, (long[]){ 0, 0, 0, 0, 0, 0 }, -EINTR, &frame, &t);
	t.args[5] = 1; /* it is another one by now, of the same code */
	call_continue(&frame, &t, false, &without);
	is_again(&frame, SYS_nanosleep);
}

/* Nor is there a number in libc's syscall(2): its wrapper has noted it, on the stack that lies before. Not so where that is another call's note, or of another frame. */
static void test_by_number(void **state)
{
	static const uint8_t plain[] = { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90 };
	const struct timespec none = { 0, 0 };
	const long call[7] = { SYS_semtimedop, 7, 0, 1, (long)&none, 0, 0 }, other[7] = { SYS_semtimedop, 7, 1, 1, (long)&none, 0, 0 };
	enum { RIGHT, RIGHT_UNSEEN, NOT_NOTED, NOT_IN_SYSCALL, OTHER_CALL, OTHER_FRAME, CASES };
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	for (int i = 0; i < CASES; i++) {
		leave(i == RIGHT_UNSEEN ? -1 : SYS_restart_syscall, call + 1, -EINTR, &frame, &t);
		frame.uc_mcontext.gregs[REG_RIP] = (greg_t)(t.call_pc = (uint64_t)&plain[14]);
		frame.uc_mcontext.gregs[REG_RSP] = (greg_t)(t.call_sp = (uint64_t)call - (i == OTHER_FRAME ? 4096 : 64));
		fermata_thread.by_number = i == NOT_NOTED ? NULL : i == OTHER_CALL ? other : call;
		real.syscall = (__typeof__(real.syscall))(i == NOT_IN_SYSCALL ? &plain[15] : &plain[0]);
		fermata_thread.deadline_ns = raw_now_ns() + NS;
		call_continue(&frame, &t, false, &without);
		assert_int_equal(frame.uc_mcontext.gregs[REG_RAX], i <= RIGHT_UNSEEN ? SYS_semtimedop : -EINTR);
	}
	fermata_thread.deadline_ns = 0;
	fermata_thread.by_number = NULL;
}

static void test_cut(void **state)
{
	struct stop_thread t;
	ucontext_t frame;

	(void)state;
	leave(SYS_write, (long[]){ 1, 0, 9, 0, 0, 0 }, 4, &frame, &t);
	call_continue(&frame, &t, false, &without);
	assert_int_equal(fermata_thread.cut, 4);
	assert_int_equal(frame.uc_mcontext.gregs[REG_RIP], (greg_t)&code[2]);
	fermata_thread.cut = 0;
	frame.uc_mcontext.gregs[REG_RIP]++; /* in a handler of the program's, or wherever else */
	call_continue(&frame, &t, false, &without);
	assert_int_equal(fermata_thread.cut, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_poll_of_read_only_time),
		cmocka_unit_test(test_before_call),
		cmocka_unit_test(test_past_wrappers),
		cmocka_unit_test(test_without_libc),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_second_time),
		cmocka_unit_test(test_by_number),
		cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
