/* SPDX-License-Identifier: BSD-2-Clause */
/* System V segments in an image: what is written is what is read; a list that is not one, or does not agree with the mappings, is damage. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cmocka.h>

#include "image_sample.h"

#define PAGE 4096ul
#define AT ((void *)0x10000000ul)
#define AT_NEXT ((void *)0x10010000ul)

static int dir;
static struct sample s;
static struct image_sysv segments[2];

/* Two segments; of the first one two pages from its second one on are mapped, of the other all, transiently. */
static int setup(void **state)
{
	sample_init(&s);
	segments[0] = (struct image_sysv){ .id = 7, .key = 0x1234, .size = 2 * PAGE + 1, .mode = 0640 | SHM_LOCKED, .uid = 1000,
					   .gid = 1000, .cuid = 1000, .cgid = 1000, .cpid = 4711, .lpid = 4712 };
	segments[1] = (struct image_sysv){ .id = 32775, .size = 100, .mode = 0600 | SHM_DEST, .cpid = 1, .lpid = 0 };
	sample_add(&s, AT, 2 * PAGE, IMAGE_MAPPING_SYSV, IMAGE_RUN_EMPTY);
	sample_add(&s, AT_NEXT, PAGE, IMAGE_MAPPING_SYSV, IMAGE_RUN_EMPTY);
	s.mappings[0].ino = 7;
	s.mappings[0].offset = PAGE;
	s.mappings[1].ino = 32775;
	s.mappings[1].flags = IMAGE_MAPPING_TRANSIENT;
	s.notes[s.dump.note_count++] = (struct image_note_data){ IMAGE_NOTE_SYSV, sizeof(segments), segments };
	dir = open(sample_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int teardown(void **state)
{
	unlinkat(dir, "image", 0);
	return close(dir);
}

static enum image_fault examine(struct image **ret)
{
	struct image_error error;
	struct image_written written;
	char text[256] = "", path[300];

	unlinkat(dir, "image", 0);
	assert_int_equal(image_write(dir, "image", &s.dump, &written, text, sizeof(text)), 0);
	snprintf(path, sizeof(path), "%s/image", sample_directory());
	image_open(path, ret, &error);
	return error.fault;
}

static void expect_damage(void)
{
	struct image *i = NULL;

	assert_int_equal(examine(&i), IMAGE_DAMAGED);
}

static void test_holds(void **state)
{
	struct image *i = NULL;
	const struct image_sysv *got;
	size_t n;

	assert_int_equal(examine(&i), IMAGE_OK);
	got = image_get_sysv(i, &n);
	assert_int_equal(n, 2);
	assert_memory_equal(got, segments, sizeof(segments));
	image_free(i);
}

static void test_none(void **state)
{
	struct image *i = NULL;
	size_t n;

	s.dump.note_count--;
	s.dump.mapping_count = s.dump.run_count = 0;
	assert_int_equal(examine(&i), IMAGE_OK);
	image_get_sysv(i, &n);
	assert_int_equal(n, 0);
	image_free(i);
}

static void test_bad_length(void **state)
{
	s.notes[s.dump.note_count - 1].length -= 8;
	expect_damage();
	s.notes[s.dump.note_count - 1].length = 0;
	expect_damage();
}

static void test_bad_list(void **state)
{
	segments[1].id = 7; /* twice */
	expect_damage();
	segments[1].id = -1;
	expect_damage();
	segments[1].id = 32775;
	segments[1].size = 0;
	expect_damage();
	segments[1].size = 100;
	segments[1].mode |= 04000;
	expect_damage();
	segments[1].mode = 0600 | SHM_DEST;
	segments[1].key = 5; /* a removed one has none */
	expect_damage();
	segments[1].key = IPC_PRIVATE;
	segments[0].cpid = -2;
	expect_damage();
}

static void test_unknown_segment(void **state)
{
	s.mappings[0].ino = 8;
	expect_damage();
	s.mappings[0].ino = 7 + (1ull << 32);
	expect_damage();
}

static void test_beyond(void **state)
{
	s.mappings[0].offset = 2 * PAGE;
	expect_damage();
	s.mappings[0].offset = -PAGE;
	expect_damage();
	s.mappings[0].offset = 0x10001000; /* the attachment would begin below 0 */
	segments[0].size = 1ul << 40;
	expect_damage();
}

static void test_transient_part(void **state)
{
	segments[1].size = PAGE + 1;
	expect_damage();
}

static void test_writable_readonly(void **state)
{
	s.mappings[0].flags = IMAGE_MAPPING_READONLY;
	expect_damage();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_holds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_length, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unknown_segment, setup, teardown),
		cmocka_unit_test_setup_teardown(test_beyond, setup, teardown),
		cmocka_unit_test_setup_teardown(test_transient_part, setup, teardown),
		cmocka_unit_test_setup_teardown(test_writable_readonly, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
