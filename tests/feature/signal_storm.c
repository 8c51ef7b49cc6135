/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A storm of signals, without SA_RESTART, from a child and from a timer, thousands in a second: threads pass a token through pipes and wait for a semaphore, sleep, and make and reap
 * children meanwhile, and each of their calls may end with EINTR at any moment. The token is neither lost nor doubled, and no child is.
 */
#include "feature.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#define TURNS 20

static int there[2], back[2];
static sem_t given;
static _Atomic unsigned long struck, ticks;

static void on_signal(int sig)
{
	if (sig == SIGUSR1)
		struck++;
	else
		ticks++;
}

/* How often the call was interrupted does not matter. */
#define AGAIN(call)                                                       \
	({                                                                \
		long r_;                                                  \
									  \
		do                                                        \
			r_ = (long)(call);                                \
		while (r_ == -1 && errno == EINTR);                       \
		r_;                                                       \
	})

static void catch(int sig)
{
	struct sigaction action = { .sa_handler = on_signal };

	CHECK(sigaction(sig, &action, NULL) == 0);
}

static void timer_begin(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };
	struct itimerspec often = { { 0, 300000 }, { 0, 300000 } };
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
}

/* It ends when there is nobody to strike. Bursts, so that the others get on on any machine. */
static void strike(pid_t victim)
{
	const struct timespec pause = { 0, 200000 };

	for (unsigned int n = 1; getppid() == victim && kill(victim, SIGUSR1) == 0; n++)
		if (n % 8 == 0)
			nanosleep(&pause, NULL);
	_exit(0);
}

static void *answer(void *arg)
{
	uint32_t token;

	(void)arg;
	while (AGAIN(read(there[0], &token, sizeof(token))) == sizeof(token)) {
		token++;
		CHECK(AGAIN(write(back[1], &token, sizeof(token))) == sizeof(token));
		CHECK(AGAIN(sem_wait(&given)) == 0);
	}
	return NULL;
}

static void pass_token(void)
{
	static uint32_t token;

	for (int i = 0; i < TURNS; i++) {
		uint32_t got = 0;

		CHECK(AGAIN(write(there[1], &token, sizeof(token))) == sizeof(token));
		CHECK(AGAIN(read(back[0], &got, sizeof(got))) == sizeof(got) && got == token + 1);
		token = got;
		CHECK(sem_post(&given) == 0);
	}
}

static void sleep_whole(void)
{
	uint64_t begin = feature_now(CLOCK_MONOTONIC);
	struct timespec left = { 0, 2000000 };

	while (nanosleep(&left, &left) == -1)
		CHECK(errno == EINTR);
	CHECK(feature_now(CLOCK_MONOTONIC) - begin >= 2000000);
}

static void make_child(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(9);
	CHECK(AGAIN(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

int main(void)
{
	unsigned long before;
	pthread_t t;
	pid_t child;

	catch(SIGUSR1);
	catch(SIGUSR2);
	CHECK(pipe(there) == 0 && pipe(back) == 0 && sem_init(&given, 0, 0) == 0);
	CHECK(pthread_create(&t, NULL, answer, NULL) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		strike(getppid());
	timer_begin();
	feature_ready();
	do {
		before = struck;
		pass_token();
		sleep_whole();
		make_child();
		while (struck == before)
			sched_yield();
	} while (feature_step());
	CHECK(kill(child, SIGKILL) == 0 && AGAIN(waitpid(child, NULL, 0)) == child && ticks);
	return 0;
}
