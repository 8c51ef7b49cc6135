/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All at once, at random: pipes, sockets, terminals, queues, files, event counters and locks that three processes, of two threads each, have from their parent and use in turns, through numbers that come and go; with
 * memory, waiting signals and short-lived children of each one's own. What each object holds is known in memory that all share, under the object's lock, and looked at with every step.
 */
#include "feature.h"

#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>

#include "loopback.h"

enum { PROCESSES = 3, THREADS = 2, FILE_SIZE = 32768, PAGES = 32, PAGE = 4096, MESSAGE_MAX = 2000, WAITING_MAX = 16 };
enum kind { PIPE, NAMED, STREAM, TCP, TERMINAL, PACKETS, DATAGRAMS, MESSAGES, QUEUE, LISTENER, TCP_LISTENER, COUNTER, PLAIN, UNLINKED, MEMFD, KINDS };
enum { EACH = 3, OBJECTS = KINDS * EACH };

struct object {
	pthread_mutex_t lock;
	int fds[2], other; /* write end, read end; of files the same twice, and another description */
	uint64_t in, out;  /* bytes, messages, or what is counted */
	uint64_t lengths[64];
	uint64_t offset;
	ino_t inode;
	int locked;
	unsigned char content[FILE_SIZE];
	unsigned char *map;
};

static struct object *objects; /* shared */
static int own[OBJECTS];       /* another number of this process for the read end; -1: none; under the object's lock, too */
static int all;		       /* epoll */
static __thread uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

static unsigned char byte_at(const struct object *o, uint64_t position)
{
	return (unsigned char)((position * 2654435761u + (uint64_t)(o - objects) * 97) >> 8);
}

static enum kind kind_of(const struct object *o)
{
	return (enum kind)((o - objects) / EACH);
}

/* The number through which it is read: the first one, or one of this process's own. */
static int reader(const struct object *o)
{
	const int mine = own[o - objects];

	return mine >= 0 && draw(2) ? mine : o->fds[1];
}

/* ---- streams ---- */

static void stream_write(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	size_t size = 1 + draw(sizeof(data));
	ssize_t n;

	for (size_t i = 0; i < size; i++)
		data[i] = byte_at(o, o->in + i);
	n = write(o->fds[0], data, size);
	CHECK(n > 0 || (n < 0 && errno == EAGAIN));
	o->in += n > 0 ? (uint64_t)n : 0;
}

static void stream_read(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	ssize_t n = read(reader(o), data, 1 + draw(sizeof(data)));

	if (n < 0) {
		CHECK(errno == EAGAIN && (o->in == o->out || kind_of(o) == TCP || kind_of(o) == TERMINAL));
		return;
	}
	CHECK(n > 0 && o->out + (uint64_t)n <= o->in);
	for (ssize_t i = 0; i < n; i++)
		if (data[i] != byte_at(o, o->out + (uint64_t)i))
			feature_fail("object %d: byte %lu of %lu, %ld of %ld, is %u, not %u", (int)(o - objects), (unsigned long)(o->out + (uint64_t)i), (unsigned long)o->in, (long)i, (long)n, data[i],
				     byte_at(o, o->out + (uint64_t)i));
	o->out += (uint64_t)n;
}

/* ---- messages, each with its bounds, some with a descriptor ---- */

static void check_passed(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	for (int i = PLAIN * EACH; i < OBJECTS; i++)
		if (objects[i].inode == st.st_ino) {
			CHECK(pthread_mutex_lock(&objects[i].lock) == 0);
			CHECK((uint64_t)lseek(fd, 0, SEEK_CUR) == objects[i].offset);
			CHECK(pthread_mutex_unlock(&objects[i].lock) == 0 && close(fd) == 0);
			return;
		}
	feature_fail("a descriptor of another file, %lu, came", (unsigned long)st.st_ino);
}

static void message_send(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	char room[CMSG_SPACE(sizeof(int))] = { 0 };
	size_t size = 1 + draw(sizeof(data));
	struct iovec iov = { data, size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (o->in - o->out == 64)
		return;
	for (size_t i = 0; i < size; i++)
		data[i] = byte_at(o, o->in * 7 + i);
	if (draw(4) == 0) {
		m.msg_control = room;
		m.msg_controllen = sizeof(room);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &objects[PLAIN * EACH + draw(OBJECTS - PLAIN * EACH)].fds[0], sizeof(int));
	}
	if (kind_of(o) == QUEUE)
		n = mq_send(o->fds[0], (char *)data, size, 0) == 0 ? (ssize_t)size : -1;
	else
		n = kind_of(o) == MESSAGES ? write(o->fds[0], data, size) : sendmsg(o->fds[0], &m, 0);
	CHECK(n == (ssize_t)size || (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)));
	if (n > 0)
		o->lengths[o->in++ % 64] = size;
}

static void message_receive(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	char room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	const int from = reader(o), plain = kind_of(o) == MESSAGES || kind_of(o) == QUEUE;
	ssize_t n;
	int fd;

	if (kind_of(o) == QUEUE)
		n = mq_receive(from, (char *)data, sizeof(data), NULL);
	else
		n = plain ? read(from, data, sizeof(data)) : recvmsg(from, &m, MSG_CMSG_CLOEXEC);

	if (n < 0) {
		CHECK(errno == EAGAIN && o->in == o->out);
		return;
	}
	CHECK(o->out < o->in && (uint64_t)n == o->lengths[o->out % 64]);
	for (ssize_t i = 0; i < n; i++)
		CHECK(data[i] == byte_at(o, o->out * 7 + (uint64_t)i));
	o->out++;
	if (plain || !CMSG_FIRSTHDR(&m))
		return;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	check_passed(fd);
}

/* ---- connections that wait to be accepted ---- */

enum { WAITING = 5 };
static struct held {
	int fd;
	uint64_t number;
} held[OBJECTS][WAITING]; /* by this process */

static void listener_dial(struct object *o)
{
	struct sockaddr_storage a;
	socklen_t length = sizeof(a);
	int fd;

	for (int i = 0; i < WAITING; i++)
		if (held[o - objects][i].fd && held[o - objects][i].number < o->out) {
			CHECK(close(held[o - objects][i].fd) == 0);
			held[o - objects][i].fd = 0;
		}
	if (o->in - o->out == WAITING)
		return;
	CHECK(getsockname(o->fds[1], (struct sockaddr *)&a, &length) == 0);
	CHECK((fd = socket(a.ss_family, SOCK_STREAM, 0)) >= 0 && connect(fd, (struct sockaddr *)&a, length) == 0);
	for (int i = 0; i < WAITING; i++)
		if (!held[o - objects][i].fd) {
			held[o - objects][i] = (struct held){ fd, o->in++ };
			return;
		}
	feature_fail("no place for a connection");
}

static void listener_accept(struct object *o)
{
	int fd = accept4(reader(o), NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0) {
		CHECK(errno == EAGAIN && o->in == o->out);
		return;
	}
	CHECK(close(fd) == 0);
	o->out++;
}

static void count(struct object *o)
{
	uint64_t n = 1 + draw(100);

	if (draw(2)) {
		CHECK(write(o->fds[0], &n, sizeof(n)) == sizeof(n));
		o->in += n;
	} else if (read(reader(o), &n, sizeof(n)) == sizeof(n)) {
		CHECK(n == ((o - objects) % 2 ? 1 : o->in - o->out)); /* every other is a semaphore */
		o->out += n;
	} else {
		CHECK(errno == EAGAIN && o->in == o->out);
	}
}

/* ---- files ---- */

static void file_read(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	int fd = reader(o), moves = (int)draw(2);
	uint64_t at = moves ? o->offset : draw(FILE_SIZE);
	ssize_t n = moves ? read(fd, data, sizeof(data)) : pread(draw(2) ? fd : o->other, data, sizeof(data), (off_t)at);

	CHECK(n >= 0 && at + (uint64_t)n <= FILE_SIZE && ((uint64_t)n == sizeof(data) || at + (uint64_t)n == FILE_SIZE));
	CHECK(memcmp(data, o->content + at, (size_t)n) == 0);
	o->offset += moves ? (uint64_t)n : 0;
}

static void file_write(struct object *o)
{
	unsigned char data[MESSAGE_MAX];
	size_t size = 1 + draw(sizeof(data));
	uint64_t at = draw(FILE_SIZE - size);

	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)draw(256);
	if (draw(3) == 0) {
		memcpy(o->map + at, data, size);
	} else if (draw(2)) {
		CHECK(pwrite(o->fds[0], data, size, (off_t)at) == (ssize_t)size);
	} else {
		CHECK(lseek(reader(o), (off_t)at, SEEK_SET) == (off_t)at && write(o->fds[0], data, size) == (ssize_t)size);
		o->offset = at + size;
	}
	memcpy(o->content + at, data, size);
}

/* A lock of the open file description, as one of another sees it. */
static void file_lock(struct object *o)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 10 };

	CHECK(fcntl(o->other, F_OFD_GETLK, &l) == 0);
	CHECK((l.l_type != F_UNLCK) == o->locked);
	if (!draw(2))
		return;
	l = (struct flock){ .l_type = o->locked ? F_UNLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 10 };
	CHECK(fcntl(reader(o), F_OFD_SETLK, &l) == 0);
	o->locked = !o->locked;
}

static void file_step(struct object *o)
{
	switch (draw(4)) {
	case 0:
		file_lock(o);
		break;
	case 1:
		CHECK(memcmp(o->map, o->content, FILE_SIZE) == 0 && (uint64_t)lseek(reader(o), 0, SEEK_CUR) == o->offset);
		break;
	case 2:
		file_write(o);
		break;
	default:
		file_read(o);
	}
}

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
	if (draw(2) && sent - taken < WAITING_MAX) {
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

static void make_terminal(int fds[2])
{
	struct termios t;

	CHECK((fds[0] = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0 && grantpt(fds[0]) == 0 && unlockpt(fds[0]) == 0);
	CHECK((fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0 && tcgetattr(fds[1], &t) == 0);
	cfmakeraw(&t);
	CHECK(tcsetattr(fds[1], TCSANOW, &t) == 0);
}

static int make_listener(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct sockaddr_in in;
	int fd = socket(name ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (name) {
		snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
		CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	} else {
		bind_loopback(fd, &in);
	}
	CHECK(listen(fd, 8) == 0);
	return fd;
}

static int make_queue(const char *name)
{
	struct mq_attr attr = { .mq_maxmsg = 8, .mq_msgsize = MESSAGE_MAX };
	char path[64];
	mqd_t q;

	snprintf(path, sizeof(path), "/%s-%d", name, getpid());
	q = mq_open(path, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &attr);
	CHECK(q >= 0 && mq_unlink(path) == 0);
	return q;
}

static void make_file(struct object *o, enum kind kind, const char *name)
{
	char path[64];
	struct stat st;

	o->fds[0] = o->fds[1] = kind == MEMFD ? memfd_create("medley", 0) : open(name, O_RDWR | O_CREAT, 0600);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fds[0]);
	CHECK(o->fds[0] >= 0 && ftruncate(o->fds[0], FILE_SIZE) == 0 && (o->other = open(path, O_RDWR)) >= 0 && fstat(o->fds[0], &st) == 0);
	o->inode = st.st_ino;
	o->map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, o->fds[0], 0);
	CHECK(o->map != MAP_FAILED && (kind != UNLINKED || unlink(name) == 0));
}

static void make_ends(struct object *o, enum kind kind, const char *name)
{
	int ends[2];

	switch (kind) {
	case PIPE:
	case MESSAGES:
		CHECK(pipe2(ends, O_NONBLOCK | (kind == MESSAGES ? O_DIRECT : 0)) == 0);
		o->fds[0] = ends[1];
		o->fds[1] = ends[0];
		break;
	case NAMED:
		CHECK(mkfifo(name, 0600) == 0 && (o->fds[1] = open(name, O_RDONLY | O_NONBLOCK)) >= 0 && (o->fds[0] = open(name, O_WRONLY | O_NONBLOCK)) >= 0);
		break;
	case TCP:
		connect_loopback(o->fds);
		CHECK(fcntl(o->fds[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(o->fds[1], F_SETFL, O_NONBLOCK) == 0);
		break;
	case TERMINAL:
		make_terminal(o->fds);
		break;
	case QUEUE:
		o->fds[0] = o->fds[1] = make_queue(name);
		break;
	case LISTENER:
	case TCP_LISTENER:
		o->fds[0] = o->fds[1] = make_listener(kind == LISTENER ? name : NULL);
		break;
	case COUNTER:
		CHECK((o->fds[0] = o->fds[1] = eventfd(0, EFD_NONBLOCK | ((o - objects) % 2 ? EFD_SEMAPHORE : 0))) >= 0);
		break;
	default:
		CHECK(socketpair(AF_UNIX, SOCK_NONBLOCK | (kind == STREAM ? SOCK_STREAM : kind == PACKETS ? SOCK_SEQPACKET : SOCK_DGRAM), 0, o->fds) == 0);
	}
}

static void make(struct object *o)
{
	const enum kind kind = kind_of(o);
	pthread_mutexattr_t a;
	char name[32];

	CHECK(pthread_mutexattr_init(&a) == 0 && pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0 && pthread_mutex_init(&o->lock, &a) == 0);
	snprintf(name, sizeof(name), "object-%d", (int)(o - objects));
	if (kind >= PLAIN) {
		make_file(o, kind, name);
		return;
	}
	make_ends(o, kind, name);
	CHECK(epoll_ctl(all, EPOLL_CTL_ADD, o->fds[1], &(struct epoll_event){ .events = EPOLLIN, .data.u32 = (uint32_t)(o - objects) }) == 0);
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
		usleep(1000);
	} while (feature_step());
	for (int i = 0; i < PROCESSES; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	return 0;
}
