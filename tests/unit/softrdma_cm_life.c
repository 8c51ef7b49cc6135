/* SPDX-License-Identifier: BSD-2-Clause */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softrdma_cm_life.h"

#define REQUEST (8l + 128 + 256) /* softrdma/cm_saved.h */

struct cm_functions cm;

int lives_make(void **state)
{
	cm.settle = (__typeof__(cm.settle))dlsym(RTLD_DEFAULT, "softrdma_cm_settle");
	cm.next = (__typeof__(cm.next))dlsym(RTLD_DEFAULT, "softrdma_cm_next");
	cm.join = (__typeof__(cm.join))dlsym(RTLD_DEFAULT, "softrdma_cm_join");
	cm.save = (__typeof__(cm.save))dlsym(RTLD_DEFAULT, "softrdma_cm_save");
	cm.load = (__typeof__(cm.load))dlsym(RTLD_DEFAULT, "softrdma_cm_load");
	cm.each = (__typeof__(cm.each))dlsym(RTLD_DEFAULT, "softrdma_cm_each");
	cm.hold = (__typeof__(cm.hold))dlsym(RTLD_DEFAULT, "softrdma_cm_hold");
	cm.lines = (__typeof__(cm.lines))dlsym(RTLD_DEFAULT, "softrdma_cm_lines");
	cm.here = (__typeof__(cm.here))dlsym(RTLD_DEFAULT, "softrdma_cm_here");
	cm.close = (__typeof__(cm.close))dlsym(RTLD_DEFAULT, "softrdma_cm_close");
	assert_true(cm.settle && cm.next && cm.join && cm.save && cm.load && cm.each && cm.hold && cm.lines && cm.here && cm.close);
	return places_make(state);
}

static int is_of_cm(int fd)
{
	char link[32], to[256] = "";
	int type = 0;
	socklen_t len = sizeof(type);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, to, sizeof(to) - 1) < 0)
		return 0;
	return strstr(to, "/cm-ports") || (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_SEQPACKET);
}

/* The library is not told, but where it has a thread, which has to go. */
void die(void)
{
	int null = open("/dev/null", O_RDONLY), fd;

	while (other_host() && (fd = cm.next(-1)) >= 0)
		if (cm.close(fd) || dup2(null, fd) != fd)
			fail();
	for (fd = 3; fd < 1024; fd++)
		if (is_of_cm(fd))
			syscall(SYS_close, fd);
	for (fd = -1; (fd = cm.next(fd)) >= 0;)
		if (dup2(null, fd) != fd)
			fail();
	close(null);
}

static int line_take(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg)
{
	struct lines *l = arg;
	struct line *n = &l->line[l->count++];

	assert_true(l->count <= 64 && strstr(where, "port"));
	memcpy(n->own, own, 17);
	memcpy(n->other, other, 17);
	n->said = said;
	n->heard = heard;
	return 0;
}

struct lines lines_now(void)
{
	struct lines l = { .count = 0 };

	assert_int_equal(cm.lines(line_take, &l), 0);
	return l;
}

/* What the other end of each has heard is what this one has said. */
static int is_balanced(void)
{
	struct lines l = lines_now();

	for (uint32_t i = 0; i < l.count; i++) {
		uint32_t k = 0;

		while (k < l.count && memcmp(l.line[i].other, l.line[k].own, 17))
			k++;
		if (k == l.count || l.line[i].said != l.line[k].heard || l.line[i].heard != l.line[k].said)
			return 0;
	}
	return 1;
}

void settled(void)
{
	int n;

	cm.hold(1);
	do {
		n = cm.settle();
		assert_true(n >= 0);
	} while (n || !is_balanced());
}

/* Programs of the other host are on this one now. */
static void come_together(void)
{
	struct sockaddr_in a = address(1);
	uint8_t ip[16] = { [10] = 0xff, [11] = 0xff };

	memcpy(ip + 12, &a.sin_addr, 4);
	if (other_host())
		assert_int_equal(cm.here(ip), 0);
}

long life_next(void)
{
	long n, m;
	char *bytes;

	settled();
	n = cm.save(NULL, 0);
	assert_true(n > 0);
	bytes = malloc((size_t)n);
	m = cm.save(bytes, (size_t)n);
	assert_int_equal(m, n);
	die();
	assert_int_equal(cm.load(bytes, (size_t)n), 0);
	come_together();
	assert_int_equal(cm.join(0), 0);
	assert_int_equal(cm.join(1), 0);
	m = cm.save(NULL, 0);
	free(bytes);
	return m - n;
}

void life_again(void)
{
	long more = life_next();

	assert_true(!more || (other_host() && more == -REQUEST));
}
