/* SPDX-License-Identifier: BSD-2-Clause */
/* What is shown of files after a restart: different ones for different files, whatever numbers they have by now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/fd_table.h"
#include "agent/inodes.h"

enum { FILES = 4 };

struct fd_table fd_table;
static struct fd_entry entries[FILES], *pointers[FILES];
static uint64_t device, now[FILES]; /* of files that are there */

void *fermata_alloc(size_t size)
{
	return calloc(1, size);
}

void fermata_free(void *p)
{
	free(p);
}

static uint64_t shown(uint64_t ino)
{
	uint64_t dev = device;

	inodes_show(&dev, &ino);
	assert_int_equal(dev, device);
	return ino;
}

/* The first @n files were known by these inodes. */
static void known(uint32_t n, const uint64_t *was)
{
	for (uint32_t i = 0; i < n; i++)
		entries[i].desc.st.st_ino = was[i];
	fd_table.count = n;
	inodes_restarted();
}

static int make(void **state)
{
	(void)state;
	for (int i = 0; i < FILES; i++) {
		char path[] = "/tmp/fermata-inodes-XXXXXX";
		int fd = mkstemp(path);
		struct stat st;

		assert_true(fd >= 0 && fstat(fd, &st) == 0 && unlink(path) == 0);
		device = st.st_dev;
		now[i] = st.st_ino;
		entries[i].desc = (struct fermata_desc){ .fd = fd, .st = st };
		pointers[i] = &entries[i];
	}
	fd_table.entries = pointers;
	return 0;
}

static int forget(void **state)
{
	(void)state;
	known(0, NULL);
	for (int i = 0; i < FILES; i++)
		close(entries[i].desc.fd);
	return 0;
}

static void test_same(void **state)
{
	(void)state;
	known(FILES, now);
	for (int i = 0; i < FILES; i++)
		assert_int_equal(shown(now[i]), now[i]);
	assert_int_equal(shown(99), 99);
}

static void test_other(void **state)
{
	(void)state;
	known(1, (uint64_t[]){ 77 });
	assert_int_equal(shown(now[0]), 77);
	assert_int_equal(shown(77), now[0]); /* a file that has got the inode of before */
	assert_int_equal(shown(now[1]), now[1]);
}

static void test_exchanged(void **state)
{
	(void)state;
	known(2, (uint64_t[]){ now[1], now[0] });
	assert_int_equal(shown(now[0]), now[1]);
	assert_int_equal(shown(now[1]), now[0]);
}

static void test_chain(void **state)
{
	(void)state;
	known(3, (uint64_t[]){ now[1], now[2], now[3] });
	assert_int_equal(shown(now[0]), now[1]);
	assert_int_equal(shown(now[1]), now[2]);
	assert_int_equal(shown(now[2]), now[3]);
	assert_int_equal(shown(now[3]), now[0]);
}

/* One file with two names has become two. */
static void test_split(void **state)
{
	(void)state;
	known(2, (uint64_t[]){ now[1], now[1] });
	assert_int_not_equal(shown(now[0]), shown(now[1]));
}

static void test_again(void **state)
{
	(void)state;
	known(2, (uint64_t[]){ 77, 78 });
	known(2, (uint64_t[]){ now[0], now[1] }); /* by which the kernel has them since */
	assert_int_equal(shown(now[0]), 77);
	assert_int_equal(shown(now[1]), 78);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same, make, forget),  cmocka_unit_test_setup_teardown(test_other, make, forget),
		cmocka_unit_test_setup_teardown(test_exchanged, make, forget), cmocka_unit_test_setup_teardown(test_chain, make, forget),
		cmocka_unit_test_setup_teardown(test_split, make, forget), cmocka_unit_test_setup_teardown(test_again, make, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
