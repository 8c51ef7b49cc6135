/* SPDX-License-Identifier: BSD-2-Clause */
/* Mappings of a device's: the array is that of a model with a bit for each page, whatever is made and given back, as long as it lies in its block and when it has grown out of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/device.h"

#define PAGES 4096u
#define BASE (1ull << 30) /* nothing is mapped there, nor has it to be */
#define LIMIT (BASE + PAGES * FM_PAGE_SIZE)
#define MANY 400u /* more than there is room for in the block */

struct agent agent;
__thread struct fermata_thread_state fermata_thread;

static bool model[PAGES];
static size_t most;

static void set(uint32_t first, uint32_t count, bool is_device)
{
	if (is_device)
		device_range_add(BASE + first * FM_PAGE_SIZE, count * FM_PAGE_SIZE);
	else
		device_range_remove(BASE + first * FM_PAGE_SIZE, count * FM_PAGE_SIZE);
	memset(model + first, is_device, count);
}

/* What is between @from and the end, as it would be listed. */
static void compare(uint32_t from)
{
	uint64_t at = BASE + from * FM_PAGE_SIZE, start, end;
	bool seen[PAGES] = { 0 };
	size_t ranges = 0;

	for (; device_range_next(at, LIMIT, &start, &end); at = end, ranges++) {
		assert_true(start >= at && end > start && end <= LIMIT);
		memset(seen + (start - BASE) / FM_PAGE_SIZE, 1, (end - start) / FM_PAGE_SIZE);
	}
	assert_memory_equal(seen + from, model + from, PAGES - from);
	most = ranges > most ? ranges : most;
}

static int begin(void **state)
{
	(void)state;
	device_forget();
	memset(model, 0, sizeof(model));
	most = 0;
	return 0;
}

static void test_random(void **state)
{
	(void)state;
	srandom(1);
	for (int i = 0; i < 20000; i++) {
		uint32_t first = (uint32_t)random() % PAGES, count = 1 + (uint32_t)random() % 24;

		set(first, first + count > PAGES ? PAGES - first : count, random() % 8 < 4);
		if (i % 16 == 0)
			compare((uint32_t)random() % PAGES);
	}
	compare(0);
	assert_true(most > 128);
}

/* One by one, and out of one whole. */
static void test_growth(void **state)
{
	const struct image_range block = device_live();
	uint64_t start, end;

	(void)state;
	for (uint32_t i = MANY; i-- > 0;) {
		set(2 * i, 1, true);
		compare(0);
	}
	assert_true(device_range_next(LIMIT, UINT64_MAX, &start, &end)); /* the array's own mapping, which is no part of the image either */
	assert_true(start >= block.end || end <= block.start);
	assert_false(device_range_next(end, UINT64_MAX, &start, &end));
}

static void test_cuts(void **state)
{
	(void)state;
	set(0, PAGES, true);
	for (uint32_t i = 0; i < MANY; i++) {
		set(2 * i + 1, 1, false);
		compare(0);
	}
}

/* While there is room in the block there is no mapping. */
static void test_few(void **state)
{
	uint64_t start, end;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		set(3 * i, 2, true);
	compare(0);
	assert_false(device_range_next(LIMIT, UINT64_MAX, &start, &end));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_random, begin),
		cmocka_unit_test_setup(test_growth, begin),
		cmocka_unit_test_setup(test_cuts, begin),
		cmocka_unit_test_setup(test_few, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
