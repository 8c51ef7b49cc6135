/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers: whose they are, and those that nobody of the job has, for the restorers' threads and the short-lived processes of a restart. Owns what the processes and nodes say of each other, once linked.
 */
#include "cli/restart.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

struct restart_process *restart_find_process(const struct restart *r, uint32_t pid)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].info->pid == pid)
			return &r->processes[i];
	return NULL;
}

static int compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Sorted ids of all threads of the job, and of all nodes. */
static uint32_t *collect_ids(const struct restart *r, size_t *ret_count)
{
	uint32_t *ids = calloc(r->node_count + 1, sizeof(*ids));
	size_t count = 0;

	for (size_t i = 0; ids && i < r->node_count; i++)
		ids[count++] = r->nodes[i].pid; /* also where the leader has ended */
	for (size_t p = 0; ids && p < r->count; p++) {
		size_t n;
		const struct image_thread *t = image_get_threads(r->processes[p].image, &n);
		uint32_t *more = reallocarray(ids, count + n + 1, sizeof(*ids));

		if (!more) {
			free(ids);
			return NULL;
		}
		ids = more;
		for (size_t i = 0; i < n; i++)
			ids[count++] = t[i].tid;
	}
	if (ids)
		qsort(ids, count, sizeof(*ids), compare_ids);
	*ret_count = count;
	return ids;
}

/* The first of @want ids in a row that are not in @ids, from @from on. */
static uint32_t spare_ids(const uint32_t *ids, size_t count, uint32_t from, uint32_t want)
{
	for (size_t i = 0; i < count; i++)
		if (ids[i] >= from) {
			if (ids[i] >= from + want)
				break;
			from = ids[i] + 1;
		}
	return from;
}

static void give_spare_ids(struct restart *r, const uint32_t *ids, size_t count)
{
	uint32_t next = 2;

	for (size_t i = 0; i < r->count; i++) {
		next = spare_ids(ids, count, next, PLAN_EAGER_MAX);
		r->processes[i].helper_tid = next;
		next += PLAN_EAGER_MAX;
	}
	for (size_t i = 0; i < r->node_count; i++)
		if (r->nodes[i].carried || r->nodes[i].moves) {
			next = spare_ids(ids, count, next, 1);
			r->nodes[i].spare_pid = next++;
		}
}

int restart_link(struct restart *r)
{
	uint32_t *ids;
	size_t count;
	int code;

	for (size_t i = 0; i < r->count; i++) {
		struct restart_process *p = &r->processes[i];

		p->parent = restart_find_process(r, p->info->ppid);
		if (restart_find_process(r, p->info->pid) != p) {
			warnx("%s: process %u has two images in this checkpoint", p->path, p->info->pid);
			return CLI_DAMAGED;
		}
	}
	code = restart_family_create(r);
	if (code)
		return code;
	ids = collect_ids(r, &count);
	if (!ids) {
		warnx("out of memory");
		return CLI_CANNOT;
	}
	if (count && ids[0] == 1) {
		warnx("a process of the job was pid 1 of its pid namespace; a restart has an init of its own there");
		free(ids);
		return CLI_CANNOT;
	}
	give_spare_ids(r, ids, count);
	free(ids);
	return 0;
}

/* What the kernel counts up to, or a number that it certainly can. */
static uint32_t greatest_pid(void)
{
	FILE *f = fopen("/proc/sys/kernel/pid_max", "re");
	uint32_t limit;

	if (!f || fscanf(f, "%u", &limit) != 1)
		limit = 32768;
	if (f)
		fclose(f);
	return limit;
}

void restart_set_last_pid(const struct restart *r)
{
	uint32_t last = 0, limit = greatest_pid();
	char text[16];

	for (size_t i = 0; i < r->count; i++)
		if (r->processes[i].helper_tid > last)
			last = r->processes[i].helper_tid;
	last += 2 * PLAN_EAGER_MAX;
	if (r->parts && limit > last)
		last += (uint32_t)((limit - last) / r->parts * r->part_rank);
	snprintf(text, sizeof(text), "%u", last);
	(void)restart_write_text("/proc/sys/kernel/ns_last_pid", text);
}
