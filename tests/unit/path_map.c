/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata restart --map: what the words mean (cli/options_map.c), and what a path becomes by them (base/path_map.c). */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"

/* The words end with a NULL; in @ret, which is to be freed, what they make. */
static void make(struct path_map *ret, const char *word, ...)
{
	struct options_map m = { .count = 0 };
	va_list words;

	va_start(words, word);
	for (; word; word = va_arg(words, const char *))
		assert_int_equal(options_map_add(&m, word), 0);
	va_end(words);
	assert_int_equal(options_map_make(&m, ret), 0);
	for (unsigned int i = 0; i < m.count; i++) {
		free(m.old[i]);
		free(m.new[i]);
	}
}

static void becomes(const struct path_map *m, const char *path, const char *want)
{
	char buf[PATH_MAX];
	const char *now = path_map_apply(m, path, buf, sizeof(buf));

	assert_string_equal(now, want);
	if (!strcmp(path, want)) /* nothing was copied where nothing has moved */
		assert_true(now == path || now == buf);
}

static void test_components(void **state)
{
	struct path_map m;

	make(&m, "/a/b=/x/y", NULL);
	becomes(&m, "/a/b", "/x/y");
	becomes(&m, "/a/b/c d", "/x/y/c d");
	becomes(&m, "/a/bc", "/a/bc");
	becomes(&m, "/a", "/a");
	becomes(&m, "/", "/");
	becomes(&m, "/x/a/b", "/x/a/b");
	becomes(&m, "/a/b (deleted)", "/a/b (deleted)");
	becomes(&m, "/a/b/c (deleted)", "/x/y/c (deleted)");
	becomes(&m, "a/b/c", "a/b/c");
	becomes(&m, "", "");
	free((void *)m.texts);
}

static void test_longest(void **state)
{
	struct path_map m;

	make(&m, "/a=/1", "/a/b/c=/3", "/a/b=/2", NULL);
	becomes(&m, "/a/f", "/1/f");
	becomes(&m, "/a/b/f", "/2/f");
	becomes(&m, "/a/b/c/f", "/3/f");
	becomes(&m, "/a/b/c", "/3");
	becomes(&m, "/a/b/cd", "/2/cd");
	free((void *)m.texts);
}

/* Two that have changed places; a new place in the old one. */
static void test_once(void **state)
{
	struct path_map m;

	make(&m, "/a=/b", "/b=/a", "/c=/c/d", NULL);
	becomes(&m, "/a/f", "/b/f");
	becomes(&m, "/b/f", "/a/f");
	becomes(&m, "/c/d/f", "/c/d/d/f");
	free((void *)m.texts);
}

static void test_root(void **state)
{
	struct path_map m;

	make(&m, "/a=/", "/b/=//", NULL);
	becomes(&m, "/a", "/");
	becomes(&m, "/a/f", "/f");
	becomes(&m, "/b/f", "/f");
	becomes(&m, "/c", "/c");
	free((void *)m.texts);
	make(&m, "/=/r", "/dev=/dev", NULL);
	becomes(&m, "/", "/r");
	becomes(&m, "/f", "/r/f");
	becomes(&m, "/dev/null", "/dev/null");
	free((void *)m.texts);
	make(&m, "/=/", NULL);
	becomes(&m, "/", "/");
	becomes(&m, "/f", "/f");
	free((void *)m.texts);
}

static void test_nothing(void **state)
{
	struct path_map m;
	const char *path = "/a/b";
	char buf[4];

	make(&m, NULL);
	assert_int_equal(m.length, 0);
	assert_ptr_equal(path_map_apply(&m, path, buf, sizeof(buf)), path);
}

static void test_room(void **state)
{
	struct path_map m;
	char buf[10];

	make(&m, "/a=/long", NULL);
	assert_string_equal(path_map_apply(&m, "/a/efg", buf, sizeof(buf)), "/long/efg");
	assert_null(path_map_apply(&m, "/a/efgh", buf, sizeof(buf)));
	assert_string_equal(path_map_apply(&m, "/b/that/stays/long", buf, sizeof(buf)), "/b/that/stays/long");
	free((void *)m.texts);
}

static void test_words(void **state)
{
	struct path_map m;

	make(&m, "//a/.//b/=/x/./y//", "/c=1=/c=2", "/d=1=e", "/d2/e.=/...x/", NULL);
	becomes(&m, "/a/b/f", "/x/y/f");
	becomes(&m, "/c=1/f", "/c=2/f");
	becomes(&m, "/d2/e./f", "/...x/f");
	free((void *)m.texts);
}

/* NEW: relative, through a link, as far as it exists. */
static void test_resolved(void **state)
{
	char top[] = "/tmp/fermata-map-XXXXXX", want[PATH_MAX], real[PATH_MAX];
	struct path_map m;

	assert_non_null(mkdtemp(top));
	assert_int_equal(chdir(top), 0);
	assert_int_equal(mkdir("there", 0700) | symlink("there", "link"), 0);
	assert_non_null(realpath("there", real));
	make(&m, "/a=link", "/b=./link/new/one/", "/c=link/../there", "/d=.", NULL);
	snprintf(want, sizeof(want), "%.4000s/f", real);
	becomes(&m, "/a/f", want);
	becomes(&m, "/c/f", want);
	becomes(&m, "/d/there/f", want);
	snprintf(want, sizeof(want), "%.4000s/new/one/f", real);
	becomes(&m, "/b/f", want);
	free((void *)m.texts);
	assert_int_equal(unlink("link") | rmdir("there") | chdir("/") | rmdir(top), 0);
}

static void test_refused(void **state)
{
	static const char *const words[] = { "", "=", "/a", "/a=", "a=/b", "=/b", "/a/..=/b", "/../a=/b", "/b/=/c", "//./b=/b" };
	struct options_map m = { .count = 0 };

	assert_int_equal(options_map_add(&m, "/b=/x"), 0);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		assert_int_equal(options_map_add(&m, words[i]), -EINVAL);
	assert_int_equal(m.count, 1);
	assert_int_equal(options_map_add(&m, "/..a/b..=/x"), 0);
	assert_int_equal(m.count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_components), cmocka_unit_test(test_longest), cmocka_unit_test(test_once),
		cmocka_unit_test(test_root), cmocka_unit_test(test_nothing), cmocka_unit_test(test_room),
		cmocka_unit_test(test_words), cmocka_unit_test(test_resolved), cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
