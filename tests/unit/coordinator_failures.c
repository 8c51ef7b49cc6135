/* SPDX-License-Identifier: BSD-2-Clause */
/* Checkpoints that fail: an agent fails or dies in each phase, time runs out, the coordinator is killed, the disk fails, messages are none. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "tests/lib/fake_agent.h"

static const struct coordinator_options defaults;

/* @phase: where the second of two fails; @dies: by leaving, else by saying so. */
static void fail_in(uint32_t phase, bool dies)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	struct msg_phase p;
	char text[512];

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agents_do_up_to(agents, 2, phase);
	p = agent_phase(&agents[1], phase);
	if (dies && phase == PHASE_SUSPEND)
		agent_done(&agents[1], &p, 0, "", NULL, 0);
	if (dies)
		link_close(&agents[1]);
	else
		agent_done(&agents[1], &p, -EBUSY, "fd 7 is busy", NULL, 0);
	p = agent_phase(&agents[0], phase);
	assert_int_equal(agent_phase(&agents[0], PHASE_RESUME).reason, dies ? -ECONNRESET : -EBUSY);
	agent_done(&agents[0], &p, 0, "", NULL, 0); /* too late: it must not count for the next one */
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, dies ? -ECONNRESET : -EBUSY);
	assert_non_null(strstr(text, "pid 11 (fake)"));
	assert_true(dies || strstr(text, "fd 7 is busy"));
	assert_false(conductor_has(&c, "1") || conductor_has(&c, ".1.partial"));
	if (!dies)
		agent_phase(&agents[1], PHASE_RESUME);
	r = command_checkpoint(&command, agents, dies ? 1 : 2);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, dies ? 1 : 2);
	job_finish(&c, agents, 2, &command);
}

static void test_failures(void **state)
{
	fail_in(PHASE_SUSPEND, false);
	fail_in(PHASE_QUIESCE, false);
	fail_in(PHASE_DRAIN, false);
	fail_in(PHASE_WRITE, false);
}

static void test_deaths(void **state)
{
	fail_in(PHASE_SUSPEND, true);
	fail_in(PHASE_QUIESCE, true);
	fail_in(PHASE_DRAIN, true);
	fail_in(PHASE_WRITE, true);
}

static void test_timeout(void **state)
{
	struct coordinator_options options = { .timeout_ms = 1000 };
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	job_start(&c, &options, agents, 2, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_do(&agents[0], PHASE_QUIESCE);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ETIMEDOUT);
	assert_non_null(strstr(text, "QUIESCE"));
	assert_non_null(strstr(text, "pid 11 (fake)"));
	assert_null(strstr(text, "pid 10"));
	assert_int_equal(agent_phase(&agents[0], PHASE_RESUME).reason, -ETIMEDOUT);
	job_finish(&c, agents, 2, &command);
}

/*
 * Data that does not arrive is no process that does not answer, though the time is over in the middle of a round. That round has to be younger than
 * half the limit when the time is over: about a second is left to both sides.
 */
static void test_timeout_of_data(void **state)
{
	struct coordinator_options options = { .timeout_ms = 4000 };
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	uint64_t begin = raw_now_ns();
	struct conductor c;
	struct msg_phase p;
	char text[512];

	job_start(&c, &options, agents, 2, &command);
	command_ask(&command, 0);
	agents_do_up_to(agents, 2, PHASE_DRAIN);
	do {
		p = agent_phase(&agents[0], PHASE_DRAIN);
		agent_done(&agents[0], &p, PHASE_STATUS_MORE, p.round ? "QP 1 waits" : "", NULL, 0);
		agent_do(&agents[1], PHASE_DRAIN);
	} while (raw_now_ns() - begin < 2900000000);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ETIMEDOUT);
	assert_non_null(strstr(text, "DRAIN: after 4 s data was still on its way at pid 10 (fake) (QP 1 waits)"));
	assert_null(strstr(text, "pid 11"));
	job_finish(&c, agents, 2, &command);
}

/* Killed in mid-write: the job goes on, the next coordinator finds nothing of it. */
static void killed_at(const char *fault, bool committed)
{
	struct link agent, command;
	struct conductor c, next;
	struct link_message m;

	setenv("FERMATA_FAULT", fault, 1);
	job_start(&c, &defaults, &agent, 1, &command);
	unsetenv("FERMATA_FAULT");
	command_ask(&command, 0);
	while (link_receive(&agent, &m, 20000) == 0) {
		struct msg_phase p;

		memcpy(&p, m.data, sizeof(p));
		agent_done(&agent, &p, 0, "", NULL, 0);
	}
	link_close(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 128 + SIGKILL);
	assert_int_equal(conductor_has(&c, "1"), committed);
	conductor_start_in(&next, c.base, &defaults);
	assert_false(conductor_has(&c, ".1.partial"));
	agent_join(&next, &agent, 10, 0);
	command_open(&next, &command);
	assert_int_equal(command_checkpoint(&command, &agent, 1).checkpoint, committed ? 2 : 1);
	job_finish(&next, &agent, 1, &command);
}

static void test_killed(void **state)
{
	killed_at("coordinator-after-suspend", false);
	killed_at("coordinator-after-write", false);
	killed_at("coordinator-before-manifest", false);
	killed_at("coordinator-before-rename", false);
	killed_at("coordinator-after-rename", true);
}

static void test_disk_error(void **state)
{
	static const char *const faults[] = { "coordinator-before-manifest=error", "coordinator-before-rename=error",
					      "coordinator-after-drain=error" };

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct link agent, command;
		struct link_message m;
		struct msg_phase p;
		struct conductor c;
	
		setenv("FERMATA_FAULT", faults[i], 1);
		job_start(&c, &defaults, &agent, 1, &command);
		unsetenv("FERMATA_FAULT");
		command_ask(&command, 0);
		do {
			m = agent_receive(&agent, MSG_PHASE);
			memcpy(&p, m.data, sizeof(p));
			if (p.phase != PHASE_RESUME)
				agent_done(&agent, &p, 0, "", NULL, 0);
		} while (p.phase != PHASE_RESUME);
		assert_int_equal(p.reason, -EIO);
		assert_int_equal(command_result(&command, NULL, 0).error, -EIO);
		assert_false(conductor_has(&c, "1") || conductor_has(&c, ".1.partial"));
		job_finish(&c, &agent, 1, &command);
	}
}

static void test_terminated(void **state)
{
	struct link agent, command;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &command);
	command_ask(&command, 0);
	agents_do_up_to(&agent, 1, PHASE_WRITE);
	agent_phase(&agent, PHASE_WRITE);
	assert_int_equal(kill(c.pid, SIGTERM), 0);
	assert_int_equal(agent_phase(&agent, PHASE_RESUME).reason, -ECANCELED);
	assert_int_equal(command_result(&command, NULL, 0).error, -ECANCELED);
	agent_expect_end(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 0);
	assert_false(conductor_has(&c, "1") || conductor_has(&c, ".1.partial"));
	conductor_clean(&c);
}

static void test_wrong_key(void **state)
{
	struct msg_auth_proof proof = { { 0 } };
	struct msg_auth_hello hello = { { 0 } };
	struct conductor c;
	struct link l;

	conductor_start(&c, &defaults);
	c.key[3] ^= 1;
	assert_int_equal(link_open(&l, agent_dial(&c), c.key), -EACCES);
	/* One who does not look at the coordinator's own proof. */
	l = (struct link){ .fd = agent_dial(&c) };
	assert_int_equal(link_send(&l, MSG_AUTH_HELLO, &hello, sizeof(hello)), 0);
	agent_receive(&l, MSG_AUTH_CHALLENGE);
	assert_int_equal(link_send(&l, MSG_AUTH_PROOF, &proof, sizeof(proof)), 0);
	agent_expect_end(&l);
	/* One who does not prove anything. */
	l = (struct link){ .fd = agent_dial(&c) };
	assert_int_equal(link_send(&l, MSG_QUIT, NULL, 0), 0);
	agent_expect_end(&l);
	c.key[3] ^= 1;
	agent_join(&c, &l, 10, 0);
	job_finish(&c, &l, 1, NULL);
}

/* One that sends what is no message is closed; the others and the checkpoint after that do not suffer. */
static void test_damaged(void **state)
{
	struct link agents[2], command;
	struct conductor c;

	job_start(&c, &defaults, agents, 2, &command);
	assert_int_equal(link_send(&agents[0], 999, "later", 5), 0); /* of a newer version: skipped */
	assert_int_equal(write(agents[1].fd, "this is not a message", 21), 21);
	agent_expect_end(&agents[1]);
	agent_join(&c, &agents[1], 12, 0);
	assert_int_equal(link_send(&agents[1], MSG_PHASE_DONE, "short", 5), 0);
	agent_expect_end(&agents[1]);
	assert_int_equal(command_checkpoint(&command, agents, 1).processes, 1);
	job_finish(&c, agents, 1, &command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failures), cmocka_unit_test(test_deaths), cmocka_unit_test(test_timeout), cmocka_unit_test(test_timeout_of_data),
		cmocka_unit_test(test_killed), cmocka_unit_test(test_disk_error),
		cmocka_unit_test(test_terminated), cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
