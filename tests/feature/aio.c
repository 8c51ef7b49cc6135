/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * POSIX asynchronous reads and writes, done by threads of libc's that block every signal: one read that waits on a pipe all the time, writes to a file
 * that are read back, ends told by a signal and by a function; aio_suspend with a limit. And a call that libc makes in all threads by a signal of its own.
 */
#include "feature.h"

#include <aio.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define BLOCK 4096
#define BLOCKS 64

static sem_t told;
static volatile sig_atomic_t signals;
static int waiting[2], file;
static struct aiocb waits;
static char got;

static void on_end(int sig, siginfo_t *info, void *context)
{
	CHECK(info->si_code == SI_ASYNCIO);
	signals++;
}

static void told_end(union sigval value)
{
	CHECK(value.sival_int == 77 && sem_post(&told) == 0);
}

static void begin_wait(void)
{
	waits = (struct aiocb){ .aio_fildes = waiting[0], .aio_buf = &got, .aio_nbytes = 1 };
	CHECK(aio_read(&waits) == 0);
}

static void check_wait(char c)
{
	const struct aiocb *list[] = { &waits };
	int r;

	CHECK(aio_error(&waits) == EINPROGRESS);
	CHECK(aio_suspend(list, 1, &(struct timespec){ 0, 2000000 }) == -1 && errno == EAGAIN);
	CHECK(write(waiting[1], &c, 1) == 1);
	CHECK(aio_suspend(list, 1, NULL) == 0);
	while ((r = aio_error(&waits)) == EINPROGRESS)
		;
	CHECK(r == 0 && aio_return(&waits) == 1 && got == c);
	begin_wait();
}

static void finish(struct aiocb *cb)
{
	const struct aiocb *list[] = { cb };
	int r;

	while ((r = aio_error(cb)) == EINPROGRESS)
		CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR); /* the signal of the end */
	CHECK(r == 0 && aio_return(cb) == BLOCK);
}

static void check_file(uint32_t n)
{
	static char out[BLOCK], in[BLOCK];
	struct aiocb w = { .aio_fildes = file, .aio_buf = out, .aio_nbytes = BLOCK, .aio_offset = n % BLOCKS * BLOCK }, r = w;
	sig_atomic_t before = signals;

	memset(out, (int)(n % 251), BLOCK);
	w.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	w.aio_sigevent.sigev_signo = SIGUSR1;
	CHECK(aio_write(&w) == 0);
	finish(&w);
	while (signals == before)
		sched_yield();
	r.aio_buf = in;
	r.aio_sigevent.sigev_notify = SIGEV_THREAD;
	r.aio_sigevent.sigev_notify_function = told_end;
	r.aio_sigevent.sigev_value.sival_int = 77;
	CHECK(aio_read(&r) == 0);
	while (sem_wait(&told))
		CHECK(errno == EINTR);
	finish(&r);
	CHECK(memcmp(in, out, BLOCK) == 0 && signals == before + 1);
}

int main(void)
{
	struct sigaction sa = { .sa_sigaction = on_end, .sa_flags = SA_SIGINFO };
	uint32_t n = 0;

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0 && sem_init(&told, 0, 0) == 0 && pipe(waiting) == 0);
	CHECK((file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	begin_wait();
	feature_ready();
	do {
		check_wait((char)n);
		check_file(n++);
		CHECK(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1) == 0);
	} while (feature_step());
	return 0;
}
