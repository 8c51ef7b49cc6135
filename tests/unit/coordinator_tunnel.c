/* SPDX-License-Identifier: BSD-2-Clause */
/* A coordinator that listens for other hosts, and one who speaks as their relay, well or badly: what is taken, what ends the connection, and that the job does not suffer. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macro.h"
#include "coordinator/tunnel.h"
#include "protocol/auth.h"
#include "tests/lib/fake_agent.h"

#define MAC crypto_secretbox_MACBYTES
#define CHANNEL 0x10001u

struct relay {
	int fd;
	uint8_t up[32], down[32];
	uint64_t sealed, opened;
};

static const struct coordinator_options listening = { .listen = "127.0.0.1:0" };

static json_t *ask_status(struct conductor *c)
{
	struct link_message m;
	struct link command;
	json_t *status;

	command_open(c, &command);
	assert_int_equal(link_send(&command, MSG_STATUS, NULL, 0), 0);
	m = agent_receive(&command, MSG_STATUS_REPLY);
	status = json_loadb((const char *)m.data, m.length, 0, NULL);
	assert_non_null(status);
	link_close(&command);
	return status;
}

static size_t processes(struct conductor *c)
{
	json_t *status = ask_status(c);
	size_t n = json_array_size(json_object_get(status, "processes"));

	json_decref(status);
	return n;
}

/* In a process of its own, which is this one: a key that is nobody else's. */
static void start(struct conductor *c)
{
	char path[64] = "/tmp/fermata-unit-key-XXXXXX";

	assert_non_null(mkdtemp(path));
	strcat(path, "/key");
	setenv("FERMATA_KEY", path, 1);
	conductor_start(c, &listening);
}

static void finish(struct conductor *c, struct link *agent)
{
	char path[64];

	job_finish(c, agent, 1, NULL);
	snprintf(path, sizeof(path), "%s", getenv("FERMATA_KEY"));
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

static int dial(struct conductor *c)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	json_t *status = ask_status(c);
	const char *at = json_string_value(json_object_get(status, "listen"));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_non_null(at);
	address.sin_port = htons((uint16_t)atoi(strrchr(at, ':') + 1));
	json_decref(status);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void prove(struct conductor *c, struct relay *r)
{
	uint8_t file[32], key[32], client[32], server[32];
	struct link l;

	assert_int_equal(link_read_key(getenv("FERMATA_KEY"), file), 0);
	crypto_generichash(key, sizeof(key), (const uint8_t *)"j", 1, file, sizeof(file));
	*r = (struct relay){ .fd = dial(c) };
	assert_int_equal(link_open_nonces(&l, r->fd, key, client, server), 0);
	l.fd = -EBADF;
	link_close(&l);
	protocol_auth_mac(key, 'U', client, server, r->up);
	protocol_auth_mac(key, 'D', client, server, r->down);
}

static size_t seal(struct relay *r, const void *clear, size_t len, uint8_t *ret)
{
	uint8_t nonce[crypto_secretbox_NONCEBYTES] = { 0 };
	uint32_t length = (uint32_t)(len + MAC);

	memcpy(nonce, &r->sealed, sizeof(r->sealed));
	r->sealed++;
	memcpy(ret, &length, sizeof(length));
	crypto_secretbox_easy(ret + 4, clear, len, nonce, r->up);
	return 4 + length;
}

static void say(struct relay *r, uint16_t kind, uint32_t channel, uint32_t value, const void *data, size_t len)
{
	struct tunnel_frame f = { .channel = channel, .kind = kind, .value = value, .length = (uint32_t)len };
	uint8_t clear[4096], record[4096 + 64];
	size_t size;

	memcpy(clear, &f, sizeof(f));
	if (len)
		memcpy(clear + sizeof(f), data, len);
	size = seal(r, clear, sizeof(f) + len, record);
	assert_int_equal(send(r->fd, record, size, MSG_NOSIGNAL), size);
}

static void hello(struct relay *r, const char *host)
{
	struct tunnel_hello h = { .target = "127.0.0.1:1" };

	snprintf(h.host, sizeof(h.host), "%s", host);
	say(r, TUNNEL_HELLO, 0, 0, &h, sizeof(h));
}

/* The first frame of the next record, which holds that one only as far as is looked at here. */
static struct tunnel_frame hear(struct relay *r, uint8_t *ret, size_t size)
{
	uint8_t nonce[crypto_secretbox_NONCEBYTES] = { 0 }, record[8192];
	struct tunnel_frame f;
	uint32_t length;

	assert_int_equal(recv(r->fd, &length, 4, MSG_WAITALL), 4);
	assert_in_range(length, MAC + sizeof(f), sizeof(record));
	assert_int_equal(recv(r->fd, record, length, MSG_WAITALL), length);
	memcpy(nonce, &r->opened, sizeof(r->opened));
	r->opened++;
	assert_int_equal(crypto_secretbox_open_easy(record, record, length, nonce, r->down), 0);
	memcpy(&f, record, sizeof(f));
	assert_in_range(f.length, 0, size);
	memcpy(ret, record + sizeof(f), f.length);
	return f;
}

/* What is still sent is of no matter. */
static void expect_end(struct relay *r)
{
	uint8_t rest[4096];

	while (recv(r->fd, rest, sizeof(rest), 0) > 0)
		;
	close(r->fd);
}

static void join(struct conductor *c, struct relay *r, const char *host)
{
	uint8_t data[4096];

	prove(c, r);
	hello(r, host);
	assert_int_equal(hear(r, data, sizeof(data)).kind, TUNNEL_WELCOME);
}

static void open_member(struct relay *r, uint32_t channel, uint32_t pid)
{
	struct {
		struct msg_header h;
		struct msg_register m;
	} registers = { { PROTOCOL_MAGIC, MSG_REGISTER, PROTOCOL_VERSION, sizeof(struct msg_register), 0 }, { .pid = pid, .comm = "far", .host = "beta" } };

	say(r, TUNNEL_OPEN, channel, pid, NULL, 0);
	say(r, TUNNEL_DATA, channel, pid, &registers, sizeof(registers));
}

static void test_member(void **state)
{
	struct link agent, command;
	uint8_t data[4096];
	struct conductor c;
	struct relay r;

	start(&c);
	agent_join(&c, &agent, 10, 0);
	join(&c, &r, "beta");
	open_member(&r, CHANNEL, 10);
	assert_int_equal(hear(&r, data, sizeof(data)).kind, TUNNEL_DATA); /* MSG_WELCOME */
	assert_int_equal(processes(&c), 2);
	say(&r, TUNNEL_DATA, 0x20001, 10, data, 16); /* one that is closed: another generation of the slot */
	say(&r, 99, 0, 0, NULL, 0); /* of a newer version */
	say(&r, TUNNEL_CLOSE, CHANNEL, 0, NULL, 0);
	say(&r, TUNNEL_LEAVING, 0, 0, NULL, 0);
	close(r.fd);
	command_open(&c, &command);
	command_checkpoint(&command, &agent, 1);
	link_close(&command);
	finish(&c, &agent);
}

/* SUSPEND waits for the answer of the relay; and for one to a question that came after the newest connection. */
static void test_sync(void **state)
{
	struct link agent, command;
	struct tunnel_frame f;
	struct msg_phase p;
	uint8_t data[4096];
	struct conductor c;
	struct relay r;

	start(&c);
	agent_join(&c, &agent, 10, 0);
	join(&c, &r, "beta");
	command_open(&c, &command);
	command_ask(&command, 0);
	p = agent_phase(&agent, PHASE_SUSPEND);
	agent_done(&agent, &p, 0, "", NULL, 0);
	f = hear(&r, data, sizeof(data));
	assert_int_equal(f.kind, TUNNEL_SYNC);
	agent_expect_silence(&agent, 50);
	say(&r, TUNNEL_OPEN, CHANNEL, 7, NULL, 0);
	say(&r, TUNNEL_SYNCED, 0, f.value, NULL, 0);
	agent_expect_silence(&agent, 50);
	say(&r, TUNNEL_CLOSE, CHANNEL, 0, NULL, 0);
	f = hear(&r, data, sizeof(data));
	assert_int_equal(f.kind, TUNNEL_SYNC);
	agent_expect_silence(&agent, 50);
	say(&r, TUNNEL_SYNCED, 0, f.value, NULL, 0);
	agents_do_rest(&agent, 1);
	agent_phase(&agent, PHASE_RESUME);
	link_close(&command);
	say(&r, TUNNEL_LEAVING, 0, 0, NULL, 0);
	close(r.fd);
	finish(&c, &agent);
}

static void test_refused(void **state)
{
	struct relay first, second;
	struct conductor c;
	struct link agent;
	uint8_t data[4096];
	char own[64] = "";

	start(&c);
	agent_join(&c, &agent, 10, 0);
	join(&c, &first, "beta");
	gethostname(own, sizeof(own) - 1);
	for (int i = 0; i < 2; i++) {
		prove(&c, &second);
		hello(&second, i ? own : "beta");
		assert_int_equal(hear(&second, data, sizeof(data)).kind, TUNNEL_REFUSED);
		assert_non_null(strstr((const char *)data, "told apart by host name and pid"));
		expect_end(&second);
	}
	close(first.fd); /* it had no process: nothing is lost */
	assert_int_equal(processes(&c), 1);
	finish(&c, &agent);
}

/* Each ends its own connection only. */
static void test_damaged(void **state)
{
	struct tunnel_frame huge = { .kind = TUNNEL_DATA, .length = TUNNEL_DATA_MAX + 1 };
	static const uint32_t lengths[] = { 0, MAC, 65536 + MAC + 1, ~0u };
	static const uint32_t channels[] = { CHANNEL, CHANNEL + 0x10000, 0x10000 };
	struct link agent, command;
	uint8_t record[256];
	struct conductor c;
	struct relay r;
	size_t size;

	start(&c);
	agent_join(&c, &agent, 10, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		join(&c, &r, "beta");
		send(r.fd, &lengths[i], 4, MSG_NOSIGNAL);
		expect_end(&r);
	}
	join(&c, &r, "beta"); /* a bit */
	size = seal(&r, &huge, sizeof(huge), record);
	record[size - 1] ^= 1;
	send(r.fd, record, size, MSG_NOSIGNAL);
	expect_end(&r);
	join(&c, &r, "beta"); /* twice the same */
	size = seal(&r, &(struct tunnel_frame){ .kind = 99 }, sizeof(huge), record);
	send(r.fd, record, size, MSG_NOSIGNAL);
	send(r.fd, record, size, MSG_NOSIGNAL);
	expect_end(&r);
	join(&c, &r, "beta"); /* well sealed, too long */
	size = seal(&r, &huge, sizeof(huge), record);
	send(r.fd, record, size, MSG_NOSIGNAL);
	expect_end(&r);
	prove(&c, &r); /* before HELLO */
	open_member(&r, CHANNEL, 20);
	expect_end(&r);
	for (size_t i = 0; i < ARRAY_SIZE(channels); i++) { /* a channel twice, one in the other's slot, one that cannot be */
		join(&c, &r, "beta");
		say(&r, TUNNEL_OPEN, CHANNEL, 1, NULL, 0);
		say(&r, TUNNEL_OPEN, channels[i], 1, NULL, 0);
		expect_end(&r);
	}
	command_open(&c, &command); /* nobody is left half-open */
	command_checkpoint(&command, &agent, 1);
	link_close(&command);
	assert_int_equal(processes(&c), 1);
	finish(&c, &agent);
}

/* A host that takes a process with it: what is under way fails, and what comes after it. */
static void test_lost(void **state)
{
	struct msg_checkpoint_result result;
	struct link agent, command;
	struct conductor c;
	uint8_t data[4096];
	struct relay r;
	char text[2048];

	start(&c);
	agent_join(&c, &agent, 10, 0);
	join(&c, &r, "beta");
	open_member(&r, CHANNEL, 10);
	hear(&r, data, sizeof(data));
	command_open(&c, &command);
	command_ask(&command, 0);
	agent_phase(&agent, PHASE_SUSPEND);
	hear(&r, data, sizeof(data));
	close(r.fd);
	assert_int_not_equal(agent_phase(&agent, PHASE_RESUME).reason, 0);
	result = command_result(&command, text, sizeof(text));
	assert_int_equal(result.error, -ECONNRESET);
	command_ask(&command, 0);
	result = command_result(&command, text, sizeof(text));
	assert_int_equal(result.error, -EHOSTDOWN);
	assert_non_null(strstr(text, "host beta with 1 processes of the job is lost"));
	agent_phase(&agent, PHASE_SUSPEND);
	agent_phase(&agent, PHASE_RESUME);
	link_close(&command);
	finish(&c, &agent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_member), cmocka_unit_test(test_sync), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_damaged), cmocka_unit_test(test_lost),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
