/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection between ssh's stand-in and the command's parent: what comes is what was sent, or nothing; and the order that begins it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "cli/remote.h"

static const uint8_t token[REMOTE_TOKEN_SIZE] = "thirty-two bytes that one knows";

static void make_pair(struct remote_channel *ret[2], int fds[2], const uint8_t other[REMOTE_TOKEN_SIZE])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ret[0] = remote_channel_make(fds[0], token, true);
	ret[1] = remote_channel_make(fds[1], other, false);
	assert_non_null(ret[0]);
	assert_non_null(ret[1]);
}

static void free_pair(struct remote_channel *c[2], int fds[2])
{
	for (int i = 0; i < 2; i++) {
		free(c[i]);
		close(fds[i]);
	}
}

/* All that there is, until something has come. */
static int turn(struct remote_channel *from, struct remote_channel *to, unsigned int *type, const uint8_t **data, size_t *len)
{
	int r = 0;

	for (int i = 0; i < 100 && !r; i++) {
		r = remote_channel_move(from);
		r = r ? r : remote_channel_next(to, type, data, len);
		if (!r)
			r = remote_channel_move(to);
		if (!r)
			r = remote_channel_next(to, type, data, len);
	}
	return r;
}

static void test_frames(void **state)
{
	static uint8_t big[REMOTE_FRAME_MAX];
	struct remote_channel *c[2];
	const uint8_t *data;
	unsigned int type;
	size_t len;
	int fds[2];

	make_pair(c, fds, token);
	randombytes_buf(big, sizeof(big));
	for (int i = 0; i < 200; i++) {
		size_t size = i % 3 ? (size_t)i * 160 : i % 2 ? sizeof(big) : 0;
		int from = i & 1;

		assert_true(remote_channel_has_room(c[from]));
		remote_channel_put(c[from], REMOTE_DATA + (unsigned int)i % 3, big, size);
		assert_int_equal(turn(c[from], c[!from], &type, &data, &len), 1);
		assert_int_equal(type, REMOTE_DATA + i % 3);
		assert_int_equal(len, size);
		assert_memory_equal(data, big, size);
	}
	free_pair(c, fds);
}

static void test_other_token(void **state)
{
	uint8_t other[REMOTE_TOKEN_SIZE];
	struct remote_channel *c[2];
	const uint8_t *data;
	unsigned int type;
	size_t len;
	int fds[2];

	memcpy(other, token, sizeof(other));
	other[7] ^= 1;
	make_pair(c, fds, other);
	remote_channel_put(c[0], REMOTE_DATA, "x", 1);
	assert_int_equal(turn(c[0], c[1], &type, &data, &len), -EPROTO);
	free_pair(c, fds);
}

/* One bit of what is on its way, wherever it is: nothing of that frame comes. */
static void test_damage(void **state)
{
	for (size_t at = 0; at < 24 + 4 + 1 + 5 + crypto_secretstream_xchacha20poly1305_ABYTES; at++) {
		struct remote_channel *c[2];
		uint8_t wire[256];
		const uint8_t *data;
		unsigned int type;
		size_t len;
		int fds[2], r;
		ssize_t n;

		make_pair(c, fds, token);
		remote_channel_put(c[0], REMOTE_DATA, "right", 5);
		assert_int_equal(remote_channel_move(c[0]), 0);
		n = read(fds[1], wire, sizeof(wire));
		assert_true((size_t)n > at);
		wire[at] ^= 0x10;
		assert_int_equal(write(fds[0], wire, (size_t)n), n);
		r = remote_channel_move(c[1]);
		assert_int_equal(r, 0);
		r = remote_channel_next(c[1], &type, &data, &len);
		assert_true(r == -EPROTO || r == 0); /* 0: it waits for the rest of a longer one */
		free_pair(c, fds);
	}
}

static void test_end(void **state)
{
	struct remote_channel *c[2];
	const uint8_t *data;
	unsigned int type;
	size_t len;
	int fds[2];

	make_pair(c, fds, token);
	remote_channel_put(c[0], REMOTE_END, NULL, 0);
	assert_int_equal(remote_channel_move(c[0]), 0);
	shutdown(fds[0], SHUT_WR);
	assert_int_equal(turn(c[1], c[1], &type, &data, &len), 1);
	assert_int_equal(type, REMOTE_END);
	assert_int_equal(turn(c[1], c[1], &type, &data, &len), -ECONNRESET);
	free_pair(c, fds);
}

static void test_order(void **state)
{
	char *environment[] = { "FERMATA_LOG=info", "SOFTRDMA_KEY=/a key", NULL };
	struct remote_order o = { .address = "fd77::1", .port = 4711, .job = "j", .coordinator = "", .command = "echo 'a'\n",
				  .environment = environment }, got;
	int fds[2];

	memcpy(o.token, token, sizeof(token));
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(remote_order_write(fds[1], &o), 0);
	assert_int_equal(remote_order_read(fds[0], &got), 0);
	assert_memory_equal(got.token, token, sizeof(token));
	assert_string_equal(got.address, o.address);
	assert_int_equal(got.port, o.port);
	assert_string_equal(got.job, "j");
	assert_string_equal(got.coordinator, "");
	assert_string_equal(got.command, o.command);
	assert_string_equal(got.environment[1], environment[1]);
	assert_null(got.environment[2]);
	assert_int_equal(write(fds[1], "something else that is longer than the head of an order would have been, which is a hundred and twenty bytes in all, "
			       "as of now", 126), 126);
	assert_int_equal(remote_order_read(fds[0], &got), -EPROTO);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_frames), cmocka_unit_test(test_other_token), cmocka_unit_test(test_damage),
					    cmocka_unit_test(test_end), cmocka_unit_test(test_order) };

	return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
