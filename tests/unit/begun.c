/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A number of /proc/PID/status is found wherever it stands: before it are the names of all groups. The entry of the environment is taken where it was made, and
 * nowhere else. What was made since the job's beginning is not taken for older, whichever way the clock was set meanwhile.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

static void test_entry(void **state)
{
	struct begun b, taken;
	char entry[BEGUN_ENTRY];
	char *value = entry + sizeof(BEGUN_VARIABLE) - 1;

	(void)state;
	memset(&b, 0, sizeof(b));
	memset(&taken, 0xff, sizeof(taken));
	begun_note(&b);
	b.nice = -5;
	begun_entry(entry, 7, &b);
	assert_int_equal(begun_take(value, 7, &taken), 0);
	assert_memory_equal(&taken, &b, sizeof(b));
	assert_int_equal(begun_take(value, 8, &taken), -EINVAL);
	assert_int_equal(begun_take(NULL, 7, &taken), -EINVAL);
	value[strlen(value) - 1] = 0;
	assert_int_equal(begun_take(value, 7, &taken), -EINVAL);
}

static uint64_t rights(const char *ids, const char *capabilities)
{
	char path[] = "/tmp/begunXXXXXX";
	int fd = mkstemp(path);
	uint64_t r;

	assert_true(fd >= 0);
	dprintf(fd, "Name:\tUid:\t7\nUmask:\t0022\n%s\nNStgid:\t%d\nCapInh:\t0\n%sSeccomp:\t0\n", ids, fd, capabilities);
	close(fd);
	r = begun_rights(path);
	unlink(path);
	return r;
}

static void test_rights(void **state)
{
	static const char *const users[] = { "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t1 23 ", "Uid:\t7\t7\t0\t7\nGid:\t8\t8\t8\t8\nGroups:\t1 23 ",
					     "Uid:\t7\t7\t7\t7\nGid:\t8\t9\t8\t8\nGroups:\t1 23 ", "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t12 3 " };
	const char all[] = "CapPrm:\t01ff\nCapEff:\t01ff\n", less[] = "CapPrm:\t01fe\nCapEff:\t01fe\n";

	(void)state;
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			assert_true((rights(users[i], all) == rights(users[k], less)) == (i == k));
	assert_true(begun_rights("/proc/self/status") == begun_rights("/proc/thread-self/status"));
}

#define HOUR 3600

static void test_earliest(void **state)
{
	int64_t now = time(NULL), earliest;
	struct begun b;

	(void)state;
	begun_note(&b);
	assert_true(begun_earliest(&b) <= now && begun_earliest(&b) >= now - 3);
	b.uptime_s -= HOUR; /* as seen an hour later */
	b.time_s -= HOUR;
	earliest = begun_earliest(&b);
	assert_true(earliest <= now - HOUR && earliest >= now - HOUR - 3);
	b.time_s += HOUR; /* and the clock set back by an hour, */
	assert_true(begun_earliest(&b) <= now - HOUR);
	b.time_s -= 2 * HOUR; /* or set forward */
	assert_true(begun_earliest(&b) <= now - 2 * HOUR);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_far_behind), cmocka_unit_test(test_entry), cmocka_unit_test(test_rights), cmocka_unit_test(test_earliest) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
