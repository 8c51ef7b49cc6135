/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and the ports of the kernel's devices, as a tree of files tells of them: two of RoCE, one of InfiniBand, one of iWARP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softrdma/cm.h"

static char root[32], top[64];

__attribute__((format(printf, 2, 3))) static void file(const char *text, const char *format, ...)
{
	char path[256], part[512];
	va_list ap;
	FILE *f;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	snprintf(part, sizeof(part), "%s/%s", root, path);
	for (char *s = part + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = 0;
		mkdir(part, 0700);
	}
	f = fopen(part, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void device(const char *name, const char *type, const char *guid, const char *layer, const char *state)
{
	file(type, "infiniband/%s/node_type", name);
	file(guid, "infiniband/%s/node_guid", name);
	file(layer, "infiniband/%s/ports/1/link_layer", name);
	file(state, "infiniband/%s/ports/1/state", name);
}

static void gid(const char *name, int index, const char *gid, const char *type, const char *interface)
{
	file(gid, "infiniband/%s/ports/1/gids/%d", name, index);
	file(type, "infiniband/%s/ports/1/gid_attrs/types/%d", name, index);
	file(interface, "infiniband/%s/ports/1/gid_attrs/ndevs/%d", name, index);
}

#define LINK_LOCAL "fe80:0000:0000:0000:0211:22ff:fe33:4455\n"
#define A "0000:0000:0000:0000:0000:ffff:0a00:0001\n" /* 10.0.0.1 */
#define B "0000:0000:0000:0000:0000:ffff:0a00:0102\n" /* 10.0.1.2 */
#define C "0000:0000:0000:0000:0000:ffff:0a00:0203\n" /* 10.0.2.3 */
#define V1 "IB/RoCE v1\n"
#define V2 "RoCE v2\n"

static int tree(void **state)
{
	strcpy(root, "/tmp/cm-place-XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(top, sizeof(top), "%s/infiniband", root);
	file("1500\n", "net/eth0/mtu");
	file("9000\n", "net/eth1/mtu");
	device("roce0", "1: CA\n", "0011:22ff:fe33:4455\n", "Ethernet\n", "4: ACTIVE\n");
	gid("roce0", 0, LINK_LOCAL, V1, "eth0\n");
	gid("roce0", 1, LINK_LOCAL, V2, "eth0\n");
	gid("roce0", 2, "0000:0000:0000:0000:0000:0000:0000:0000\n", "", "");
	gid("roce0", 3, A, V1, "eth0\n");
	gid("roce0", 4, A, V2, "eth0\n");
	device("roce1", "1: CA\n", "0011:22ff:fe33:5566\n", "Ethernet\n", "4: ACTIVE\n");
	gid("roce1", 0, "2001:0db8:0000:0000:0000:0000:0000:0007\n", V2, "eth1\n");
	gid("roce1", 1, B, V2, "eth1\n");
	device("ib0", "1: CA\n", "0002:c903:0000:0001\n", "InfiniBand\n", "4: ACTIVE\n");
	gid("ib0", 0, C, "", "");
	device("iw0", "4: RNIC\n", "0000:0000:0000:0009\n", "Ethernet\n", "4: ACTIVE\n");
	gid("iw0", 0, C, V2, "eth0\n");
	return 0;
}

static int gone(void **state)
{
	char command[64];

	softrdma_cm_kernel(NULL);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static union cm_addr address(const char *text)
{
	union cm_addr a = { .in = { .sin_family = AF_INET } };

	if (inet_pton(AF_INET, text, &a.in.sin_addr) == 1)
		return a;
	memset(&a, 0, sizeof(a));
	a.in6.sin6_family = AF_INET6;
	assert_int_equal(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
	return a;
}

static void at(const char *text, uint64_t guid, uint8_t index, uint8_t mtu)
{
	union cm_addr a = address(text);
	struct cm_place p;

	assert_int_equal(cm_place_find(&a, &p), 0);
	assert_int_equal(p.guid, guid);
	assert_int_equal(p.port, 1);
	assert_int_equal(p.lid, 0);
	assert_int_equal(p.gid_index, index);
	assert_int_equal(p.mtu, mtu);
}

static void nowhere(const char *text)
{
	union cm_addr a = address(text);
	struct cm_place p;

	assert_int_equal(cm_place_find(&a, &p), -ENODEV);
}

#define ROCE0 0x001122fffe334455ull
#define ROCE1 0x001122fffe335566ull

static void test_addresses(void **state)
{
	union cm_addr ib = { .ib = { .family = AF_IB } };
	struct cm_place p;

	assert_int_equal(softrdma_cm_kernel(top), 6);
	assert_int_equal(cm_place_is_kernel(), 1);
	at("10.0.0.1", ROCE0, 4, 3);
	at("10.0.1.2", ROCE1, 1, 5);
	at("2001:db8::7", ROCE1, 0, 5);
	nowhere("10.0.2.3");
	nowhere("10.9.9.9");
	nowhere("2001:db8::8");
	assert_int_equal(cm_place_find(&ib, &p), -ENODEV);
}

/* The loopback, and hosts that are here now, lead to a port that others reach over IPv4. */
static void test_anywhere(void **state)
{
	const uint8_t moved[16] = { [10] = 0xff, [11] = 0xff, 10, 8, 8, 8 };
	union cm_addr a = address("127.0.0.1");
	struct cm_place p;

	softrdma_cm_kernel(top);
	assert_int_equal(cm_place_find(&a, &p), 0);
	assert_int_equal(p.v2, 1);
	assert_int_equal(p.gid[11], 0xff);
	nowhere("10.8.8.8");
	assert_int_equal(softrdma_cm_here(moved), 0);
	a = address("10.8.8.8");
	assert_int_equal(cm_place_find(&a, &p), 0);
	assert_int_equal(p.v2, 1);
}

/* Two hosts have been exchanged: an address of this one is the name of the other, whose own one is this one's. */
static void test_exchanged(void **state)
{
	const uint8_t own[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 }, other[16] = { [10] = 0xff, [11] = 0xff, 10, 8, 8, 8 };
	struct cm_id id = { .dst = address("127.0.0.1") };
	union cm_addr a = address("127.0.0.1"), now;

	softrdma_cm_kernel(top);
	softrdma_cm_hosts_forget();
	assert_int_equal(cm_address_local(&a), 1);
	assert_int_equal(softrdma_cm_there(own, other), 0);
	assert_int_equal(softrdma_cm_here(other), 0);
	assert_int_equal(softrdma_cm_here(own), 0); /* it stays what it is */
	assert_false(cm_address_local(&a));
	assert_true(cm_address_bindable(&a));
	assert_true(cm_there(&a, &now) && now.in.sin_addr.s_addr == address("10.8.8.8").in.sin_addr.s_addr);
	assert_int_equal(cm_net_address(RDMA_PS_TCP, &a, 0, &now), sizeof(now.in));
	assert_int_equal(now.in.sin_addr.s_addr, address("10.8.8.8").in.sin_addr.s_addr);
	cm_place_remote(&id);
	assert_memory_equal(id.conn.remote_gid, other, sizeof(other));
	cm_here_name(&a);
	assert_int_equal(a.in.sin_addr.s_addr, address("10.8.8.8").in.sin_addr.s_addr);
	assert_true(cm_address_local(&a) && cm_address_bindable(&a) && !cm_there(&a, &now));
	softrdma_cm_hosts_forget();
	assert_false(cm_here(&a));
}

/* An address that a port gets later, or another port. */
static void test_changes(void **state)
{
	softrdma_cm_kernel(top);
	nowhere("10.0.2.3");
	gid("roce1", 2, C, V2, "eth1\n");
	at("10.0.2.3", ROCE1, 2, 5);
	gid("roce1", 2, LINK_LOCAL, V2, "eth1\n");
	gid("roce0", 5, C, V2, "eth0\n");
	at("10.0.2.3", ROCE0, 5, 3);
	file("1: DOWN\n", "infiniband/roce0/ports/1/state");
	gid("roce0", 5, LINK_LOCAL, V2, "eth0\n");
	nowhere("10.0.2.3");
}

/* What others know this host by: each address, not those of a link alone. */
static void test_host(void **state)
{
	uint8_t address[16];
	uint32_t n = 0, of_link = 0;

	softrdma_cm_kernel(top);
	for (; softrdma_cm_host(n, address); n++)
		of_link += address[0] == 0xfe;
	assert_int_equal(n, 4);
	assert_int_equal(of_link, 0);
}

/* Where there is none the device is softrdma's. */
static void test_none(void **state)
{
	union cm_addr a = address("10.9.9.9");
	struct cm_place p;

	assert_int_equal(softrdma_cm_kernel("/nowhere"), 0);
	nowhere("10.0.0.1");
	assert_int_equal(softrdma_cm_kernel(NULL), 0);
	assert_int_equal(cm_place_is_kernel(), 0);
	assert_int_equal(cm_place_find(&a, &p), 0);
	assert_int_equal(p.mtu, CM_PATH_MTU);
	assert_true(p.lid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_addresses, tree, gone), cmocka_unit_test_setup_teardown(test_anywhere, tree, gone),
		cmocka_unit_test_setup_teardown(test_exchanged, tree, gone), cmocka_unit_test_setup_teardown(test_changes, tree, gone),   cmocka_unit_test_setup_teardown(test_host, tree, gone),
		cmocka_unit_test_setup_teardown(test_none, tree, gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
