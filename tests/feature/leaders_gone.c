/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions and process groups without the process whose number they have:
 *
 *   main (takes orphans)
 *    |- daemon        its session's leader, and its group's, has ended
 *    |   \- worker
 *    |- member        its group's leader has ended and was waited for
 *    |- (dead)        not waited for, the leader of the session that heir is in
 *    |   heir         an orphan of it: main's child
 *    |- shell         leads a session; orphan: of its session, but main's child
 *    |- mover         its number is a group's that it has left: left is in it; and it is in newer's, which has left that, too, and is in mover's
 *    |- newer
 *    |- left
 *    \- late          is to lead a group in the end, as main and itself say, in this order
 *
 * Each looks at its own place, and main at all of them, with every step. At the end main ends each group by its number.
 */
#include "feature.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { DAEMON, WORKER, MEMBER, HEIR, SHELL, ORPHAN, MOVER, NEWER, LEFT, COUNT };

struct place {
	pid_t pid, parent, group, session;
};

static struct place *places; /* shared */
static pid_t dead;

static struct place here(void)
{
	return (struct place){ getpid(), getppid(), getpgrp(), getsid(0) };
}

static int same(const struct place *a, const struct place *b)
{
	return a->pid == b->pid && a->parent == b->parent && a->group == b->group && a->session == b->session;
}

/* When all are in their places, which main has seen. */
static void stay(int which)
{
	volatile pid_t *settled = &places[COUNT].pid;
	struct place now;

	places[which].pid = getpid();
	while (!*settled)
		usleep(1000);
	for (;;) {
		now = here();
		CHECK(same(&now, &places[which]));
		feature_work();
	}
}

static pid_t forked(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	return pid;
}

static void await(int which)
{
	while (!*(volatile pid_t *)&places[which].pid)
		usleep(1000);
}

static void end_of(pid_t pid)
{
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void make_daemon(void)
{
	pid_t pid = forked();

	if (pid == 0) {
		CHECK(setsid() == getpid());
		if (forked())
			_exit(0);
		if (forked() == 0)
			stay(WORKER);
		stay(DAEMON);
	}
	end_of(pid);
}

static void make_member(void)
{
	pid_t leader = forked();

	if (leader == 0) {
		CHECK(setpgid(0, 0) == 0);
		for (;;)
			pause();
	}
	while (getpgid(leader) != leader)
		usleep(1000);
	if (forked() == 0) {
		CHECK(setpgid(0, leader) == 0);
		stay(MEMBER);
	}
	await(MEMBER);
	CHECK(kill(leader, SIGKILL) == 0);
	end_of(leader);
}

static void make_heir(void)
{
	siginfo_t info;

	dead = forked();
	if (dead == 0) {
		CHECK(setsid() == getpid());
		if (forked() == 0)
			stay(HEIR);
		_exit(7);
	}
	CHECK(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT) == 0);
}

static void make_shell(void)
{
	if (forked() == 0) {
		pid_t carrier;

		CHECK(setsid() == getpid());
		carrier = forked();
		if (carrier == 0) {
			if (forked() == 0)
				stay(ORPHAN);
			_exit(0);
		}
		end_of(carrier);
		stay(SHELL);
	}
}

static pid_t make_leader(int which, volatile pid_t *to)
{
	pid_t pid = forked();

	if (pid == 0) {
		CHECK(setpgid(0, 0) == 0);
		while (!*to)
			usleep(1000);
		CHECK(setpgid(0, *to) == 0);
		stay(which);
	}
	while (getpgid(pid) != pid)
		usleep(1000);
	return pid;
}

static void make_movers(void)
{
	volatile pid_t *to = &places[COUNT].parent;
	pid_t mover = make_leader(MOVER, &to[0]), newer = make_leader(NEWER, &to[1]), keeper;

	keeper = forked(); /* so that the group lives on while both are in the other one */
	if (keeper == 0) {
		CHECK(setpgid(0, newer) == 0);
		for (;;)
			pause();
	}
	if (forked() == 0) {
		CHECK(setpgid(0, mover) == 0);
		stay(LEFT);
	}
	await(LEFT);
	while (getpgid(keeper) != newer)
		usleep(1000);
	to[1] = mover;
	await(NEWER);
	to[0] = newer;
	await(MOVER);
	CHECK(kill(keeper, SIGKILL) == 0);
	end_of(keeper);
}

static pid_t make_late(int *ret_tell)
{
	int ends[2];
	pid_t pid;
	char c;

	CHECK(pipe(ends) == 0);
	pid = forked();
	if (pid == 0) {
		CHECK(read(ends[0], &c, 1) == 1);
		usleep(20000); /* main is to be the first */
		CHECK(setpgid(0, 0) == 0);
		for (;;)
			pause();
	}
	*ret_tell = ends[1];
	return pid;
}

/* As a shell does: what comes next counts on the group. */
static void end_late(pid_t late, int tell)
{
	CHECK(write(tell, "", 1) == 1 && setpgid(late, late) == 0);
	CHECK(kill(-late, SIGTERM) == 0);
	end_of(late);
}

static struct place place_of(pid_t pid)
{
	struct place p = { .pid = pid, .group = getpgid(pid), .session = getsid(pid) };
	char path[64], text[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	CHECK((f = fopen(path, "re")) && fgets(text, sizeof(text), f) && sscanf(strrchr(text, ')') + 2, "%*c %d", &p.parent) == 1 && fclose(f) == 0);
	return p;
}

static void end_all(void)
{
	const pid_t groups[] = { places[DAEMON].group, places[MEMBER].group, places[HEIR].group, places[SHELL].group, places[MOVER].group, places[LEFT].group };
	siginfo_t info;
	int ended = 0;

	CHECK(waitid(P_PGID, (id_t)dead, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == dead && info.si_status == 7);
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		CHECK(kill(-groups[i], SIGTERM) == 0);
	while (waitpid(-1, NULL, 0) > 0)
		ended++;
	CHECK(errno == ECHILD && ended == COUNT + 1);
}

int main(void)
{
	int tell;
	pid_t late;

	places = mmap(NULL, (COUNT + 2) * sizeof(*places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(places != MAP_FAILED && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	make_daemon();
	make_member();
	make_heir();
	make_shell();
	make_movers();
	late = make_late(&tell);
	for (int i = 0; i < COUNT; i++) {
		await(i);
		if (i != WORKER)
			while (place_of(places[i].pid).parent != getpid())
				usleep(1000);
		places[i] = place_of(places[i].pid);
	}
	CHECK(places[DAEMON].session != places[DAEMON].pid && places[WORKER].parent == places[DAEMON].pid && places[ORPHAN].session == places[SHELL].pid && places[MOVER].group == places[NEWER].pid &&
	      places[NEWER].group == places[MOVER].pid && places[LEFT].group == places[MOVER].pid && places[HEIR].session == dead);
	places[COUNT].pid = 1;
	feature_ready();
	do
		for (int i = 0; i < COUNT; i++) {
			const struct place now = place_of(places[i].pid);

			CHECK(same(&now, &places[i]) && getpgid(dead) == dead && getsid(dead) == dead);
			feature_work();
		}
	while (feature_step());
	end_late(late, tell);
	end_all();
	return 0;
}
