/* SPDX-License-Identifier: BSD-2-Clause */
/* Members whose connection ends just as a checkpoint begins, without a word: what their parent says of it, and when. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define CHILD 20

static const struct coordinator_options defaults;

/* A parent (10), another process (11) and a child of the parent's. */
struct scene {
	struct conductor c;
	struct link agents[2], child, command;
	struct msg_phase suspend; /* the parent's */
};

static void begin(struct scene *s)
{
	job_start(&s->c, &defaults, s->agents, 2, &s->command);
	agent_join_child(&s->c, &s->child, CHILD, 10);
	command_ask(&s->command, 0);
}

static void says(struct link *l, uint32_t pid, int signal, bool expected)
{
	struct msg_ended e[2] = { { .pid = 99, .signal = SIGKILL }, { .pid = pid, .signal = (uint16_t)signal, .expected = expected } };

	assert_int_equal(link_send(l, MSG_ENDED, e, sizeof(e)), 0);
}

/* All but the child have reported SUSPEND when it goes. */
static void loses(struct scene *s)
{
	begin(s);
	agents_do(s->agents, 2, PHASE_SUSPEND);
	agent_phase(&s->child, PHASE_SUSPEND);
	link_close(&s->child);
	s->suspend = agent_phase(&s->agents[0], PHASE_SUSPEND);
}

static void reports(struct scene *s, const uint32_t *children, uint32_t count)
{
	agent_done(&s->agents[0], &s->suspend, 0, "", children, count);
}

static void finish(struct scene *s, struct link *left, size_t count, int error, uint32_t attempts, const char *words)
{
	struct msg_checkpoint_result r;
	char text[512];

	r = command_result(&s->command, text, sizeof(text));
	assert_int_equal(r.error, error);
	assert_int_equal(r.attempts, attempts);
	if (error)
		assert_string_equal(text, words);
	else
		assert_int_equal(r.processes, count);
	for (size_t i = 0; i < count && !error; i++)
		assert_int_equal(agent_phase(&left[i], PHASE_RESUME).reason, 0);
	r = command_checkpoint(&s->command, left, count); /* nothing of it is left */
	assert_int_equal(r.error, 0);
	job_finish(&s->c, left, count, &s->command);
}

static void finish_without(struct scene *s, uint32_t attempts)
{
	agents_do_rest(s->agents, 2);
	finish(s, s->agents, 2, 0, attempts, NULL);
}

static void finish_failed(struct scene *s, int reason, uint32_t attempts, const char *words)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(agent_phase(&s->agents[i], PHASE_RESUME).reason, reason);
	finish(s, s->agents, 2, reason, attempts, words);
}

static void test_parent_first(void **state)
{
	struct scene s;

	begin(&s);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGTERM, true);
	reports(&s, NULL, 0);
	agent_phase(&s.child, PHASE_SUSPEND);
	command_settle(&s.command); /* it has been heard */
	link_close(&s.child);
	agent_do(&s.agents[1], PHASE_SUSPEND);
	finish_without(&s, 1);
}

static void test_asked(void **state)
{
	struct scene s;

	loses(&s);
	says(&s.agents[0], CHILD, SIGPIPE, true);
	reports(&s, NULL, 0);
	finish_without(&s, 1);
}

static void test_crashed(void **state)
{
	struct scene s;

	loses(&s);
	says(&s.agents[0], CHILD, SIGSEGV, false);
	finish_failed(&s, -ECONNRESET, 1, "pid 20 (child) was lost in SUSPEND: signal 11 (Segmentation fault) has ended it");
}

/* It stood already, and its parent has killed it. */
static void test_stood(void **state)
{
	struct scene s;

	begin(&s);
	agents_do(s.agents, 1, PHASE_SUSPEND);
	agent_do(&s.child, PHASE_SUSPEND);
	link_close(&s.child);
	command_settle(&s.command);
	agent_do(&s.agents[1], PHASE_SUSPEND);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGKILL, true);
	reports(&s, NULL, 0);
	finish_without(&s, 1);
}

/* Its connection has ended, and it has not yet. */
static void test_on_its_way(void **state)
{
	const uint32_t child = CHILD;
	struct scene s;

	loses(&s);
	reports(&s, &child, 1);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGPIPE, true);
	reports(&s, NULL, 0);
	finish_without(&s, 1);
}

static void again(struct scene *s)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(agent_phase(&s->agents[i], PHASE_RESUME).reason, -EAGAIN);
}

/* Its parent knows a moment later. */
static void test_later(void **state)
{
	struct scene s;

	loses(&s);
	reports(&s, NULL, 0);
	again(&s);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGPIPE, true);
	reports(&s, NULL, 0);
	agent_do(&s.agents[1], PHASE_SUSPEND);
	finish_without(&s, 2);
}

static void test_never(void **state)
{
	struct scene s;

	loses(&s);
	for (int i = 1; i < 7; i++) {
		reports(&s, NULL, 0);
		again(&s);
		agents_do(s.agents, 2, PHASE_SUSPEND);
		s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
		says(&s.agents[1], CHILD, SIGPIPE, true); /* it is not its parent */
	}
	reports(&s, NULL, 0);
	finish_failed(&s, -ECONNRESET, 7, "pid 20 (child) was lost in SUSPEND (tried 7 times)");
}

static void end_without(struct scene *s)
{
	reports(s, NULL, 0);
	agent_do(&s->agents[1], PHASE_SUSPEND);
	finish_without(s, 2);
}

/* All stand, in @phase, when it dies of what it was sent before. */
static void late(uint32_t phase, bool expected)
{
	static const char *const names[] = { [PHASE_QUIESCE] = "QUIESCE", [PHASE_DRAIN] = "DRAIN", [PHASE_WRITE] = "WRITE" };
	char words[128];
	struct scene s;

	snprintf(words, sizeof(words), "pid 20 (child) was lost in %s: signal 9 (Killed) has ended it (tried 2 times)", names[phase]);
	begin(&s);
	for (uint32_t p = PHASE_SUSPEND; p < phase; p++) {
		agents_do(s.agents, 2, p);
		agent_do(&s.child, p);
	}
	agent_do(&s.agents[0], phase);
	agent_phase(&s.agents[1], phase);
	link_close(&s.child);
	again(&s);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGKILL, expected);
	if (expected) {
		end_without(&s);
		return;
	}
	agent_phase(&s.agents[1], PHASE_SUSPEND);
	finish_failed(&s, -ECONNRESET, 2, words);
}

static void test_late(void **state)
{
	for (uint32_t phase = PHASE_QUIESCE; phase <= PHASE_WRITE; phase++) {
		late(phase, true);
		late(phase, false);
	}
}

/* Between two attempts. */
static void between(bool expected, void (*end)(struct scene *s))
{
	struct scene s;

	begin(&s);
	agents_do(s.agents, 2, PHASE_SUSPEND);
	agent_refuse(&s.child, PHASE_SUSPEND, -EAGAIN);
	again(&s);
	link_close(&s.child);
	s.suspend = agent_phase(&s.agents[0], PHASE_SUSPEND);
	says(&s.agents[0], CHILD, SIGTERM, expected);
	end(&s);
}

static void end_failed(struct scene *s)
{
	agent_phase(&s->agents[1], PHASE_SUSPEND);
	finish_failed(s, -ECONNRESET, 2, "pid 20 (child) was lost before another attempt: signal 15 (Terminated) has ended it (tried 2 times)");
}

static void test_between_two(void **state)
{
	between(true, end_without);
	between(false, end_failed);
}

/* Its parent ends as well, and says how the child has before; or does not. */
static void parent_goes(bool explains)
{
	struct scene s;

	begin(&s);
	agent_phase(&s.agents[0], PHASE_SUSPEND);
	agent_phase(&s.child, PHASE_SUSPEND);
	link_close(&s.child);
	if (explains)
		says(&s.agents[0], CHILD, SIGPIPE, true);
	assert_int_equal(link_send(&s.agents[0], MSG_EXITING, NULL, 0), 0);
	link_close(&s.agents[0]);
	agent_do(&s.agents[1], PHASE_SUSPEND);
	if (explains)
		agents_do_rest(&s.agents[1], 1);
	else
		assert_int_equal(agent_phase(&s.agents[1], PHASE_RESUME).reason, -ECONNRESET);
	finish(&s, &s.agents[1], 1, explains ? 0 : -ECONNRESET, 1, "pid 20 (child) was lost in SUSPEND");
}

static void test_parent_goes(void **state)
{
	parent_goes(true);
	parent_goes(false);
}

/* Its parent has gone before, and the other process has it now, and has killed it; or does not know it. */
static void orphan(bool explains)
{
	struct scene s;

	job_start(&s.c, &defaults, s.agents, 2, &s.command);
	agent_join_child(&s.c, &s.child, CHILD, 10);
	assert_int_equal(link_send(&s.agents[0], MSG_EXITING, NULL, 0), 0);
	link_close(&s.agents[0]);
	command_settle(&s.command);
	command_ask(&s.command, 0);
	agent_do(&s.agents[1], PHASE_SUSPEND);
	agent_phase(&s.child, PHASE_SUSPEND);
	link_close(&s.child);
	for (uint32_t attempt = 1; attempt <= (explains ? 1 : 7); attempt++) {
		if (attempt > 1)
			agent_do(&s.agents[1], PHASE_SUSPEND);
		s.suspend = agent_phase(&s.agents[1], PHASE_SUSPEND);
		if (explains)
			says(&s.agents[1], CHILD, SIGKILL, true);
		agent_done(&s.agents[1], &s.suspend, 0, "", NULL, 0);
		if (!explains)
			assert_int_equal(agent_phase(&s.agents[1], PHASE_RESUME).reason, attempt < 7 ? -EAGAIN : -ECONNRESET);
	}
	if (explains)
		agents_do_rest(&s.agents[1], 1);
	finish(&s, &s.agents[1], 1, explains ? 0 : -ECONNRESET, explains ? 1 : 7, "pid 20 (child) was lost in SUSPEND (tried 7 times)");
}

static void test_orphan(void **state)
{
	orphan(true);
	orphan(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parent_first), cmocka_unit_test(test_asked), cmocka_unit_test(test_crashed),
		cmocka_unit_test(test_stood),	     cmocka_unit_test(test_on_its_way), cmocka_unit_test(test_later),
		cmocka_unit_test(test_never),	     cmocka_unit_test(test_between_two), cmocka_unit_test(test_parent_goes),
		cmocka_unit_test(test_orphan),	     cmocka_unit_test(test_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
