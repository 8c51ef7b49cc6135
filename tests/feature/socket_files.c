/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unix sockets whose file is not where they were bound to: it has got another name, by rename or by a link, or has been taken away, or its directory with it. They keep the name that they were bound to, and whoever
 * looks for them by the present one finds them.
 */
#include "feature.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum way { STAYS, RENAMED, LINKED, TAKEN, DIRECTORY_TAKEN, WAYS };

struct file {
	int fd, orphan; /* orphan: a connection that was accepted there, whose other end is gone */
	bool datagram;
	char bound[40], now[40]; /* @now empty: nowhere */
};

static struct sockaddr_un at(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	strcpy(un.sun_path, path);
	return un;
}

static void move(struct file *f, enum way way)
{
	if (way == STAYS)
		strcpy(f->now, f->bound);
	if (way == RENAMED)
		CHECK(rename(f->bound, f->now) == 0);
	if (way == LINKED)
		CHECK(link(f->bound, f->now) == 0 && unlink(f->bound) == 0);
	if (way == TAKEN || way == DIRECTORY_TAKEN)
		CHECK(unlink(f->bound) == 0);
	if (way == DIRECTORY_TAKEN)
		CHECK(rmdir("directory") == 0);
}

static struct file make(enum way way, bool datagram)
{
	struct file f = { .datagram = datagram, .fd = socket(AF_UNIX, datagram ? SOCK_DGRAM : SOCK_STREAM, 0) };
	struct sockaddr_un un;

	if (way == DIRECTORY_TAKEN)
		CHECK(mkdir("directory", 0700) == 0);
	snprintf(f.bound, sizeof(f.bound), "%sbound-%d-%d", way == DIRECTORY_TAKEN ? "directory/" : "", way, datagram);
	if (way == RENAMED || way == LINKED)
		snprintf(f.now, sizeof(f.now), "now-%d-%d", way, datagram);
	un = at(f.bound);
	CHECK(f.fd >= 0 && bind(f.fd, (struct sockaddr *)&un, sizeof(un)) == 0 && chmod(f.bound, 0640) == 0);
	CHECK(datagram || listen(f.fd, 5) == 0);
	move(&f, way);
	return f;
}

static void check_name(const struct file *f)
{
	struct sockaddr_un un = { 0 };
	socklen_t length = sizeof(un);
	struct stat st;

	CHECK(getsockname(f->fd, (struct sockaddr *)&un, &length) == 0 && strcmp(un.sun_path, f->bound) == 0);
	CHECK(stat(f->bound, &st) == (strcmp(f->bound, f->now) ? -1 : 0));
	CHECK(!*f->now || (stat(f->now, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0640));
}

static void check_reach(const struct file *f)
{
	struct sockaddr_un un = at(f->now);
	int out = socket(AF_UNIX, f->datagram ? SOCK_DGRAM : SOCK_STREAM, 0), in;
	char c = 0;

	CHECK(out >= 0 && connect(out, (struct sockaddr *)&un, sizeof(un)) == 0 && send(out, "x", 1, 0) == 1);
	in = f->datagram ? f->fd : accept(f->fd, NULL, NULL);
	CHECK(in >= 0 && recv(in, &c, 1, 0) == 1 && c == 'x' && close(out) == 0);
	CHECK(f->datagram || close(in) == 0);
}

/* It has its listener's name, and what its other end has sent. */
static void make_orphan(struct file *f)
{
	struct sockaddr_un un = at(f->now);
	int out = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(out >= 0 && connect(out, (struct sockaddr *)&un, sizeof(un)) == 0 && send(out, "last", 4, 0) == 4);
	f->orphan = accept(f->fd, NULL, NULL);
	CHECK(f->orphan >= 0 && close(out) == 0);
}

static void check_orphan(const struct file *f)
{
	char text[8];

	CHECK(recv(f->orphan, text, sizeof(text), 0) == 4 && memcmp(text, "last", 4) == 0 && recv(f->orphan, text, sizeof(text), 0) == 0);
}

/* Somebody else, who never does without them. */
__attribute__((noreturn)) static void look(const struct file *files)
{
	struct stat st;

	while (!feature_finished())
		for (int i = 0; i < 2 * WAYS; i++)
			CHECK(!*files[i].now || stat(files[i].now, &st) == 0);
	_exit(0);
}

int main(void)
{
	struct file files[2 * WAYS];
	int status;
	pid_t looks;

	for (int i = 0; i < 2 * WAYS; i++)
		files[i] = make(i / 2, i % 2);
	for (int i = 0; i <= 2 * LINKED; i += 2)
		make_orphan(&files[i]);
	looks = fork();
	CHECK(looks >= 0);
	if (!looks)
		look(files);
	feature_ready();
	do {
		for (int i = 0; i < 2 * WAYS; i++) {
			check_name(&files[i]);
			if (*files[i].now)
				check_reach(&files[i]);
		}
	} while (feature_step());
	for (int i = 0; i <= 2 * LINKED; i += 2)
		check_orphan(&files[i]);
	CHECK(waitpid(looks, &status, 0) == looks && status == 0);
	return 0;
}
