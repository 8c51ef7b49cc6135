/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers (timer_create) of each kind: numbers with gaps; signals to the process and to a thread, taken by a handler and by waiting, whose expirations
 * (overruns included) add up to the time that has gone by, neither more nor fewer; one whose signal nobody takes until the end, of a real-time
 * and of an ordinary signal; one that calls a function; one of SIGEV_NONE for each clock; processor time of the process and of a thread that sleeps.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#define MS 1000000u
#define DAY 86400u
#define SIGNAL_TAKEN (SIGRTMIN + 1)
#define SIGNAL_THREAD (SIGRTMIN + 2)
#define SIGNAL_LEFT (SIGRTMIN + 4)
#define SIGNAL_CPU (SIGRTMIN + 5)

struct periodic {
	timer_t id;
	clockid_t clock;
	uint64_t begin, interval;
	_Atomic uint64_t seen;
};

static struct periodic taken, handled, threaded, waiting, waiting_ordinary, called;
static timer_t once, own_time;
static _Atomic int worker_tid, cpu_seen;

static struct timespec span(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

static void set(timer_t t, int flags, uint64_t first, uint64_t interval)
{
	struct itimerspec s = { span(interval), span(first) };

	CHECK(timer_settime(t, flags, &s, NULL) == 0);
}

static timer_t make(clockid_t clock, int notify, int sig, void *value, int tid)
{
	struct sigevent e = { .sigev_notify = notify, .sigev_signo = sig, .sigev_value.sival_ptr = value };
	timer_t t;

	e._sigev_un._tid = tid;
	CHECK(timer_create(clock, &e, &t) == 0);
	return t;
}

static void start(struct periodic *p, clockid_t clock, int notify, int sig, int tid, uint64_t interval)
{
	p->clock = clock;
	p->interval = interval;
	p->begin = feature_now(clock) + interval;
	p->id = make(clock, notify, sig, p, tid);
	set(p->id, TIMER_ABSTIME, p->begin, interval);
}

static uint64_t due(const struct periodic *p)
{
	uint64_t now = feature_now(p->clock);

	return now < p->begin ? 0 : (now - p->begin) / p->interval + 1;
}

static void count(const siginfo_t *info, struct periodic *p)
{
	if (info->si_code != SI_TIMER || info->si_value.sival_ptr != p || info->si_timerid != (int)(intptr_t)p->id || info->si_overrun < 0)
		feature_fail("signal %d code %d of timer %d overrun %d", info->si_signo, info->si_code, info->si_timerid, info->si_overrun);
	p->seen += 1 + (uint64_t)info->si_overrun;
}

/* How many signals there were. */
static int take(struct periodic *p, int sig)
{
	siginfo_t info;
	sigset_t s;
	int n = 0;

	sigemptyset(&s);
	sigaddset(&s, sig);
	for (; sigtimedwait(&s, &info, &(struct timespec){ 0 }) == sig; n++)
		count(&info, p);
	return n;
}

/* The kernel may count an expiration a moment late: the interrupt of the timer has to run. Behind a cut it brings all that were due in it: those are waited for, and one that is lost never comes. */
static void check(const char *name, uint64_t before, uint64_t seen, uint64_t after)
{
	if (seen + 1 < before || seen > after)
		feature_fail("%s: %lu expirations where %lu to %lu are due", name, (unsigned long)seen, (unsigned long)before,
			     (unsigned long)after);
}

/* What a handler or another thread counts may grow between the two looks: the clock is looked at last. */
static void check_not_more(struct periodic *p, const char *name)
{
	uint64_t seen = p->seen;

	check(name, 0, seen, due(p));
}

static void check_taken(struct periodic *p, int sig, const char *name)
{
	uint64_t before = due(p);

	do
		take(p, sig);
	while (p->seen + 1 < before);
	check(name, before, p->seen, due(p));
}

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	count(info, &handled);
}

static void cpu_handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	CHECK(info->si_code == SI_TIMER);
	cpu_seen++;
}

static void function(union sigval v)
{
	CHECK(v.sival_ptr == &called);
	called.seen++;
}

static void block(int sig)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	CHECK(pthread_sigmask(SIG_BLOCK, &s, NULL) == 0);
}

static void *work(void *arg)
{
	siginfo_t info;
	sigset_t s;

	(void)arg;
	own_time = make(CLOCK_THREAD_CPUTIME_ID, SIGEV_NONE, 0, NULL, 0);
	set(own_time, 0, 1000000000000, 0);
	sigemptyset(&s);
	sigaddset(&s, SIGNAL_THREAD);
	worker_tid = (int)syscall(SYS_gettid);
	for (;;)
		if (sigwaitinfo(&s, &info) == SIGNAL_THREAD)
			count(&info, &threaded);
	return NULL;
}

/* The signal of a periodic timer waits, once, however often the timer has expired. */
static void check_waiting(struct periodic *p, int sig, const char *name)
{
	uint64_t before = due(p);
	siginfo_t info;
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, sig);
	CHECK(sigtimedwait(&s, &info, &(struct timespec){ 0 }) == sig);
	count(&info, p);
	check(name, before, p->seen, due(p));
}

static struct itimerspec left(timer_t t)
{
	struct itimerspec now;

	CHECK(timer_gettime(t, &now) == 0);
	return now;
}

static timer_t silent[4], deleted, disarmed;

static void make_silent(void)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME };
	struct itimerspec none = { 0 };

	for (int i = 0; i < 3; i++) {
		deleted = make(clocks[i], SIGEV_NONE, 0, NULL, 0);
		silent[i] = make(clocks[i], SIGEV_NONE, 0, NULL, 0);
		set(silent[i], 0, DAY * 1000000000ull, 5 * MS);
		CHECK(timer_delete(deleted) == 0);
	}
	silent[3] = make(CLOCK_REALTIME, SIGEV_NONE, 0, NULL, 0);
	set(silent[3], TIMER_ABSTIME, feature_now(CLOCK_REALTIME) + DAY * 1000000000ull, 0);
	disarmed = make(CLOCK_MONOTONIC, SIGEV_NONE, 0, NULL, 0);
	CHECK(timer_settime(disarmed, 0, &none, NULL) == 0);
}

static void check_silent(void)
{
	struct itimerspec now;

	for (int i = 0; i < 4; i++)
		CHECK(left(silent[i]).it_value.tv_sec > DAY - 1000 && left(silent[i]).it_value.tv_sec <= DAY);
	CHECK(left(silent[2]).it_interval.tv_nsec == 5 * MS && !left(silent[3]).it_interval.tv_nsec);
	CHECK(!left(disarmed).it_value.tv_sec && !left(disarmed).it_value.tv_nsec);
	CHECK(syscall(SYS_timer_gettime, (int)(intptr_t)deleted, &now) == -1 && errno == EINVAL);
}

static void make_signals(void)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
	pthread_t worker;

	CHECK(sigaction(SIGUSR1, &a, NULL) == 0);
	a.sa_sigaction = cpu_handler;
	CHECK(sigaction(SIGNAL_CPU, &a, NULL) == 0);
	block(SIGNAL_TAKEN);
	block(SIGNAL_THREAD);
	block(SIGNAL_LEFT);
	block(SIGUSR2);
	block(SIGALRM);
	CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
	while (!worker_tid)
		sched_yield();
	start(&taken, CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGNAL_TAKEN, 0, 3 * MS);
	start(&handled, CLOCK_BOOTTIME, SIGEV_SIGNAL, SIGUSR1, 0, 7 * MS);
	start(&threaded, CLOCK_MONOTONIC, SIGEV_THREAD_ID, SIGNAL_THREAD, worker_tid, 5 * MS);
	start(&waiting, CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGNAL_LEFT, 0, 2 * MS);
	start(&waiting_ordinary, CLOCK_REALTIME, SIGEV_SIGNAL, SIGUSR2, 0, 2 * MS);
	once = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGALRM, (void *)0x1234567890, 0);
	set(once, 0, 1, 0);
	set(make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGNAL_CPU, NULL, 0), 0, 2 * MS, 2 * MS);
}

static void make_called(void)
{
	struct sigevent e = { .sigev_notify = SIGEV_THREAD, .sigev_value.sival_ptr = &called, .sigev_notify_function = function };

	called.clock = CLOCK_MONOTONIC;
	called.interval = 20 * MS;
	called.begin = feature_now(CLOCK_MONOTONIC) + called.interval;
	CHECK(timer_create(CLOCK_MONOTONIC, &e, &called.id) == 0);
	set(called.id, TIMER_ABSTIME, called.begin, called.interval);
}

static void check_end(void)
{
	uint64_t asleep = (uint64_t)left(own_time).it_value.tv_sec;
	uint64_t begin = feature_now(CLOCK_PROCESS_CPUTIME_ID), calls = called.seen;
	int seen = cpu_seen;
	siginfo_t info;
	sigset_t s;

	for (uint64_t before = due(&threaded); threaded.seen + 1 < before;) /* the thread has to run */
		feature_work();
	check_not_more(&threaded, "threaded");
	while (feature_now(CLOCK_PROCESS_CPUTIME_ID) - begin < 3000 * (uint64_t)MS && (cpu_seen < seen + 3 || called.seen == calls))
		feature_work();
	CHECK(cpu_seen >= seen + 3 && called.seen > calls);
	check_not_more(&called, "called");
	CHECK(asleep >= 998 && asleep <= 1000); /* of 1,000 s the thread that sleeps has used little */
	check_waiting(&waiting, SIGNAL_LEFT, "waiting");
	check_waiting(&waiting_ordinary, SIGUSR2, "waiting, ordinary");
	sigemptyset(&s);
	sigaddset(&s, SIGALRM);
	CHECK(sigtimedwait(&s, &info, &(struct timespec){ 0 }) == SIGALRM && info.si_code == SI_TIMER && !info.si_overrun);
	CHECK(info.si_value.sival_ptr == (void *)0x1234567890 && info.si_timerid == (int)(intptr_t)once);
	CHECK(sigtimedwait(&s, &info, &(struct timespec){ 0 }) == -1 && errno == EAGAIN);
}

int main(void)
{
	unsigned int step = 0;

	make_signals();
	make_silent();
	make_called();
	while (waiting.begin + 4 * MS > feature_now(CLOCK_MONOTONIC))
		feature_work();
	feature_ready();
	do {
		uint64_t before = due(&handled);

		feature_work();
		if (++step % 16 == 0)
			check_taken(&taken, SIGNAL_TAKEN, "taken");
		while (handled.seen + 1 < before)
			feature_work();
		check_not_more(&handled, "handled");
		check_not_more(&threaded, "threaded");
		check_silent();
	} while (feature_step());
	check_end();
	return 0;
}
