/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write() of a driver to its device's descriptor, after a restart without root. Providers of software devices (rxe, siw) post so; what they write is a command as in
 * <rdma/ib_user_verbs.h>. The kernel takes it only from the very credentials that opened the descriptor (ib_safe_file_access), and threads that have
 * given up the capsule's rights have credentials of their own each. By ioctl it takes the same commands from everybody who has the descriptor, since Linux 5.0
 * (object DEVICE, method INVOKE_WRITE), and runs the same code for them.
 *
 *   write   command, words in, words out | response, rest of the request
 *   ioctl   header with the driver's number | WRITE_CMD command | CORE_IN request, 8 bytes and less: in place | CORE_OUT response
 *
 * Who asks by ioctl has to name the driver. Which it is, is found once: a command without its request is refused with ENOSPC under the right number, with EINVAL under
 * any other. Only commands without a driver's own data are known here, in which all that is written is the core's.
 *
 * Owns what is known of descriptors, one word each, without locks: who loses a race finds it anew. A word is of one life (generation): another device may have the number
 * in the next. Within a life, a descriptor that has become another's is found out by what the kernel answers.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>

#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_write.h"

#define DRIVERS 64u /* numbers that are tried; Linux 6.18 has 22 of them */
#define WORDS 64u

static _Atomic uint64_t words[WORDS]; /* number + 1, 32 bits; generation, 24; driver, 8 */

static uint64_t word_make(int fd, uint32_t driver)
{
	return ((uint64_t)(uint32_t)fd + 1) << 32 | (fermata_generation() & 0xffffff) << 8 | driver;
}

/* The driver behind @fd, or -ENOENT. */
static int word_find(int fd)
{
	uint64_t w = words[(uint32_t)fd % WORDS];

	return (w & ~0xffull) == word_make(fd, 0) ? (int)(w & 0xff) : -ENOENT;
}

/* ---- one command ---- */

static int has_response(uint32_t command)
{
	switch (command) {
	case IB_USER_VERBS_CMD_POST_SEND:
	case IB_USER_VERBS_CMD_POST_RECV:
	case IB_USER_VERBS_CMD_POST_SRQ_RECV:
	case IB_USER_VERBS_CMD_POLL_CQ:
		return 1;
	case IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static void invoke_begin(union verbs_invoke *v, uint32_t command)
{
	memset(v, 0, sizeof(*v));
	v->hdr.object_id = UVERBS_OBJECT_DEVICE;
	v->hdr.method_id = UVERBS_METHOD_INVOKE_WRITE;
	v->hdr.attrs[0] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_WRITE_CMD, .len = sizeof(uint64_t),
						    .flags = UVERBS_ATTR_F_MANDATORY, .data = command };
	v->hdr.num_attrs = 1;
}

static void invoke_add(union verbs_invoke *v, uint16_t id, uint64_t data, size_t len)
{
	v->hdr.attrs[v->hdr.num_attrs++] =
		(struct ib_uverbs_attr){ .attr_id = id, .len = (uint16_t)len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data };
}

static int invoke_call(int fd, union verbs_invoke *v, uint32_t driver)
{
	v->hdr.driver_id = driver;
	v->hdr.length = (uint16_t)(sizeof(v->hdr) + v->hdr.num_attrs * sizeof(v->hdr.attrs[0]));
	return (int)RAW3(SYS_ioctl, fd, RDMA_VERBS_IOCTL, v);
}

int verbs_invoke_pack(const void *data, size_t n, union verbs_invoke *ret)
{
	const char *in = (const char *)data + sizeof(struct ib_uverbs_cmd_hdr);
	struct ib_uverbs_cmd_hdr h;
	uint64_t word = 0;
	size_t len;
	int response;

	if (n < sizeof(h) + sizeof(word))
		return -EOPNOTSUPP;
	memcpy(&h, data, sizeof(h));
	memcpy(&word, in, sizeof(word));
	response = has_response(h.command);
	if (response < 0 || h.in_words * 4u != n)
		return -EOPNOTSUPP;
	len = n - sizeof(h);
	if (len > UINT16_MAX || h.out_words * 4u > UINT16_MAX)
		return -EMSGSIZE;
	invoke_begin(ret, h.command);
	invoke_add(ret, UVERBS_ATTR_CORE_IN, len > sizeof(word) ? (uintptr_t)in : word, len);
	if (response)
		invoke_add(ret, UVERBS_ATTR_CORE_OUT, word, h.out_words * 4u);
	return 0;
}

/* ---- descriptors ---- */

/* The driver behind @fd; -EINVAL: it is none of those; or what else the kernel says. */
static int driver_find(int fd)
{
	union verbs_invoke v;
	int r = -EINVAL;

	invoke_begin(&v, IB_USER_VERBS_CMD_POST_SEND);
	for (uint32_t driver = 0; r == -EINVAL && driver < DRIVERS; driver++) {
		r = invoke_call(fd, &v, driver);
		if (r == -ENOSPC) {
			words[(uint32_t)fd % WORDS] = word_make(fd, driver);
			return (int)driver;
		}
	}
	return r < 0 ? r : -EINVAL;
}

static long refused(int fd)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		log_error("the driver of the RDMA device writes commands to descriptor %d, which the kernel refuses after a restart without root: "
			  "restart as root, with --rdma soft, or on Linux 5.0 or newer", fd);
	return -EACCES;
}

/* As verbs_device_write of a command, known to be one for @driver. */
static long say(int fd, union verbs_invoke *v, int driver, const void *data, size_t n)
{
	int r = invoke_call(fd, v, (uint32_t)driver), other;

	if (r == -EINVAL) { /* the command's own, or the number is another device's now */
		other = driver_find(fd);
		if (other >= 0 && other != driver)
			r = invoke_call(fd, v, (uint32_t)other);
	}
	if (r == -ENOTTY) { /* no RDMA device any more */
		words[(uint32_t)fd % WORDS] = 0;
		return raw_write(fd, data, n);
	}
	return r < 0 ? r : (long)n;
}

long verbs_device_write(int fd, const void *data, size_t n)
{
	int driver = word_find(fd), r;
	union verbs_invoke v;
	long done;

	if (verbs_backend.soft)
		return FERMATA_NOT_MINE;
	if (driver < 0) {
		done = raw_write(fd, data, n);
		if (done != -EACCES)
			return done;
	}
	r = verbs_invoke_pack(data, n, &v);
	if (!r && driver < 0)
		driver = driver_find(fd);
	return r || driver < 0 ? refused(fd) : say(fd, &v, driver, data, n);
}
