/* SPDX-License-Identifier: BSD-2-Clause */
/* Agents that only speak the protocol. Owns the coordinator's process and its directories. */
#include "tests/lib/fake_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/macro.h"

#define PATIENCE_MS 20000

void conductor_start_in(struct conductor *c, const char *base, const struct coordinator_options *options)
{
	char path[256], ok[3];
	int ready[2];

	if (base != c->base)
		snprintf(c->base, sizeof(c->base), "%s", base);
	c->options = *options;
	snprintf(c->dir, sizeof(c->dir), "%s/ck", c->base);
	snprintf(c->jobdir, sizeof(c->jobdir), "%s/run/j", c->base);
	snprintf(path, sizeof(path), "%s/run", c->base);
	setenv("FERMATA_RUNDIR", path, 1);
	c->options.job = "j";
	c->options.dir = c->dir;
	c->options.compress = "none";
	c->options.rdma = "soft";
	c->options.files = "restore";
	c->options.grace_ms = options->grace_ms ? options->grace_ms : 20;
	c->options.linger = 1;
	c->options.timeout_ms = options->timeout_ms ? options->timeout_ms : PATIENCE_MS;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (!c->pid) {
		close(ready[0]);
		fault_init(getenv("FERMATA_FAULT"));
		c->options.ready_fd = ready[1];
		_exit(-coordinator_run(&c->options));
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], ok, 3), 3);
	close(ready[0]);
	snprintf(path, sizeof(path), "%s/key", c->jobdir);
	assert_int_equal(link_read_key(path, c->key), 0);
}

void conductor_start(struct conductor *c, const struct coordinator_options *options)
{
	const char *tmp = getenv("TMPDIR");
	char base[128];

	snprintf(base, sizeof(base), "%s/fermata-unit-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(base));
	conductor_start_in(c, base, options);
}

int conductor_wait(struct conductor *c)
{
	int status;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	c->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int clean_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void conductor_clean(struct conductor *c)
{
	nftw(c->base, clean_one, 16, FTW_DEPTH | FTW_PHYS);
}

int agent_dial(struct conductor *c)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/sock", c->jobdir);
	fd = link_dial(path);
	assert_true(fd >= 0);
	return fd;
}

void agent_open_fd(struct conductor *c, struct link *l, int fd)
{
	assert_int_equal(link_open(l, fd, c->key), 0);
}

void agent_open(struct conductor *c, struct link *l)
{
	agent_open_fd(c, l, agent_dial(c));
}

void agent_send_register_of(struct link *l, const char *host, uint64_t part, uint64_t boot, uint32_t pid, uint32_t flags)
{
	struct msg_register m = { .pid = pid, .ppid = 1, .flags = flags, .comm = "fake", .exe = "/bin/fake", .part = part, .boot = boot };

	snprintf(m.host, sizeof(m.host), "%s", host);
	assert_int_equal(link_send(l, MSG_REGISTER, &m, sizeof(m)), 0);
}

void agent_send_register(struct link *l, uint32_t pid, uint32_t flags)
{
	agent_send_register_of(l, "here", 0, 0, pid, flags);
}

void agent_join_of(struct conductor *c, struct link *l, const char *host, uint64_t part, uint32_t pid, uint32_t flags)
{
	agent_open(c, l);
	agent_send_register_of(l, host, part, strlen(host), pid, flags);
	agent_welcome(l);
}

void agent_join_child(struct conductor *c, struct link *l, uint32_t pid, uint32_t ppid)
{
	struct msg_register m = { .pid = pid, .ppid = ppid, .comm = "child", .exe = "/bin/child", .host = "here" };

	agent_open(c, l);
	assert_int_equal(link_send(l, MSG_REGISTER, &m, sizeof(m)), 0);
	agent_welcome(l);
}

struct link_message agent_receive(struct link *l, uint16_t type)
{
	struct link_message m;

	assert_int_equal(link_receive(l, &m, PATIENCE_MS), 0);
	assert_int_equal(m.type, type);
	assert_int_equal(decode_message(m.type, m.data, m.length), 0);
	return m;
}

uint32_t agent_welcome(struct link *l)
{
	struct link_message m = agent_receive(l, MSG_WELCOME);
	struct msg_welcome w;

	memcpy(&w, m.data, sizeof(w));
	assert_string_equal(w.rdma, "soft");
	return w.member;
}

void agent_join(struct conductor *c, struct link *l, uint32_t pid, uint32_t flags)
{
	agent_open(c, l);
	agent_send_register(l, pid, flags);
	agent_welcome(l);
}

struct msg_phase agent_phase(struct link *l, uint32_t phase)
{
	struct link_message m = agent_receive(l, MSG_PHASE);
	struct msg_phase p;

	memcpy(&p, m.data, sizeof(p));
	assert_int_equal(p.phase, phase);
	return p;
}

void agent_done(struct link *l, const struct msg_phase *p, int status, const char *text, const uint32_t *children,
		uint32_t count)
{
	struct msg_phase_done d = { .phase = p->phase, .round = p->round, .status = status, .children = count,
				    .text_length = (uint32_t)strlen(text) };
	uint8_t tail[1024];

	if (p->phase == PHASE_WRITE) {
		char path[600];
		int fd;

		snprintf(path, sizeof(path), "%s/%s", p->directory, p->name);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0) /* else the checkpoint was given up */
			close(fd);
		d.bytes = 1000;
	}
	memcpy(tail, text, d.text_length);
	if (count)
		memcpy(tail + d.text_length, children, count * sizeof(*children));
	/* The other side may have gone already: the test looks at that elsewhere. */
	(void)link_send2(l, MSG_PHASE_DONE, &d, sizeof(d), tail, d.text_length + count * sizeof(*children));
}

void agent_do(struct link *l, uint32_t phase)
{
	struct msg_phase p = agent_phase(l, phase);

	agent_done(l, &p, 0, "", NULL, 0);
}

void agent_refuse(struct link *l, uint32_t phase, int error)
{
	struct msg_phase p = agent_phase(l, phase);

	agent_done(l, &p, error, "fd 7 is busy", NULL, 0);
}

void agents_do(struct link *l, size_t count, uint32_t phase)
{
	for (size_t i = 0; i < count; i++)
		agent_do(&l[i], phase);
}

static const uint32_t phases[] = { PHASE_SUSPEND, PHASE_QUIESCE, PHASE_DRAIN, PHASE_WRITE };

void agents_do_up_to(struct link *l, size_t count, uint32_t phase)
{
	for (size_t i = 0; i < ARRAY_SIZE(phases) && phases[i] != phase; i++)
		agents_do(l, count, phases[i]);
}

void agents_do_checkpoint(struct link *l, size_t count)
{
	agents_do_up_to(l, count, PHASE_NONE);
}

void agents_do_rest(struct link *l, size_t count)
{
	for (size_t i = 1; i < ARRAY_SIZE(phases); i++)
		agents_do(l, count, phases[i]);
}

void agent_expect_silence(struct link *l, int ms)
{
	struct link_message m;

	assert_int_equal(link_receive(l, &m, ms), -ETIMEDOUT);
}

bool agent_is_refused(struct link *l)
{
	struct link_message m;

	assert_int_equal(link_receive(l, &m, PATIENCE_MS), 0);
	if (m.type == MSG_WELCOME)
		return false;
	assert_int_equal(m.type, MSG_ERROR);
	link_close(l);
	return true;
}

void agent_expect_end(struct link *l)
{
	struct link_message m;
	int r = link_receive(l, &m, PATIENCE_MS);

	if (r == 0) {
		assert_int_equal(m.type, MSG_ERROR);
		r = link_receive(l, &m, PATIENCE_MS);
	}
	assert_int_equal(r, -ECONNRESET);
	link_close(l);
}

void agent_name(struct link *l, uint16_t kind, const char *key, const char *value)
{
	struct msg_names head = { .count = 1 };
	uint8_t entry[256];

	encode_name(entry, kind, key, (uint16_t)strlen(key), value, (uint16_t)strlen(value));
	assert_int_equal(link_send2(l, MSG_NAMES, &head, sizeof(head), entry, encode_name_size(strlen(key), strlen(value))), 0);
}

unsigned int agent_names_count(const struct link_message *m, const char *key)
{
	struct decode_names it;
	struct decode_name n;
	unsigned int count = 0;

	assert_int_equal(decode_names_begin(&it, m->data, m->length), 0);
	while (decode_names_next(&it, &n) > 0)
		count += n.key_length == strlen(key) && !memcmp(n.key, key, n.key_length);
	return count;
}

void agent_names_only(const struct link_message *m, uint16_t kind, const char *key, const char *value)
{
	struct decode_names it;
	struct decode_name n;
	unsigned int count = 0;

	assert_int_equal(decode_names_begin(&it, m->data, m->length), 0);
	while (decode_names_next(&it, &n) > 0) {
		if (n.kind != kind || n.key_length != strlen(key) || memcmp(n.key, key, n.key_length))
			continue;
		assert_int_equal(n.value_length, strlen(value));
		assert_memory_equal(n.value, value, n.value_length);
		count++;
	}
	assert_int_equal(count, 1);
}

void command_open(struct conductor *c, struct link *l)
{
	agent_open(c, l);
}

void command_ask(struct link *l, uint32_t flags)
{
	struct msg_checkpoint m = { .flags = flags };

	assert_int_equal(link_send(l, MSG_CHECKPOINT, &m, sizeof(m)), 0);
}

/* Skips progress. */
static struct link_message command_receive(struct link *l, uint16_t type)
{
	struct link_message m;

	do {
		assert_int_equal(link_receive(l, &m, PATIENCE_MS), 0);
	} while (m.type == MSG_CHECKPOINT_PROGRESS);
	assert_int_equal(m.type, type);
	return m;
}

void command_settle(struct link *l)
{
	assert_int_equal(link_send(l, MSG_STATUS, NULL, 0), 0);
	command_receive(l, MSG_STATUS_REPLY);
}

struct msg_checkpoint_result command_result(struct link *l, char *ret_text, size_t size)
{
	struct link_message m = command_receive(l, MSG_CHECKPOINT_RESULT);
	struct msg_checkpoint_result r;

	assert_int_equal(decode_message(m.type, m.data, m.length), 0);
	memcpy(&r, m.data, sizeof(r));
	if (ret_text)
		snprintf(ret_text, size, "%.*s", (int)(r.path_length + r.text_length), (const char *)m.data + sizeof(r));
	return r;
}

bool conductor_has(const struct conductor *c, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	return access(path, F_OK) == 0;
}

void job_start(struct conductor *c, const struct coordinator_options *options, struct link *agents, uint32_t count, struct link *command)
{
	conductor_start(c, options);
	for (uint32_t i = 0; i < count; i++)
		agent_join(c, &agents[i], 10 + i, 0);
	command_open(c, command);
}

void job_finish(struct conductor *c, struct link *l, size_t count, struct link *command)
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

struct msg_checkpoint_result command_checkpoint(struct link *command, struct link *l, size_t count)
{
	command_ask(command, 0);
	agents_do_checkpoint(l, count);
	return command_result(command, NULL, 0);
}
