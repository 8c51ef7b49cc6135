/* SPDX-License-Identifier: BSD-2-Clause */
/* Paths of an image that are others now (image_map_paths): all that are told of it, and nothing else of it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/path_map.h"
#include "image_sample.h"

#define PAGE 4096ul

static const char rules[] = "/old\0/a/longer/name\0/long/one\0/s";
static const struct path_map moved = { rules, sizeof(rules) };
static const char paths[] = "\0/old/lib.so\0/older/lib.so\0/long/one/lib.so\0anon";
static const char texts[] = "\0/old/data\0name-1\0/else/data";
static struct {
	struct image_contents head;
	struct image_content all[2];
	char texts[sizeof(texts)];
} contents;
static struct sample s;
static int dir;

static uint32_t at(const char *all, size_t size, const char *text)
{
	return (uint32_t)((const char *)memmem(all, size, text, strlen(text) + 1) - all);
}

static struct image_content content(const char *path, uint32_t kind, const char *name)
{
	return (struct image_content){ .kind = kind, .mode = 0600, .path = at(texts, sizeof(texts), path), .name = name ? at(texts, sizeof(texts), name) : 0 };
}

static int setup(void **state)
{
	static const char *const of[] = { "/old/lib.so", "/old/lib.so", "/older/lib.so", "/long/one/lib.so", NULL };

	sample_init(&s);
	for (size_t i = 0; i < 5; i++) {
		sample_add(&s, (void *)(0x10000000ul + i * 0x10000), PAGE, of[i] ? IMAGE_MAPPING_FILE : IMAGE_MAPPING_ANON, IMAGE_RUN_EMPTY);
		s.mappings[i].path = of[i] ? at(paths, sizeof(paths), of[i]) : 0;
	}
	s.dump.paths = paths;
	s.dump.paths_length = sizeof(paths);
	contents.head = (struct image_contents){ .count = 2, .entry_size = sizeof(struct image_content), .texts_length = sizeof(texts) };
	contents.all[0] = content("/old/data", IMAGE_CONTENT_SAVED, "name-1");
	contents.all[1] = content("/else/data", IMAGE_CONTENT_STATED, NULL);
	memcpy(contents.texts, texts, sizeof(texts));
	s.notes[s.dump.note_count++] = (struct image_note_data){ IMAGE_NOTE_CONTENTS, offsetof(typeof(contents), texts) + sizeof(texts), &contents };
	strcpy(s.process.exe, "/old/bin/program");
	strcpy(s.process.cwd, "/old");
	dir = open(sample_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int teardown(void **state)
{
	unlinkat(dir, "image", 0);
	return close(dir);
}

static struct image *written(void)
{
	struct image_written out;
	struct image_error error;
	char text[256] = "", path[300];
	struct image *i = NULL;

	unlinkat(dir, "image", 0);
	assert_int_equal(image_write(dir, "image", &s.dump, &out, text, sizeof(text)), 0);
	snprintf(path, sizeof(path), "%s/image", sample_directory());
	if (image_open(path, &i, &error))
		fail_msg("%s", error.text);
	return i;
}

static void test_all(void **state)
{
	static const char *const want[] = { "/a/longer/name/lib.so", "/a/longer/name/lib.so", "/older/lib.so", "/s/lib.so", "" };
	struct image *i = written();
	struct image_error error;
	size_t n;
	const struct image_mapping *m;

	assert_int_equal(image_map_paths(i, &moved, &error), 0);
	m = image_get_mappings(i, &n);
	for (size_t k = 0; k < 5; k++)
		assert_string_equal(image_mapping_path(i, &m[k]), want[k]);
	assert_int_equal(image_count_contents(i), 2);
	assert_string_equal(image_content_path(i, image_get_content(i, 0)), "/a/longer/name/data");
	assert_string_equal(image_content_name(i, image_get_content(i, 0)), "name-1");
	assert_string_equal(image_content_path(i, image_get_content(i, 1)), "/else/data");
	assert_string_equal(image_content_name(i, image_get_content(i, 1)), "");
	assert_string_equal(image_get_process(i)->exe, "/a/longer/name/bin/program");
	assert_string_equal(image_get_process(i)->cwd, "/a/longer/name");
	image_free(i);
}

/* The image has room for 511 bytes of the program's path and its directory's. */
static void test_too_long(void **state)
{
	char rule[600] = "/old";
	const struct path_map m = { rule, sizeof(rule) };
	struct image *i = written();
	struct image_error error;

	memset(rule + 5, 'n', 594);
	rule[5] = '/';
	assert_true(image_map_paths(i, &m, &error) < 0);
	assert_non_null(strstr(error.text, "too long"));
	image_free(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
