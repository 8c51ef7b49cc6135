/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that do all that is asked for, or wait, where no signal comes: none of them may do less, or be interrupted, but by the one handler that there is, in its thread.
 *
 *   pairs	one writes or sends half a megabyte at once, by each call there is, to one who reads it bit by bit; and the other way round, with MSG_WAITALL. What arrives is
 *		compared. The same over TCP.
 *   alone	fallocate of memory, tcdrain, getrandom, a long read of /dev/zero, a socket with a time-out that never has anything but once a step
 */
#include "feature.h"

#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <termios.h>

enum { SIZE = 512 << 10, BIT = 4096, PIPE_SIZE = 64 << 10, ZEROS = 8 << 20, DRAW = 300000 /* more than 256 bytes may be cut short */ };
enum kind { WRITE, WRITEV, SEND, SENDTO, SENDMSG, SENDMMSG, SENDFILE, RECV, RECVFROM, RECVMSG, READV_LATE, RECVMMSG_LATE, KINDS };

struct pair {
	enum kind kind;
	int from, to; /* descriptors */
	char *buffer, *seen;
	sem_t taken; /* a round has been */
	_Atomic unsigned long received; /* rounds */
};

static struct pair pairs[2 * KINDS];
static int count;
static _Atomic unsigned long alone[5];

static void check_whole(const struct pair *p, ssize_t n)
{
	if (n != SIZE)
		feature_fail("call %d on descriptors %d and %d has moved %zd bytes of %d (errno %d: %s)", p->kind, p->from, p->to, n, SIZE, errno, strerror(errno));
}

static bool sends(enum kind k)
{
	return k <= SENDFILE;
}

static bool is_late(enum kind k)
{
	return k >= READV_LATE;
}

static void split(struct iovec iov[3], char *at)
{
	iov[0] = (struct iovec){ at, 1000 };
	iov[1] = (struct iovec){ at + 1000, SIZE / 2 };
	iov[2] = (struct iovec){ at + 1000 + SIZE / 2, SIZE / 2 - 1000 };
}

static ssize_t whole(const struct pair *p, int file)
{
	struct iovec iov[3];
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };
	struct mmsghdr mm[3] = { 0 };
	off_t start = 0;

	split(iov, sends(p->kind) ? p->buffer : p->seen);
	for (int i = 0; i < 3; i++)
		mm[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
	switch (p->kind) {
	case WRITE: return write(p->from, p->buffer, SIZE);
	case WRITEV: return writev(p->from, iov, 3);
	case SEND: return send(p->from, p->buffer, SIZE, 0);
	case SENDTO: return sendto(p->from, p->buffer, SIZE, 0, NULL, 0);
	case SENDMSG: return sendmsg(p->from, &m, 0);
	case SENDMMSG: return sendmmsg(p->from, mm, 3, 0) == 3 ? (ssize_t)(mm[0].msg_len + mm[1].msg_len + mm[2].msg_len) : -1;
	case SENDFILE: return sendfile(p->from, file, &start, SIZE);
	case RECV: return recv(p->to, p->seen, SIZE, MSG_WAITALL);
	case RECVFROM: return recvfrom(p->to, p->seen, SIZE, MSG_WAITALL, NULL, NULL);
	case RECVMSG: return recvmsg(p->to, &m, MSG_WAITALL);
	default: return -1;
	}
}

/* Everything, of which there is nothing until the step is made. */
static void wait_late(const struct pair *p)
{
	struct iovec iov[1] = { { p->seen, BIT } };
	struct mmsghdr mm = { .msg_hdr = { .msg_iov = iov, .msg_iovlen = 1 } };

	CHECK(p->kind == READV_LATE ? readv(p->to, iov, 1) == BIT : recvmmsg(p->to, &mm, 1, 0, NULL) == 1 && mm.msg_len == BIT);
}

static void fill(struct pair *p, unsigned long round)
{
	for (size_t i = 0; i < SIZE; i += 8) {
		const unsigned long value = round * 1000003 + i;

		memcpy(p->buffer + i, &value, 8);
	}
}

static void *writer(void *arg)
{
	struct pair *p = arg;
	int file = memfd_create("content", 0);

	for (unsigned long round = 1;; round++) {
		CHECK(round == 1 || sem_wait(&p->taken) == 0);
		fill(p, round);
		if (p->kind == SENDFILE)
			CHECK(pwrite(file, p->buffer, SIZE, 0) == SIZE);
		if (is_late(p->kind)) {
			usleep(20000);
			CHECK(send(p->from, p->buffer, BIT, 0) == BIT);
		} else if (sends(p->kind)) {
			check_whole(p, whole(p, file));
		} else {
			for (int at = 0; at < SIZE; at += BIT, usleep(200))
				CHECK(send(p->from, p->buffer + at, BIT, 0) == BIT);
		}
	}
	return NULL;
}

static void *reader(void *arg)
{
	struct pair *p = arg;

	for (unsigned long round = 1;; round++) {
		ssize_t n, size = is_late(p->kind) ? BIT : SIZE;

		if (is_late(p->kind))
			wait_late(p);
		else if (!sends(p->kind))
			check_whole(p, whole(p, -1));
		else
			for (ssize_t at = 0; at < SIZE; at += n, usleep(200)) {
				n = read(p->to, p->seen + at, BIT);
				CHECK(n > 0);
			}
		CHECK(memcmp(p->seen, p->buffer, (size_t)size) == 0);
		p->received = round;
		CHECK(sem_post(&p->taken) == 0);
	}
	return NULL;
}

static void *alone_run(void *arg)
{
	const long which = (long)arg;
	int memory = memfd_create("grows", 0), terminal = posix_openpt(O_RDWR | O_NOCTTY), zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
	char *to = malloc(ZEROS);
	int end;

	CHECK(memory >= 0 && terminal >= 0 && zero >= 0 && random >= 0 && to && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
	end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	CHECK(end >= 0);
	for (;; alone[which]++) {
		switch (which) {
		case 0: CHECK(fallocate(memory, 0, 0, 8 << 20) == 0 && ftruncate(memory, 0) == 0); break;
		case 1: CHECK(tcdrain(end) == 0); break;
		case 2: CHECK(getrandom(to, DRAW, 0) == DRAW); break;
		case 3: CHECK(read(zero, to, ZEROS) == ZEROS); break;
		default: CHECK(read(random, to, DRAW) == DRAW);
		}
		usleep(3000); /* the others want to run, too */
	}
	return NULL;
}

/* ---- who has a handler: its signal ends the call, also when a checkpoint comes while the handler is at work ---- */

static int full[2]; /* a pipe that nobody empties meanwhile */
static pthread_t interrupted;
static sem_t ended, handled;
static _Atomic bool was_full; /* in the handler: so the call was under way, or over */

static void at_work(int sig)
{
	int bytes = 0;

	(void)sig;
	was_full = ioctl(full[0], FIONREAD, &bytes) == 0 && bytes == PIPE_SIZE;
	for (uint64_t until = feature_now(CLOCK_MONOTONIC) + 100000000; feature_now(CLOCK_MONOTONIC) < until;)
		;
	sem_post(&handled);
}

static void *interrupted_run(void *arg)
{
	char *data = calloc(1, SIZE);

	(void)arg;
	CHECK(data && pipe(full) == 0);
	for (;;) {
		ssize_t n = write(full[1], data, SIZE);

		CHECK((n > 0 && n < SIZE) || (n == -1 && errno == EINTR));
		while (n > 0)
			n -= read(full[0], data, (size_t)n);
		CHECK(sem_post(&ended) == 0);
	}
	return NULL;
}

static bool has_ended(bool must)
{
	struct timespec until;

	if (!must)
		return sem_trywait(&ended) == 0;
	CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
	until.tv_sec += 20;
	return sem_timedwait(&ended, &until) == 0;
}

/*
 * Once more where it came before the pipe was full; else the call ends by this one. But for once at most: a handler that has come after our stop, and before the call has gone on, is one that
 * came before the call.
 */
static void interrupt_once(void)
{
	static int missed;

	while (has_ended(false))
		;
	do {
		CHECK(pthread_kill(interrupted, SIGUSR1) == 0 && sem_wait(&handled) == 0);
	} while (!has_ended(was_full) && (!was_full || !missed++));
	CHECK(missed < 2);
}

static void interrupted_begin(void)
{
	const struct sigaction sa = { .sa_handler = at_work };
	pthread_t t;

	CHECK(sem_init(&ended, 0, 0) == 0 && sem_init(&handled, 0, 0) == 0);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0 && pthread_create(&t, NULL, interrupted_run, NULL) == 0);
	interrupted = t;
}

static void tcp(int fds[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(a);
	int door = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(door >= 0 && bind(door, (struct sockaddr *)&a, length) == 0 && listen(door, 1) == 0 && getsockname(door, (struct sockaddr *)&a, &length) == 0);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fds[0] >= 0 && connect(fds[0], (struct sockaddr *)&a, length) == 0);
	fds[1] = accept(door, NULL, NULL);
	CHECK(fds[1] >= 0 && close(door) == 0);
}

static void pair_begin(enum kind kind, int from, int to)
{
	struct pair *p = &pairs[count++];
	const struct timeval long_time = { 1000, 0 };
	pthread_t t;

	*p = (struct pair){ .kind = kind, .from = from, .to = to, .buffer = malloc(SIZE), .seen = malloc(SIZE) };
	CHECK(p->buffer && p->seen && sem_init(&p->taken, 0, 0) == 0);
	if (is_late(kind))
		CHECK(setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof(long_time)) == 0);
	CHECK(pthread_create(&t, NULL, writer, p) == 0 && pthread_create(&t, NULL, reader, p) == 0);
}

static void await_all(unsigned long rounds)
{
	for (int i = 0; i < count; i++)
		while (pairs[i].received < rounds)
			feature_work();
}

int main(void)
{
	unsigned long step = 1;
	int fds[2];

	for (int k = 0; k < KINDS; k++) {
		CHECK(k > WRITEV ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 : pipe(fds) == 0);
		pair_begin((enum kind)k, fds[k <= WRITEV], fds[k > WRITEV]);
		tcp(fds);
		pair_begin((enum kind)k, fds[0], fds[1]);
	}
	for (long i = 0; i < (long)(sizeof(alone) / sizeof(alone[0])); i++) {
		pthread_t t;

		CHECK(pthread_create(&t, NULL, alone_run, (void *)i) == 0);
	}
	interrupted_begin();
	feature_ready();
	do {
		await_all(step++);
		interrupt_once();
	} while (feature_step());
	for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
		while (!alone[i])
			feature_work();
	return 0;
}
