/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pseudo-terminals of the job, as far as they have to be there before its processes.
 *
 * **Numbers** that somebody else has by now: a program that opens its terminal again by the name that it has kept (/dev/pts/N) would open
 * a stranger's. So the capsule then has a /dev/pts of its own, in which all numbers are free. It does not show the terminal that `fermata restart` was given, whose name
 * ttyname(3) does not find there; so where all numbers are free, /dev/pts stays the host's.
 *
 * **Controlling terminals** are inherited by fork alone: only the leader of a session can take one later, for itself. So init makes those that sessions of the job have, and each leader takes its own before it forks
 * its children. The master goes to the process that had it, by exec, and a slave to the leader, whose agents have them from there (agent/fd_terminals.c). Init and all others let them go.
 *
 * Owns restart.ptys, from before the fork to after it, in each process of the tree.
 */
#include <asm/ioctls.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/numbered_pty.h"
#include "cli/restart.h"
#include "plugins/pty/pty_record.h"

static bool is_taken(uint32_t number)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/pts/%u", number);
	return !access(path, F_OK);
}

/* Whether a master of this process needs a number that is somebody else's. Those of a damaged record the plugin refuses. */
static bool wants_taken(const struct restart_process *p)
{
	struct image_note_view note;
	size_t cursor = 0;

	while (image_next_note(p->image, &cursor, &note)) {
		const struct image_resource *r = note.data;
		const struct pty_record *record = (const void *)(r + 1);

		if (note.type == IMAGE_NOTE_RESOURCE && r->kind == IMAGE_RESOURCE_DESC && !strcmp(r->plugin, "pty") &&
		    r->length >= sizeof(*record) && record->kind == PTY_MASTER && is_taken(record->number))
			return true;
	}
	return false;
}

void restart_ptys_mount(const struct restart *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (wants_taken(&r->processes[i])) {
			if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666,mode=0620") < 0)
				warn("the job's pseudo-terminals get other numbers, for a /dev/pts of its own cannot be mounted");
			return;
		}
}

/* ---- controlling terminals ---- */

/* Its agent takes what is made for it; an older one makes its own. */
static bool takes_terminals(const struct restart_process *p)
{
	return p && p->info->restart_info_size >= offsetof(struct image_restart, terminals) + sizeof(((struct image_restart *)0)->terminals);
}

static const struct pty_session *session_of(const struct restart_process *p)
{
	struct image_note_view note;
	size_t cursor = 0;

	while (image_next_note(p->image, &cursor, &note)) {
		const struct image_resource *r = note.data;

		if (note.type == IMAGE_NOTE_RESOURCE && r->kind == IMAGE_RESOURCE_PLAIN && !strcmp(r->plugin, "pty") && r->length >= sizeof(struct pty_session))
			return (const void *)(r + 1);
	}
	return NULL;
}

bool restart_ptys_leads(const struct restart_process *p)
{
	return session_of(p) != NULL;
}

/* Where none can be had, the agents say why, or have it. */
static void make(struct restart *r, const struct restart_process *leader, const struct pty_session *s)
{
	struct restart_pty *p = &r->ptys[r->pty_count];

	*p = (struct restart_pty){ .leader = leader->info->pid, .maker_pid = s->maker_pid, .maker_fd = s->maker_fd, .slave = -1 };
	p->master = numbered_pty_open("/dev/ptmx", O_RDWR, s->number);
	if (p->master < 0)
		return;
	if (ioctl(p->master, TIOCSPTLCK, &(int){ 0 }) < 0)
		close(p->master);
	else
		r->pty_count++;
}

int restart_ptys_create(struct restart *r)
{
	r->ptys = calloc(r->count + 1, sizeof(*r->ptys));
	for (size_t i = 0; r->ptys && i < r->count; i++) {
		const struct pty_session *s = takes_terminals(&r->processes[i]) ? session_of(&r->processes[i]) : NULL;

		if (s && takes_terminals(restart_find_process(r, s->maker_pid)))
			make(r, &r->processes[i], s);
	}
	if (!r->ptys)
		warnx("out of memory");
	return r->ptys ? 0 : -ENOMEM;
}

void restart_ptys_take(const struct restart *r, uint32_t leader)
{
	for (size_t i = 0; i < r->pty_count; i++) {
		struct restart_pty *p = &r->ptys[i];

		if (p->leader != leader)
			continue;
		p->slave = ioctl(p->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (p->slave >= 0)
			ioctl(p->slave, TIOCSCTTY, 0);
	}
}

void restart_ptys_give_up(const struct restart *r, uint32_t session)
{
	for (size_t i = 0; i < r->pty_count; i++) {
		int fd = r->ptys[i].leader == session ? open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;

		if (fd < 0)
			continue;
		ioctl(fd, TIOCNOTTY, 0);
		close(fd);
	}
}

static void hand_over(struct image_terminal *to, size_t *count, int fd, uint32_t maker_pid, int maker_fd)
{
	fcntl(fd, F_SETFD, 0);
	to[(*count)++] = (struct image_terminal){ .maker_pid = maker_pid, .maker_fd = maker_fd, .fd = (uint32_t)fd };
}

size_t restart_ptys_hand_over(const struct restart *r, uint32_t pid, struct image_terminal *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < r->pty_count; i++) {
		const struct restart_pty *p = &r->ptys[i];

		if (p->maker_pid == pid)
			hand_over(ret, &count, p->master, p->maker_pid, p->maker_fd);
		if (p->leader == pid && p->slave >= 0)
			hand_over(ret, &count, p->slave, 0, -1);
	}
	return count;
}

void restart_ptys_forked(struct restart *r)
{
	while (r->pty_count)
		close(r->ptys[--r->pty_count].master);
	free(r->ptys);
	r->ptys = NULL;
}
