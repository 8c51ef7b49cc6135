/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A family of processes at random: forked, spawned, executed anew, in groups and sessions whose leaders may be gone, ended, waited for or left to another, with signals that wait. Each one's parent, group,
 * session, end and signals are known in a table, and looked at from within and by others with every step.
 */
#include "kin.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;

/* ---- what can be seen ---- */

struct seen {
	char state;
	int parent, group, session;
};

static struct seen see_proc(pid_t pid)
{
	char path[64], text[512], *p;
	struct seen s;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	CHECK((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0 && (n = read(fd, text, sizeof(text) - 1)) > 0 && close(fd) == 0);
	text[n] = 0;
	CHECK((p = strrchr(text, ')')) && sscanf(p + 2, "%c %d %d %d", &s.state, &s.parent, &s.group, &s.session) == 4);
	return s;
}

static void see(const struct kin *k)
{
	const struct seen s = see_proc(k->pid);
	const pid_t parent = table->kin[k->parent].pid;

	CHECK(getpid() == me()->pid && getpgrp() == me()->group && getsid(0) == me()->session);
	if (self)
		CHECK(getppid() == table->kin[me()->parent].pid);
	CHECK(kill(k->pid, 0) == 0);
	if (getpgid(k->pid) != k->group || getsid(k->pid) != k->session)
		feature_fail("process %d, state %d, of group %d and session %d, is of %d and %d", k->pid, k->state, k->group, k->session, getpgid(k->pid), getsid(k->pid));
	if ((s.state == 'Z') != (k->state == DEAD) || s.group != k->group || s.session != k->session || (k != table->kin && s.parent != parent))
		feature_fail("process %d, state %d, parent %d, group %d, session %d, is: %c %d %d %d", k->pid, k->state, parent, k->group, k->session, s.state, s.parent, s.group, s.session);
}

/* ---- what is done ---- */

/* In the new process, whose place is known; its maker holds the lock until the place is filled. */
static void begin(int place)
{
	self = place;
	seed = feature_now(CLOCK_REALTIME) + (uint64_t)place;
	CHECK(prctl(PR_SET_NAME, "kin") == 0);
	lock();
	CHECK(me()->pid == getpid());
	if (me()->executed == EXECUTING)
		me()->executed = 1;
	unlock();
}

static void execute(int place)
{
	char text[16], *argv[] = { "kin", text, NULL };

	snprintf(text, sizeof(text), "%d", place);
	execv("/proc/self/exe", argv);
	_exit(9);
}

static pid_t spawned(int place)
{
	char text[16], *argv[] = { "kin", text, NULL };
	pid_t pid;

	snprintf(text, sizeof(text), "%d", place);
	CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
	return pid;
}

static int free_place(void)
{
	const struct kin *k = ANY(p, !p->state);

	return k ? (int)(k - table->kin) : KIN;
}

static void make(void)
{
	const int place = free_place(), way = (int)draw(4);
	struct kin *k = &table->kin[place];
	pid_t pid;

	if (place == KIN) {
		unlock();
		return;
	}
	*k = (struct kin){ .group = me()->group, .session = me()->session, .parent = self, .executed = way ? EXECUTING : 0 };
	if (way == 3) {
		pid = spawned(place);
	} else if (way == 2) {
		if ((pid = vfork()) == 0)
			execute(place);
	} else if ((pid = fork()) == 0) {
		if (way)
			execute(place);
		begin(place);
		return;
	}
	CHECK(pid > 0);
	k->pid = pid;
	k->state = LIVE;
	unlock();
}

static void leave(void)
{
	me()->state = DYING;
	me()->code = CLD_EXITED;
	me()->status = (int)draw(256);
	unlock();
	_exit(me()->status);
}

/* Only its own: a process that another one has ended counts as lost (coordinator/conduct_lost.c). */
static void end_child(void)
{
	const int fatal[] = { SIGKILL, SIGTERM, SIGUSR1, SIGRTMAX };
	struct kin *k = ANY(p, p->state == LIVE && p != table->kin && p->parent == self);

	if (!k)
		return;
	k->state = DYING;
	k->code = CLD_KILLED;
	k->status = fatal[draw(4)];
	CHECK(kill(k->pid, k->status) == 0);
}

static void regroup(void)
{
	struct kin *child = ANY(p, p->state == LIVE && p != table->kin && p->parent == self && p->executed != EXECUTING), *k = draw(2) && child ? child : me();
	const struct kin *to = ANY(p, p->state && p->session == k->session);
	const pid_t group = draw(3) ? to->group : k->pid;
	const int refused = k->session == k->pid || k->session != me()->session ? EPERM : k != me() && k->executed ? EACCES : 0;
	int r = setpgid(k->pid, group);

	if (refused)
		CHECK(r < 0 && (errno == refused || errno == EACCES));
	else
		CHECK(r == 0 || (k != me() && errno == EACCES)); /* a child that was restarted has executed a program */
	if (r == 0)
		k->group = group;
}

static void new_session(void)
{
	const int taken = ANY(p, p->state && p->group == me()->pid) != NULL;
	pid_t r = setsid();

	CHECK(taken ? r < 0 && errno == EPERM : r == me()->pid);
	if (!taken)
		me()->group = me()->session = r;
}

static void become_reaper(void)
{
	me()->reaper = self == 0 || draw(2);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, me()->reaper) == 0);
}

/* A signal that waits, and tells who sent it. */
static void send(void)
{
	struct kin *k = ANY(p, p->state == LIVE && p->in - p->out < WAITING);

	if (!k)
		return;
	CHECK(sigqueue(k->pid, SIGRTMIN + 1, (union sigval){ .sival_int = (int)k->in }) == 0);
	k->senders[k->in++ % WAITING] = me()->pid;
}

static void take(void)
{
	const struct timespec now = { 0, 0 };
	siginfo_t info;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	r = sigtimedwait(&set, &info, &now);
	if (me()->in == me()->out) {
		CHECK(r < 0 && errno == EAGAIN);
		return;
	}
	CHECK(r == SIGRTMIN + 1 && info.si_value.sival_int == (int)me()->out && info.si_pid == me()->senders[me()->out % WAITING]);
	me()->out++;
}

static void wait_for(void)
{
	const struct kin *any = ANY(p, p->state && p != table->kin && p->parent == self), *about = any ? any : me();
	const int how = (int)draw(3), keep = draw(3) == 0 ? WNOWAIT : 0;
	const idtype_t type = how == 0 ? P_PID : how == 1 ? P_PGID : P_ALL;
	const id_t id = how == 0 ? (id_t)about->pid : (id_t)about->group;
	siginfo_t info = { 0 };
	int r = waitid(type, id, &info, WEXITED | WNOHANG | keep);
	struct kin *k;

#define FITS(p) ((p)->state && (p) != table->kin && (p)->parent == self && (how == 2 || (how == 1 && (p)->group == about->group) || (how == 0 && (p) == about)))
	if (!ANY(p, FITS(p))) {
		CHECK(r < 0 && errno == ECHILD);
		return;
	}
	CHECK(r == 0);
	if (!ANY(p, FITS(p) && p->state == DEAD)) {
		CHECK(info.si_pid == 0);
		return;
	}
	k = ANY(p, FITS(p) && p->state == DEAD && p->pid == info.si_pid);
	CHECK(k && info.si_code == k->code && info.si_status == k->status && info.si_signo == SIGCHLD);
	if (!keep)
		k->state = NONE;
}

static void step(void)
{
	lock();
	see(ANY(p, p->state));
	switch (draw(22)) {
	case 0 ... 1:
		make();
		return;
	case 2:
		if (self && draw(2))
			leave();
		break;
	case 3:
		if (draw(4) == 0)
			end_child();
		break;
	case 4 ... 6:
		regroup();
		break;
	case 7:
		if (draw(4) == 0)
			new_session();
		break;
	case 8:
		become_reaper();
		break;
	case 9 ... 11:
		send();
		break;
	case 12 ... 14:
		take();
		break;
	case 15:
		if (self && draw(4) == 0) {
			me()->executed = EXECUTING;
			unlock();
			execute(self);
		}
		break;
	default:
		wait_for();
	}
	unlock();
}

static void prepare(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && signal(SIGHUP, SIG_IGN) != SIG_ERR);
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, TABLE_FD, 0);
	CHECK(table != MAP_FAILED);
}

/* All are ended, and come to the first one at last. */
static void gather(void)
{
	siginfo_t info;

	lock();
	for (struct kin *k; (k = ANY(p, p != table->kin && p->state == LIVE)); settle(k)) {
		k->code = CLD_KILLED;
		k->status = SIGKILL;
		CHECK(kill(k->pid, SIGKILL) == 0);
	}
	while (waitid(P_ALL, 0, &info, WEXITED) == 0) {
		struct kin *k = ANY(p, p != table->kin && p->state == DEAD && p->pid == info.si_pid);

		CHECK(k && info.si_code == k->code && info.si_status == k->status);
		k->state = NONE;
	}
	CHECK(errno == ECHILD && !ANY(p, p != table->kin && p->state));
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attr;
	int fd;

	if (argc == 2) {
		prepare();
		begin(atoi(argv[1]));
		for (;;)
			step();
	}
	CHECK((fd = memfd_create("kin", 0)) >= 0 && dup2(fd, TABLE_FD) == TABLE_FD && ftruncate(TABLE_FD, sizeof(*table)) == 0);
	prepare();
	CHECK(pthread_mutexattr_init(&attr) == 0 && pthread_mutexattr_setpshared(&attr, 1) == 0 && pthread_mutexattr_setrobust(&attr, 1) == 0 && pthread_mutex_init(&table->lock, &attr) == 0);
	table->kin[0] = (struct kin){ .state = LIVE, .pid = getpid(), .group = getpgrp(), .session = getsid(0), .reaper = 1 };
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	begin(0);
	feature_ready();
	do
		for (int i = 0; i < 20; i++) {
			step();
			while (self)
				step();
		}
	while (feature_step());
	gather();
	return 0;
}
