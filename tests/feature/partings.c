/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that are made, used and parted from, at random, over TCP (IPv4 and IPv6) and unix sockets: a server accepts when it pleases, greets, takes what the client sends, answers with more or less than a buffer
 * holds, and closes, or shuts down and waits for the client's end. A client is slow to read, and may have shut down before. Each knows from a number of the connection's what is to come, byte by byte, and then the end.
 */
#include "loopback.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { FAMILIES = 3, CONNECTIONS = 12, ANSWER_MAX = 1200000, QUESTION_MAX = 3000 };

static struct shared {
	uint64_t next; /* the number of the connection that a client makes next */
	uint64_t accepted;
	int no_more; /* will be made */
	struct {
		uint64_t sent; /* by the server, when it has parted */
		int parted;
	} of[1 << 20];
} *shared;

static int listeners[FAMILIES];
static struct sockaddr_storage at[FAMILIES];
static socklen_t lengths[FAMILIES];
static int families = FAMILIES;
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

static unsigned char byte_at(uint64_t number, int answer, uint64_t at_byte)
{
	return (unsigned char)((at_byte * 2654435761u + number * 97 + (uint64_t)answer * 41) >> 8);
}

static uint64_t question_of(uint64_t number)
{
	return number % 3 ? 1 + number * 7919 % QUESTION_MAX : 0;
}

/* ---- the server ---- */

struct service {
	int fd; /* 0: a free place */
	int known, shut;
	uint64_t number, asked, answer, sent;
};

static void part(struct service *s)
{
	shared->of[s->number].sent = s->sent;
	__atomic_store_n(&shared->of[s->number].parted, 1, __ATOMIC_RELEASE);
	if (draw(2)) {
		CHECK(close(s->fd) == 0);
		s->fd = 0;
	} else {
		CHECK(shutdown(s->fd, SHUT_WR) == 0);
		s->shut = 1;
	}
}

/* The client has read all, and gone. */
static void await_end(struct service *s)
{
	char c;
	ssize_t n = recv(s->fd, &c, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	CHECK(n == 0 && close(s->fd) == 0);
	s->fd = 0;
}

/* The number, then the question. */
static void take(struct service *s)
{
	unsigned char data[QUESTION_MAX];
	uint64_t left;
	ssize_t n;

	if (!s->known) {
		n = recv(s->fd, &s->number, sizeof(s->number), MSG_DONTWAIT);
		CHECK(n == sizeof(s->number) || (n < 0 && errno == EAGAIN));
		s->known = n > 0;
		return;
	}
	left = question_of(s->number) - s->asked;
	n = recv(s->fd, data, 1 + draw(left), MSG_DONTWAIT);
	CHECK(n > 0 || (n < 0 && errno == EAGAIN));
	for (ssize_t i = 0; i < n; i++)
		CHECK(data[i] == byte_at(s->number, 0, s->asked + (uint64_t)i));
	s->asked += n > 0 ? (uint64_t)n : 0;
}

static void answer(struct service *s)
{
	static unsigned char data[50000];
	uint64_t size = s->answer - s->sent < sizeof(data) ? s->answer - s->sent : sizeof(data);
	ssize_t n;

	for (uint64_t i = 0; i < size; i++)
		data[i] = byte_at(s->number, 1, s->sent + i);
	n = send(s->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	CHECK(n >= 0 || errno == EAGAIN);
	s->sent += n > 0 ? (uint64_t)n : 0;
	if (n < (ssize_t)size || s->sent == s->answer)
		part(s);
}

static void serve(struct service *s)
{
	if (!s->fd) {
		int fd = accept4(listeners[draw((uint64_t)families)], NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return;
		shared->accepted++;
		CHECK(send(fd, "!", 1, 0) == 1);
		*s = (struct service){ .fd = fd, .answer = 1 + (draw(2) ? draw(ANSWER_MAX) : draw(1000)) };
	} else if (s->shut) {
		await_end(s);
	} else if (!s->known || s->asked < question_of(s->number)) {
		take(s);
	} else {
		answer(s);
	}
}

static void server(void)
{
	static struct service services[CONNECTIONS];

	for (int open = 1; open;) {
		open = !__atomic_load_n(&shared->no_more, __ATOMIC_ACQUIRE) || shared->accepted < shared->next;
		for (int i = 0; i < CONNECTIONS * 20; i++)
			serve(&services[draw(CONNECTIONS)]);
		for (int i = 0; i < CONNECTIONS; i++)
			open |= services[i].fd != 0;
	}
	exit(0);
}

/* ---- the client ---- */

struct visit {
	int fd; /* 0: a free place */
	int greeted;
	uint64_t number, got;
};

static void dial(struct visit *v)
{
	int family = (int)draw((uint64_t)families);

	*v = (struct visit){ .fd = socket(at[family].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), .number = shared->next++ };
	CHECK(v->fd >= 0 && v->number < sizeof(shared->of) / sizeof(*shared->of) && connect(v->fd, (struct sockaddr *)&at[family], lengths[family]) == 0);
}

static void ask(struct visit *v)
{
	unsigned char data[8 + QUESTION_MAX];
	uint64_t size = question_of(v->number);
	char c;
	ssize_t n = recv(v->fd, &c, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	CHECK(n == 1 && c == '!');
	memcpy(data, &v->number, 8);
	for (uint64_t i = 0; i < size; i++)
		data[8 + i] = byte_at(v->number, 0, i);
	CHECK(send(v->fd, data, 8 + size, 0) == (ssize_t)(8 + size));
	if (draw(2))
		CHECK(shutdown(v->fd, SHUT_WR) == 0);
	v->greeted = 1;
}

static void read_some(struct visit *v)
{
	static unsigned char data[100000];
	ssize_t n = recv(v->fd, data, 1 + draw(draw(4) ? 3000 : sizeof(data)), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n == 0) {
		CHECK(__atomic_load_n(&shared->of[v->number].parted, __ATOMIC_ACQUIRE));
		if (v->got != shared->of[v->number].sent)
			feature_fail("connection %lu ends after %lu bytes of %lu", (unsigned long)v->number, (unsigned long)v->got, (unsigned long)shared->of[v->number].sent);
		CHECK(close(v->fd) == 0);
		v->fd = 0;
		return;
	}
	if (n < 0)
		feature_fail("connection %lu breaks after %lu bytes (errno %d)", (unsigned long)v->number, (unsigned long)v->got, errno);
	for (ssize_t i = 0; i < n; i++)
		CHECK(data[i] == byte_at(v->number, 1, v->got + (uint64_t)i));
	v->got += (uint64_t)n;
}

/* False: it has no connection, and is not to make another. */
static int visit(struct visit *v, int more)
{
	if (!v->fd && more)
		dial(v);
	else if (v->fd && !v->greeted)
		ask(v);
	else if (v->fd)
		read_some(v);
	return v->fd != 0;
}

static void make_listeners(void)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	listeners[0] = socket(AF_INET, SOCK_STREAM, 0);
	bind_loopback(listeners[0], (struct sockaddr_in *)&at[0]);
	snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "partings-%d", getpid());
	memcpy(&at[1], &un, sizeof(un));
	listeners[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(listeners[1] >= 0 && bind(listeners[1], (struct sockaddr *)&at[1], sizeof(un)) == 0);
	memcpy(&at[2], &six, sizeof(six));
	listeners[2] = socket(AF_INET6, SOCK_STREAM, 0);
	if (listeners[2] < 0 || bind(listeners[2], (struct sockaddr *)&at[2], sizeof(six)) < 0)
		families = 2; /* no IPv6 here */
	for (int i = 0; i < families; i++) {
		lengths[i] = sizeof(at[i]);
		CHECK(listen(listeners[i], 2 * CONNECTIONS) == 0 && fcntl(listeners[i], F_SETFL, O_NONBLOCK) == 0 && getsockname(listeners[i], (struct sockaddr *)&at[i], &lengths[i]) == 0);
	}
}

int main(void)
{
	static struct visit visits[CONNECTIONS];
	int status, open;
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	make_listeners();
	CHECK((pid = fork()) >= 0);
	seed = feature_now(CLOCK_REALTIME) + (uint64_t)pid;
	if (!pid)
		server();
	feature_ready();
	do {
		for (int i = 0; i < CONNECTIONS * 20; i++)
			visit(&visits[draw(CONNECTIONS)], 1);
		CHECK(feature_finished() || kill(pid, 0) == 0);
		feature_work();
	} while (feature_step());
	__atomic_store_n(&shared->no_more, 1, __ATOMIC_RELEASE);
	do {
		open = 0;
		for (int i = 0; i < CONNECTIONS; i++)
			open |= visit(&visits[i], 0);
	} while (open);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
