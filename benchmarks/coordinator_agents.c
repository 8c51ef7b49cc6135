/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What many processes cost the coordinator: agents that only speak the protocol register, are suspended, publish the ids of their queue
 * pairs, ask for those of their peers', get them and begin the next phase. The figure is the coordinator's own CPU time from the first
 * publication until everybody has the next phase: publish, resolve, barrier. Each agent has a connection of its own, as on one host.
 *
 *   coordinator_agents COUNT..   a line for each count, the first being what growth is measured against
 *
 * Needs COUNT descriptors here and as many in the coordinator; a count that the limit does not allow is left out, and said so.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "tests/lib/fake_agent.h"

#define QUEUE_PAIRS 8u /* of each process */
#define FIRST_PID 1000u
#define MARK_S 2.0     /* for 32,768 */
#define SPARE 64u      /* descriptors that are not an agent's */

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

static double exchange(struct conductor *c, struct link *agents, uint32_t count)
{
	struct msg_phase p = { 0 };
	double begin;

	for (uint32_t i = 0; i < count; i++)
		p = agent_phase(&agents[i], PHASE_QUIESCE);
	begin = cpu_seconds(c->pid);
	for (uint32_t i = 0; i < count; i++) {
		publish_and_ask(&agents[i], i, count);
		agent_done(&agents[i], &p, 0, "", NULL, 0);
	}
	for (uint32_t i = 0; i < count; i++) {
		has_all(&agents[i]);
		p = agent_phase(&agents[i], PHASE_DRAIN);
	}
	begin = cpu_seconds(c->pid) - begin;
	for (uint32_t i = 0; i < count; i++)
		agent_done(&agents[i], &p, i ? 0 : -ECANCELED, "measured", NULL, 0);
	return begin;
}

static double measure(uint32_t count)
{
	struct coordinator_options options = { .timeout_ms = 300000 };
	struct link *agents = calloc(count, sizeof(*agents)), command;
	struct conductor c;
	double took;

	assert_non_null(agents);
	conductor_start(&c, &options);
	for (uint32_t i = 0; i < count; i++)
		agent_join(&c, &agents[i], FIRST_PID + i, 0);
	command_open(&c, &command);
	command_ask(&command, 0);
	agents_do(agents, count, PHASE_SUSPEND);
	took = exchange(&c, agents, count);
	for (uint32_t i = 0; i < count; i++)
		agent_phase(&agents[i], PHASE_RESUME);
	job_finish(&c, agents, count, &command);
	free(agents);
	return took;
}

static int allowed(uint32_t count)
{
	struct rlimit want = { count + SPARE, count + SPARE }, have;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &have), 0);
	if (have.rlim_max > want.rlim_max)
		want.rlim_max = have.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &want) == 0;
}

int main(int argc, char **argv)
{
	double first = 0, first_count = 0;

	for (int i = 1; i < argc; i++) {
		uint32_t count = (uint32_t)strtoul(argv[i], NULL, 10);
		double took, growth;

		if (!allowed(count)) {
			printf("coordinator-%u left out: no more than the limit of descriptors allows (ulimit -Hn)\n", count);
			continue;
		}
		took = measure(count);
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
	return 0;
}
