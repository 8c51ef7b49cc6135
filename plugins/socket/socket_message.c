/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of unix sockets (struct socket_message): what about them the job has to tell at a checkpoint, and sending them again. No state
 * of its own.
 *
 * A message names its sender by that one's address, which is read when the message is received. So at a restart it is sent by the job's
 * socket that has that address, or, if there is none any more, by one made for the moment. Credentials are sent as they were: the
 * capsule lets a process do so until the program runs.
 *
 * Rounds: 0 asks for the processes and the addresses, 1 looks at the answers.
 */
#include <errno.h>
#include <string.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define FDS_MAX 253
#define NAME_TRIES 200
#define SEND_TRIES 100

struct process_key {
	char tag[7];  /* "socket/" */
	char kind[8]; /* "process/" */
	uint32_t pid;
} PACKED;

struct name_key {
	char tag[7];  /* "socket/" */
	char kind[5]; /* "name/" */
	uint64_t hash;
} PACKED;

struct name_value {
	uint32_t pid;
	int32_t fd;
	struct socket_name name;
};

static struct process_key process_key_of(uint32_t pid)
{
	struct process_key k = { .pid = pid };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "process/", sizeof(k.kind));
	return k;
}

static struct name_key name_key_of(const struct socket_name *n)
{
	struct name_key k = { .hash = 14695981039346656037u };

	memcpy(k.tag, "socket/", sizeof(k.tag));
	memcpy(k.kind, "name/", sizeof(k.kind));
	for (uint32_t i = 0; i < n->length; i++)
		k.hash = (k.hash ^ n->bytes[i]) * 1099511628211u;
	return k;
}

int socket_process_publish(void)
{
	struct process_key key = process_key_of(fermata_pid());

	return fermata_publish(&key, sizeof(key), "", 1);
}

int socket_name_publish(int fd, const struct socket_name *n)
{
	struct name_key key = name_key_of(n);
	struct name_value value = { fermata_pid(), fd, *n };

	return fermata_publish(&key, sizeof(key), &value, sizeof(value));
}

static bool same_name(const struct socket_name *a, const struct socket_name *b)
{
	return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}

bool socket_name_resolve(const struct socket_name *n, uint32_t *ret_pid, int32_t *ret_fd)
{
	struct name_key key = name_key_of(n);
	struct name_value v;
	const void *value;
	bool found = false;
	size_t len;

	for (unsigned int i = 0; (value = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		if (len < sizeof(v))
			continue;
		memcpy(&v, value, sizeof(v));
		if (!same_name(&v.name, n) || (found && v.pid >= *ret_pid))
			continue;
		*ret_pid = v.pid;
		*ret_fd = v.fd;
		found = true;
	}
	return found;
}

int socket_name_ask(const struct socket_name *n)
{
	struct name_key key = name_key_of(n);

	return fermata_ask(&key, sizeof(key));
}

static struct socket_name name_of(const struct socket_message *m)
{
	struct socket_name n = { .length = m->name_length };

	memcpy(n.bytes, (const char *)(m + 1) + m->fd_count * sizeof(int32_t), n.length);
	if (socket_name_move(&n))
		n.length = 0;
	return n;
}

static const char *bytes_of(const struct socket_message *m)
{
	return (const char *)(m + 1) + m->fd_count * sizeof(int32_t) + m->name_length;
}

const struct socket_message *socket_message_next(const void *all, size_t len, size_t *at)
{
	const struct socket_message *m = (const void *)((const char *)all + *at);

	if (len - *at < sizeof(*m) || m->size > len - *at || m->name_length > sizeof(((struct socket_name *)0)->bytes) || m->fd_count > FDS_MAX ||
	    m->size < sizeof(*m) + m->fd_count * sizeof(int32_t) + m->name_length + (uint64_t)m->length)
		return NULL;
	*at += m->size;
	return m;
}

int socket_messages_ask(const struct socket_messages *all)
{
	const struct socket_message *m;
	int asked = 0, r = 0;

	for (size_t at = 0; !r && (m = socket_message_next(all->bytes, all->length, &at));) {
		struct process_key process = process_key_of(m->pid);
		struct socket_name name = name_of(m);

		asked |= m->pid || name.length;
		if (m->pid)
			r = fermata_ask(&process, sizeof(process));
		if (!r && name.length)
			r = socket_name_ask(&name);
	}
	return r ? r : asked ? FERMATA_DRAIN_MORE : FERMATA_DRAINED;
}

int socket_messages_answer(int fd, struct socket_messages *all)
{
	bool wanted = socket_get_int(fd, SOL_SOCKET, SO_PASSCRED) > 0;
	const struct socket_message *next;
	size_t len;

	for (size_t at = 0; (next = socket_message_next(all->bytes, all->length, &at));) {
		struct socket_message *m = (void *)(all->bytes + (at - next->size));
		struct process_key process = process_key_of(m->pid);
		struct socket_name name = name_of(m);

		if (name.length)
			socket_name_resolve(&name, &m->sender_pid, &m->sender_fd);
		if (!m->pid || fermata_resolve(&process, sizeof(process), 0, &len))
			continue;
		if (wanted)
			return fermata_fail(-EAGAIN, "fd %d has a message in its queue with the credentials of process %u, which has ended or is "
					    "not of the job: try again when it has been read", fd, m->pid);
		m->flags &= ~(uint32_t)SOCKET_MESSAGE_CREDENTIALS;
		m->pid = m->uid = m->gid = 0;
	}
	return 0;
}

/* ---- restart ---- */

struct sending {
	int to;
	const struct socket_name *at; /* the receiver's address; NULL: @to is connected with it */
	bool with_ids, with_fds;
};

static long send_once(const struct sending *s, const struct socket_message *m, const char *bytes, size_t n)
{
	uint8_t control[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FDS_MAX * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec v = { (void *)(uintptr_t)bytes, n };
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control };
	struct ucred who = { (pid_t)m->pid, m->uid, m->gid };
	struct cmsghdr *c = (void *)control;

	if (s->at) {
		h.msg_name = (void *)(uintptr_t)s->at->bytes;
		h.msg_namelen = s->at->length;
	}
	if (s->with_ids) {
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(who)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS };
		memcpy(CMSG_DATA(c), &who, sizeof(who));
		h.msg_controllen += CMSG_SPACE(sizeof(who));
		c = (void *)(control + h.msg_controllen);
	}
	if (s->with_fds) {
		size_t size = m->fd_count * sizeof(int32_t);

		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), m + 1, size);
		h.msg_controllen += CMSG_SPACE(size);
	}
	return RAW3(SYS_sendmsg, s->to, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The whole of @m, which as a packet goes at once and as bytes of a stream perhaps in parts. */
static int send_all(struct sending *s, const struct socket_message *m)
{
	const char *bytes = bytes_of(m);
	int size = socket_get_int(s->to, SOL_SOCKET, SO_SNDBUF), idle = 0;
	size_t done = 0;
	long n;

	s->with_ids = m->flags & SOCKET_MESSAGE_CREDENTIALS;
	s->with_fds = m->fd_count;
	do {
		n = send_once(s, m, bytes + done, m->length - done);
		if (n >= 0) {
			done += (size_t)n;
			s->with_fds = false;
		} else if (n == -EPERM && s->with_ids && !fermata_in_capsule()) {
			return fermata_fail(-EPERM, "a message on its way bears the id of another process (%u), which without namespaces cannot be given again", m->pid);
		} else if ((n == -EPERM || n == -ESRCH) && s->with_ids) {
			log_warn("a message's credentials (process %u) cannot be given again (errno %d)", m->pid, (int)-n);
			s->with_ids = false;
			n = -EINTR;
		} else if (n == -EAGAIN || n == -ENOBUFS || n == -EMSGSIZE) {
			socket_set_int(s->to, SOL_SOCKET, SO_SNDBUF, socket_send_buffer_limit() / 2);
			if (idle++)
				socket_pause();
			if (idle < SEND_TRIES)
				n = -EINTR;
		}
	} while ((n >= 0 && done < m->length) || n == -EINTR);
	if (idle)
		socket_set_int(s->to, SOL_SOCKET, SO_SNDBUF, size / 2);
	return n < 0 ? (int)n : 0;
}

static int refused(int number, int err)
{
	return fermata_fail(err, "fd %d: what had been queued cannot be put back (errno %d)", number, -err);
}

int socket_messages_put(int number, int to, int fd, const struct socket_record *r, const char *content)
{
	size_t len = r->content_length, at = 0;
	const struct socket_message *m = NULL;
	struct sending s = { .to = to };
	int err = 0;

	while (!err && at < len && (m = socket_message_next(content, len, &at))) {
		if (r->type == SOCK_STREAM && !m->flags && !m->fd_count)
			err = socket_queue_write(to, fd, bytes_of(m), m->length, false);
		else
			err = send_all(&s, m);
	}
	if (!err && at < len)
		err = -EBADMSG;
	return err ? refused(number, err) : 0;
}

/* A socket for the moment, under the name of one that is gone. */
static int stand_in(const struct socket_name *n)
{
	int fd = (int)RAW3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = -EADDRINUSE;
	char text[120];

	if (fd < 0 || !n->length)
		return fd;
	socket_path_clear(n);
	for (int i = 0; i < NAME_TRIES && (r = socket_bind(fd, n)) == -EADDRINUSE; i++)
		socket_pause(); /* another process of the job may do the same */
	socket_name_text(n, text, sizeof(text));
	if (r)
		log_warn("a message of %s comes back without this name, which cannot be had (errno %d)", text, -r);
	return fd;
}

static int sender_open(const struct socket_message *m, const struct socket_name *name)
{
	int fd = m->sender_pid ? fdpass_take((int)m->sender_pid, m->sender_fd) : -EBADF;

	return fd < 0 ? stand_in(name) : fd;
}

int socket_message_put_from_sender(int number, const struct socket_name *at, const struct socket_message *m)
{
	struct socket_name name = name_of(m);
	struct sending s = { .to = sender_open(m, &name), .at = at };
	int r = s.to;

	if (r >= 0) {
		r = send_all(&s, m);
		raw_close(s.to);
	}
	if (!m->sender_pid && name.length)
		socket_path_clear(&name);
	return r < 0 ? refused(number, r) : 0;
}

bool socket_message_is_from(const struct socket_message *m, const struct socket_name *n)
{
	struct socket_name own = name_of(m);

	return n->length > 2 ? same_name(&own, n) : !own.length;
}
