/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions and process groups of a tree:
 *
 *   main -- a (leads a group) , b (in a's group)
 *        \- c (leads a session) -- c1 (forked before that: in main's session)
 *                               \- c2 (in c's session)
 *           orphan: in c's session, its parent has ended
 */
#include "feature.h"

#include <sys/wait.h>

static int settled[2], last_word[2];

struct place {
	pid_t parent, group, session; /* parent 0: whoever took the orphan */
};

static struct place where(void)
{
	return (struct place){ getppid(), getpgrp(), getsid(0) };
}

static void stay(struct place p)
{
	CHECK(write(settled[1], "s", 1) == 1);
	while (!feature_finished()) {
		feature_work();
		CHECK(!p.parent || getppid() == p.parent);
		CHECK(getpgrp() == p.group);
		CHECK(getsid(0) == p.session);
	}
}

static pid_t fork_to_stay(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		stay(where());
		_exit(0);
	}
	return pid;
}

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

static void leave_orphan(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		pid_t parent = getpid(), child = fork();

		CHECK(child >= 0);
		if (child)
			_exit(0);
		while (getppid() == parent)
			feature_work();
		stay((struct place){ 0, getpgrp(), getsid(0) });
		CHECK(write(last_word[1], "o", 1) == 1);
		_exit(0);
	}
	wait_for(pid);
}

static void run_c(void)
{
	pid_t main_session = getsid(0), c1 = fork_to_stay(), c2;

	CHECK(setsid() == getpid());
	CHECK(getsid(c1) == main_session);
	c2 = fork_to_stay();
	leave_orphan();
	CHECK(getsid(c2) == getpid());
	stay(where());
	wait_for(c1);
	wait_for(c2);
	_exit(0);
}

int main(void)
{
	struct place here;
	pid_t a, b, c;
	char bytes[6];
	size_t got = 0;

	CHECK(pipe(settled) == 0 && pipe(last_word) == 0);
	a = fork();
	CHECK(a >= 0);
	if (a == 0) {
		CHECK(setpgid(0, 0) == 0);
		stay(where());
		_exit(0);
	}
	CHECK(read(settled[0], bytes, 1) == 1);
	b = fork();
	CHECK(b >= 0);
	if (b == 0) {
		CHECK(setpgid(0, a) == 0);
		stay(where());
		_exit(0);
	}
	c = fork();
	CHECK(c >= 0);
	if (c == 0)
		run_c();
	while (got < 5) { /* b, c, c1, c2, orphan */
		ssize_t n = read(settled[0], bytes, 5 - got);

		CHECK(n > 0);
		got += (size_t)n;
	}
	here = where();
	feature_ready();
	while (feature_step()) {
		feature_work();
		CHECK(getpgrp() == here.group && getsid(0) == here.session);
		CHECK(getpgid(b) == a && getsid(c) == c);
	}
	wait_for(a);
	wait_for(b);
	wait_for(c);
	CHECK(read(last_word[0], bytes, 1) == 1 && bytes[0] == 'o');
	return 0;
}
