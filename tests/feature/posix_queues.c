/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * POSIX message queues: names, permissions, limits, messages with their priorities and order, descriptors with their own flags, shared by a fork or opened twice, one queue that has no
 * name any more and one that nobody has open; who waits for a message or for room waits on, with a time-out and without; a registration (mq_notify) stays, tells nobody of what was
 * there before, and its signal comes with its value; another calls a function in a thread, which registers anew, once a message. The names are in the file "names", for who cleans up behind a program that was killed.
 */
#include "feature.h"

#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE 200
#define DEEP 6

enum { STAYS, ASKS, ANSWERS, FULL, CLOSED, TELLS, LOUD, CALLS, UNLINKED, QUEUES };

static char names[QUEUES][64];
static mqd_t queues[QUEUES], again;
static pid_t partner, sender;
static volatile sig_atomic_t told, told_value;
static uint64_t calls;
static sem_t called;

static mqd_t make(int which, long depth, int flags, mode_t mode)
{
	struct mq_attr attr = { .mq_maxmsg = depth, .mq_msgsize = SIZE };
	FILE *f = fopen("names", "a");

	snprintf(names[which], sizeof(names[which]), "/feature-%d-%d", getpid(), which);
	queues[which] = mq_open(names[which], O_RDWR | O_CREAT | O_EXCL | flags, mode, &attr);
	CHECK(queues[which] >= 0 && f && fprintf(f, "%s\n", names[which]) > 0 && fclose(f) == 0);
	return queues[which];
}

static void put(mqd_t q, uint64_t seed, unsigned int priority)
{
	uint64_t text[SIZE / 8];

	pattern_fill(text, SIZE - 8 * (seed % 8), seed);
	CHECK(mq_send(q, (char *)text, SIZE - 8 * (seed % 8), priority) == 0);
}

static void get(mqd_t q, uint64_t seed, unsigned int priority)
{
	uint64_t text[SIZE / 8];
	unsigned int got;

	CHECK(mq_receive(q, (char *)text, SIZE, &got) == (ssize_t)(SIZE - 8 * (seed % 8)) && got == priority);
	CHECK(pattern_holds(text, SIZE - 8 * (seed % 8), seed));
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)context;
	CHECK(sig == SIGUSR1 && info->si_code == SI_MESGQ);
	told_value = info->si_value.sival_int;
	told++;
}

static void ask_to_be_told(mqd_t q, int value)
{
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = value };

	CHECK(mq_notify(q, &e) == 0);
}

static void ask_to_be_called(void);

/* Registered before the queue is empty: nothing is told of twice, or not. */
static void on_message(union sigval value)
{
	CHECK(value.sival_ptr == &queues[CALLS]);
	ask_to_be_called();
	get(queues[CALLS], calls++, 9);
	CHECK(sem_post(&called) == 0);
}

static void ask_to_be_called(void)
{
	struct sigevent e = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_message, .sigev_value.sival_ptr = &queues[CALLS] };

	CHECK(mq_notify(queues[CALLS], &e) == 0);
	CHECK(mq_notify(queues[CALLS], &e) == -1 && errno == EBUSY);
}

static void answer(void)
{
	struct timespec late;
	uint64_t text[SIZE / 8];
	unsigned int priority;

	CHECK(clock_gettime(CLOCK_REALTIME, &late) == 0);
	late.tv_sec += 1000000;
	for (;;) {
		ssize_t n = mq_timedreceive(queues[ASKS], (char *)text, SIZE, &priority, &late);

		CHECK(n >= 0 && mq_send(queues[ANSWERS], (char *)text, (size_t)n, priority + 1) == 0);
	}
}

static void build(void)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	make(STAYS, DEEP, O_NONBLOCK, 0640);
	for (unsigned int i = 0; i < DEEP; i++) /* received in the order 2 5 1 4 0 3 */
		put(queues[STAYS], i, i % 3 * 100);
	make(ASKS, 2, 0, 0600);
	make(ANSWERS, 2, 0, 0600);
	make(FULL, 1, 0, 0600);
	put(queues[FULL], 50, 7);
	put(make(CLOSED, 3, 0, 0600), 60, 32767);
	CHECK(mq_close(queues[CLOSED]) == 0);
	ask_to_be_told(make(TELLS, 3, 0, 0600), 4711);
	put(make(LOUD, 3, 0, 0600), 70, 0);
	make(CALLS, 2, 0, 0600);
	CHECK(sem_init(&called, 0, 0) == 0);
	ask_to_be_called();
	put(make(UNLINKED, 3, 0, 0600), 80, 1);
	again = mq_open(names[STAYS], O_RDONLY);
	CHECK(again >= 0 && mq_unlink(names[UNLINKED]) == 0);
	partner = fork();
	CHECK(partner >= 0);
	if (partner == 0)
		answer();
	sender = fork();
	CHECK(sender >= 0);
	if (sender == 0) {
		put(queues[FULL], 51, 7);
		_exit(0);
	}
}

static void check_attributes(mqd_t q, long flags, long depth, long count)
{
	struct mq_attr a;

	CHECK(mq_getattr(q, &a) == 0);
	CHECK(a.mq_flags == flags && a.mq_maxmsg == depth && a.mq_msgsize == SIZE && a.mq_curmsgs == count);
}

static void check(uint64_t n)
{
	struct stat st;

	check_attributes(queues[STAYS], O_NONBLOCK, DEEP, DEEP);
	check_attributes(again, 0, DEEP, DEEP);
	check_attributes(queues[FULL], 0, 1, 1);
	CHECK(fstat(queues[STAYS], &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_uid == getuid() && st.st_nlink == 1);
	CHECK(fstat(queues[UNLINKED], &st) == 0 && st.st_nlink == 0);
	CHECK(mq_send(again, "", 0, 0) == -1 && errno == EBADF);
	put(queues[ASKS], n, n % 1000);
	get(queues[ANSWERS], n, n % 1000 + 1);
	CHECK(!told);
	put(queues[CALLS], n, 9);
	CHECK(sem_wait(&called) == 0 && calls == n + 1);
	if (n % 4 == 0) /* registered while there is a message: that one is not told of */
		ask_to_be_told(queues[LOUD], (int)n);
	if (n % 4 == 3)
		CHECK(mq_notify(queues[LOUD], NULL) == 0);
}

static void finish(void)
{
	int status;

	for (int i = 0; i < DEEP; i++)
		get(queues[STAYS], (uint64_t)("251403"[i] - '0'), (unsigned int)("251403"[i] - '0') % 3 * 100);
	CHECK(mq_receive(queues[STAYS], (char[SIZE]){ "" }, SIZE, NULL) == -1 && errno == EAGAIN);
	get(queues[FULL], 50, 7);
	get(queues[FULL], 51, 7);
	CHECK(waitpid(sender, &status, 0) == sender && status == 0);
	queues[CLOSED] = mq_open(names[CLOSED], O_RDWR);
	CHECK(queues[CLOSED] >= 0);
	get(queues[CLOSED], 60, 32767);
	get(queues[LOUD], 70, 0);
	get(queues[UNLINKED], 80, 1);
	put(queues[TELLS], 90, 3);
	CHECK(told == 1 && told_value == 4711);
	get(queues[TELLS], 90, 3);
	CHECK(kill(partner, SIGKILL) == 0 && waitpid(partner, &status, 0) == partner);
	for (int i = 0; i < UNLINKED; i++)
		CHECK(mq_unlink(names[i]) == 0);
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
