/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks the kernel over netlink and reads the answer when the file that is named is no longer empty: until then no checkpoint can be taken. For
 * test-again; plain, as a feature program.
 */
#include "../feature/feature.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* An acknowledgement, nothing else: it is of a known length. */
static int ask(uint32_t number)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} q = { { sizeof(q), RTM_GETLINK, NLM_F_REQUEST, number, 0 }, { .ifi_index = 1 << 30 } };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	CHECK(fd >= 0 && send(fd, &q, sizeof(q), 0) == sizeof(q));
	return fd;
}

static void check_answer(int fd, uint32_t number)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char more[256];
	} a;

	CHECK(recv(fd, &a, sizeof(a), 0) >= (ssize_t)(sizeof(a.head) + sizeof(a.error)));
	CHECK(a.head.nlmsg_type == NLMSG_ERROR && a.head.nlmsg_seq == number && a.error.error == -ENODEV);
	CHECK(recv(fd, &a, sizeof(a), MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static int is_there(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_size;
}

int main(int argc, char **argv)
{
	uint32_t number = 7;
	int fd, unread = 1;

	CHECK(argc == 2);
	fd = ask(number);
	feature_ready();
	do {
		feature_work();
		if (unread && is_there(argv[1])) {
			check_answer(fd, number);
			unread = 0;
		}
		poll(NULL, 0, 1);
	} while (feature_step());
	if (unread)
		check_answer(fd, number);
	CHECK(close(fd) == 0);
	fd = ask(++number);
	check_answer(fd, number);
	return 0;
}
