/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V semaphores: ids, keys, permissions, values, and who changed each last (also one that has ended) stay; who waits in semop or semtimedop waits on; two processes
 * pass a token to and fro; adjustments (SEM_UNDO) of both signs, of a process that has been through an exec, too, are made when the process ends, and not if a value was set
 * since. The ids are in the file "semaphores", for who cleans up behind a program that was killed.
 */
#include "feature.h"

#include <signal.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { FIXED, FROM_CHILD, TO, FRO, NEVER, LOCK, SEMAPHORES }; /* of the set `keyed` */
enum { TAKEN, GIVEN, EXECED, STRUCK, UNDONE };		       /* of the set `undo` */

static int keyed, undo;
static key_t key;
static pid_t child_that_set, partner, waiter, holder, execed;
static struct semid_ds before;

static void list(int id)
{
	FILE *f = fopen("semaphores", "a");

	CHECK(id >= 0 && f && fprintf(f, "%d\n", id) > 0 && fclose(f) == 0);
}

static int op(int set, int number, int by, int flags)
{
	struct sembuf s = { (unsigned short)number, (short)by, (short)flags };

	return semop(set, &s, 1);
}

static int value(int set, int number)
{
	return semctl(set, number, GETVAL);
}

static pid_t start(void (*body)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		body();
		_exit(0);
	}
	return pid;
}

static void end(pid_t pid, int expected)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == expected : WTERMSIG(status) == expected);
}

static void make_keyed(void)
{
	do
		key = (key_t)(feature_now(CLOCK_MONOTONIC) >> 10 ^ (uint64_t)getpid() << 16) & 0x7fffffff;
	while (key == IPC_PRIVATE || semget(key, 0, 0) >= 0);
	keyed = semget(key, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0640);
	list(keyed);
	CHECK(semctl(keyed, FIXED, SETVAL, 12345) == 0 && semctl(keyed, LOCK, SETVAL, 1) == 0);
}

static void set_in_child(void)
{
	CHECK(semctl(keyed, FROM_CHILD, SETVAL, 7) == 0);
}

/* A lock taken with SEM_UNDO all the time: its adjustment comes and goes. */
static void pass_back(void)
{
	for (;;) {
		CHECK(op(keyed, TO, -1, 0) == 0);
		for (int i = 0; i < 300; i++)
			CHECK(op(keyed, LOCK, -1, SEM_UNDO) == 0 && value(keyed, LOCK) == 0 && op(keyed, LOCK, 1, SEM_UNDO) == 0);
		CHECK(op(keyed, FRO, 1, 0) == 0);
	}
}

static void wait_for_ever(void)
{
	const struct timespec hours = { 20000, 0 };
	struct sembuf s = { NEVER, -1, 0 };

	CHECK(semtimedop(keyed, &s, 1, &hours) == -1 && errno == EIDRM);
}

static void hold(void)
{
	CHECK(op(undo, TAKEN, -3, SEM_UNDO) == 0 && op(undo, GIVEN, 30000, SEM_UNDO) == 0);
	CHECK(op(undo, STRUCK, -1, SEM_UNDO) == 0 && semctl(undo, STRUCK, SETVAL, 9) == 0);
	for (;;)
		pause();
}

static void exec_and_hold(void)
{
	CHECK(op(undo, EXECED, 5, SEM_UNDO) == 0);
	execlp("sleep", "sleep", "100000", NULL);
}

static void build(void)
{
	make_keyed();
	undo = semget(IPC_PRIVATE, UNDONE, 0600);
	list(undo);
	CHECK(semctl(undo, TAKEN, SETVAL, 5) == 0 && semctl(undo, STRUCK, SETVAL, 1) == 0);
	child_that_set = start(set_in_child);
	end(child_that_set, 0);
	partner = start(pass_back);
	waiter = start(wait_for_ever);
	holder = start(hold);
	execed = start(exec_and_hold);
	while (value(undo, STRUCK) != 9 || value(undo, EXECED) != 5)
		feature_work();
	CHECK(semctl(keyed, 0, IPC_STAT, &before) == 0);
}

static void check(void)
{
	struct semid_ds now;

	CHECK(semget(key, 0, 0) == keyed && semctl(keyed, 0, IPC_STAT, &now) == 0);
	CHECK(now.sem_nsems == SEMAPHORES && now.sem_perm.mode == before.sem_perm.mode && now.sem_perm.uid == getuid() &&
	      now.sem_perm.cuid == getuid() && now.sem_perm.__key == key);
	CHECK(value(keyed, FIXED) == 12345 && semctl(keyed, FIXED, GETPID) == getpid());
	CHECK(value(keyed, FROM_CHILD) == 7 && semctl(keyed, FROM_CHILD, GETPID) == child_that_set);
	CHECK(value(keyed, NEVER) == 0);
	CHECK(value(undo, TAKEN) == 2 && semctl(undo, TAKEN, GETPID) == holder);
	CHECK(value(undo, GIVEN) == 30000 && value(undo, EXECED) == 5 && value(undo, STRUCK) == 9);
	CHECK(op(keyed, TO, 1, 0) == 0 && op(keyed, FRO, -1, 0) == 0);
	CHECK(value(keyed, TO) == 0 && value(keyed, FRO) == 0 && value(keyed, LOCK) == 1);
}

static void finish(void)
{
	CHECK(kill(holder, SIGKILL) == 0 && kill(execed, SIGKILL) == 0);
	end(holder, SIGKILL);
	end(execed, SIGKILL);
	CHECK(value(undo, TAKEN) == 5 && value(undo, GIVEN) == 0 && value(undo, EXECED) == 0 && value(undo, STRUCK) == 9);
	while (semctl(keyed, NEVER, GETNCNT) != 1 || semctl(keyed, TO, GETNCNT) != 1)
		feature_work();
	CHECK(kill(partner, SIGKILL) == 0);
	end(partner, SIGKILL);
	CHECK(value(keyed, LOCK) == 1);
	CHECK(semctl(keyed, 0, IPC_RMID) == 0 && semctl(undo, 0, IPC_RMID) == 0);
	end(waiter, 0);
}

int main(void)
{
	build();
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	finish();
	return 0;
}
