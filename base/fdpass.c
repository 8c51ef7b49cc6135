/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors of other processes where pidfd_getfd is refused, or finds none, for their first thread has ended: each such process of the job serves its own while it stands. Owns the server: a
 * thread, its stack, a listening socket whose name is the process's number in the job's directory (closed to other users).
 *
 *   client:  a datagram with the number of a descriptor (int32), from a socket that has a name in that directory, too ("0" and its thread's number)
 *   server:  a datagram to that name: 0 and the descriptor (SCM_RIGHTS), or -errno
 *
 * The server has a thread of its own: whoever asks may himself be asked by the other at that moment, or by a third whom the other waits for.
 * It waits for nothing but the next question. It makes no descriptor, so no number of the program's table is taken by it (a waiting accept would
 * hold one), and closes none, so it lets go none of the program's POSIX locks.
 *
 * begin and end: the checkpoint thread, no locks. It has ended before memory is listed and written. A killed process leaves its names, which the next one
 * of that number, or the coordinator as it goes, removes.
 */
#include "base/fdpass.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/thread.h"

#define STACK_SIZE (64u << 10)
#define PATIENCE_SEC 1 /* then the client looks whether the other still serves */
#define PATIENCE_TIMES 10

static const char *directory;
static int own_pid;
static int listening = -EBADF;
static struct raw_thread server;
static char *stack;

/* Of the client, in the table of descriptors of who has begun; nobody else asks meanwhile. */
static int via = -EBADF;
static struct sockaddr_un via_at;

struct packet { /* one integer, and perhaps a descriptor */
	int32_t number;
	struct iovec piece;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct msghdr message;
};

void fdpass_job(const char *path, int self)
{
	directory = path;
	own_pid = self;
}

const char *fdpass_directory(void)
{
	return directory;
}

static struct cmsghdr *head_of(struct packet *p)
{
	return (struct cmsghdr *)p->control;
}

/* @fd: -1: none. */
static void packet_init(struct packet *p, int number, int fd)
{
	memset(p, 0, sizeof(*p));
	p->number = number;
	p->piece = (struct iovec){ &p->number, sizeof(p->number) };
	p->message = (struct msghdr){ .msg_iov = &p->piece, .msg_iovlen = 1 };
	if (fd < 0)
		return;
	*head_of(p) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head_of(p)), &fd, sizeof(fd));
	p->message.msg_control = p->control;
	p->message.msg_controllen = sizeof(p->control);
}

/* @p has room for a descriptor. */
static long packet_receive(int from, struct packet *p)
{
	memset(p->control, 0, sizeof(p->control));
	p->message.msg_control = p->control;
	p->message.msg_controllen = sizeof(p->control);
	return RAW3(SYS_recvmsg, from, &p->message, MSG_CMSG_CLOEXEC);
}

static int address(struct sockaddr_un *ret, const char *before, int number)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (!directory)
		return -ENOENT;
	if (strlen(directory) + sizeof("/04194304") > sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	fm_format(ret->sun_path, sizeof(ret->sun_path), "%s/%s%d", directory, before, number);
	return 0;
}

static int bind_named(int fd, const struct sockaddr_un *at)
{
	RAW3(SYS_unlinkat, AT_FDCWD, at->sun_path, 0);
	return (int)RAW3(SYS_bind, fd, at, sizeof(*at));
}

/* ---- the client ---- */

static int ask_server(const struct sockaddr_un *server_at, int fd)
{
	const struct timeval patience = { PATIENCE_SEC, 0 };
	struct packet p;
	long r;

	RAW5(SYS_setsockopt, via, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	packet_init(&p, fd, -1);
	r = RAW3(SYS_connect, via, server_at, sizeof(*server_at));
	if (!r)
		r = RAW3(SYS_sendmsg, via, &p.message, MSG_NOSIGNAL);
	for (int i = 0; r >= 0 && (r = packet_receive(via, &p)) == -EAGAIN && i < PATIENCE_TIMES; i++)
		r = RAW3(SYS_connect, via, server_at, sizeof(*server_at));
	if (r < 0)
		return r == -EAGAIN ? -ETIMEDOUT : (int)r;
	if (r != sizeof(p.number) || p.number)
		return r == sizeof(p.number) ? p.number : -EPROTO;
	if (p.message.msg_controllen < CMSG_LEN(sizeof(int)) || head_of(&p)->cmsg_type != SCM_RIGHTS)
		return -EMFILE; /* the kernel had no number for it */
	memcpy(&fd, CMSG_DATA(head_of(&p)), sizeof(fd));
	return fd;
}

int fdpass_ask_begin(void)
{
	int r = address(&via_at, "0", raw_gettid()), fd;

	if (r)
		return r;
	fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	r = bind_named(fd, &via_at);
	if (r)
		raw_close(fd);
	else
		via = fd;
	return r;
}

void fdpass_ask_end(void)
{
	if (via < 0)
		return;
	RAW3(SYS_unlinkat, AT_FDCWD, via_at.sun_path, 0);
	raw_close(via);
	via = -EBADF;
}

static int ask(int pid, int fd)
{
	struct sockaddr_un server_at;
	bool ours = via < 0;
	int r = address(&server_at, "", pid);

	if (!r && ours)
		r = fdpass_ask_begin();
	if (r)
		return r;
	r = ask_server(&server_at, fd);
	if (ours || r == -ETIMEDOUT) /* an answer that comes late is none to the next question */
		fdpass_ask_end();
	return r;
}

static int get(int pid, int fd)
{
	int process = (int)RAW2(SYS_pidfd_open, pid, 0), r;

	if (process < 0)
		return process;
	r = (int)RAW3(SYS_pidfd_getfd, process, fd, 0);
	raw_close(process);
	return r;
}

int fdpass_take(int pid, int fd)
{
	int r = get(pid, fd), asked;

	if (!fdpass_is_refused(r) && r != -EBADF && r != -ESRCH)
		return r;
	if (pid == own_pid)
		return raw_fcntl(fd, F_DUPFD_CLOEXEC, 0);
	asked = ask(pid, fd);
	return asked == -ENOENT || asked == -ECONNREFUSED ? r : asked; /* nobody serves there, or no longer */
}

int fdpass_name(char path[FDPASS_NAME], int pid, int fd)
{
	char link[8];
	int copy;

	fm_format(path, FDPASS_NAME, "/proc/%d/fd/%d", pid, fd);
	if (pid != own_pid && RAW4(SYS_readlinkat, AT_FDCWD, path, link, sizeof(link)) != -ENOENT)
		return -EBADF;
	copy = pid == own_pid ? -EBADF : fdpass_take(pid, fd); /* its first thread has ended */
	if (pid == own_pid || copy >= 0)
		fm_format(path, FDPASS_NAME, "/proc/thread-self/fd/%d", copy < 0 ? fd : copy);
	return copy < 0 ? -EBADF : copy;
}

/* ---- the server ---- */

/* Never waits: who asks has room for the one answer. */
static long answer(const struct sockaddr_un *to, socklen_t length, int number, int fd)
{
	struct packet p;

	packet_init(&p, number, fd);
	p.message.msg_name = (void *)to;
	p.message.msg_namelen = length;
	return RAW3(SYS_sendmsg, listening, &p.message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void serve(void *arg)
{
	struct sockaddr_un from;
	socklen_t length = sizeof(from);
	int32_t number;
	long n, r;

	(void)arg;
	while ((n = RAW6(SYS_recvfrom, listening, &number, sizeof(number), 0, &from, &length)) != 0) { /* 0: shut down */
		if (n == sizeof(number)) {
			r = number < 0 ? -EBADF : answer(&from, length, 0, number);
			if (r < 0)
				answer(&from, length, (int)r, -1);
		}
		length = sizeof(from);
	}
}

static int listen_at(int above)
{
	struct sockaddr_un at;
	int r = address(&at, "", own_pid), fd;

	if (r)
		return r;
	fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	listening = raw_fcntl(fd, F_DUPFD_CLOEXEC, above < FDPASS_PARK_BASE ? FDPASS_PARK_BASE : above);
	if (listening < 0) /* a limit below our range */
		listening = raw_fcntl(fd, F_DUPFD_CLOEXEC, above);
	raw_close(fd);
	return listening < 0 ? listening : bind_named(listening, &at);
}

/* Whatever the reason. */
static bool is_refused(void)
{
	int process = (int)RAW2(SYS_pidfd_open, raw_getpid(), 0), r = process;

	if (process >= 0) {
		r = (int)RAW3(SYS_pidfd_getfd, process, process, 0);
		raw_close(process);
	}
	if (r >= 0)
		raw_close(r);
	return r < 0;
}

int fdpass_serve(int above)
{
	int r;

	if (listening >= 0 || !is_refused())
		return 0;
	r = listen_at(above);
	stack = r ? NULL : raw_mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!r && raw_is_error(stack)) {
		stack = NULL;
		r = -ENOMEM;
	}
	if (!r)
		r = raw_thread_spawn(&server, serve, NULL, stack, STACK_SIZE);
	if (r)
		fdpass_serve_end();
	return r;
}

void fdpass_serve_end(void)
{
	struct sockaddr_un at;

	if (listening >= 0) {
		RAW2(SYS_shutdown, listening, SHUT_RDWR);
		raw_thread_join(&server);
		if (!address(&at, "", own_pid))
			RAW3(SYS_unlinkat, AT_FDCWD, at.sun_path, 0);
		raw_close(listening);
	}
	if (stack)
		raw_munmap(stack, STACK_SIZE);
	listening = -EBADF;
	stack = NULL;
}
