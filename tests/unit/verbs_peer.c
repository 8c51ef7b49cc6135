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
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"
#include "tests/lib/fake_verbs_host.h"

#define NUMBER 0x1234u

static void learn(void)
{
	assert_int_equal(verbs_names_ask(), 0);
	fake_host_barrier();
	assert_int_equal(verbs_names_make(), 0);
	assert_int_equal(verbs_fabric_learn(), 0);
}

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

static void publish_qp(uint32_t member, uint32_t real, uint64_t port)
{
	struct qp_chunk chunk = { .owner = { member, 1 }, .count = 1, .qp = { { NUMBER, real, port } } };

	assert_int_equal(fermata_job_publish("verbs/qp", sizeof("verbs/qp"), &chunk, sizeof(chunk)), 0);
}

#define PID(member) (7000 + (member))

static void publish_self(uint32_t member, uint64_t port)
{
	struct self_name self = { .pid = PID(member), .member = member, .address = port };

	assert_int_equal(fermata_job_publish(NAME_SELF, sizeof(NAME_SELF), &self, sizeof(self)), 0);
}

static void test_same_number(void **state)
{
	static const struct { uint32_t member; uint16_t lid; uint8_t last; } host[] = { { 101, 21, 1 }, { 202, 22, 2 } };
	struct verbs_port own = { .real_lid = 9, .real_gid = { gid_of(9) } };
	union ibv_gid gid, told;
	uint16_t lid = 0;
	uint32_t member = 0, number;

	fake_host_init(1);
	for (int i = 0; i < 2; i++) {
		publish_port(host[i].lid, host[i].last);
		publish_qp(host[i].member, 0x5000 + host[i].member, host[i].lid);
		publish_self(host[i].member, host[i].lid);
	}
	learn();
	for (int i = 0; i < 2; i++) {
		gid = gid_of(9);
		told = gid_of(host[i].last);
		assert_int_equal(verbs_peer_virtual(PID(host[i].member), &lid, &gid, &told), 1);
		assert_int_equal(lid, host[i].lid);
		assert_memory_equal(&gid, &told, sizeof(gid));
		assert_int_equal(verbs_qpn_real(NUMBER, lid, &member), 0x5000 + host[i].member);
		assert_int_equal(member, host[i].member);
	}
	assert_int_equal(verbs_is_tied, 0);
	/* Of nobody, of somebody who is not known, and of one of that number on another host nothing is told. */
	gid = gid_of(9);
	assert_int_equal(verbs_peer_virtual(0, &lid, &gid, &told), 0);
	assert_int_equal(verbs_peer_virtual(PID(303), &lid, &gid, &told), 0);
	gid = gid_of(8);
	assert_int_equal(verbs_peer_virtual(PID(101), &lid, &gid, &told), 0);
	/* Who sent a datagram is known by a number of before; by another one it is told by chance, where the port is two hosts'. */
	number = 0x5000 + 202;
	lid = 9;
	verbs_sender_virtual(&own, &number, &lid, NULL);
	assert_true(number == NUMBER && lid == 22 && !verbs_is_tied);
	number = 0x6000;
	lid = 9;
	verbs_sender_virtual(&own, &number, &lid, NULL);
	assert_int_equal(verbs_is_tied, 1);
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
	learn();
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

static void publish_moved(uint16_t lid, uint8_t last, uint16_t now, uint8_t now_last)
{
	struct port_name name = { .lid = now, .virtual_lid = lid, .gid = gid_of(now_last), .address = lid, .port = lid, .home = now };

	assert_int_equal(fermata_job_publish("verbs/port", sizeof("verbs/port"), &name, sizeof(name)), 0);
	name.virtual_gid = gid_of(last);
	name.address = verbs_gid_address(&name.virtual_gid);
	assert_int_equal(fermata_job_publish("verbs/port", sizeof("verbs/port"), &name, sizeof(name)), 0);
}

/* What a port at @lid and @last is called, by its own process, and where whoever is told that is led. */
static void named_and_meant(uint16_t lid, uint8_t last, uint16_t *ret_name)
{
	const union ibv_gid subnet = gid_of(1);
	struct verbs_port own = { .real_gid = { subnet }, .virtual_gid = { subnet } };
	union ibv_gid gid = gid_of(last), is = gid_of(last);
	struct ibv_ah_attr ah = { .is_global = 1 };

	ah.dlid = *ret_name = verbs_lid_virtual(&subnet, lid);
	verbs_gid_virtual(&gid);
	ah.grh.dgid = gid;
	verbs_ah_real(&own, &ah, 0);
	assert_int_equal(ah.dlid, lid);
	assert_memory_equal(&ah.grh.dgid, &is, sizeof(is));
	/* so by the GID alone */
	ah = (struct ibv_ah_attr){ .is_global = 1, .grh = { .dgid = gid } };
	verbs_ah_real(&own, &ah, 0);
	assert_memory_equal(&ah.grh.dgid, &is, sizeof(is));
}

/* The port of one host is at another one now, and the first gets a device: each name leads to one. */
static void test_taken_name(void **state)
{
	struct verbs_port own = { .real_lid = 23, .real_gid = { gid_of(3) } };
	uint16_t moved, stays, first, second, again;

	fake_host_init(1);
	publish_moved(21, 1, 22, 2);
	publish_moved(23, 3, 23, 3);
	publish_qp(101, 0x5065, 21);
	learn();
	named_and_meant(22, 2, &moved);
	named_and_meant(23, 3, &stays);
	named_and_meant(21, 1, &first); /* whose name is taken */
	named_and_meant(24, 4, &second); /* whose is not */
	assert_true(moved == 21 && stays == 23 && first != 21 && first != 22 && first != 23 && second == 24);
	/* One header for many datagrams says what it was turned into already. */
	for (int i = 0; i < 2; i++) {
		union ibv_gid from = gid_of(i ? 1 : 2), told = gid_of(1);
		uint32_t number = 0x5065;
		uint16_t lid = 22;

		verbs_sender_virtual(&own, &number, &lid, &from);
		assert_true(number == NUMBER && lid == 21);
		assert_memory_equal(&from, &told, sizeof(from));
	}
	assert_int_equal(verbs_lid_virtual(&(union ibv_gid){ 0 }, 0), 0);
	assert_int_equal(verbs_lid_virtual(&(union ibv_gid){ 0 }, 0xc001), 0xc001);

	/* In the next life that goes to a fifth host, and the first gets another one. */
	fake_host_init(1);
	publish_moved(21, 1, 22, 2);
	publish_moved(first, 6, 25, 5);
	learn();
	named_and_meant(25, 5, &moved);
	named_and_meant(21, 1, &again);
	assert_true(moved == first && again != first && again != 21);
}

#define KEY 0x100u
#define ANOTHER 0x200u

static void publish_keys(uint32_t member, uint32_t context, uint64_t device, uint32_t real)
{
	struct mr_chunk chunk = { .owner = { member, context }, .device = device, .count = 1, .mr = { { KEY, real } } };

	assert_int_equal(fermata_job_publish(NAME_MR, sizeof(NAME_MR), &chunk, sizeof(chunk)), 0);
	chunk.mr[0].virtual = ANOTHER;
	chunk.mr[0].real++;
	assert_int_equal(fermata_job_publish(NAME_MW, sizeof(NAME_MW), &chunk, sizeof(chunk)), 0);
}

/* One key is several regions': by whose it is, or else by the device that a connection leads to. */
static void test_keys_of_devices(void **state)
{
	static const struct { uint32_t member, context; uint64_t device; uint32_t real; } key[] = {
		{ 101, 1, 0x91, 0x1100 }, { 101, 2, 0x92, 0x1200 }, { 202, 1, 0x93, 0x2100 }, { 303, 1, 0x94, 0x3100 }, { 404, 1, 0, 0x4100 },
	};
	const struct verbs_owner nobody = { 0 };
	struct port_name name = { .address = 21, .port = 21, .home = 31, .lid = 31, .virtual_lid = 21, .device = 0x93, .mtu = IBV_MTU_1024 };
	struct shadow_qp qp = { .pub = { .qp_type = IBV_QPT_RC } };
	struct ibv_qp_attr attr = { .dest_qp_num = 7, .path_mtu = IBV_MTU_4096, .ah_attr = { .dlid = 21 } };
	struct shadow_device device = { .ports = 1 };
	struct shadow_context context = { .device = &device };

	fake_host_init(1);
	for (unsigned int i = 0; i < ARRAY_SIZE(key); i++)
		publish_keys(key[i].member, key[i].context, key[i].device, key[i].real);
	assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
	learn();
	assert_true(verbs_key_is_ambiguous(KEY) && !verbs_key_is_ambiguous(KEY + 1));
	for (unsigned int i = 0; i < ARRAY_SIZE(key); i++) {
		const struct verbs_owner owner = { key[i].member, key[i].context };

		assert_int_equal(verbs_rkey_real(owner, 0, KEY), key[i].real);
		assert_int_equal(verbs_rkey_real(owner, key[0].device, KEY), key[i].real);
		assert_int_equal(verbs_rkey_real(owner, 0, ANOTHER), key[i].real + 1);
	}
	/* the last one's device is not known: it may be any */
	assert_int_equal(verbs_rkey_real(nobody, 0x95, KEY), 0x4100);
	assert_int_equal(verbs_rkey_real((struct verbs_owner){ 101, 3 }, 0, KEY), KEY);
	/* of a device that lets itself be asked, who it is for tells which of them is meant */
	verbs_backend.softrdma_key_alias = NULL;
	assert_int_equal(verbs_rkey_real(nobody, 0x92, KEY), 0x1200);
	qp.pub.context = &context.ex.context;
	verbs_peer_real(&qp, &attr, IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU, 0);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	device.port[1].real_mtu = IBV_MTU_512; /* nor does what is longer leave here */
	verbs_qp_fit(&qp, &attr, IBV_QP_PATH_MTU);
	assert_int_equal(attr.path_mtu, IBV_MTU_512);
	assert_int_equal(attr.ah_attr.dlid, 31);
	assert_true(!qp.peer_owner.member && qp.peer_device == 0x93);
	assert_int_equal(verbs_rkey_real(qp.peer_owner, qp.peer_device, ANOTHER), 0x2101);
}

#define MEMBERS 40u
#define CHUNKS 4u

/* Each of many processes has counted from the same key on: the table is scattered. */
static void test_keys_of_many(void **state)
{
	struct mr_chunk chunk = { .count = ARRAY_SIZE(chunk.mr) };

	fake_host_init(1);
	for (uint32_t member = 1; member <= MEMBERS; member++)
		for (uint32_t n = 0; n < CHUNKS; n++) {
			chunk.owner = (struct verbs_owner){ member, 1 };
			for (uint32_t i = 0; i < chunk.count; i++) {
				chunk.mr[i].virtual = (n * chunk.count + i) << 8;
				chunk.mr[i].real = member << 20 | (n * chunk.count + i);
			}
			assert_int_equal(fermata_job_publish(NAME_MR, sizeof(NAME_MR), &chunk, sizeof(chunk)), 0);
		}
	learn();
	assert_true(verbs_rkeys->factor != 1 && verbs_rkeys->count == MEMBERS * CHUNKS * chunk.count);
	for (uint32_t member = 1; member <= MEMBERS; member++)
		for (uint32_t key = 0; key < CHUNKS * chunk.count; key++)
			assert_int_equal(verbs_rkey_real((struct verbs_owner){ member, 1 }, 0, key << 8), member << 20 | key);
	assert_int_equal(verbs_rkey_real((struct verbs_owner){ MEMBERS + 1, 1 }, 0, 0x100), 0x100);
}

static union ibv_gid gid_in(uint8_t subnet, uint8_t last)
{
	return (union ibv_gid){ .raw = { 0xfe, 0xc0, [7] = subnet, [8] = 2, [15] = last } };
}

/* A host has a device in each of two subnets, with the same LID in both, and so has its peer. */
static void test_subnets(void **state)
{
	struct verbs_port own[2] = { { .virtual_lid = 20 }, { .virtual_lid = 20 } }, there = { .virtual_lid = 21 };
	uint32_t member;

	fake_host_init(1);
	for (uint8_t i = 0; i < 2; i++) {
		struct port_name name = { .virtual_lid = 21, .lid = 31, .gid = gid_in(i, 9) };

		own[i].virtual_gid[0] = own[i].real_gid[0] = gid_in(i, 1);
		there.virtual_gid[0] = gid_in(i, 2);
		name.address = name.port = verbs_port_first(&there);
		name.home = name.device = 0x91u + i;
		name.lid = (uint16_t)(31 + i);
		name.virtual_lid = (uint16_t)(21 + i); /* as a third subnet's would be, so that it is seen which is told */
		assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
		publish_qp(101, 0x5000u + i, name.port);
	}
	learn();
	for (uint8_t i = 0; i < 2; i++) {
		struct ibv_ah_attr ah = { .dlid = 21 };

		assert_int_equal(verbs_qpn_real(NUMBER, verbs_address(&own[i], &ah), &member), 0x5000 + i);
		verbs_ah_real(&own[i], &ah, 0);
		assert_int_equal(ah.dlid, 31 + i);
		assert_int_equal(verbs_lid_virtual(&own[i].real_gid[0], (uint16_t)(31 + i)), 21 + i);
		assert_int_equal(verbs_lid_virtual(&own[!i].real_gid[0], (uint16_t)(31 + i)), 31 + i);
	}
}

/* The low bits of a LID tell the path only, of as many as this life's subnet has. */
static void test_paths(void **state)
{
	struct verbs_port own = { .virtual_lmc = 3, .real_lmc = 1 };
	struct port_name name = { .address = 24, .port = 24, .home = 34, .lid = 34, .virtual_lid = 24 };
	struct ibv_ah_attr ah = { .dlid = 24 + 7, .src_path_bits = 6 };
	uint32_t number = 1;
	uint16_t lid = 35;

	fake_host_init(1);
	assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
	learn();
	assert_int_equal(verbs_address(&own, &ah), 24);
	verbs_ah_real(&own, &ah, 0);
	assert_int_equal(ah.dlid, 35);
	assert_int_equal(ah.src_path_bits, 0);
	verbs_sender_virtual(&own, &number, &lid, NULL);
	assert_int_equal(lid, 25);
	own.real_lmc = 0; /* a softer fabric's: all paths are one */
	ah.dlid = 24 + 7;
	verbs_ah_real(&own, &ah, 0);
	assert_int_equal(ah.dlid, 34);
}

static unsigned int place_of(struct verbs_port p, unsigned int index)
{
	verbs_gid_places(&p);
	return verbs_gid_index_real(&p, index);
}

static unsigned int known_at(struct verbs_port p, unsigned int index)
{
	verbs_gid_places(&p);
	return verbs_gid_index_virtual(&p, index, &(union ibv_gid){ .raw = { 0 } });
}

/* The n-th GID of a kind means the n-th of it in this life, or the first; where there is none, it means what leads furthest. And back. */
static void test_kinds(void **state)
{
	struct verbs_port own = { .virtual_kind = { 4, 7, 5, 8, 8, 6 }, .real_kind = { 4, 7, 6, 9, 5, 8, 8 } };

	verbs_gid_places(&own);
	assert_int_equal(verbs_gid_index_real(&own, 0), 0);
	assert_int_equal(verbs_gid_index_real(&own, 1), 1);
	assert_int_equal(verbs_gid_index_real(&own, 2), 4);
	assert_int_equal(verbs_gid_index_real(&own, 3), 5);
	assert_int_equal(verbs_gid_index_real(&own, 4), 6);
	assert_int_equal(verbs_gid_index_real(&own, 5), 2);
	assert_int_equal(place_of((struct verbs_port){ .virtual_kind = { 1, 1 }, .real_kind = { 4, 7 } }, 1), 1);
	assert_int_equal(place_of((struct verbs_port){ .virtual_kind = { 8, 8 }, .real_kind = { 4, 8 } }, 1), 1);
	assert_int_equal(place_of((struct verbs_port){ .virtual_kind = { 1, 1, 1 }, .real_kind = { 4, 7 } }, 2), 1);
	assert_int_equal(place_of((struct verbs_port){ .virtual_kind = { 1 }, .real_kind = { 4, 7, 5, 8 } }, 0), 3);
	assert_int_equal(place_of((struct verbs_port){ .virtual_kind = { 7, 8 }, .real_kind = { 1, 1 } }, 1), 1);
	assert_int_equal(known_at((struct verbs_port){ .virtual_kind = { 1 }, .real_kind = { 4, 7, 5, 8 } }, 3), 0);
	for (unsigned int g = 0; g < 6; g++)
		assert_int_equal(verbs_gid_index_virtual(&own, verbs_gid_index_real(&own, g), &own.virtual_gid[g]), g);
	assert_int_equal(verbs_gid_index_real(&own, 6), 0);
	assert_int_equal(verbs_gid_index_real(&own, VERBS_GIDS), 0);
}

static union ibv_gid gid_over(unsigned int family, uint8_t last)
{
	static const union ibv_gid begin[] = { { .raw = { 0xfe, 0x80, [8] = 2 } }, { .raw = { [10] = 0xff, [11] = 0xff, 10 } }, { .raw = { 0x20, 1 } } };
	union ibv_gid gid = begin[family];

	gid.raw[15] = last;
	return gid;
}

/* RoCE ports with a GID of the link, an IPv6 one and two of IPv4 (the last two once more as RoCE v2), all of which are one now. Each end of a connection is told the one of its address. */
static void test_one_of_many(void **state)
{
	static const struct { uint8_t family, last, kind; } table[] = { { 0, 1, 7 }, { 2, 2, 9 }, { 1, 3, 5 }, { 1, 4, 5 }, { 1, 3, 8 }, { 1, 4, 8 } };
	struct verbs_port own = { .real_kind = { 1 } };
	const union ibv_gid now = gid_of(9), none = { .raw = { 0 } }, elsewhere = gid_over(1, 77), best = gid_over(1, 3);
	struct port_name name = { .lid = 9, .gid = now, .port = 1, .home = 9 };
	union ibv_gid gid;
	uint16_t lid;

	fake_host_init(1);
	for (uint8_t g = 0; g < ARRAY_SIZE(table); g++) {
		own.virtual_gid[g] = name.virtual_gid = gid_over(table[g].family, table[g].last);
		own.virtual_kind[g] = table[g].kind;
		name.address = verbs_gid_address(&name.virtual_gid);
		name.port = g ? name.port : name.address;
		assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
	}
	publish_self(101, name.port);
	name.address = name.port = verbs_gid_address(&elsewhere); /* another one's, which is here now, too */
	name.virtual_gid = elsewhere;
	assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
	learn();
	verbs_gid_places(&own);
	for (unsigned int g = 0; g < ARRAY_SIZE(table); g++) {
		assert_int_equal(verbs_gid_index_virtual(&own, 0, &own.virtual_gid[g]), g == 2 || g == 3 ? g + 2 : g);
		gid = now;
		verbs_gid_virtual_as(&gid, &own.virtual_gid[g]);
		assert_memory_equal(&gid, &own.virtual_gid[g], sizeof(gid));
		gid = now;
		assert_int_equal(verbs_peer_virtual(PID(101), &lid, &gid, &own.virtual_gid[g]), 1);
		assert_memory_equal(&gid, &own.virtual_gid[g], sizeof(gid));
	}
	/* an address that is none of its port's, the loopback's, say */
	assert_int_equal(verbs_gid_index_virtual(&own, 0, &none), 4);
	gid = now;
	verbs_gid_virtual_as(&gid, &none);
	assert_memory_equal(&gid, &best, sizeof(gid));
	gid = now;
	assert_int_equal(verbs_peer_virtual(PID(101), &lid, &gid, &elsewhere), 1);
	assert_memory_equal(&gid, &best, sizeof(gid));
	gid = now;
	verbs_gid_virtual_as(&gid, &elsewhere);
	assert_memory_equal(&gid, &elsewhere, sizeof(gid));
}

static void publish_gid(uint8_t host, uint8_t index, uint64_t device)
{
	struct port_name name = { .gid = gid_in(host, (uint8_t)(16 + index)), .virtual_gid = gid_in(host, index), .home = device, .device = device };
	const union ibv_gid first = gid_in(host, 1);

	name.address = verbs_gid_address(&name.virtual_gid);
	name.port = verbs_gid_address(&first);
	assert_int_equal(fermata_job_publish(NAME_PORT, sizeof(NAME_PORT), &name, sizeof(name)), 0);
	if (index == 1)
		publish_qp(101u + host, 0x5000u + host, name.port);
}

/* Whose a number is, is told by any of the addresses of the port, or of the device; a number that a host has not told is none of the others'. */
static void test_same_number_of_many(void **state)
{
	struct shadow_device device = { .ports = 1 };
	union ibv_gid gid;
	uint32_t member;

	fake_host_init(1);
	for (uint8_t host = 0; host < 3; host++)
		for (uint8_t index = 1; index < 4; index++)
			publish_gid(host, index, 0x91u + host);
	publish_gid(4, 7, 0x91u + 2); /* the third's other port, */
	publish_gid(5, 7, 0x99u);     /* and who has nothing of that number */
	learn();
	for (uint8_t host = 0; host < 3; host++)
		for (uint8_t index = 1; index < 4; index++) {
			gid = gid_in(host, index);
			assert_int_equal(verbs_qpn_real(NUMBER, verbs_gid_address(&gid), &member), 0x5000 + host);
			assert_int_equal(member, 101 + host);
		}
	gid = gid_in(4, 7);
	assert_int_equal(verbs_qpn_real(NUMBER, verbs_gid_address(&gid), &member), 0x5002);
	gid = gid_in(5, 7);
	assert_int_equal(verbs_qpn_real(NUMBER, verbs_gid_address(&gid), &member), NUMBER);
	gid = gid_in(6, 7);
	assert_int_equal(verbs_qpn_real(NUMBER, verbs_gid_address(&gid), &member), NUMBER);
	/* so it is free for what these hosts make now; but where nobody knows the port yet, none is that anybody has */
	device.port[1].virtual_gid[0] = gid_in(5, 7);
	assert_int_equal(verbs_qpn_known(&device, NUMBER), NAME_NEW);
	device.port[1].virtual_gid[0] = gid_in(4, 7);
	assert_int_equal(verbs_qpn_known(&device, NUMBER), NAME_OWN);
	assert_int_equal(verbs_qpn_known(&device, 0x5002), NAME_OWN); /* as a sender's */
	assert_int_equal(verbs_qpn_known(&device, 0x5001), NAME_NEW);
	device.port[1].virtual_gid[0] = gid_in(6, 7);
	assert_int_equal(verbs_qpn_known(&device, NUMBER), NAME_OWN);
	assert_int_equal(verbs_qpn_known(&device, NUMBER + 1), NAME_NEW);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_number), cmocka_unit_test(test_one_name), cmocka_unit_test(test_taken_name), cmocka_unit_test(test_subnets), cmocka_unit_test(test_paths), cmocka_unit_test(test_kinds), cmocka_unit_test(test_one_of_many),
					     cmocka_unit_test(test_same_number_of_many), cmocka_unit_test(test_keys_of_devices), cmocka_unit_test(test_keys_of_many) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
