/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All at once, at random: pipes, sockets, terminals, queues, files, event counters and locks that three processes, of two threads each, have from their parent and use in turns, through numbers that come and go; with
 * memory, waiting signals and short-lived children of each one's own. What each object holds is known in memory that all share, under the object's lock, and looked at with every step.
 */
#include "medley_make.h"
#include "medley_steps.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- what is the process's own ---- */

static void renumber(struct object *o)
{
	int *fd = &own[o - objects];

	CHECK(*fd < 0 || (fcntl(*fd, F_GETFD) == (*fd & 1 ? FD_CLOEXEC : 0) && close(*fd) == 0));
	*fd = draw(3) ? fcntl(o->fds[1], F_DUPFD, 200 + (int)draw(300)) : -1;
	if (*fd >= 0)
		CHECK(fcntl(*fd, F_SETFD, *fd & 1 ? FD_CLOEXEC : 0) == 0);
}

/* A page is either out of reach, and zero when it is not any more, or all of one byte. */
static void memory(void)
{
	static __thread unsigned char *room, pattern[PAGES];
	size_t page = draw(PAGES);
	unsigned char *at;

	if (!room)
		CHECK((room = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	at = room + page * PAGE;
	if (!pattern[page])
		CHECK(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
	for (size_t i = 0; i < PAGE; i += 97)
		CHECK(at[i] == pattern[page]);
	pattern[page] = (unsigned char)draw(4);
	memset(at, pattern[page], PAGE);
	if (!pattern[page])
		CHECK(mmap(at, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}

/* Signals that wait for the thread: in order, with their values. */
static void signals(void)
{
	static __thread int sent, taken;
	const struct timespec now = { 0, 0 };
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	if (draw(2) && sent - taken < SIGNALS_MAX) {
		CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 1, (union sigval){ .sival_int = sent }) == 0);
		sent++;
	} else if (sent > taken) {
		CHECK(sigtimedwait(&set, &info, &now) == SIGRTMIN + 1 && info.si_value.sival_int == taken && info.si_pid == getpid());
		taken++;
	} else {
		CHECK(sigtimedwait(&set, &info, &now) < 0 && errno == EAGAIN);
	}
}

/* What can be read, poll and epoll agree. */
static void ready(struct object *o)
{
	struct epoll_event events[OBJECTS];
	struct pollfd p = { .fd = reader(o), .events = POLLIN };
	int n, found = 0;

	if (kind_of(o) >= PLAIN || kind_of(o) == TCP || kind_of(o) == TERMINAL || kind_of(o) == TCP_LISTENER)
		return;
	CHECK(poll(&p, 1, 0) == (o->in != o->out));
	n = epoll_wait(all, events, OBJECTS, 0);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		found |= events[i].data.u32 == (uint32_t)(o - objects);
	CHECK(found == (o->in != o->out));
}

static void step(void)
{
	struct object *o = &objects[draw(OBJECTS)];
	enum kind kind = kind_of(o);

	CHECK(pthread_mutex_lock(&o->lock) == 0);
	if (draw(8) == 0) {
		renumber(o);
	} else if (draw(8) == 0) {
		ready(o);
	} else if (kind <= TERMINAL) {
		(draw(2) ? stream_write : stream_read)(o);
	} else if (kind <= QUEUE) {
		(draw(2) ? message_send : message_receive)(o);
	} else if (kind <= TCP_LISTENER) {
		(draw(2) ? listener_dial : listener_accept)(o);
	} else {
		(kind == COUNTER ? count : file_step)(o);
	}
	CHECK(pthread_mutex_unlock(&o->lock) == 0);
	(draw(2) ? memory : signals)();
}

static void *work(void *arg)
{
	sigset_t set;

	seed = (uint64_t)(uintptr_t)arg + feature_now(CLOCK_REALTIME);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	while (!feature_finished())
		for (int i = 0; i < 100; i++)
			step();
	return NULL;
}

static void process(int n)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + (uintptr_t)n * THREADS)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	exit(0);
}

int main(void)
{
	pid_t pids[PROCESSES];
	int status;

	objects = mmap(NULL, OBJECTS * sizeof(*objects), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(objects != MAP_FAILED && (all = epoll_create1(0)) >= 0);
	for (int i = 0; i < OBJECTS; i++) {
		make(&objects[i]);
		own[i] = -1;
	}
	for (int i = 0; i < PROCESSES; i++) {
		CHECK((pids[i] = fork()) >= 0);
		if (pids[i] == 0)
			process(i);
	}
	feature_ready();
	do {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(0);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		for (int i = 0; i < PROCESSES; i++)
			CHECK(feature_finished() || kill(pids[i], 0) == 0);
		feature_work();
	} while (feature_step());
	for (int i = 0; i < PROCESSES; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
