/* SPDX-License-Identifier: BSD-2-Clause */
/* The coordinator's restarts, driven by agents that only speak the protocol. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "tests/lib/fake_agent.h"

/* A committed checkpoint of pids 10 and 11 in a directory whose path is @ret. */
static void make_checkpoint(struct conductor *c, char *ret, size_t size)
{
	const struct coordinator_options defaults = { 0 };
	struct link agents[2], command;

	job_start(c, &defaults, agents, 2, &command);
	assert_int_equal(command_checkpoint(&command, agents, 2).error, 0);
	link_close(&agents[0]);
	link_close(&agents[1]);
	link_close(&command);
	assert_int_equal(conductor_wait(c), 0);
	snprintf(ret, size, "%s/1", c->dir);
}

static void begin_unasked(struct conductor *c, unsigned int timeout_ms)
{
	struct coordinator_options options = { .timeout_ms = timeout_ms };
	char checkpoint[200];

	make_checkpoint(c, checkpoint, sizeof(checkpoint));
	options.restart = checkpoint;
	conductor_start_in(c, c->base, &options);
}

static void begin(struct conductor *c, struct link *command, unsigned int timeout_ms)
{
	begin_unasked(c, timeout_ms);
	command_open(c, command);
	assert_int_equal(link_send(command, MSG_WAIT_RESTART, NULL, 0), 0);
}

static struct msg_restart_result result(struct link *command, char *text, size_t size)
{
	struct link_message m = agent_receive(command, MSG_RESTART_RESULT);
	struct msg_restart_result r;

	memcpy(&r, m.data, sizeof(r));
	snprintf(text, size, "%.*s", (int)r.text_length, (const char *)m.data + sizeof(r));
	return r;
}

static void test_complete(void **state)
{
	static const uint32_t phases[] = { PHASE_RECREATE, PHASE_PUBLISH, PHASE_RECONNECT, PHASE_REFILL };
	struct link agents[2], command, checkpoint;
	struct msg_restart_result r;
	struct link_message m;
	struct conductor c;
	char text[512];

	begin(&c, &command, 0);
	agent_join(&c, &agents[0], 11, MSG_REGISTER_RESTARTED);
	agent_expect_silence(&agents[0], 50);
	agent_open(&c, &agents[1]);
	agent_send_register(&agents[1], 10, MSG_REGISTER_RESTARTED);
	agent_welcome(&agents[1]);
	agent_name(&agents[0], MSG_NAME_PUBLISH, "key", "value");
	agent_name(&agents[1], MSG_NAME_ASK, "key", "");
	agents_do(agents, 2, phases[0]);
	m = agent_receive(&agents[1], MSG_NAMES_REPLY);
	assert_int_equal(agent_names_count(&m, "key"), 1);
	/* One who asks for a checkpoint meanwhile gets it afterwards. */
	command_open(&c, &checkpoint);
	command_ask(&checkpoint, 0);
	for (int i = 1; i < 4; i++)
		agents_do(agents, 2, phases[i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).reason, 0);
	r = result(&command, text, sizeof(text));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, 2);
	agents_do_checkpoint(agents, 2);
	assert_int_equal(command_result(&checkpoint, text, sizeof(text)).checkpoint, 2);
	link_close(&agents[0]);
	link_close(&agents[1]);
	link_close(&command);
	link_close(&checkpoint);
	assert_int_equal(conductor_wait(&c), 0);
	conductor_clean(&c);
}

static void test_failure(void **state)
{
	struct link agents[2], command;
	struct msg_restart_result r;
	struct conductor c;
	struct msg_phase p;
	char text[512];

	begin(&c, &command, 0);
	agent_join(&c, &agents[0], 10, MSG_REGISTER_RESTARTED);
	agent_join(&c, &agents[1], 11, MSG_REGISTER_RESTARTED);
	agents_do(agents, 2, PHASE_RECREATE);
	agent_do(&agents[0], PHASE_PUBLISH);
	p = agent_phase(&agents[1], PHASE_PUBLISH);
	agent_done(&agents[1], &p, -ENODEV, "no RDMA device", NULL, 0);
	agent_expect_end(&agents[1]);
	r = result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ENODEV);
	assert_non_null(strstr(text, "pid 11 (fake): no RDMA device"));
	assert_int_equal(agent_receive(&agents[0], MSG_ERROR).type, MSG_ERROR);
	link_close(&agents[0]);
	assert_int_not_equal(conductor_wait(&c), 0);
	link_close(&command);
	conductor_clean(&c);
}

static void test_death(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	char text[512];

	begin(&c, &command, 0);
	agent_join(&c, &agents[0], 10, MSG_REGISTER_RESTARTED);
	agent_join(&c, &agents[1], 11, MSG_REGISTER_RESTARTED);
	agent_do(&agents[0], PHASE_RECREATE);
	link_close(&agents[1]);
	assert_int_equal(result(&command, text, sizeof(text)).error, -ECONNRESET);
	assert_non_null(strstr(text, "pid 11"));
	link_close(&agents[0]);
	link_close(&command);
	assert_int_not_equal(conductor_wait(&c), 0);
	conductor_clean(&c);
}

static void test_missing(void **state)
{
	struct link agent, stranger, command;
	struct conductor c;
	char text[512];

	begin(&c, &command, 500);
	agent_join(&c, &agent, 10, MSG_REGISTER_RESTARTED);
	agent_open(&c, &stranger);
	agent_send_register(&stranger, 12, MSG_REGISTER_RESTARTED);
	agent_expect_end(&stranger);
	assert_int_equal(result(&command, text, sizeof(text)).error, -ETIMEDOUT);
	assert_non_null(strstr(text, "pid 11 (fake)"));
	assert_null(strstr(text, "pid 10"));
	link_close(&agent);
	link_close(&command);
	assert_int_not_equal(conductor_wait(&c), 0);
	conductor_clean(&c);
}

/* Reading memory takes as long as it takes. */
static void test_still_reading(void **state)
{
	struct link agent, command;
	struct conductor c;
	char text[512];
	uint64_t told;

	begin(&c, &command, 1500);
	agent_join(&c, &agent, 10, MSG_REGISTER_RESTARTED);
	agent_expect_silence(&agent, 500);
	told = raw_now_ns();
	assert_int_equal(link_send(&command, MSG_WAIT_RESTART, NULL, 0), 0);
	assert_int_equal(result(&command, text, sizeof(text)).error, -ETIMEDOUT);
	assert_true(raw_now_ns() - told >= 1400000000ull);
	link_close(&agent);
	link_close(&command);
	assert_int_not_equal(conductor_wait(&c), 0);
	conductor_clean(&c);
}

/* `fermata restart` itself is ended in the middle. */
static void test_given_up(void **state)
{
	struct link agent, command;
	struct conductor c;

	begin(&c, &command, 0);
	agent_join(&c, &agent, 10, MSG_REGISTER_RESTARTED);
	link_close(&command);
	agent_expect_end(&agent);
	assert_int_not_equal(conductor_wait(&c), 0);
	conductor_clean(&c);
}

/* It is ended before it has said a word. */
static void test_never_asked(void **state)
{
	uint64_t since = raw_now_ns();
	struct conductor c;

	begin_unasked(&c, 120000);
	assert_int_not_equal(conductor_wait(&c), 0);
	assert_true(raw_now_ns() - since < 60000000000u);
	conductor_clean(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete), cmocka_unit_test(test_failure), cmocka_unit_test(test_death),
		cmocka_unit_test(test_missing),	 cmocka_unit_test(test_still_reading), cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_never_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
