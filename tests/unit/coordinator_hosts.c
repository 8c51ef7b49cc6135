/* SPDX-License-Identifier: BSD-2-Clause */
/* A job on several hosts, as its coordinator sees it: pids and names that are the same on two of them, a restart of both, and who is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define PID 10
#define HOSTS 2

static const struct coordinator_options defaults;
static const char *const host[HOSTS] = { "alpha", "beta" };

static void begin(struct conductor *c, struct link *agents)
{
	conductor_start(c, &defaults);
	for (int i = 0; i < HOSTS; i++)
		agent_join_of(c, &agents[i], host[i], 0, PID, 0);
}

/* In @phase each publishes under the same key, which is its host's; one publishes a name of the job. */
static void exchange(struct link *agents, uint32_t phase, const char *const *value)
{
	struct msg_phase p[HOSTS];

	for (int i = 0; i < HOSTS; i++)
		p[i] = agent_phase(&agents[i], phase);
	for (int i = 0; i < HOSTS; i++) {
		agent_name(&agents[i], MSG_NAME_PUBLISH, "pipe/7", value[i]);
		agent_name(&agents[i], MSG_NAME_ASK, "pipe/7", "");
		agent_name(&agents[i], MSG_NAME_ASK, "fabric", "");
		agent_name(&agents[i], MSG_NAME_JOB_ASK, "fabric", "");
	}
	agent_name(&agents[0], MSG_NAME_JOB_PUBLISH, "fabric", "common");
	for (int i = 0; i < HOSTS; i++)
		agent_done(&agents[i], &p[i], 0, "", NULL, 0);
	for (int i = 0; i < HOSTS; i++) {
		struct link_message m = agent_receive(&agents[i], MSG_NAMES_REPLY);

		agent_names_only(&m, MSG_NAME_PUBLISH, "pipe/7", value[i]);
		agent_names_only(&m, MSG_NAME_JOB_PUBLISH, "fabric", "common");
		assert_int_equal(agent_names_count(&m, "fabric"), 1);
	}
}

/* A checkpoint of all, who exchange names in it; their images have these names. */
static void checkpoint(struct conductor *c, struct link *agents, const char *first, const char *second)
{
	struct link command;

	command_open(c, &command);
	command_ask(&command, 0);
	agents_do(agents, HOSTS, PHASE_SUSPEND);
	exchange(agents, PHASE_QUIESCE, host);
	agents_do(agents, HOSTS, PHASE_DRAIN);
	agents_do(agents, HOSTS, PHASE_WRITE);
	assert_int_equal(command_result(&command, NULL, 0).error, 0);
	assert_true(conductor_has(c, first) && conductor_has(c, second));
	job_finish(c, agents, HOSTS, &command);
}

static void test_names(void **state)
{
	struct link agents[HOSTS];
	struct conductor c;

	begin(&c, agents);
	checkpoint(&c, agents, "1/0-10.core", "1/1-10.core");
}

/* They come back in another order, and keep apart. */
static void test_restart(void **state)
{
	static const char *const turned[HOSTS] = { "beta", "alpha" };
	struct coordinator_options options = { 0 };
	struct link agents[HOSTS], command, stranger;
	char from[200];
	struct conductor c;

	begin(&c, agents);
	command_open(&c, &command);
	assert_int_equal(command_checkpoint(&command, agents, HOSTS).error, 0);
	for (int i = 0; i < HOSTS; i++)
		link_close(&agents[i]);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 0);
	snprintf(from, sizeof(from), "%s/1", c.dir);
	options.restart = from;
	conductor_start_in(&c, c.base, &options);
	command_open(&c, &command);
	assert_int_equal(link_send(&command, MSG_WAIT_RESTART, NULL, 0), 0);
	agent_join_of(&c, &agents[0], turned[0], 0, PID, MSG_REGISTER_RESTARTED);
	agent_open(&c, &stranger); /* of a host that the checkpoint has not */
	agent_send_register_of(&stranger, "gamma", 0, 0, PID, MSG_REGISTER_RESTARTED);
	agent_expect_end(&stranger);
	agent_join_of(&c, &agents[1], turned[1], 0, PID, MSG_REGISTER_RESTARTED);
	exchange(agents, PHASE_RECREATE, turned);
	agents_do(agents, HOSTS, PHASE_PUBLISH);
	agents_do(agents, HOSTS, PHASE_RECONNECT);
	agents_do(agents, HOSTS, PHASE_REFILL);
	for (int i = 0; i < HOSTS; i++)
		assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).reason, 0);
	agent_receive(&command, MSG_RESTART_RESULT);
	job_finish(&c, agents, HOSTS, &command);
}

/* Parts of one host have no numbers in common either. */
static void test_parts(void **state)
{
	struct link agents[HOSTS];
	struct conductor c;

	conductor_start(&c, &defaults);
	for (uint32_t i = 0; i < HOSTS; i++)
		agent_join_of(&c, &agents[i], "alpha", i, PID + i, 0);
	checkpoint(&c, agents, "1/10.core", "1/11.core");
}

/* Two machines of one name would be taken for one; a machine that has begun again is none of them. */
static void test_same_name(void **state)
{
	struct link first, second;
	struct conductor c;

	conductor_start(&c, &defaults);
	agent_join_of(&c, &first, "alpha", 0, PID, 0);
	agent_open(&c, &second);
	agent_send_register_of(&second, "alpha", 0, 77, PID + 1, 0);
	agent_expect_end(&second);
	agent_join_of(&c, &second, "beta", 0, PID, 0);
	link_close(&first);
	do {
		agent_open(&c, &first); /* that it has left is seen some moment */
		agent_send_register_of(&first, "alpha", 0, 77, PID, 0);
	} while (agent_is_refused(&first));
	link_close(&first);
	job_finish(&c, &second, 1, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_restart), cmocka_unit_test(test_parts),
					    cmocka_unit_test(test_same_name) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
