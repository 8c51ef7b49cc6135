/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two hosts of before are one now, and a queue pair of each had the same number: whoever is told one of them by rdma_cm is told its port's names, by the
 * process that it belongs to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_table.h"
#include "tests/lib/fake_verbs_host.h"

#define NUMBER 0x1234u

static union ibv_gid gid_of(uint8_t last)
{
	return (union ibv_gid){ .raw = { 0xfe, 0x80, [8] = 2, [15] = last } };
}

/* The port of the old host @n is now the one with LID 9 and GID 9. */
static void publish_port(uint16_t lid, uint8_t last)
{
	struct port_name name = { .lid = 9, .virtual_lid = lid, .gid = gid_of(9), .address = lid, .port = lid, .home = 9 };

	assert_int_equal(fermata_job_publish("verbs/port", sizeof("verbs/port"), &name, sizeof(name)), 0);
	name.virtual_gid = gid_of(last);
	name.address = verbs_gid_address(&name.virtual_gid);
	assert_int_equal(fermata_job_publish("verbs/port", sizeof("verbs/port"), &name, sizeof(name)), 0);
}

static void publish_qp(uint32_t member, uint32_t real, uint16_t lid)
{
	struct qp_chunk chunk = { .member = member, .count = 1, .qp = { { NUMBER, real, lid } } };

	assert_int_equal(fermata_job_publish("verbs/qp", sizeof("verbs/qp"), &chunk, sizeof(chunk)), 0);
}

static void test_same_number(void **state)
{
	static const struct { uint32_t member; uint16_t lid; uint8_t last; } host[] = { { 101, 21, 1 }, { 202, 22, 2 } };
	union ibv_gid gid, told;
	uint16_t lid = 0;
	uint32_t member = 0;

	fake_host_init(1);
	for (int i = 0; i < 2; i++) {
		publish_port(host[i].lid, host[i].last);
		publish_qp(host[i].member, 0x5000 + host[i].member, host[i].lid);
	}
	fermata_job_ask("verbs/port", sizeof("verbs/port"));
	fermata_job_ask("verbs/qp", sizeof("verbs/qp"));
	fake_host_barrier();
	assert_int_equal(verbs_fabric_learn(), 0);
	for (int i = 0; i < 2; i++) {
		gid = gid_of(9);
		told = gid_of(host[i].last);
		assert_int_equal(verbs_peer_virtual(NUMBER, host[i].member, &lid, &gid), 1);
		assert_int_equal(lid, host[i].lid);
		assert_memory_equal(&gid, &told, sizeof(gid));
		assert_int_equal(verbs_qpn_real(NUMBER, lid, &member), 0x5000 + host[i].member);
		assert_int_equal(member, host[i].member);
	}
	/* Of nobody, or of somebody who has none of that number, nothing is told. */
	assert_int_equal(verbs_peer_virtual(NUMBER, 0, &lid, &gid), 0);
	assert_int_equal(verbs_peer_virtual(NUMBER, 303, &lid, &gid), 0);
	assert_int_equal(verbs_peer_virtual(NUMBER + 1, 101, &lid, &gid), 0);
}

/* The port of one old host is two now: a process of each says what its name means. */
static void test_one_name(void **state)
{
	static const struct { uint32_t member; uint16_t lid; } process[] = { { 101, 31 }, { 102, 31 }, { 202, 32 }, { 203, 32 } };
	struct verbs_port own = { 0 };
	uint32_t members[4];

	fake_host_init(1);
	for (int i = 0; i < 4; i++) {
		struct port_name name = { .lid = process[i].lid, .virtual_lid = 21, .address = 21, .port = 21, .home = process[i].lid, .member = process[i].member };

		assert_int_equal(fermata_job_publish("verbs/port", sizeof("verbs/port"), &name, sizeof(name)), 0);
	}
	fermata_job_ask("verbs/port", sizeof("verbs/port"));
	fake_host_barrier();
	assert_int_equal(verbs_fabric_learn(), 0);
	for (int i = 0; i < 4; i++) {
		struct ibv_ah_attr ah = { .dlid = 21 };

		verbs_ah_real(&own, &ah, process[i].member);
		assert_int_equal(ah.dlid, process[i].lid);
		assert_int_equal(verbs_home(21, process[i].member), process[i].lid);
	}
	assert_int_equal(verbs_homes(21, members, 4), 1);
	assert_int_equal(verbs_homes(21, members, 0), -E2BIG);
	assert_int_equal(verbs_homes(22, members, 4), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_number), cmocka_unit_test(test_one_name) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
