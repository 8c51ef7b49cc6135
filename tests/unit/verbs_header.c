/* SPDX-License-Identifier: BSD-2-Clause */
/* The header before a datagram's data in its two forms, over a restart from one to the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>

#include "plugins/verbs/verbs_header.h"

#define V2_IPV4 8 /* kinds of GIDs, as verbs_port.c numbers them */
#define V2_LINK 7
#define IB 1

/* 10.0.0.9 asks 10.0.0.1, 36 bytes: made by hand from RFC 791. */
static const uint8_t ipv4[40] = { [20] = 0x45, 0x08, 0x00, 0x38, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0xa4, 10, 0, 0, 9, 10, 0, 0, 1 };

static union ibv_gid mapped(uint8_t last) { return (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff, 10, 0, 0, last } }; }
static union ibv_gid link_local(uint8_t last) { return (union ibv_gid){ .raw = { 0xfe, 0x80, [15] = last } }; }

static void test_ipv4(void **state)
{
	const union ibv_gid from = mapped(9), to = mapped(1);
	struct verbs_header h;
	uint8_t again[40];

	verbs_header_read(ipv4, &h);
	assert_int_equal(h.ipv4, 1);
	assert_memory_equal(&h.from, &from, 16);
	assert_memory_equal(&h.to, &to, 16);
	assert_int_equal(h.traffic_class, 8);
	assert_int_equal(h.hop_limit, 64);
	assert_int_equal(h.length, 36);
	verbs_header_write(&h, again);
	assert_memory_equal(again, ipv4, sizeof(ipv4));
}

/* A version of 6 in front may be what was there before: then the checksum says which one it is. */
static void test_which(void **state)
{
	uint8_t bytes[40];
	struct verbs_header h;

	memcpy(bytes, ipv4, sizeof(bytes));
	bytes[0] = 0x60;
	verbs_header_read(bytes, &h);
	assert_int_equal(h.ipv4, 1);
	bytes[30] ^= 1;
	verbs_header_read(bytes, &h);
	assert_int_equal(h.ipv4, 0);
	bytes[0] = 0;
	verbs_header_read(bytes, &h);
	assert_int_equal(h.ipv4, 1);
}

static void test_route(void **state)
{
	const struct verbs_header h = { .from = link_local(9), .to = link_local(1), .flow_label = 0x12345, .length = 36, .traffic_class = 8, .hop_limit = 64, .next = 0x1b };
	uint8_t bytes[40], again[40];
	struct verbs_header back;

	verbs_header_write(&h, bytes);
	verbs_header_read(bytes, &back);
	assert_memory_equal(&back, &h, sizeof(h));
	verbs_header_write(&back, again);
	assert_memory_equal(again, bytes, sizeof(bytes));
	assert_int_equal(ntohl(*(uint32_t *)(void *)bytes) >> 28, 6);
}

/* A program of RoCE's over softrdma: its port's address at the place that it knows, in the form that it knows. */
static void test_from_ib(void **state)
{
	struct verbs_port own = { .virtual_kind = { V2_LINK, V2_IPV4 }, .real_kind = { IB }, .virtual_gid = { link_local(1), mapped(1) }, .real_gid = { link_local(77) } };
	struct verbs_header h = { .from = mapped(9), .to = link_local(77), .length = 36, .traffic_class = 8, .hop_limit = 64, .next = 0x1b };
	struct ibv_global_route answer;
	uint8_t bytes[40];

	own.virtual_gid[0] = own.virtual_gid[1];
	own.virtual_kind[0] = V2_IPV4;
	verbs_gid_places(&own);
	verbs_header_virtual(&own, &h);
	verbs_header_write(&h, bytes);
	assert_memory_equal(bytes, ipv4, sizeof(bytes));
	assert_int_equal(verbs_header_answer(&own, bytes, &answer), 0);
	assert_memory_equal(&answer.dgid, &h.from, 16);
	assert_int_equal(answer.sgid_index, 0);
	assert_int_equal(answer.traffic_class, 8);
	h.to = own.real_gid[0]; /* as the device has written it, before its completion was polled */
	h.ipv4 = 0;
	verbs_header_write(&h, bytes);
	assert_int_equal(verbs_header_answer(&own, bytes, &answer), 0);
	assert_int_equal(answer.sgid_index, 0);
}

/* And a program of InfiniBand's over RoCE. */
static void test_from_roce(void **state)
{
	struct verbs_port own = { .virtual_kind = { IB }, .real_kind = { V2_LINK, V2_IPV4 }, .virtual_gid = { link_local(1) }, .real_gid = { link_local(77), mapped(1) } };
	struct ibv_global_route answer;
	struct verbs_header h;
	uint8_t bytes[40];

	verbs_gid_places(&own);
	verbs_header_read(ipv4, &h);
	h.from = link_local(9);
	verbs_header_virtual(&own, &h);
	assert_int_equal(h.ipv4, 0);
	assert_int_equal(h.next, 0x1b);
	assert_memory_equal(&h.to, &own.virtual_gid[0], 16);
	verbs_header_write(&h, bytes);
	assert_int_equal(verbs_header_answer(&own, bytes, &answer), 0);
	assert_memory_equal(&answer.dgid, &h.from, 16);
}

/* What is the program's already is told apart from what has come, unless the port is what it was. */
static void test_is_virtual(void **state)
{
	struct verbs_port own = { .virtual_gid = { link_local(1) }, .virtual_kind = { IB }, .real_gid = { link_local(2) }, .real_kind = { IB } };
	struct verbs_header told = { .to = link_local(1) }, come = { .to = link_local(2) }, group = { .to = { .raw = { 0xff, [15] = 1 } } };

	verbs_gid_places(&own);
	assert_int_equal(verbs_header_is_virtual(&own, &told), 1);
	assert_int_equal(verbs_header_is_virtual(&own, &come), 0);
	assert_int_equal(verbs_header_is_virtual(&own, &group), 0);
	own.real_gid[0] = link_local(1);
	assert_int_equal(verbs_header_is_virtual(&own, &told), 0);
}

/* What went to a group stays what it was; what went to nobody known has no answer. */
static void test_groups(void **state)
{
	struct verbs_port own = { .virtual_kind = { V2_IPV4 }, .real_kind = { IB }, .virtual_gid = { mapped(1) }, .real_gid = { link_local(77) } };
	struct verbs_header h = { .from = mapped(9), .to = { .raw = { [10] = 0xff, [11] = 0xff, 239, 1, 2, 3 } }, .next = 0x1b };
	const union ibv_gid to = h.to;
	struct ibv_global_route answer;
	uint8_t bytes[40];

	verbs_gid_places(&own);
	verbs_header_virtual(&own, &h);
	assert_int_equal(h.ipv4, 1);
	assert_memory_equal(&h.to, &to, 16);
	verbs_header_write(&h, bytes);
	assert_int_equal(verbs_header_answer(&own, bytes, &answer), -ENOENT);
	h.ipv4 = 0;
	h.to = (union ibv_gid){ .raw = { 0xff, 0x12 } };
	verbs_header_virtual(&own, &h);
	assert_int_equal(h.ipv4, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ipv4),	cmocka_unit_test(test_which),	  cmocka_unit_test(test_route),
		cmocka_unit_test(test_from_ib), cmocka_unit_test(test_from_roce), cmocka_unit_test(test_is_virtual), cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
