/* SPDX-License-Identifier: BSD-2-Clause */
/* The coordinator's checkpoints that go well, driven by agents that only speak the protocol: phases, names, commands, what is kept. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define MANY 64

static const struct coordinator_options defaults;

static void test_complete(void **state)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;

	job_start(&c, &defaults, agents, 2, &command);
	for (unsigned int n = 1; n <= 2; n++) {
		char number[8];

		r = command_checkpoint(&command, agents, 2);
		for (int i = 0; i < 2; i++)
			assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).reason, 0);
		assert_int_equal(r.error, 0);
		assert_int_equal(r.checkpoint, n);
		assert_int_equal(r.processes, 2);
		assert_int_equal(r.bytes, 2000);
		snprintf(number, sizeof(number), "%u", n);
		assert_true(conductor_has(&c, number));
	}
	assert_true(conductor_has(&c, "1/manifest.json"));
	assert_true(conductor_has(&c, "1/10.core"));
	assert_true(conductor_has(&c, "2/11.core"));
	assert_false(conductor_has(&c, ".2.partial"));
	job_finish(&c, agents, 2, &command);
}

static void test_many(void **state)
{
	static struct link agents[MANY];
	struct msg_checkpoint_result r;
	struct conductor c;
	struct link command;

	job_start(&c, &defaults, agents, MANY, &command);
	r = command_checkpoint(&command, agents, MANY);
	for (uint32_t i = 0; i < MANY; i++)
		agent_phase(&agents[i], PHASE_RESUME);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, MANY);
	job_finish(&c, agents, MANY, &command);
}

static void test_drain_rounds(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	struct msg_phase p;

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agents_do_up_to(agents, 2, PHASE_DRAIN);
	for (uint32_t round = 0; round < 4; round++) {
		p = agent_phase(&agents[0], PHASE_DRAIN);
		assert_int_equal(p.round, round);
		agent_done(&agents[0], &p, round < 3 ? PHASE_STATUS_MORE : PHASE_STATUS_OK, "", NULL, 0);
		agent_do(&agents[1], PHASE_DRAIN);
	}
	agents_do(agents, 2, PHASE_WRITE);
	assert_int_equal(command_result(&command, NULL, 0).error, 0);
	job_finish(&c, agents, 2, &command);
}

static void test_names(void **state)
{
	struct link agents[2], command;
	struct link_message m;
	struct conductor c;

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_name(&agents[0], MSG_NAME_PUBLISH, "qp/1", "a");
	agent_name(&agents[0], MSG_NAME_PUBLISH, "qp/1", "b");
	agent_name(&agents[1], MSG_NAME_ASK, "qp/1", "");
	agent_name(&agents[1], MSG_NAME_ASK, "qp/1", "");
	agent_name(&agents[1], MSG_NAME_ASK, "nobody", "");
	agents_do(agents, 2, PHASE_QUIESCE);
	m = agent_receive(&agents[1], MSG_NAMES_REPLY);
	assert_int_equal(agent_names_count(&m, "qp/1"), 2);
	assert_int_equal(agent_names_count(&m, "nobody"), 0);
	agents_do(agents, 2, PHASE_DRAIN);
	agents_do(agents, 2, PHASE_WRITE);
	command_result(&command, NULL, 0);
	agent_phase(&agents[0], PHASE_RESUME);
	agent_phase(&agents[1], PHASE_RESUME);
	/* Names do not outlive a checkpoint. */
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_name(&agents[1], MSG_NAME_ASK, "qp/1", "");
	agents_do(agents, 2, PHASE_QUIESCE);
	m = agent_receive(&agents[1], MSG_NAMES_REPLY);
	assert_int_equal(agent_names_count(&m, "qp/1"), 0);
	job_finish(&c, agents, 2, &command);
}

#define VALUES 3000u
#define LONGEST 1000u

static void name_long(struct link *l, uint32_t flags, uint16_t kind, uint32_t number, size_t length)
{
	struct msg_names head = { 1, flags };
	uint8_t value[LONGEST] = { 0 }, entry[LONGEST + 64];

	memcpy(value, &number, sizeof(number));
	encode_name(entry, kind, "many", 4, value, (uint16_t)length);
	assert_int_equal(link_send2(l, MSG_NAMES, &head, sizeof(head), entry, encode_name_size(4, length)), 0);
}

/* A large reply comes in frames, in order, to who takes that; to another agent in one. */
static void test_pieces(void **state)
{
	struct link agents[2], command;
	uint32_t flags, frames, number, got;
	struct decode_names it;
	struct decode_name n;
	struct link_message m;
	struct conductor c;

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	for (uint32_t i = 0; i < VALUES; i++)
		name_long(&agents[0], 0, MSG_NAME_JOB_PUBLISH, i, LONGEST);
	name_long(&agents[0], MSG_NAMES_IN_PIECES, MSG_NAME_JOB_ASK, 0, 0);
	name_long(&agents[1], 0, MSG_NAME_JOB_ASK, 0, 0);
	agents_do(agents, 2, PHASE_QUIESCE);
	for (int i = 0; i < 2; i++) {
		frames = got = 0;
		do {
			m = agent_receive(&agents[i], MSG_NAMES_REPLY);
			assert_int_equal(decode_names_begin(&it, m.data, m.length), 0);
			flags = it.flags;
			for (frames++; decode_names_next(&it, &n) > 0; got++) {
				memcpy(&number, n.value, sizeof(number));
				assert_int_equal(number, got);
			}
		} while (flags & MSG_NAMES_MORE);
		assert_int_equal(got, VALUES);
		assert_int_equal(frames, i ? 1 : 3);
	}
	agents_do(agents, 2, PHASE_DRAIN);
	agents_do(agents, 2, PHASE_WRITE);
	command_result(&command, NULL, 0);
	job_finish(&c, agents, 2, &command);
}

static void test_waiters(void **state)
{
	struct link agent, commands[3];
	struct conductor c;

	conductor_start(&c, &defaults);
	agent_join(&c, &agent, 10, 0);
	for (int i = 0; i < 3; i++)
		command_open(&c, &commands[i]);
	command_ask(&commands[0], 0);
	agent_do(&agent, PHASE_SUSPEND);
	for (int i = 1; i < 3; i++) {
		command_ask(&commands[i], 0);
		command_settle(&commands[i]);
	}
	agents_do_rest(&agent, 1);
	assert_int_equal(command_result(&commands[0], NULL, 0).checkpoint, 1);
	agent_phase(&agent, PHASE_RESUME);
	agents_do_checkpoint(&agent, 1);
	assert_int_equal(command_result(&commands[1], NULL, 0).checkpoint, 2);
	assert_int_equal(command_result(&commands[2], NULL, 0).checkpoint, 2);
	link_close(&commands[1]);
	link_close(&commands[2]);
	job_finish(&c, &agent, 1, &commands[0]);
}

/* A member that is a real process, since it is killed: does a checkpoint, and at its SUSPEND asks @gate. */
static pid_t killable_member(struct conductor *c, int gate)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct link agent;

		agent_join(c, &agent, 10, 0);
		if (write(ready[1], "+", 1) != 1)
			_exit(1);
		agent_do(&agent, PHASE_SUSPEND);
		if (gate >= 0 && read(gate, &byte, 1) != 1)
			_exit(1);
		agents_do_rest(&agent, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void assert_killed(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_stop(void **state)
{
	struct conductor c;
	struct link command;
	pid_t pid;

	conductor_start(&c, &defaults);
	pid = killable_member(&c, -1);
	command_open(&c, &command);
	command_ask(&command, MSG_CHECKPOINT_STOP);
	assert_int_equal(command_result(&command, NULL, 0).error, 0);
	assert_killed(pid);
	job_finish(&c, NULL, 0, &command);
}

/* Who watches is told why; who asks for the next checkpoint gets the last one. */
static void test_requeue(void **state)
{
	const struct msg_watch watch = { 0 };
	struct link commands[2], watcher;
	struct msg_ending ending;
	struct link_message m;
	struct conductor c;
	int gate[2];
	pid_t pid;

	assert_int_equal(pipe(gate), 0);
	conductor_start(&c, &defaults);
	pid = killable_member(&c, gate[0]);
	command_open(&c, &watcher);
	assert_int_equal(link_send(&watcher, MSG_WATCH, &watch, sizeof(watch)), 0);
	for (int i = 0; i < 2; i++) {
		command_open(&c, &commands[i]);
		command_ask(&commands[i], MSG_CHECKPOINT_STOP | MSG_CHECKPOINT_REQUEUE);
		command_settle(&commands[i]);
	}
	assert_int_equal(write(gate[1], "+", 1), 1);
	m = agent_receive(&watcher, MSG_ENDING);
	memcpy(&ending, m.data, sizeof(ending));
	assert_int_equal(ending.reason, MSG_ENDING_REQUEUED);
	assert_int_equal(ending.checkpoint, 1);
	assert_memory_equal(m.data + sizeof(ending) + ending.text_length - 2, "/1", 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(command_result(&commands[i], NULL, 0).checkpoint, 1);
	assert_killed(pid);
	link_close(&commands[0]);
	link_close(&watcher);
	job_finish(&c, NULL, 0, &commands[1]);
}

/* A failure is the job's end only where it can come back: a checkpoint is there, and who brings it back is. */
static void test_failed(void **state)
{
	static const char text[] = "cat (pid 7) ended with status 1";
	const struct msg_watch keeper = { .flags = MSG_WATCH_KEEPER };
	struct link command, keeps;
	struct msg_ending ending;
	struct link_message m;
	struct conductor c;
	char said[512];
	pid_t pid;

	conductor_start(&c, &defaults);
	pid = killable_member(&c, -1);
	command_open(&c, &command);
	command_open(&c, &keeps);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(link_send(&command, MSG_FAILED, text, strlen(text)), 0);
		command_settle(&command);
		agent_expect_silence(&keeps, 0);
		assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
		if (i)
			continue;
		assert_int_equal(link_send(&keeps, MSG_WATCH, &keeper, sizeof(keeper)), 0);
		command_settle(&keeps);
	}
	command_ask(&command, 0);
	assert_int_equal(command_result(&command, said, sizeof(said)).error, 0);
	assert_int_equal(link_send(&command, MSG_FAILED, text, strlen(text)), 0);
	m = agent_receive(&keeps, MSG_ENDING);
	memcpy(&ending, m.data, sizeof(ending));
	assert_int_equal(ending.reason, MSG_ENDING_FAILED);
	assert_int_equal(ending.text_length, strlen(text));
	assert_memory_equal(m.data + sizeof(ending), text, strlen(text));
	assert_killed(pid);
	link_close(&keeps);
	job_finish(&c, NULL, 0, &command);
}

static void test_keep(void **state)
{
	struct coordinator_options options = { .keep = 2 };
	struct link agent, command;
	struct conductor c;

	job_start(&c, &options, &agent, 1, &command);
	for (unsigned int n = 1; n <= 4; n++) {
		assert_int_equal(command_checkpoint(&command, &agent, 1).checkpoint, n);
		agent_phase(&agent, PHASE_RESUME);
	}
	link_close(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 0);
	assert_false(conductor_has(&c, "1") || conductor_has(&c, "2") || conductor_has(&c, ".1.pruned"));
	assert_true(conductor_has(&c, "3") && conductor_has(&c, "4"));
	conductor_clean(&c);
}

static void test_nobody(void **state)
{
	struct msg_checkpoint_result r;
	struct link agent, command;
	struct conductor c;

	conductor_start(&c, &defaults);
	command_open(&c, &command);
	command_ask(&command, 0);
	r = command_result(&command, NULL, 0);
	assert_int_equal(r.error, -ESRCH);
	agent_join(&c, &agent, 10, 0);
	job_finish(&c, &agent, 1, &command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete), cmocka_unit_test(test_many),
		cmocka_unit_test(test_drain_rounds), cmocka_unit_test(test_names), cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_waiters), cmocka_unit_test(test_stop), cmocka_unit_test(test_requeue), cmocka_unit_test(test_failed),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
