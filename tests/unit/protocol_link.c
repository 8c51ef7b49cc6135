/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's end of a connection over a socket pair whose other end sends what it should not. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "protocol/decode.h"
#include "protocol/link.h"

static struct link pair(int *ret_other)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	*ret_other = fds[1];
	return (struct link){ .fd = fds[0] };
}

static void put(int fd, const void *data, size_t len)
{
	assert_int_equal(write(fd, data, len), (ssize_t)len);
}

static struct msg_header header(uint16_t type, uint32_t length)
{
	return (struct msg_header){ PROTOCOL_MAGIC, type, PROTOCOL_VERSION, length, 0 };
}

static void test_parts(void **state)
{
	struct msg_header h = header(MSG_NAMES, 6);
	struct link_message m;
	struct link l;
	int other;

	l = pair(&other);
	assert_int_equal(link_receive(&l, &m, 0), -ETIMEDOUT);
	put(other, &h, 7);
	assert_int_equal(link_receive(&l, &m, 10), -ETIMEDOUT);
	put(other, (char *)&h + 7, sizeof(h) - 7);
	put(other, "abc", 3);
	assert_int_equal(link_receive(&l, &m, 10), -ETIMEDOUT);
	put(other, "def", 3);
	assert_int_equal(link_receive(&l, &m, 1000), 0);
	assert_int_equal(m.type, MSG_NAMES);
	assert_int_equal(m.length, 6);
	assert_memory_equal(m.data, "abcdef", 6);
	assert_int_equal((uintptr_t)m.data % 16, 0);
	close(other);
	assert_int_equal(link_receive(&l, &m, 1000), -ECONNRESET);
	assert_int_equal(link_send(&l, MSG_EXITING, NULL, 0), -ECONNRESET);
	link_close(&l);
	assert_int_equal(link_receive(&l, &m, 0), -ECONNRESET);
}

static void test_damaged(void **state)
{
	struct msg_header bad[4];

	for (size_t i = 0; i < 4; i++)
		bad[i] = header(MSG_PHASE, 0);
	bad[0].magic++;
	bad[1].reserved = 1;
	bad[2].length = PROTOCOL_LENGTH_MAX + 1;
	bad[3].version++;
	for (size_t i = 0; i < 4; i++) {
		struct link_message m;
		struct link l;
		int other;

		l = pair(&other);
		put(other, &bad[i], sizeof(bad[i]));
		assert_int_equal(link_receive(&l, &m, 1000), -EPROTO);
		link_close(&l);
		close(other);
	}
	assert_int_equal(decode_header(&bad[0], &bad[1]), -EPROTO);
	assert_int_equal(decode_header(&bad[2], &bad[1]), -EPROTO);
	assert_int_equal(decode_header(&bad[3], &bad[1]), -EPROTONOSUPPORT);
}

static void *send_big(void *arg)
{
	static uint8_t half[3u << 20];
	struct link *l = arg;

	memset(half, 7, sizeof(half));
	return (void *)(intptr_t)link_send2(l, MSG_NAMES, half, sizeof(half), half, sizeof(half));
}

static void test_big(void **state)
{
	struct link from, to = { 0 };
	struct link_message m;
	pthread_t thread;
	void *sent;
	int other;

	from = pair(&other);
	to.fd = other;
	pthread_create(&thread, NULL, send_big, &from);
	assert_int_equal(link_receive(&to, &m, 10000), 0);
	pthread_join(thread, &sent);
	assert_null(sent);
	assert_int_equal(m.length, 6u << 20);
	assert_int_equal(m.data[m.length - 1], 7);
	assert_int_equal(link_send2(&from, MSG_NAMES, NULL, PROTOCOL_LENGTH_MAX, NULL, 1), -EMSGSIZE);
	link_close(&from);
	link_close(&to);
}

static void test_refused(void **state)
{
	struct msg_error e = { .error = -EPROTONOSUPPORT };
	struct msg_header h = header(MSG_ERROR, sizeof(e));
	uint8_t key[PROTOCOL_KEY_SIZE] = { 0 };
	struct link l;
	int other;

	l = pair(&other);
	h.version = PROTOCOL_VERSION + 1; /* whose refusal is understood all the same */
	put(other, &h, sizeof(h));
	put(other, &e, sizeof(e));
	assert_int_equal(link_open(&l, l.fd, key), -EPROTONOSUPPORT);
	assert_int_equal(l.fd, -EBADF);
	close(other);
}

static void test_dial(void **state)
{
	char path[200];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(link_dial(path), -ENAMETOOLONG);
	assert_int_equal(link_dial("/nonexistent/sock"), -ENOENT);
}

static void test_key(void **state)
{
	char path[] = "/tmp/fermata-unit-XXXXXX";
	uint8_t key[PROTOCOL_KEY_SIZE] = { 1, 2, 3 }, got[PROTOCOL_KEY_SIZE];
	int fd = mkstemp(path);

	put(fd, key, sizeof(key) - 1);
	assert_int_equal(link_read_key(path, got), -EINVAL);
	put(fd, key, 1);
	assert_int_equal(link_read_key(path, got), 0);
	assert_int_equal(got[2], 3);
	assert_int_equal(fchmod(fd, 0640), 0);
	assert_int_equal(link_read_key(path, got), -EPERM);
	close(fd);
	unlink(path);
	assert_int_equal(link_read_key(path, got), -ENOENT);
}

static void test_names(void **state)
{
	uint8_t entry[64];
	struct { struct msg_names head; uint8_t bytes[64]; } m = { .head.count = 2 };
	size_t one = encode_name_size(3, 2), two = encode_name_size(1, 0);
	struct decode_names it;
	struct decode_name n;

	encode_name(m.bytes, MSG_NAME_PUBLISH, "key", 3, "vv", 2);
	encode_name(m.bytes + one, MSG_NAME_ASK, "k", 1, NULL, 0);
	assert_int_equal(one % 8, 0);
	assert_int_equal(decode_message(MSG_NAMES, &m, sizeof(m.head) + one + two), 0);
	assert_int_equal(decode_names_begin(&it, &m, sizeof(m.head) + one + two), 0);
	assert_int_equal(decode_names_next(&it, &n), 1);
	encode_name(entry, n.kind, n.key, n.key_length, n.value, n.value_length);
	assert_memory_equal(entry, m.bytes, one);
	assert_int_equal(decode_names_next(&it, &n), 1);
	assert_int_equal(n.kind, MSG_NAME_ASK);
	assert_int_equal(decode_names_next(&it, &n), 0);
	m.head.count = 3;
	assert_int_equal(decode_message(MSG_NAMES, &m, sizeof(m.head) + one + two), -EPROTO);
	assert_int_equal(decode_message(999, &m, 0), -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts), cmocka_unit_test(test_damaged), cmocka_unit_test(test_big),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_dial), cmocka_unit_test(test_key),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
