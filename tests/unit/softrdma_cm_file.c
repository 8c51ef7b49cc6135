/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files that stand for a device: what a channel's descriptor does with commands that are none, when it is closed behind the back or while
 * somebody waits, and what stat and access say of files that the kernel does not have here.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softrdma_cm_util.h"
#include "thread_sleeps.h"

/* As rdma/rdma_user_cm.h, which cannot stand beside rdma_cma.h. */
struct command {
	uint32_t cmd;
	uint16_t in, out;
};
enum { CREATE_ID = 0, CONNECT = 6 };

static void test_descriptor(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct command h = { .cmd = 99 };
	struct stat st;
	char bytes[8] = { 0 };
	int fd = ch->fd, file[2];

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(write(fd, bytes, 3), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(fd, &h, sizeof(h)), -1);
	assert_int_equal(errno, EINVAL);
	h = (struct command){ .cmd = CONNECT, .in = 60000 };
	assert_int_equal(write(fd, &h, sizeof(h)), -1);
	assert_int_equal(errno, EINVAL);
	h = (struct command){ .cmd = CREATE_ID };
	assert_int_equal(write(fd, &h, sizeof(h)), -1);
	assert_int_equal(errno, EINVAL);
	/* Another file takes its number: that one is written to. */
	assert_int_equal(pipe(file), 0);
	assert_int_equal(dup2(file[1], fd), fd);
	assert_int_equal(write(fd, "hello", 5), 5);
	assert_int_equal(read(file[0], bytes, 5), 5);
	assert_string_equal(bytes, "hello");
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	close(file[0]);
	close(file[1]);
	rdma_destroy_event_channel(ch);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static _Atomic int waiter_tid;

static void *wait_for_event(void *arg)
{
	struct rdma_cm_event *ev;

	waiter_tid = gettid();
	rdma_get_cm_event(arg, &ev);
	return NULL;
}

/* Who waits at a channel that another thread closes waits on, takes nothing of the next channel of that number, and can be cancelled. */
static void test_closed_while_waiting(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *next;
	struct sockaddr_in a = address(9);
	struct rdma_cm_id *id;
	pthread_t thread;
	void *result;
	int fd = ch->fd;

	assert_int_equal(pthread_create(&thread, NULL, wait_for_event, ch), 0);
	while (!waiter_tid || !thread_sleeps_in(waiter_tid, SYS_poll))
		sched_yield();
	assert_int_equal(close(fd), 0);
	next = channel();
	assert_int_equal(next->fd, fd);
	id = new_id(next, RDMA_PS_TCP);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect(next, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_true(thread_sleeps_in(waiter_tid, SYS_poll));
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	drop(&id);
	rdma_destroy_event_channel(next);
	free(ch);
}

/* Files that programs look for past libibverbs, which the kernel does not have here. */
static void test_files(void **state)
{
	struct stat st;

	assert_int_equal(stat("/dev/infiniband/uverbs_soft0", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(access("/dev/infiniband/uverbs_soft0", R_OK | W_OK), 0);
	assert_int_equal(access("/dev/infiniband/uverbs_soft0", X_OK), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(stat("/dev/infiniband/rdma_cm", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(stat("/sys/class/infiniband", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(access("/sys/class/infiniband", R_OK | X_OK), 0);
	assert_int_equal(stat("/dev/infiniband/uverbs_other", &st), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(access("/dev/infiniband/uverbs_other", F_OK), -1);
	assert_int_equal(errno, ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptor), cmocka_unit_test(test_closed_while_waiting), cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, places_make, places_remove);
}
