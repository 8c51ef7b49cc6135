/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that load most of whatever area of a huge page they come to stand first, the others behind them, each in their order. The image is two mappings: from 4 MiB to 10 MiB, and a small one behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/restart.h"

#define MIB (1ull << 20)

static const struct image_mapping mappings[] = { { .start = 4 * MIB, .end = 10 * MIB }, { .start = 11 * MIB, .end = 11 * MIB + 8192 } };

const struct image_mapping *image_get_mappings(const struct image *i, size_t *ret_count)
{
	(void)i;
	*ret_count = sizeof(mappings) / sizeof(*mappings);
	return mappings;
}

static struct plan_load loads[64];
static struct plan_block blocks[16];
static struct restart_loads all;

static void begin(void)
{
	all = (struct restart_loads){ .loads = loads, .blocks = blocks };
}

/* Of as many loads as are added next. */
static void block(uint64_t number)
{
	blocks[all.block_count++] = (struct plan_block){ .file_offset = number, .first_load = (uint32_t)all.load_count };
}

static void load(uint64_t address, uint64_t length)
{
	loads[all.load_count++] = (struct plan_load){ .address = address, .length = length };
	blocks[all.block_count - 1].load_count++;
}

/* The numbers of the blocks, in their order. */
static void expect(size_t dense, const char *order)
{
	assert_int_equal(restart_loads_sort(&all, NULL), 0);
	assert_int_equal(all.dense_count, dense);
	assert_int_equal(all.block_count, strlen(order));
	for (size_t i = 0; i < all.block_count; i++)
		assert_int_equal(blocks[i].file_offset, order[i] - '0');
}

static void test_full(void **state)
{
	(void)state;
	begin();
	for (uint64_t i = 0; i < 6; i++) {
		block(i);
		load((4 + i) * MIB, MIB);
	}
	expect(6, "012345");
}

/* The first area is full, of the second there is half, of the third hardly anything is missing. */
static void test_parts(void **state)
{
	(void)state;
	begin();
	block(0);
	load(4 * MIB, MIB);
	block(1);
	load(5 * MIB, MIB);
	block(2);
	load(7 * MIB, MIB);
	block(3);
	load(8 * MIB, MIB / 2);
	load(8 * MIB + MIB / 2 + 4096, MIB / 2 - 4096);
	block(4);
	load(9 * MIB, MIB - 8192);
	expect(4, "01342");
}

/* One that has a part of a dense area and a part of another, and one to nowhere. */
static void test_across(void **state)
{
	(void)state;
	begin();
	block(0);
	load(4 * MIB, MIB);
	block(1);
	load(5 * MIB, MIB + 4096);
	block(2);
	load(PLAN_NOWHERE, MIB);
	block(3);
	load(9 * MIB, 4096);
	expect(2, "0213");
}

/* No huge page can be where the mapping does not reach over all of it. */
static void test_small(void **state)
{
	(void)state;
	begin();
	block(0);
	load(8 * MIB, 4096);
	block(1);
	load(11 * MIB + 4096, 4096);
	expect(1, "10");
}

static void test_nothing(void **state)
{
	(void)state;
	begin();
	expect(0, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_full), cmocka_unit_test(test_parts), cmocka_unit_test(test_across), cmocka_unit_test(test_small),
					    cmocka_unit_test(test_nothing) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
