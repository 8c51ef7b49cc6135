/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What many processes cost the coordinator: agents that only speak the protocol register, are suspended, publish the ids of their queue
 * pairs, ask for those of their peers', get them and begin the next phase. The figure is the coordinator's own CPU time from the first
 * publication until everybody has the next phase: publish, resolve, barrier.
 *
 *   coordinator_agents COUNT..   a line for each count, the first being what growth is measured against
 *
 * The agents are on hosts of 1,024: each host a process with a node name of its own, its agents, and a true relay, as they would be (coordinator/relay.c). The first
 * count is of one host, whose agents connect to the coordinator themselves. What needs no namespace is done where there is none.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define QUEUE_PAIRS 8u /* of each process */
#define FIRST_PID 1000u
#define MARK_S 2.0     /* for 32,768 */
#define PER_HOST 1024u
#define TIMEOUT_MS 300000u
#define NO_HOSTS 9
#define ANYWHERE "127.0.0.1:0"

struct id { /* as long as what plugins/verbs publishes of a queue pair */
	uint32_t process, qp;
	uint8_t rest[32];
};

static double cpu_seconds(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &t), 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t put(uint8_t *at, uint16_t kind, uint32_t process, uint32_t qp)
{
	struct id value = { process, qp, { 1 } };
	char key[16];

	snprintf(key, sizeof(key), "qp%08x%04x", process, qp);
	encode_name(at, kind, key, (uint16_t)strlen(key), &value, kind == MSG_NAME_PUBLISH ? sizeof(value) : 0);
	return encode_name_size(strlen(key), kind == MSG_NAME_PUBLISH ? sizeof(value) : 0);
}

/* Its own, and those that it is connected to: the nearest processes and some far ones. */
static void publish_and_ask(struct link *l, uint32_t self, uint32_t count)
{
	struct msg_names head = { .count = 2 * QUEUE_PAIRS };
	uint8_t entries[2 * QUEUE_PAIRS * 96];
	size_t n = 0;

	for (uint32_t qp = 0; qp < QUEUE_PAIRS; qp++)
		n += put(entries + n, MSG_NAME_PUBLISH, self, qp);
	for (uint32_t qp = 0; qp < QUEUE_PAIRS; qp++)
		n += put(entries + n, MSG_NAME_ASK, (self ^ (1u << (2 * qp))) % count, qp);
	assert_int_equal(link_send2(l, MSG_NAMES, &head, sizeof(head), entries, n), 0);
}

static void has_all(struct link *l)
{
	struct link_message m = agent_receive(l, MSG_NAMES_REPLY);
	struct decode_names it;
	struct decode_name n;
	unsigned int found = 0;

	assert_int_equal(decode_names_begin(&it, m.data, m.length), 0);
	while (decode_names_next(&it, &n) > 0)
		found += n.value_length == sizeof(struct id);
	assert_int_equal(found, QUEUE_PAIRS);
}

/* ---- a host: does what the conductor of the measurement says, a byte at a time ---- */

static void tell(int fd)
{
	assert_int_equal(write(fd, "", 1), 1);
}

static void hear(int fd)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), 1);
}

struct host {
	pid_t pid;
	int orders, answers;
	uint32_t first, count;
};

static void host_relay(struct conductor *c, uint32_t number, const char *address)
{
	struct coordinator_options options = { .job = "j", .relay = address, .compress = "none", .rdma = "soft", .timeout_ms = TIMEOUT_MS, .linger = 1 };
	char name[32], path[256];
	int ready[2];

	snprintf(name, sizeof(name), "host%u", number);
	if (unshare(CLONE_NEWUSER | CLONE_NEWUTS) < 0 || sethostname(name, strlen(name)) < 0)
		exit(NO_HOSTS);
	snprintf(path, sizeof(path), "%s/%s", c->base, name);
	setenv("FERMATA_RUNDIR", path, 1);
	snprintf(c->jobdir, sizeof(c->jobdir), "%s/%s/j", c->base, name);
	assert_int_equal(pipe(ready), 0);
	if (!fork()) {
		options.ready_fd = ready[1];
		_exit(-coordinator_run(&options));
	}
	hear(ready[0]);
	close(ready[0]);
	close(ready[1]);
	snprintf(path, sizeof(path), "%.191s/key", c->jobdir);
	assert_int_equal(link_read_key(path, c->key), 0);
}

static void host_run(struct conductor *c, const struct host *h, uint32_t all)
{
	struct link *agents = calloc(h->count, sizeof(*agents));
	struct msg_phase p = { 0 };

	for (uint32_t i = 0; i < h->count; i++)
		agent_join(c, &agents[i], FIRST_PID + h->first + i, 0);
	tell(h->answers);
	agents_do(agents, h->count, PHASE_SUSPEND);
	for (uint32_t i = 0; i < h->count; i++)
		p = agent_phase(&agents[i], PHASE_QUIESCE);
	tell(h->answers);
	hear(h->orders);
	for (uint32_t i = 0; i < h->count; i++) {
		publish_and_ask(&agents[i], h->first + i, all);
		agent_done(&agents[i], &p, 0, "", NULL, 0);
	}
	for (uint32_t i = 0; i < h->count; i++) {
		has_all(&agents[i]);
		p = agent_phase(&agents[i], PHASE_DRAIN);
	}
	tell(h->answers);
	hear(h->orders);
	for (uint32_t i = 0; i < h->count; i++)
		agent_done(&agents[i], &p, h->first + i ? 0 : -ECANCELED, "measured", NULL, 0);
	for (uint32_t i = 0; i < h->count; i++)
		agent_phase(&agents[i], PHASE_RESUME);
	for (uint32_t i = 0; i < h->count; i++)
		link_close(&agents[i]);
}

static struct host host_start(struct conductor *c, uint32_t number, uint32_t all, const char *address)
{
	struct host h = { .first = number * PER_HOST, .count = all - number * PER_HOST < PER_HOST ? all - number * PER_HOST : PER_HOST };
	int orders[2], answers[2];

	assert_int_equal(pipe(orders), 0);
	assert_int_equal(pipe(answers), 0);
	h.pid = fork();
	assert_true(h.pid >= 0);
	if (!h.pid) {
		h.orders = orders[0];
		h.answers = answers[1];
		close(answers[0]);
		if (address)
			host_relay(c, number, address);
		host_run(c, &h, all);
		_exit(0);
	}
	close(orders[0]);
	close(answers[1]);
	h.orders = orders[1];
	h.answers = answers[0];
	return h;
}

/* ---- the measurement ---- */

static void all_tell(const struct host *h, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		tell(h[i].orders);
}

/* False: there are no hosts to be had. */
static int all_answer(const struct host *h, uint32_t count)
{
	char byte;

	for (uint32_t i = 0; i < count; i++)
		if (read(h[i].answers, &byte, 1) != 1)
			return 0;
	return 1;
}

static void address_of(struct conductor *c, char *ret, size_t size)
{
	struct link_message m;
	struct link command;

	command_open(c, &command);
	assert_int_equal(link_send(&command, MSG_LISTEN, ANYWHERE, strlen(ANYWHERE)), 0);
	m = agent_receive(&command, MSG_LISTENING);
	snprintf(ret, size, "%.*s", (int)m.length, (const char *)m.data);
	link_close(&command);
}

static double measure(uint32_t count)
{
	struct coordinator_options options = { .timeout_ms = TIMEOUT_MS };
	uint32_t hosts = (count + PER_HOST - 1) / PER_HOST;
	struct host *h = calloc(hosts, sizeof(*h));
	double took = -1;
	struct link command;
	struct conductor c;
	char address[128], text[2048];

	assert_non_null(h);
	conductor_start(&c, &options);
	address_of(&c, address, sizeof(address));
	for (uint32_t i = 0; i < hosts; i++)
		h[i] = host_start(&c, i, count, hosts > 1 ? address : NULL);
	if (all_answer(h, hosts)) {
		command_open(&c, &command);
		command_ask(&command, 0);
		assert_true(all_answer(h, hosts));
		took = -cpu_seconds(c.pid);
		all_tell(h, hosts);
		assert_true(all_answer(h, hosts));
		took += cpu_seconds(c.pid);
		all_tell(h, hosts);
		assert_int_equal(command_result(&command, text, sizeof(text)).error, -ECANCELED);
		link_close(&command);
	} else {
		kill(c.pid, SIGTERM);
	}
	for (uint32_t i = 0; i < hosts; i++) {
		waitpid(h[i].pid, NULL, 0);
		close(h[i].orders);
		close(h[i].answers);
	}
	conductor_wait(&c);
	conductor_clean(&c);
	free(h);
	return took;
}

int main(int argc, char **argv)
{
	char key[64] = "/tmp/fermata-bench-XXXXXX";
	double first = 0, first_count = 0;

	assert_non_null(mkdtemp(key));
	strcat(key, "/key");
	setenv("FERMATA_KEY", key, 1);
	for (int i = 1; i < argc; i++) {
		uint32_t count = (uint32_t)strtoul(argv[i], NULL, 10);
		double took = measure(count), growth;

		if (took < 0) {
			printf("coordinator-%u left out: no namespaces for hosts here\n", count);
			continue;
		}
		if (!first_count) {
			first = took;
			first_count = count;
		}
		growth = took / first / (count * log2(count) / (first_count * log2(first_count)));
		printf("coordinator-%u %.3f s of its CPU to publish, resolve and meet, %.1f us a process, growth %.2f of n log n", count,
		       took, took / count * 1e6, growth);
		printf(count == 32768 ? " (at most 2 s and 1.00, %s)\n" : "\n", took <= MARK_S && growth <= 1 ? "ok" : "short");
		fflush(stdout);
	}
	unlink(key);
	*strrchr(key, '/') = 0;
	rmdir(key);
	return 0;
}
