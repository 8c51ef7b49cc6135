/* SPDX-License-Identifier: BSD-2-Clause */
/* Members that come and go while the coordinator takes a checkpoint: ends, forks, launches and execs in each phase. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

static const struct coordinator_options defaults;

static void end_before_report(uint32_t flags, bool says_so)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, flags);
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_do(&agents[0], PHASE_SUSPEND);
	agent_phase(&agents[1], PHASE_SUSPEND);
	if (says_so)
		assert_int_equal(link_send(&agents[1], MSG_EXITING, NULL, 0), 0);
	link_close(&agents[1]);
	agents_do_rest(agents, 1);
	r = command_result(&command, NULL, 0);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, 1);
	job_finish(&c, agents, 1, &command);
}

static void test_end_before_report(void **state)
{
	end_before_report(0, true);
	end_before_report(MSG_REGISTER_FORKED, false);
}

/* It has said that it ends, and that it does not: its end is a crash. */
static void test_end_taken_back(void **state)
{
	const struct msg_exiting ends = { 0 }, stays = { .stays = 1 };
	struct link agents[2], command;
	struct conductor c;

	job_start(&c, &defaults, agents, 2, &command);
	assert_int_equal(link_send(&agents[1], MSG_EXITING, &ends, sizeof(ends)), 0);
	assert_int_equal(link_send(&agents[1], MSG_EXITING, &stays, sizeof(stays)), 0);
	command_ask(&command, 0);
	agent_phase(&agents[0], PHASE_SUSPEND);
	agent_phase(&agents[1], PHASE_SUSPEND);
	link_close(&agents[1]);
	assert_int_equal(command_result(&command, NULL, 0).error, -ECONNRESET);
	job_finish(&c, agents, 1, &command);
}

/* It ends with SUSPEND unread, and its last words still have to be read: the socket is in error and readable at once. */
static void test_end_unread(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	int status;

	job_start(&c, &defaults, agents, 2, &command);
	command_ask(&command, 0);
	agent_do(&agents[0], PHASE_SUSPEND); /* so the other one has its SUSPEND, too */
	assert_int_equal(kill(c.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
	assert_int_equal(link_send(&agents[1], MSG_EXITING, NULL, 0), 0);
	link_close(&agents[1]);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	agents_do_rest(agents, 1);
	assert_int_equal(command_result(&command, NULL, 0).processes, 1);
	job_finish(&c, agents, 1, &command);
}

static void test_late_fork(void **state)
{
	struct link agents[2], command;
	const uint32_t child = 20;
	struct conductor c;
	struct msg_phase p;
	int fd;

	job_start(&c, &defaults, agents, 1, &command);
	fd = agent_dial(&c); /* before the fork */
	command_ask(&command, 0);
	p = agent_phase(&agents[0], PHASE_SUSPEND);
	agent_done(&agents[0], &p, 0, "", &child, 1);
	agent_expect_silence(&agents[0], 100); /* the child is on its way */
	agent_open_fd(&c, &agents[1], fd);
	agent_send_register(&agents[1], child, MSG_REGISTER_FORKED);
	agent_welcome(&agents[1]);
	agent_do(&agents[1], PHASE_SUSPEND);
	agents_do_rest(agents, 2);
	assert_int_equal(command_result(&command, NULL, 0).processes, 2);
	job_finish(&c, agents, 2, &command);
}

static void test_gone_child(void **state)
{
	struct link agent, command;
	const uint32_t child = 20;
	struct msg_phase p, again;
	struct conductor c;

	job_start(&c, &defaults, &agent, 1, &command);
	command_ask(&command, 0);
	p = agent_phase(&agent, PHASE_SUSPEND);
	agent_done(&agent, &p, 0, "", &child, 1);
	again = agent_phase(&agent, PHASE_SUSPEND);
	assert_int_not_equal(p.round, again.round);
	agent_done(&agent, &again, 0, "", NULL, 0); /* it has ended */
	agents_do_rest(&agent, 1);
	assert_int_equal(command_result(&command, NULL, 0).error, 0);
	job_finish(&c, &agent, 1, &command);
}

/* A child that never registers: a program that cannot be preloaded. */
static void test_foreign_child(void **state)
{
	struct coordinator_options options = { .timeout_ms = 1000 };
	struct msg_checkpoint_result r;
	struct link agent, command;
	const uint32_t child = 20;
	struct conductor c;
	struct msg_phase p;
	char text[512];

	job_start(&c, &options, &agent, 1, &command);
	command_ask(&command, 0);
	do {
		struct link_message m = agent_receive(&agent, MSG_PHASE);

		memcpy(&p, m.data, sizeof(p));
		if (p.phase == PHASE_SUSPEND)
			agent_done(&agent, &p, 0, "", &child, 1);
	} while (p.phase == PHASE_SUSPEND);
	assert_int_equal(p.phase, PHASE_RESUME);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ENOTSUP);
	assert_non_null(strstr(text, "process 20, a child of pid 10 (fake)"));
	job_finish(&c, &agent, 1, &command);
}

static void test_late_launch(void **state)
{
	struct link agents[2], command;
	struct conductor c;

	job_start(&c, &defaults, agents, 1, &command);
	command_ask(&command, 0);
	agents_do_up_to(agents, 1, PHASE_DRAIN);
	agent_open(&c, &agents[1]);
	agent_send_register(&agents[1], 11, 0);
	agent_expect_silence(&agents[1], 50); /* too late for this one */
	agent_do(&agents[0], PHASE_DRAIN);
	agent_do(&agents[0], PHASE_WRITE);
	assert_int_equal(command_result(&command, NULL, 0).processes, 1);
	agent_phase(&agents[0], PHASE_RESUME);
	agent_welcome(&agents[1]);
	assert_int_equal(command_checkpoint(&command, agents, 2).processes, 2);
	job_finish(&c, agents, 2, &command);
}

static void test_exec(void **state)
{
	struct link agent, command;
	struct conductor c;
	uint32_t first;

	conductor_start(&c, &defaults);
	agent_open(&c, &agent);
	agent_send_register(&agent, 10, 0);
	first = agent_welcome(&agent);
	agent_send_register(&agent, 10, MSG_REGISTER_EXECED);
	assert_int_not_equal(agent_welcome(&agent), first);
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_phase(&agent, PHASE_SUSPEND); /* the old image takes it, and execs before it answers */
	agent_send_register(&agent, 10, MSG_REGISTER_EXECED);
	agent_welcome(&agent);
	agents_do_checkpoint(&agent, 1);
	assert_int_equal(command_result(&command, NULL, 0).processes, 1);
	job_finish(&c, &agent, 1, &command);
}

static void say_end(struct link *l, bool childless)
{
	const struct msg_exiting m = { .childless = childless };

	assert_int_equal(link_send(l, MSG_EXITING, &m, sizeof(m)), 0);
	link_close(l);
}

/* When all have said that they end, and leave no child, nobody is waited for. */
static void test_last_end(void **state)
{
	const struct coordinator_options patient = { .grace_ms = 3600000 };
	struct link agent;
	struct conductor c;

	conductor_start(&c, &patient);
	agent_join(&c, &agent, 10, 0);
	say_end(&agent, true);
	job_finish(&c, NULL, 0, NULL);
}

/* Who has gone without a word may come again, by an exec, and a child that was left has yet to come, also when another has ended since. */
static void test_may_come(void **state)
{
	const struct coordinator_options patient = { .grace_ms = 600 };

	for (int word = 0; word < 2; word++) {
		struct link agents[2], command;
		struct conductor c;

		conductor_start(&c, &patient);
		agent_join(&c, &agents[0], 10, 0);
		agent_join(&c, &agents[1], 11, 0);
		command_open(&c, &command);
		if (word)
			say_end(&agents[0], false);
		else
			link_close(&agents[0]);
		say_end(&agents[1], true);
		agent_expect_silence(&command, 300);
		job_finish(&c, NULL, 0, &command);
	}
}

/* What it holds is freed behind its connection, and takes the kernel a while. */
static void end_slowly(struct conductor *c)
{
	const struct msg_exiting last = { .childless = 1 };
	int big = memfd_create("big", MFD_CLOEXEC);
	struct link agent;

	if (big < 0 || posix_fallocate(big, 0, 1l << 30))
		_exit(1);
	agent_join(c, &agent, 10, 0);
	agent_phase(&agent, PHASE_SUSPEND);
	_exit(link_send(&agent, MSG_EXITING, &last, sizeof(last)) != 0);
}

/* The last is still on its way out in a SUSPEND that the interval has begun: when it is gone nobody is left whose connection could end. */
static void test_last_end_in_suspend(void **state)
{
	const struct coordinator_options options = { .interval_s = 1 };
	struct conductor c;
	int status;
	pid_t pid;

	conductor_start(&c, &options);
	pid = fork();
	if (!pid)
		end_slowly(&c);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	job_finish(&c, NULL, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end_before_report), cmocka_unit_test(test_end_taken_back),
		cmocka_unit_test(test_end_unread),
		cmocka_unit_test(test_late_fork), cmocka_unit_test(test_gone_child),
		cmocka_unit_test(test_foreign_child), cmocka_unit_test(test_late_launch),
		cmocka_unit_test(test_exec), cmocka_unit_test(test_last_end), cmocka_unit_test(test_last_end_in_suspend), cmocka_unit_test(test_may_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
