/* SPDX-License-Identifier: BSD-2-Clause */
/* The making of the objects of medley.c. */
#pragma once

#include "loopback.h"
#include "medley.h"

#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>

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
