/* SPDX-License-Identifier: BSD-2-Clause */
/* One step with an object of medley.c, under its lock: what comes out of it is what went in. */
#pragma once

#include "medley.h"

#include <mqueue.h>
#include <sys/socket.h>
#include <sys/stat.h>

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
