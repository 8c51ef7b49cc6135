/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of keys after a restart: each key is found, whosever it is, side by side where devices count, and nowhere after a long search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plugins/verbs/verbs_keys.h"
#include "tests/lib/fake_verbs_host.h"

#define COUNT 20000u
#define LONG_SEARCH 64u

static struct keys *table;

static uint32_t real_of(uint32_t member, uint32_t n)
{
	return member << 24 ^ (n * 7 + 1);
}

/* Enters @n keys of each of @members, @step apart and with @low; all have to be found, each in few steps. */
static void fill(uint32_t members, uint32_t n, uint32_t step, uint32_t room)
{
	uint32_t longest = 0;

	assert_int_equal(verbs_keys_make(&table, room), 0);
	for (uint32_t m = 1; m <= members; m++)
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(verbs_keys_add(&table, i * step, real_of(m, i), (struct verbs_owner){ m, 1 }), 0);
	assert_int_equal(table->count, members * n);
	for (uint32_t m = 1; m <= members; m++)
		for (uint32_t i = 0; i < n; i++) {
			uint32_t first = keys_slot(table, i * step), at = first, found = 0;
			struct key_entry *e;

			while ((e = keys_next(table, i * step, &at, first + table->longest)))
				if (e->owner.member == m) {
					assert_int_equal(e->real, real_of(m, i));
					found++;
					longest = at - first > longest ? at - first : longest;
				}
			assert_int_equal(found, 1);
		}
	assert_in_range(longest, 1, members + LONG_SEARCH);
}

/* As devices count: the keys of one process lie in its order. */
static void test_counted(void **state)
{
	fill(1, COUNT, 1 << 8, COUNT);
	for (uint32_t i = 1; i < COUNT; i++)
		assert_int_equal(keys_slot(table, i << 8), keys_slot(table, (i - 1) << 8) + 1);
}

static void test_grows(void **state)
{
	fill(1, COUNT, 1 << 8, 0);
}

/* Of a device that counts otherwise: in large steps, or in a key's lowest bits. */
static void test_steps(void **state)
{
	fill(1, COUNT / 2, 1 << 17, COUNT / 2);
	fill(1, COUNT, 1, COUNT);
	fill(1, COUNT, 1, 0);
}

/* Each of many processes counts from the same number on. */
static void test_members(void **state)
{
	fill(40, COUNT / 40, 1 << 8, COUNT);
	fill(40, COUNT / 40, 1 << 8, 0);
}

/* A region that is registered later has a key that nobody here has, amid those that are side by side. */
static void test_new(void **state)
{
	fill(1, COUNT, 1 << 8, COUNT);
	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t at = keys_slot(table, i << 8 | 1), first = at;

		assert_null(keys_next(table, i << 8 | 1, &at, first + table->longest));
		assert_in_range(at - first, 0, 4);
	}
}

/* As softrdma's: counted in the middle, and a number that means nothing about it. */
static void test_tagged(void **state)
{
	assert_int_equal(verbs_keys_make(&table, 100000), 0);
	for (uint32_t i = 0; i < 100000; i++)
		assert_int_equal(verbs_keys_add(&table, i * 0x9e3779b1u << 25 | i << 8 | (i * 7 & 0xff), i, (struct verbs_owner){ 1, 1 }), 0);
	assert_int_equal(table->longest, 0);
	assert_true(table->mask < 2 * 100000);
}

static void absent(uint32_t key)
{
	uint32_t at = keys_slot(table, key);

	assert_null(keys_next(table, key, &at, at + table->longest));
}

static void test_absent(void **state)
{
	uint32_t at = 0;

	fill(1, 100, 1 << 8, 100);
	absent(100 << 8);
	assert_null(keys_next(NULL, 1, &at, 0));
	assert_int_equal(verbs_keys_make(&table, 0), 0);
	absent(0); /* 0 may be a key, too */
	assert_int_equal(verbs_keys_add(&table, 0, 5, (struct verbs_owner){ 0, 1 }), 0);
	at = keys_slot(table, 0);
	assert_int_equal(keys_next(table, 0, &at, at)->real, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counted), cmocka_unit_test(test_grows),  cmocka_unit_test(test_steps),
		cmocka_unit_test(test_members), cmocka_unit_test(test_new),    cmocka_unit_test(test_tagged),
		cmocka_unit_test(test_absent),
	};

	fake_host_init(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
