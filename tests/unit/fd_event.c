/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that tell of events: what the feature programs cannot provoke or look at closely. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/fd_table.h"
#include "plugins/event/event.h"
#include "tests/lib/fake_host.h"

extern const struct fermata_plugin plugin_file, plugin_pipe, plugin_event;
const struct fermata_plugin *const agent_plugins[] = { &plugin_file, &plugin_pipe, &plugin_event, NULL };

static uint64_t count_of(int fd)
{
	uint64_t n = 0, all = 0;

	while (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		all += n;
	CHECK(errno == EAGAIN);
	return all;
}

/* What a kernel that does not tell is asked: the answer, and nothing is changed by it. */
static void body_semaphore(void)
{
	for (uint64_t count = 0; count < 5; count++)
		for (int semaphore = 0; semaphore < 2; semaphore++) {
			int fd = eventfd((unsigned int)count, EFD_NONBLOCK | (semaphore ? EFD_SEMAPHORE : 0));

			CHECK(event_eventfd_is_semaphore(fd, count) == semaphore);
			CHECK(count_of(fd) == count);
			close(fd);
		}
}

static void body_full(void)
{
	const uint64_t full = UINT64_MAX - 1;
	uint64_t n;
	int fd = eventfd(0, EFD_NONBLOCK);

	CHECK(write(fd, &full, sizeof(full)) == (ssize_t)sizeof(full));
	fake_checkpoint_restart();
	CHECK(read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n) && n == full);
}

/* A number that was closed and is another file now: not to be taken for the one that is watched. */
static void body_replaced(void)
{
	int set = epoll_create1(0), fd = eventfd(0, 0), copy = dup(fd);
	struct epoll_event e = { .events = EPOLLIN };

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	fake_checkpoint_restart();
	CHECK(dup2(set, fd) == fd && copy >= 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "fd 3: the epoll set watches a file that was fd 4"));
	fake_resume();
	CHECK(epoll_wait(set, &e, 1, 0) == 0);
}

/* The old file under the number, and the new one: two entries of one number. */
static void body_twice(void)
{
	int set = epoll_create1(0), fd = eventfd(1, 0), copy = dup(fd), other = eventfd(1, 0);
	struct epoll_event e = { .events = EPOLLIN };

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0 && dup2(other, fd) == fd && copy >= 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(fake_checkpoint() == -EOPNOTSUPP && strstr(fake_text, "was fd 4"));
	fake_resume();
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, &e) == 0 && dup2(copy, fd) == fd);
	fake_checkpoint_restart();
	CHECK(epoll_wait(set, &e, 1, 0) == 1);
}

/* Two processes have the set, of which one has another file under the number; without kcmp it asks by adding that for a moment, while the other one reads what is watched. */
static void body_asked_together(void)
{
	int set = epoll_create1(0), fd = eventfd(0, 0), other = eventfd(0, 0);
	struct epoll_event e = { .events = EPOLLIN };
	struct fermata_desc d = { .fd = set };
	pid_t self = getpid(), child;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(other, fd) == fd);
		while (getppid() == self && event_epoll_check(&d) == 0 && d.partial)
			;
		_exit(1);
	}
	for (int i = 0; i < 20000; i++)
		CHECK(event_epoll_check(&d) == 0 && !d.partial);
	CHECK(waitpid(child, NULL, WNOHANG) == 0 && kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, &e) == 0);
}

/* Absolute, on a clock that goes on outside: what is due at the restart has expired. */
static void body_realtime(void)
{
	struct itimerspec set = { .it_value = { 0, 0 } };
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	struct timespec now;
	uint64_t n;

	CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
	set.it_value = (struct timespec){ now.tv_sec + 1, now.tv_nsec };
	CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &set, NULL) == 0);
	CHECK(fake_checkpoint() == 0);
	fake_kill();
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &set.it_value, NULL) == 0);
	CHECK(fake_restart() == 0);
	CHECK(fcntl(fd, F_SETFL, 0) == 0 && read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n) && n == 1);
}

static void test_semaphore(void **state) { fake_run(1, body_semaphore); }
static void test_full(void **state) { fake_run(1, body_full); }
static void test_replaced(void **state) { fake_run(1, body_replaced); }
static void test_twice(void **state) { fake_run(1, body_twice); }
static void test_asked_together(void **state) { fake_run(1, body_asked_together); }
static void test_realtime(void **state) { fake_run(1, body_realtime); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_semaphore), cmocka_unit_test(test_full), cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_twice), cmocka_unit_test(test_asked_together), cmocka_unit_test(test_realtime),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
