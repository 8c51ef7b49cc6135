/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between `fermata restart` and the restorers: their lines and marks (enum plan_mark) come up one pipe; when the memory of every process is in and
 * found whole, a byte for each goes down the other, the gate. Owns both pipes. Init and the processes have inherited the ends that
 * are theirs: nobody but `fermata restart` can open the gate.
 */
#include "cli/restart.h"

#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int restart_gate_create(struct restart *r, struct restart_gate *ret)
{
	int log[2], gate[2];

	if (pipe2(log, O_CLOEXEC) < 0 || pipe2(gate, O_CLOEXEC) < 0) {
		warn("the pipes to the restorers");
		return CLI_CANNOT;
	}
	r->log_fd = log[1];
	r->gate_fd = gate[0];
	r->gate_key_fd = gate[1];
	*ret = (struct restart_gate){ .log_fd = log[0], .restart = r };
	return 0;
}

void restart_gate_inherited(struct restart_gate *g)
{
	close(g->restart->log_fd);
	close(g->restart->gate_fd);
}

bool restart_gate_is_due(const struct restart_gate *g)
{
	return !g->open && g->loaded == g->restart->count;
}

void restart_gate_open(struct restart_gate *g)
{
	g->open = true;
	for (size_t i = 0; i < g->restart->count; i++)
		(void)!write(g->restart->gate_key_fd, "", 1); /* a restorer that waits no more is dead, and that is heard otherwise */
	close(g->restart->gate_key_fd);
}

static void hear_mark(struct restart_gate *g, char mark)
{
	switch ((enum plan_mark)mark) {
	case PLAN_PROGRESS:
		break;
	case PLAN_LOADED:
		g->loaded++;
		break;
	case PLAN_DAMAGED:
		g->damaged = true;
		g->failed = true;
		break;
	case PLAN_FAILED:
		g->failed = true;
		break;
	}
}

bool restart_gate_hear(struct restart_gate *g)
{
	char text[1024];
	ssize_t n = read(g->log_fd, text, sizeof(text));

	if (n <= 0) {
		close(g->log_fd);
		return false;
	}
	for (ssize_t i = 0; i < n; i++) {
		if ((unsigned char)text[i] > PLAN_PROGRESS)
			fputc(text[i], stderr);
		else
			hear_mark(g, text[i]);
	}
	return true;
}

/* A restorer stops at the first damage that it meets: now that nothing runs any more, all of it is looked for. */
int restart_gate_failure(const struct restart_gate *g)
{
	const struct restart *r = g->restart;
	sigset_t none;

	if (!g->damaged)
		return CLI_CANNOT;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL); /* this may take long */
	for (size_t i = 0; i < r->count; i++) {
		struct image_error error;

		if (image_verify(r->processes[i].image, (unsigned int)sysconf(_SC_NPROCESSORS_ONLN), &error))
			warnx("%s", error.text);
	}
	return CLI_DAMAGED;
}
