/* SPDX-License-Identifier: BSD-2-Clause */
/* A number of /proc/PID/status is found wherever it stands: before it are the names of all groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/begun.h"

#define LONGEST 5000

static void status_write(const char *path, size_t groups, const char *rest)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "Name:\ta\nGroups:\t");
	for (size_t i = 0; i < groups; i++)
		putc("12345 "[i % 6], f);
	fprintf(f, "\n%s", rest);
	assert_int_equal(fclose(f), 0);
}

static void test_far_behind(void **state)
{
	char path[] = "/tmp/fermata-begun-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	for (size_t groups = 0; groups < LONGEST; groups++) {
		status_write(path, groups, "Seccomp:\t2\nSeccomp_filters:\t1234567\nSpeculation:\tx\n");
		assert_int_equal(begun_filters(path), 1234567);
		assert_int_equal(begun_number(path, "\nSeccomp:"), 2);
	}
	status_write(path, LONGEST, "Seccomp:\t2\n"); /* of before Linux 5.9 */
	assert_int_equal(begun_filters(path), 1);
	status_write(path, LONGEST, "Seccomp:\t0\n");
	assert_int_equal(begun_filters(path), 0);
	assert_int_equal(begun_number(path, "\nTracerPid:"), UINT64_MAX);
	unlink(path);
	assert_int_equal(begun_filters(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_far_behind) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
