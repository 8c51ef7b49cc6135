/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Semaphores with a name (sem_open). libc makes one under another name, which it takes away again: who has made it maps a file that looks deleted. It is one semaphore by every way to it: for
 * who has made it, for a child that has it from before the fork, and for one that opens it by its name at any time.
 */
#include "feature.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static char ping_name[64], pong_name[64];
static sem_t *ping, *pong;

static void child(void)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;)
		CHECK(sem_wait(ping) == 0 && sem_post(pong) == 0);
}

static sem_t *make(char *name, size_t size, const char *what)
{
	sem_t *sem;

	snprintf(name, size, "/feature-%s-%d", what, getpid());
	sem = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
	CHECK(sem != SEM_FAILED);
	return sem;
}

/* A process that has nothing of it yet. */
static void post_by_name(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		sem_t *again;

		CHECK(sem_close(pong) == 0);
		again = sem_open(pong_name, 0);
		CHECK(again != SEM_FAILED && sem_post(again) == 0);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void step_do(void)
{
	int value;

	CHECK(sem_post(ping) == 0 && sem_wait(pong) == 0);
	post_by_name();
	CHECK(sem_getvalue(pong, &value) == 0 && value == 1);
	CHECK(sem_wait(pong) == 0);
}

int main(void)
{
	int status;
	pid_t pid;

	ping = make(ping_name, sizeof(ping_name), "ping");
	pong = make(pong_name, sizeof(pong_name), "pong");
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	step_do();
	feature_ready();
	do
		step_do();
	while (feature_step());
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(sem_unlink(ping_name) == 0 && sem_unlink(pong_name) == 0);
	return 0;
}
