/* SPDX-License-Identifier: BSD-2-Clause */
/* Fault points: names, counts, actions. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

static void test_spec(void **state)
{
	assert_int_equal(fault_init(NULL), 0);
	assert_int_equal(fault_init(""), 0);
	assert_int_equal(fault_init("no-such-point"), -EINVAL);
	assert_int_equal(fault_init("agent-before-write=burn"), -EINVAL);
	assert_int_equal(fault_init("agent-before-write:x"), -EINVAL);
	assert_int_equal(fault_init("agent-before-write:3=error"), 0);
	assert_null(fault_name(FAULT_COUNT));
	for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
		assert_int_equal(fault_init(fault_name((enum fault)i)), 0);
}

static void test_error(void **state)
{
	assert_int_equal(fault_init("coordinator-before-rename:2=error"), 0);
	assert_int_equal(fault_point(FAULT_COORDINATOR_AFTER_RENAME), 0);
	assert_int_equal(fault_point(FAULT_COORDINATOR_BEFORE_RENAME), 0);
	assert_int_equal(fault_point(FAULT_COORDINATOR_BEFORE_RENAME), -EIO);
	assert_int_equal(fault_point(FAULT_COORDINATOR_BEFORE_RENAME), 0); /* once */
	assert_int_equal(fault_point(FAULT_NONE), 0);
}

static void test_kill(void **state)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		fault_init("image-in-write");
		fault_point(FAULT_IMAGE_IN_WRITE);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* It goes on where it stood. */
static void test_stop(void **state)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		fault_init("socket-in-put-back:2=stop");
		_exit(fault_point(FAULT_SOCKET_IN_PUT_BACK) || fault_point(FAULT_SOCKET_IN_PUT_BACK) ||
		      fault_point(FAULT_SOCKET_IN_PUT_BACK));
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec),
		cmocka_unit_test(test_error),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
