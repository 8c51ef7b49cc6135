/* SPDX-License-Identifier: BSD-2-Clause */
/* The coordinator's checkpoints, driven by agents that only speak the protocol. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define MANY 64

static const struct coordinator_options defaults;

static bool present(const struct conductor *c, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	return access(path, F_OK) == 0;
}

/* Everybody leaves; the coordinator must follow, without an error. */
static void finish(struct conductor *c, struct link *l, size_t count, struct link *command)
{
	char run[256];

	for (size_t i = 0; i < count; i++)
		link_close(&l[i]);
	if (command)
		link_close(command);
	assert_int_equal(conductor_wait(c), 0);
	snprintf(run, sizeof(run), "%s", c->jobdir);
	assert_int_not_equal(access(run, F_OK), 0);
	conductor_clean(c);
}

static void test_complete(void **state)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	for (unsigned int n = 1; n <= 2; n++) {
		char number[8];

		command_ask(&command, 0);
		agents_do_checkpoint(agents, 2);
		for (int i = 0; i < 2; i++)
			assert_int_equal(agent_phase(&agents[i], PHASE_RESUME).reason, 0);
		r = command_result(&command, text, sizeof(text));
		assert_int_equal(r.error, 0);
		assert_int_equal(r.checkpoint, n);
		assert_int_equal(r.processes, 2);
		assert_int_equal(r.bytes, 2000);
		snprintf(number, sizeof(number), "%u", n);
		assert_true(present(&c, number));
	}
	assert_true(present(&c, "1/manifest.json"));
	assert_true(present(&c, "1/10.core"));
	assert_true(present(&c, "2/11.core"));
	assert_false(present(&c, ".2.partial"));
	finish(&c, agents, 2, &command);
}

static void test_many(void **state)
{
	static struct link agents[MANY];
	struct msg_checkpoint_result r;
	struct conductor c;
	struct link command;
	char text[512];

	conductor_start(&c, &defaults);
	for (uint32_t i = 0; i < MANY; i++)
		agent_join(&c, &agents[i], 100 + i, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agents_do_checkpoint(agents, MANY);
	for (uint32_t i = 0; i < MANY; i++)
		agent_phase(&agents[i], PHASE_RESUME);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, MANY);
	finish(&c, agents, MANY, &command);
}

static void test_drain_rounds(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	struct msg_phase p;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agents_do(agents, 2, PHASE_QUIESCE);
	for (uint32_t round = 0; round < 4; round++) {
		p = agent_phase(&agents[0], PHASE_DRAIN);
		assert_int_equal(p.round, round);
		agent_done(&agents[0], &p, round < 3 ? PHASE_STATUS_MORE : PHASE_STATUS_OK, "", NULL, 0);
		agent_do(&agents[1], PHASE_DRAIN);
	}
	agents_do(agents, 2, PHASE_WRITE);
	assert_int_equal(command_result(&command, text, sizeof(text)).error, 0);
	finish(&c, agents, 2, &command);
}

/* @phase: where the second of two fails; @dies: by leaving, else by saying so. */
static void fail_in(uint32_t phase, bool dies)
{
	static const uint32_t phases[] = { PHASE_SUSPEND, PHASE_QUIESCE, PHASE_DRAIN, PHASE_WRITE };
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	struct msg_phase p;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	for (size_t i = 0; phases[i] != phase; i++)
		agents_do(agents, 2, phases[i]);
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
	assert_false(present(&c, "1") || present(&c, ".1.partial"));
	if (!dies)
		agent_phase(&agents[1], PHASE_RESUME);
	command_ask(&command, 0);
	agents_do_checkpoint(agents, dies ? 1 : 2);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, dies ? 1 : 2);
	finish(&c, agents, 2, &command);
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

static void end_before_report(uint32_t flags, bool says_so)
{
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

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
	agent_do(&agents[0], PHASE_QUIESCE);
	agent_do(&agents[0], PHASE_DRAIN);
	agent_do(&agents[0], PHASE_WRITE);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, 0);
	assert_int_equal(r.processes, 1);
	finish(&c, agents, 1, &command);
}

static void test_end_before_report(void **state)
{
	end_before_report(0, true);
	end_before_report(MSG_REGISTER_FORKED, false);
}

/* It ends with SUSPEND unread, and its last words still have to be read: the socket is in error and readable at once. */
static void test_end_unread(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	char text[512];
	int status;

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_do(&agents[0], PHASE_SUSPEND); /* so the other one has its SUSPEND, too */
	assert_int_equal(kill(c.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
	assert_int_equal(link_send(&agents[1], MSG_EXITING, NULL, 0), 0);
	link_close(&agents[1]);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	agent_do(&agents[0], PHASE_QUIESCE);
	agent_do(&agents[0], PHASE_DRAIN);
	agent_do(&agents[0], PHASE_WRITE);
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 1);
	finish(&c, agents, 1, &command);
}

static void test_timeout(void **state)
{
	struct coordinator_options options = { .timeout_ms = 1000 };
	struct link agents[2], command;
	struct msg_checkpoint_result r;
	struct conductor c;
	char text[512];

	conductor_start(&c, &options);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_do(&agents[0], PHASE_QUIESCE);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ETIMEDOUT);
	assert_non_null(strstr(text, "QUIESCE"));
	assert_non_null(strstr(text, "pid 11 (fake)"));
	assert_null(strstr(text, "pid 10"));
	assert_int_equal(agent_phase(&agents[0], PHASE_RESUME).reason, -ETIMEDOUT);
	finish(&c, agents, 2, &command);
}

static void test_late_fork(void **state)
{
	struct link agents[2], command;
	const uint32_t child = 20;
	struct conductor c;
	struct msg_phase p;
	char text[512];
	int fd;

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	command_open(&c, &command);
	fd = agent_dial(&c); /* before the fork */
	command_ask(&command, 0);
	p = agent_phase(&agents[0], PHASE_SUSPEND);
	agent_done(&agents[0], &p, 0, "", &child, 1);
	agent_expect_silence(&agents[0], 100); /* the child is on its way */
	agent_open_fd(&c, &agents[1], fd);
	agent_send_register(&agents[1], child, MSG_REGISTER_FORKED);
	agent_welcome(&agents[1]);
	agent_do(&agents[1], PHASE_SUSPEND);
	agents_do(agents, 2, PHASE_QUIESCE);
	agents_do(agents, 2, PHASE_DRAIN);
	agents_do(agents, 2, PHASE_WRITE);
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 2);
	finish(&c, agents, 2, &command);
}

static void test_gone_child(void **state)
{
	struct link agent, command;
	const uint32_t child = 20;
	struct msg_phase p, again;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agent, 10, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	p = agent_phase(&agent, PHASE_SUSPEND);
	agent_done(&agent, &p, 0, "", &child, 1);
	again = agent_phase(&agent, PHASE_SUSPEND);
	assert_int_not_equal(p.round, again.round);
	agent_done(&agent, &again, 0, "", NULL, 0); /* it has ended */
	agent_do(&agent, PHASE_QUIESCE);
	agent_do(&agent, PHASE_DRAIN);
	agent_do(&agent, PHASE_WRITE);
	assert_int_equal(command_result(&command, text, sizeof(text)).error, 0);
	finish(&c, &agent, 1, &command);
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

	conductor_start(&c, &options);
	agent_join(&c, &agent, 10, 0);
	command_open(&c, &command);
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
	finish(&c, &agent, 1, &command);
}

static void test_late_launch(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_do(&agents[0], PHASE_SUSPEND);
	agent_do(&agents[0], PHASE_QUIESCE);
	agent_open(&c, &agents[1]);
	agent_send_register(&agents[1], 11, 0);
	agent_expect_silence(&agents[1], 50); /* too late for this one */
	agent_do(&agents[0], PHASE_DRAIN);
	agent_do(&agents[0], PHASE_WRITE);
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 1);
	agent_phase(&agents[0], PHASE_RESUME);
	agent_welcome(&agents[1]);
	command_ask(&command, 0);
	agents_do_checkpoint(agents, 2);
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 2);
	finish(&c, agents, 2, &command);
}

static void test_exec(void **state)
{
	struct link agent, command;
	struct conductor c;
	uint32_t first;
	char text[512];

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
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 1);
	finish(&c, &agent, 1, &command);
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
	finish(&c, &l, 1, NULL);
}

static void test_names(void **state)
{
	struct link agents[2], command;
	struct link_message m;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
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
	command_result(&command, text, sizeof(text));
	agent_phase(&agents[0], PHASE_RESUME);
	agent_phase(&agents[1], PHASE_RESUME);
	/* Names do not outlive a checkpoint. */
	command_ask(&command, 0);
	agents_do(agents, 2, PHASE_SUSPEND);
	agent_name(&agents[1], MSG_NAME_ASK, "qp/1", "");
	agents_do(agents, 2, PHASE_QUIESCE);
	m = agent_receive(&agents[1], MSG_NAMES_REPLY);
	assert_int_equal(agent_names_count(&m, "qp/1"), 0);
	finish(&c, agents, 2, &command);
}

static void test_waiters(void **state)
{
	struct link agent, commands[3];
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agent, 10, 0);
	for (int i = 0; i < 3; i++)
		command_open(&c, &commands[i]);
	command_ask(&commands[0], 0);
	agent_do(&agent, PHASE_SUSPEND);
	command_ask(&commands[1], 0);
	command_ask(&commands[2], 0);
	agent_expect_silence(&commands[2], 50);
	agent_do(&agent, PHASE_QUIESCE);
	agent_do(&agent, PHASE_DRAIN);
	agent_do(&agent, PHASE_WRITE);
	assert_int_equal(command_result(&commands[0], text, sizeof(text)).checkpoint, 1);
	agent_phase(&agent, PHASE_RESUME);
	agents_do_checkpoint(&agent, 1);
	assert_int_equal(command_result(&commands[1], text, sizeof(text)).checkpoint, 2);
	assert_int_equal(command_result(&commands[2], text, sizeof(text)).checkpoint, 2);
	link_close(&commands[1]);
	link_close(&commands[2]);
	finish(&c, &agent, 1, &commands[0]);
}

/* A real process, since it is killed. */
static void test_stop(void **state)
{
	struct conductor c;
	struct link command;
	char text[512], joined;
	int status, ready[2];
	pid_t pid;

	conductor_start(&c, &defaults);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct link agent;

		agent_join(&c, &agent, 10, 0);
		if (write(ready[1], "+", 1) != 1)
			_exit(1);
		agents_do_checkpoint(&agent, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &joined, 1), 1);
	command_open(&c, &command);
	command_ask(&command, MSG_CHECKPOINT_STOP);
	assert_int_equal(command_result(&command, text, sizeof(text)).error, 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	finish(&c, NULL, 0, &command);
}

static void test_keep(void **state)
{
	struct coordinator_options options = { .keep = 2 };
	struct link agent, command;
	struct conductor c;
	char text[512];

	conductor_start(&c, &options);
	agent_join(&c, &agent, 10, 0);
	command_open(&c, &command);
	for (unsigned int n = 1; n <= 4; n++) {
		command_ask(&command, 0);
		agents_do_checkpoint(&agent, 1);
		assert_int_equal(command_result(&command, text, sizeof(text)).checkpoint, n);
		agent_phase(&agent, PHASE_RESUME);
	}
	link_close(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 0);
	assert_false(present(&c, "1") || present(&c, "2") || present(&c, ".1.pruned"));
	assert_true(present(&c, "3") && present(&c, "4"));
	conductor_clean(&c);
}

/* Killed in mid-write: the job goes on, the next coordinator finds nothing of it. */
static void killed_at(const char *fault, bool committed)
{
	struct link agent, command;
	struct conductor c, next;
	struct link_message m;
	char text[512];

	setenv("FERMATA_FAULT", fault, 1);
	conductor_start(&c, &defaults);
	unsetenv("FERMATA_FAULT");
	agent_join(&c, &agent, 10, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	while (link_receive(&agent, &m, 20000) == 0) {
		struct msg_phase p;

		memcpy(&p, m.data, sizeof(p));
		agent_done(&agent, &p, 0, "", NULL, 0);
	}
	link_close(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 128 + SIGKILL);
	assert_int_equal(present(&c, "1"), committed);
	conductor_start_in(&next, c.base, &defaults);
	assert_false(present(&c, ".1.partial"));
	agent_join(&next, &agent, 10, 0);
	command_open(&next, &command);
	command_ask(&command, 0);
	agents_do_checkpoint(&agent, 1);
	assert_int_equal(command_result(&command, text, sizeof(text)).checkpoint, committed ? 2 : 1);
	finish(&next, &agent, 1, &command);
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
		char text[512];

		setenv("FERMATA_FAULT", faults[i], 1);
		conductor_start(&c, &defaults);
		unsetenv("FERMATA_FAULT");
		agent_join(&c, &agent, 10, 0);
		command_open(&c, &command);
		command_ask(&command, 0);
		do {
			m = agent_receive(&agent, MSG_PHASE);
			memcpy(&p, m.data, sizeof(p));
			if (p.phase != PHASE_RESUME)
				agent_done(&agent, &p, 0, "", NULL, 0);
		} while (p.phase != PHASE_RESUME);
		assert_int_equal(p.reason, -EIO);
		assert_int_equal(command_result(&command, text, sizeof(text)).error, -EIO);
		assert_false(present(&c, "1") || present(&c, ".1.partial"));
		finish(&c, &agent, 1, &command);
	}
}

static void test_nobody(void **state)
{
	struct msg_checkpoint_result r;
	struct link agent, command;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	command_open(&c, &command);
	command_ask(&command, 0);
	r = command_result(&command, text, sizeof(text));
	assert_int_equal(r.error, -ESRCH);
	agent_join(&c, &agent, 10, 0);
	finish(&c, &agent, 1, &command);
}

/* One that sends what is no message is closed; the others and the checkpoint after that do not suffer. */
static void test_damaged(void **state)
{
	struct link agents[2], command;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agents[0], 10, 0);
	agent_join(&c, &agents[1], 11, 0);
	command_open(&c, &command);
	assert_int_equal(link_send(&agents[0], 999, "later", 5), 0); /* of a newer version: skipped */
	assert_int_equal(write(agents[1].fd, "this is not a message", 21), 21);
	agent_expect_end(&agents[1]);
	agent_join(&c, &agents[1], 12, 0);
	assert_int_equal(link_send(&agents[1], MSG_PHASE_DONE, "short", 5), 0);
	agent_expect_end(&agents[1]);
	command_ask(&command, 0);
	agents_do_checkpoint(agents, 1);
	assert_int_equal(command_result(&command, text, sizeof(text)).processes, 1);
	finish(&c, agents, 1, &command);
}

static void test_terminated(void **state)
{
	struct link agent, command;
	struct conductor c;
	char text[512];

	conductor_start(&c, &defaults);
	agent_join(&c, &agent, 10, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_do(&agent, PHASE_SUSPEND);
	agent_do(&agent, PHASE_QUIESCE);
	agent_do(&agent, PHASE_DRAIN);
	agent_phase(&agent, PHASE_WRITE);
	assert_int_equal(kill(c.pid, SIGTERM), 0);
	assert_int_equal(agent_phase(&agent, PHASE_RESUME).reason, -ECANCELED);
	assert_int_equal(command_result(&command, text, sizeof(text)).error, -ECANCELED);
	agent_expect_end(&agent);
	link_close(&command);
	assert_int_equal(conductor_wait(&c), 0);
	assert_false(present(&c, "1") || present(&c, ".1.partial"));
	conductor_clean(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete),     cmocka_unit_test(test_many),
		cmocka_unit_test(test_drain_rounds), cmocka_unit_test(test_failures),
		cmocka_unit_test(test_deaths),	     cmocka_unit_test(test_end_before_report),
		cmocka_unit_test(test_timeout),	     cmocka_unit_test(test_late_fork),
		cmocka_unit_test(test_gone_child),   cmocka_unit_test(test_late_launch),
		cmocka_unit_test(test_foreign_child),
		cmocka_unit_test(test_exec),	     cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_names),	     cmocka_unit_test(test_waiters),
		cmocka_unit_test(test_stop),	     cmocka_unit_test(test_keep),
		cmocka_unit_test(test_killed),	     cmocka_unit_test(test_disk_error),
		cmocka_unit_test(test_nobody),	     cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_terminated),   cmocka_unit_test(test_end_unread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
