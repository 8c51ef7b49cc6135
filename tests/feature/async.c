/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that takes io_uring and libaio where they are to be had, by number or by their libraries, and does without where the kernel says that they are not: it writes to a file, and reads
 * back what it wrote. And one that sends without a copy, if it may: what it is told of that is complete; that has the kernel encrypt, if it does;
 * that chooses among the sockets of a port, if it may.
 */
#include "loopback.h"

#include <dlfcn.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/syscall.h>

static struct io_uring_params params;
static char ring[4096]; /* a struct io_uring, of any liburing */
static void *contexts[2];

/* As a program that is linked with @library, if that is here, calls @name of it. */
static void call(const char *library, const char *name, void *made)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	int (*make)(unsigned int, void *, unsigned int), r;

	*(void **)&make = dlsym(RTLD_DEFAULT, name);
	if (!handle || !make)
		return;
	r = make(8, made, 0);
	CHECK(!r || r == -ENOSYS || r == -EPERM);
}

static void check_number(long r)
{
	CHECK(r >= 0 || errno == ENOSYS || errno == EPERM);
}

/* That a send is through is said by its number, each once. */
static void take_notice(int fd, uint32_t number)
{
	char control[256];
	struct msghdr m = { .msg_control = control, .msg_controllen = sizeof(control) };
	struct pollfd p = { .fd = fd };
	struct sock_extended_err e;

	CHECK(poll(&p, 1, 10000) == 1 && p.revents & POLLERR && recvmsg(fd, &m, MSG_ERRQUEUE) == 0 && CMSG_FIRSTHDR(&m));
	memcpy(&e, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(e));
	CHECK(e.ee_origin == SO_EE_ORIGIN_ZEROCOPY && e.ee_info == number && e.ee_data == number);
}

static void send_through(const int ends[2], uint32_t number, int without_copy)
{
	char c = (char)number, got;

	CHECK(send(ends[0], &c, 1, without_copy ? MSG_ZEROCOPY : 0) == 1 && recv(ends[1], &got, 1, MSG_WAITALL) == 1 && got == c);
	if (without_copy)
		take_notice(ends[0], number);
}

static int has_layer(int fd)
{
	char name[16] = "";
	socklen_t length = sizeof(name);

	return getsockopt(fd, IPPROTO_TCP, TCP_ULP, name, &length) == 0 && *name;
}

/* Two sockets of one port, of which a program of the socket's own chooses the second, if it may. */
static int share_port(int pair[2])
{
	struct sock_filter second[] = { BPF_STMT(BPF_RET | BPF_K, 1) };
	struct sock_fprog program = { 1, second };
	struct sockaddr_in a;
	int yes = 1, chooses;

	for (int i = 0; i < 2; i++) {
		CHECK((pair[i] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && setsockopt(pair[i], SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)) == 0);
		if (i)
			CHECK(bind(pair[i], (struct sockaddr *)&a, sizeof(a)) == 0);
		else
			bind_loopback(pair[i], &a);
	}
	chooses = setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0;
	CHECK(chooses || errno == ENOPROTOOPT);
	return chooses;
}

/* From eight places. */
static void check_port(const int pair[2], int chooses)
{
	struct sockaddr_in a;
	int came = 0;
	char c;

	CHECK(getsockname(pair[0], (struct sockaddr *)&a, &(socklen_t){ sizeof(a) }) == 0);
	for (int i = 0; i < 8; i++) {
		int from = socket(AF_INET, SOCK_DGRAM, 0);

		CHECK(from >= 0 && sendto(from, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)) == 1 && close(from) == 0);
	}
	while (recv(pair[1], &c, 1, MSG_DONTWAIT) == 1)
		came++;
	CHECK(came == 8 || !chooses);
	while (recv(pair[0], &c, 1, MSG_DONTWAIT) == 1)
		came++;
	CHECK(came == 8);
}

int main(void)
{
	int ends[2], port[2], yes = 1, without_copy, layered, chooses;
	uint32_t number = 0;
	int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t n, step = 0;

	CHECK(fd >= 0);
	check_number(syscall(SYS_io_uring_setup, 8, &params));
	check_number(syscall(SYS_io_setup, 8, &contexts[0]));
	call("liburing.so.2", "io_uring_queue_init", ring);
	call("libaio.so.1", "io_setup", &contexts[1]);
	connect_loopback(ends);
	without_copy = setsockopt(ends[0], SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof(yes)) == 0;
	CHECK(without_copy || errno == ENOPROTOOPT);
	layered = setsockopt(ends[1], IPPROTO_TCP, TCP_ULP, "tls", 4) == 0;
	CHECK(layered || errno == ENOENT || errno == ENOPROTOOPT);
	chooses = share_port(port);
	feature_ready();
	do {
		step++;
		CHECK(pwrite(fd, &step, 8, 0) == 8 && pread(fd, &n, 8, 0) == 8 && n == step);
		send_through(ends, number++, without_copy);
		CHECK(has_layer(ends[1]) == layered);
		check_port(port, chooses);
		feature_work();
	} while (feature_step());
	return 0;
}
