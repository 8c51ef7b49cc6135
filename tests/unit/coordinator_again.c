/* SPDX-License-Identifier: BSD-2-Clause */
/* Checkpoints that are refused for a moment (-EAGAIN) and tried again: what comes between two attempts, whose attempts are counted, what is told. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "tests/lib/fake_agent.h"

#define ATTEMPTS 7
#define LAST_WAIT 6 /* after so many, 320 ms */

static const struct coordinator_options defaults;

/* One attempt of the first of @count in @phase. */
static void refused_in(uint32_t phase, struct link *agents, uint32_t count)
{
	agents_do_up_to(agents, count, phase);
	for (uint32_t i = 1; i < count; i++)
		agent_do(&agents[i], phase);
	agent_refuse(&agents[0], phase, -EAGAIN);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).reason, -EAGAIN);
}

static void refused(struct link *agents, uint32_t count, int times)
{
	for (int i = 0; i < times; i++)
		refused_in(PHASE_QUIESCE, agents, count);
}

/* Whatever the phase; the pause is the last attempt's. */
static void test_again(void **state)
{
	static const uint32_t phases[] = { PHASE_SUSPEND, PHASE_QUIESCE, PHASE_DRAIN, PHASE_WRITE };
	uint64_t begin = raw_now_ns();
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	for (int i = 0; i < 4; i++) {
		refused_in(phases[i], agents, 2);
		assert_false(conductor_has(&c, ".1.partial"));
	}
	agents_do_checkpoint(agents, 2);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.checkpoint, 1);
	assert_int_equal(r.attempts, 5);
	assert_true(r.pause_ns + (10 + 20 + 40 + 80) * 1000000ull <= raw_now_ns() - begin);
	assert_null(strstr(text, "tried"));
	assert_true(conductor_has(&c, "1/10.core"));
	job_finish(&c, agents, 2, &command);
}

static void test_never(void **state)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	refused(agents, 2, ATTEMPTS);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -EAGAIN);
	assert_int_equal(r.attempts, ATTEMPTS);
	assert_string_equal(text, "pid 10 (fake): fd 7 is busy (tried 7 times)");
	agent_expect_silence(&agents[0], 500);
	r = command_checkpoint(&command, agents, 2);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.attempts, 1);
	job_finish(&c, agents, 2, &command);
}

/* Other refusals are none of a moment. */
static void test_other(void **state)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	refused(agents, 2, 2);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_refuse(&agents[0], PHASE_QUIESCE, -EOPNOTSUPP);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -EOPNOTSUPP);
	assert_string_equal(text, "pid 10 (fake): fd 7 is busy (tried 3 times)");
	job_finish(&c, agents, 2, &command);
}

/* Between two attempts the second of two ends, and says so before or not; or both end. What then is said is not said later. */
static void ends(uint32_t count, bool says_so, int error, const char *words)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &defaults, agents, count, &command);
	command_ask(&command, 0);
	refused(agents, count, LAST_WAIT);
	if (says_so)
		assert_int_equal(link_send(&agents[count - 1], MSG_EXITING, NULL, 0), 0);
	link_close(&agents[count - 1]);
	if (!error)
		agents_do_checkpoint(agents, 1);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, error);
	assert_true(strstr(text, words));
	if (!error)
		assert_int_equal(r.processes, count - 1);
	job_finish(&c, agents, count - 1, &command);
}

static void test_ends(void **state)
{
	ends(2, true, 0, "/1");
	ends(1, true, -ESRCH, "all have ended before another attempt");
	ends(2, false, -ECONNRESET, "pid 11 (fake) was lost before another attempt (tried 6 times)");
	ends(1, false, -ECONNRESET, "pid 10 (fake) was lost before another attempt (tried 6 times)");
}

static void test_comes(void **state)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, agents, 1, &command);
	command_ask(&command, 0);
	refused(agents, 1, LAST_WAIT);
	agent_join(&c, &agents[1], 11, 0);
	agents_do_checkpoint(agents, 2);
	r = command_result(&command, NULL, 0);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, 2);
	job_finish(&c, agents, 2, &command);
}

/* One that comes between two attempts has part in the next one, with its options. */
static void test_joins(void **state)
{
	const struct msg_checkpoint check = { .files = MSG_FILES_CHECK };
	struct link agent, commands[2];
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &commands[0]);
	command_ask(&commands[0], 0);
	refused(&agent, 1, LAST_WAIT);
	command_open(&c, &commands[1]);
	assert_int_equal(link_send(&commands[1], MSG_CHECKPOINT, &check, sizeof(check)), 0);
	assert_int_equal(agent_phase(&agent, PHASE_SUSPEND).files, MSG_FILES_CHECK);
	link_close(&agent);
	for (int i = 0; i < 2; i++) {
		r = command_result(&commands[i], NULL, 0);
		assert_int_equal(r.error, -ECONNRESET);
		assert_int_equal(r.attempts, i ? 1 : LAST_WAIT + 1);
	}
	link_close(&commands[1]);
	job_finish(&c, NULL, 0, &commands[0]);
}

/* Each has its own attempts: the first one is answered after its last, the second one, asked for meanwhile, goes on. */
static void test_counts(void **state)
{
	struct link agent, commands[2];
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &commands[0]);
	command_ask(&commands[0], 0);
	refused(&agent, 1, ATTEMPTS - 2);
	agent_do(&agent, PHASE_SUSPEND);
	command_open(&c, &commands[1]);
	command_ask(&commands[1], 0);
	command_settle(&commands[1]);
	agent_refuse(&agent, PHASE_QUIESCE, -EAGAIN);
	agent_phase(&agent, PHASE_RESUME);
	refused(&agent, 1, 1);
	r = command_result(&commands[0], NULL, 0);
	assert_int_equal(r.error, -EAGAIN);
	assert_int_equal(r.attempts, ATTEMPTS);
	agents_do_checkpoint(&agent, 1);
	r = command_result(&commands[1], NULL, 0);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.attempts, 2);
	link_close(&commands[1]);
	job_finish(&c, &agent, 1, &commands[0]);
}

/* Who goes takes his wish along: that all end at the checkpoint, too. */
static void test_gone(void **state)
{
	struct link agent, commands[2];
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &commands[0]);
	command_ask(&commands[0], MSG_CHECKPOINT_STOP);
	refused(&agent, 1, LAST_WAIT);
	link_close(&commands[0]);
	agent_expect_silence(&agent, 500);
	command_open(&c, &commands[0]);
	command_ask(&commands[0], MSG_CHECKPOINT_STOP);
	refused(&agent, 1, 1);
	command_open(&c, &commands[1]);
	command_ask(&commands[1], 0);
	refused(&agent, 1, LAST_WAIT - 1);
	link_close(&commands[0]);
	agents_do_checkpoint(&agent, 1);
	assert_int_equal(agent_phase(&agent, PHASE_RESUME).reason, 0); /* and is not killed: it is this process */
	r = command_result(&commands[1], NULL, 0);
	assert_int_equal(r.error, 0);
	job_finish(&c, &agent, 1, &commands[1]);
}

/* A report and names that come so late that the next attempt has begun are not that one's. */
static void test_late(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	struct link_message m;
	struct msg_phase p;

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_refuse(&agents[0], PHASE_QUIESCE, -EAGAIN);
	agent_phase(&agents[0], PHASE_RESUME);
	agent_do(&agents[0], PHASE_SUSPEND);
	p = agent_phase(&agents[1], PHASE_QUIESCE);
	agent_name(&agents[1], MSG_NAME_PUBLISH, "file", "old");
	agent_done(&agents[1], &p, 0, "", NULL, 0);
	agent_phase(&agents[1], PHASE_RESUME);
	agent_do(&agents[1], PHASE_SUSPEND);
	agent_name(&agents[1], MSG_NAME_ASK, "file", "");
	agents_do(agents, 2, PHASE_QUIESCE);
	m = agent_receive(&agents[1], MSG_NAMES_REPLY);
	assert_int_equal(agent_names_count(&m, "file"), 0);
	agents_do(agents, 2, PHASE_DRAIN);
	agents_do(agents, 2, PHASE_WRITE);
	assert_int_equal(command_result(&command, NULL, 0).attempts, 2);
	job_finish(&c, agents, 2, &command);
}

/* The interval's checkpoint is tried again as a command's is. */
static void test_interval(void **state)
{
	const struct coordinator_options options = { .interval_s = 2 };
	struct link agent;
	struct conductor c;
	uint64_t begin;

	conductor_start(&c, &options);
	agent_join(&c, &agent, 10, 0);
	refused(&agent, 1, 1);
	begin = raw_now_ns();
	agents_do_checkpoint(&agent, 1);
	assert_true(raw_now_ns() - begin < 1000000000);
	assert_int_equal(agent_phase(&agent, PHASE_RESUME).reason, 0);
	assert_true(conductor_has(&c, "1"));
	agent_phase(&agent, PHASE_SUSPEND); /* the next interval is a whole one */
	assert_true(raw_now_ns() - begin > 1000000000);
	job_finish(&c, &agent, 1, NULL);
}

static void test_signal(void **state)
{
	struct link agent, command;
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &command);
	command_ask(&command, 0);
	refused(&agent, 1, LAST_WAIT);
	assert_int_equal(kill(c.pid, SIGTERM), 0);
	r = command_result(&command, NULL, 0);
	assert_int_equal(r.error, -ECANCELED);
	job_finish(&c, &agent, 1, &command);
}

/* The RESUME of an attempt that was refused: who stands. */
static void resumed(struct link *agents, uint32_t count, uint32_t standing)
{
	for (uint32_t i = 0; i < count; i++) {
		struct msg_phase p = agent_phase(&agents[i], PHASE_RESUME);

		assert_int_equal(p.reason, -EAGAIN);
		assert_int_equal(p.round, i < standing ? RESUME_STAND : RESUME_GO);
	}
}

/* The first @waiting of three wait for another one: in an odd attempt it is over with the first one's word, in an even one with the last one's. */
static void outwaited(struct link *agents, uint32_t waiting, int attempt)
{
	agents_do(agents, 3, PHASE_SUSPEND);
	for (uint32_t i = 0; i < (attempt % 2 ? 1 : waiting); i++)
		agent_refuse(&agents[i], PHASE_QUIESCE, -EALREADY);
	for (uint32_t i = attempt % 2 ? 1 : waiting; i < 3; i++)
		attempt % 2 ? (void)agent_phase(&agents[i], PHASE_QUIESCE) : agent_do(&agents[i], PHASE_QUIESCE);
	resumed(agents, 3, attempt % 2 ? 0 : waiting);
}

static void test_outwaits(void **state)
{
	struct link agents[3], command;
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, agents, 3, &command);
	command_ask(&command, 0);
	for (int i = 1; i <= 6; i++)
		outwaited(agents, i % 3 + 1, i);
	agents_do_checkpoint(agents, 3);
	r = command_result(&command, NULL, 0);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.attempts, ATTEMPTS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).round, RESUME_GO);
	job_finish(&c, agents, 3, &command);
}

static void test_outwaits_never(void **state)
{
	struct link agents[3], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &defaults, agents, 3, &command);
	command_ask(&command, 0);
	for (int i = 1; i <= ATTEMPTS; i++)
		outwaited(agents, 2, i);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -EAGAIN);
	assert_string_equal(text, "pid 10 (fake): fd 7 is busy (tried 7 times)");
	job_finish(&c, agents, 3, &command);
}

/* Whatever ends the attempts lets them go: nobody asks any more, the coordinator is to end, an error of another kind, somebody is lost. */
static void test_outwaits_ends(void **state)
{
	static const int errors[] = { -ECANCELED, -ECANCELED, -EOPNOTSUPP, -ECONNRESET };

	for (int how = 0; how < 4; how++) {
		struct link agents[3], command;
		struct conductor c;

		job_start(&c, &defaults, agents, 3, &command);
		command_ask(&command, 0);
		for (int i = 1; i <= LAST_WAIT - (how > 1); i++)
			outwaited(agents, 1, i);
		if (how > 1) {
			agents_do(agents, 3, PHASE_SUSPEND);
			agent_refuse(&agents[0], PHASE_QUIESCE, -EALREADY);
		}
		if (how == 0)
			link_close(&command);
		else if (how == 1)
			assert_int_equal(kill(c.pid, SIGTERM), 0);
		else if (how == 2)
			agent_refuse(&agents[2], PHASE_QUIESCE, -EOPNOTSUPP);
		else
			link_close(&agents[2]);
		if (how) {
			assert_int_equal(command_result(&command, NULL, 0).error, errors[how]);
		} else {
			assert_int_equal(agent_phase(&agents[0], PHASE_RESUME).round, RESUME_GO);
			agent_expect_silence(&agents[1], 500);
			command_open(&c, &command);
		}
		if (how)
			assert_int_equal(agent_phase(&agents[0], PHASE_RESUME).round, RESUME_GO);
		job_finish(&c, agents, how == 3 ? 2 : 3, &command);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_again), cmocka_unit_test(test_never),  cmocka_unit_test(test_other),    cmocka_unit_test(test_ends),
		cmocka_unit_test(test_comes), cmocka_unit_test(test_joins),  cmocka_unit_test(test_counts),   cmocka_unit_test(test_gone),
		cmocka_unit_test(test_late),  cmocka_unit_test(test_signal), cmocka_unit_test(test_interval),
		cmocka_unit_test(test_outwaits), cmocka_unit_test(test_outwaits_never), cmocka_unit_test(test_outwaits_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
