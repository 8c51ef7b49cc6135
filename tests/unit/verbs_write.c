/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands that a driver writes, said by ioctl (plugins/verbs/verbs_write.c), to a kernel that is played: a thread is told each write and ioctl of the
 * descriptor (seccomp) and answers it as uverbs does for whom it does not know.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_write.h"

#define RXE 15u
#define SIW 18u

static struct {
	int fd, listener;
	uint32_t driver;   /* of the device */
	int write_error;   /* what a write is answered with; 0: it is taken */
	int ioctl_error;   /* what any ioctl is answered with, before it is looked at */
	int command_error; /* what a command in order is answered with */
	int writes, ioctls;
	uint32_t command;
	uint8_t in[64];
	size_t in_length;
} kernel;

static const struct ib_uverbs_attr *attribute(const struct ib_uverbs_ioctl_hdr *h, uint16_t id)
{
	for (uint16_t i = 0; i < h->num_attrs; i++)
		if (h->attrs[i].attr_id == id)
			return &h->attrs[i];
	return NULL;
}

static int invoke_write(const struct ib_uverbs_ioctl_hdr *h)
{
	const struct ib_uverbs_attr *command = attribute(h, UVERBS_ATTR_WRITE_CMD), *in = attribute(h, UVERBS_ATTR_CORE_IN),
				    *out = attribute(h, UVERBS_ATTR_CORE_OUT);

	if (!command || command->len != 8 || command->attr_data.reserved)
		return -EINVAL;
	if (!in || (command->data != IB_USER_VERBS_CMD_REQ_NOTIFY_CQ && (!out || out->len < 4)))
		return -ENOSPC;
	kernel.command = (uint32_t)command->data;
	kernel.in_length = in->len;
	memcpy(kernel.in, in->len > 8 ? (const void *)(uintptr_t)in->data : &in->data, in->len < sizeof(kernel.in) ? in->len : sizeof(kernel.in));
	if (out)
		memset((void *)(uintptr_t)out->data, 7, out->len);
	return kernel.command_error;
}

static int ioctl_answer(unsigned long request, const struct ib_uverbs_ioctl_hdr *h)
{
	if (kernel.ioctl_error || request != RDMA_VERBS_IOCTL)
		return kernel.ioctl_error ? kernel.ioctl_error : -ENOTTY;
	if (h->length != sizeof(*h) + h->num_attrs * sizeof(h->attrs[0]) || h->driver_id != kernel.driver)
		return -EINVAL;
	if (h->reserved1 || h->reserved2 || h->object_id != UVERBS_OBJECT_DEVICE || h->method_id != UVERBS_METHOD_INVOKE_WRITE)
		return -EPROTONOSUPPORT;
	return invoke_write(h);
}

static void *play(void *arg)
{
	struct seccomp_notif ask;
	struct seccomp_notif_resp reply;

	for (;;) {
		memset(&ask, 0, sizeof(ask));
		if (ioctl(kernel.listener, SECCOMP_IOCTL_NOTIF_RECV, &ask))
			continue;
		reply = (struct seccomp_notif_resp){ .id = ask.id };
		if (ask.data.nr == SYS_write) {
			kernel.writes++;
			reply.error = kernel.write_error;
			reply.val = reply.error ? 0 : (int64_t)ask.data.args[2];
		} else {
			kernel.ioctls++;
			reply.error = ioctl_answer(ask.data.args[1], (const void *)(uintptr_t)ask.data.args[2]);
		}
		if (ioctl(kernel.listener, SECCOMP_IOCTL_NOTIF_SEND, &reply))
			abort();
	}
	return NULL;
}

/* Of this thread alone. */
static int filter_install(int fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int begin(void **state)
{
	pthread_t t;

	kernel.fd = memfd_create("device", 0);
	kernel.listener = filter_install(kernel.fd);
	assert_true(kernel.listener >= 0);
	return pthread_create(&t, NULL, play, NULL);
}

static int anew(void **state)
{
	kernel.driver = RXE;
	kernel.write_error = -EACCES;
	kernel.ioctl_error = kernel.command_error = kernel.writes = kernel.ioctls = 0;
	return 0;
}

struct post {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_post_send send;
};

static long post_send(struct ib_uverbs_post_send_resp *ret)
{
	struct post p = { { IB_USER_VERBS_CMD_POST_SEND, sizeof(p) / 4, sizeof(*ret) / 4 }, { (uintptr_t)ret, 5, 0, 0, 128 } };

	ret->bad_wr = 1;
	return verbs_device_write(kernel.fd, &p, sizeof(p));
}

static void posted(void)
{
	struct ib_uverbs_post_send_resp resp;
	struct ib_uverbs_post_send in;

	assert_int_equal(post_send(&resp), sizeof(struct post));
	assert_int_equal(kernel.command, IB_USER_VERBS_CMD_POST_SEND);
	assert_int_equal(kernel.in_length, sizeof(in));
	memcpy(&in, kernel.in, sizeof(in));
	assert_true(in.qp_handle == 5 && in.wqe_size == 128 && in.response == (uintptr_t)&resp && resp.bad_wr == 0x07070707);
}

/* Whose credentials are right writes. */
static void test_taken(void **state)
{
	struct ib_uverbs_post_send_resp resp;

	kernel.write_error = 0;
	assert_int_equal(post_send(&resp), sizeof(struct post));
	assert_true(kernel.writes == 1 && !kernel.ioctls && resp.bad_wr == 1);
}

/* A kernel without it, and what it does not know: as the kernel has said. */
static void test_refused(void **state)
{
	struct ib_uverbs_post_send_resp resp;
	struct post other = { { IB_USER_VERBS_CMD_CREATE_QP, sizeof(other) / 4, 1 }, { .response = (uintptr_t)&resp } };

	kernel.ioctl_error = -ENOTTY;
	assert_int_equal(post_send(&resp), -EACCES);
	kernel.ioctl_error = -EPROTONOSUPPORT;
	assert_int_equal(post_send(&resp), -EACCES);
	kernel.ioctl_error = 0;
	kernel.driver = 1000;
	assert_int_equal(post_send(&resp), -EACCES);
	assert_int_equal(verbs_device_write(kernel.fd, &other, sizeof(other)), -EACCES);
	other.hdr.command = IB_USER_VERBS_CMD_POST_SEND;
	assert_int_equal(verbs_device_write(kernel.fd, &other, sizeof(other) - 4), -EACCES);
	assert_int_equal(verbs_device_write(kernel.fd, &other, 4), -EACCES);
	kernel.write_error = -EIO;
	assert_int_equal(post_send(&resp), -EIO);
}

/* The first one looks for the driver, the others are one call. */
static void test_post(void **state)
{
	posted();
	assert_true(kernel.writes == 1 && kernel.ioctls > 1);
	kernel.ioctls = 0;
	posted();
	posted();
	assert_true(kernel.writes == 1 && kernel.ioctls == 2);
}

static void test_notify(void **state)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_req_notify_cq notify;
	} n = { { IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, sizeof(n) / 4, 0 }, { 9, 1 } };

	assert_int_equal(verbs_device_write(kernel.fd, &n, sizeof(n)), sizeof(n));
	assert_true(kernel.command == IB_USER_VERBS_CMD_REQ_NOTIFY_CQ && kernel.in_length == sizeof(n.notify));
	assert_memory_equal(kernel.in, &n.notify, sizeof(n.notify));
}

/* The command's own errors are the program's. */
static void test_errors(void **state)
{
	struct ib_uverbs_post_send_resp resp;

	kernel.command_error = -ENOMEM;
	assert_int_equal(post_send(&resp), -ENOMEM);
	kernel.command_error = -EINVAL;
	assert_int_equal(post_send(&resp), -EINVAL);
	assert_int_equal(resp.bad_wr, 0x07070707);
}

/* The number is another device's, and then no device's. */
static void test_other(void **state)
{
	struct ib_uverbs_post_send_resp resp;

	posted();
	kernel.driver = SIW;
	posted();
	kernel.ioctls = 0;
	posted();
	assert_int_equal(kernel.ioctls, 1);
	kernel.ioctl_error = -ENOTTY;
	kernel.write_error = 0;
	kernel.writes = 0;
	assert_int_equal(post_send(&resp), sizeof(struct post));
	assert_int_equal(kernel.writes, 1);
	kernel.ioctls = 0;
	assert_int_equal(post_send(&resp), sizeof(struct post));
	assert_true(kernel.writes == 2 && !kernel.ioctls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_taken, anew),  cmocka_unit_test_setup(test_refused, anew), cmocka_unit_test_setup(test_post, anew),
		cmocka_unit_test_setup(test_notify, anew), cmocka_unit_test_setup(test_errors, anew),  cmocka_unit_test_setup(test_other, anew),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
