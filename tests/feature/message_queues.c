/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System V message queues: ids, keys, permissions, limits, messages with their types and order, who sent and received last (also one that has ended) stay; who waits for a
 * message, of a type or at all, or for room in a full queue waits on. The ids are in the file "queues", for who cleans up behind a program that was killed.
 */
#include "feature.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/wait.h>

#define TEXT 1000
#define KEPT 7 /* messages in the queue that only stays */

enum { STAYS, PASSES, FULL, QUEUES };

struct message {
	long type;
	uint64_t text[TEXT / 8];
};

static int queues[QUEUES];
static key_t key;
static pid_t partner, sender, ended;
static struct msqid_ds before;

static void make(int which, key_t k, int mode)
{
	FILE *f = fopen("queues", "a");

	queues[which] = msgget(k, IPC_CREAT | IPC_EXCL | mode);
	CHECK(queues[which] >= 0 && f && fprintf(f, "%d\n", queues[which]) > 0 && fclose(f) == 0);
}

static void put(int which, long type, size_t length, uint64_t seed)
{
	struct message m = { .type = type };

	pattern_fill(m.text, length, seed);
	CHECK(msgsnd(queues[which], &m, length, 0) == 0);
}

static void get(int which, long want, long type, size_t length, uint64_t seed)
{
	struct message m;

	CHECK(msgrcv(queues[which], &m, TEXT, want, 0) == (ssize_t)length && m.type == type);
	CHECK(pattern_holds(m.text, length, seed));
}

/* Answers each message of type 1 with one of type 2. */
static void answer(void)
{
	struct message m;

	for (;;) {
		ssize_t n = msgrcv(queues[PASSES], &m, TEXT, 1, 0);

		if (n < 0)
			_exit(errno == EIDRM ? 0 : 1);
		m.type = 2;
		CHECK(msgsnd(queues[PASSES], &m, (size_t)n, 0) == 0);
	}
}

static void fill(void)
{
	struct msqid_ds d;

	CHECK(msgctl(queues[FULL], IPC_STAT, &d) == 0);
	d.msg_qbytes = 2048;
	CHECK(msgctl(queues[FULL], IPC_SET, &d) == 0);
	put(FULL, 1, TEXT, 100);
	put(FULL, 2, TEXT, 101);
}

static void build(void)
{
	do
		key = (key_t)(feature_now(CLOCK_MONOTONIC) >> 10 ^ (uint64_t)getpid() << 16) & 0x7fffffff;
	while (key == IPC_PRIVATE || msgget(key, 0) >= 0);
	make(STAYS, key, 0620);
	make(PASSES, IPC_PRIVATE, 0600);
	make(FULL, IPC_PRIVATE, 0600);
	ended = fork();
	CHECK(ended >= 0);
	if (ended == 0) {
		for (int i = 0; i < KEPT; i++)
			put(STAYS, 1000000 - i % 3, (size_t)i * 8, (uint64_t)i);
		_exit(0);
	}
	CHECK(waitpid(ended, NULL, 0) == ended);
	get(STAYS, 0, 1000000, 0, 0);
	fill();
	partner = fork();
	CHECK(partner >= 0);
	if (partner == 0)
		answer();
	sender = fork();
	CHECK(sender >= 0);
	if (sender == 0) {
		put(FULL, 3, TEXT, 102);
		_exit(0);
	}
	CHECK(msgctl(queues[STAYS], IPC_STAT, &before) == 0);
}

static void check(uint64_t n)
{
	struct msqid_ds d;

	CHECK(msgget(key, 0) == queues[STAYS] && msgctl(queues[STAYS], IPC_STAT, &d) == 0);
	CHECK(d.msg_qnum == KEPT - 1 && d.__msg_cbytes == before.__msg_cbytes && d.msg_qbytes == before.msg_qbytes);
	CHECK(d.msg_perm.mode == before.msg_perm.mode && d.msg_perm.__key == key && d.msg_perm.cuid == getuid());
	CHECK(d.msg_lspid == ended && d.msg_lrpid == getpid());
	CHECK(msgctl(queues[FULL], IPC_STAT, &d) == 0 && d.msg_qnum == 2 && d.msg_qbytes == 2048);
	put(PASSES, 1, 8 * (n % 100), n);
	get(PASSES, 2, 2, 8 * (n % 100), n);
}

static void finish(void)
{
	int status;

	get(STAYS, 999998, 999998, 16, 2);
	get(STAYS, -999999, 999998, 40, 5);
	get(STAYS, -999999, 999999, 8, 1);
	for (int i = 3; i < KEPT; i++)
		if (i != 5)
			get(STAYS, 0, 1000000 - i % 3, (size_t)i * 8, (uint64_t)i);
	for (int i = 0; i < 3; i++)
		get(FULL, 0, i + 1, TEXT, 100 + (uint64_t)i);
	CHECK(waitpid(sender, &status, 0) == sender && status == 0);
	for (int i = 0; i < QUEUES; i++)
		CHECK(msgctl(queues[i], IPC_RMID, NULL) == 0);
	CHECK(waitpid(partner, &status, 0) == partner && status == 0);
}

int main(void)
{
	uint64_t n = 0;

	build();
	feature_ready();
	do {
		feature_work();
		check(n++);
	} while (feature_step());
	finish();
	return 0;
}
