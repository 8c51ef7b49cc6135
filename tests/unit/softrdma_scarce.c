/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is not there: a full directory of shared memory, no descriptor left. Each call that makes something says so with the right errno, nothing
 * crashes, nothing is left behind, and when there is room again it works.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma/device.h"
#include "softrdma_directory.h"
#include "softrdma_things.h"
#include "softrdma_util.h"

#define LOOKS 12

/* ---- a full directory ---- */

static char small[] = "/tmp/softrdma-small-XXXXXX";

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	die_unless(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* Room of @kib KiB; once it is mounted its size changes. */
static void room(int kib)
{
	static int mounted;
	char options[64], map[32];

	snprintf(options, sizeof(options), "size=%dk,mode=700", kib);
	if (!mounted) {
		unsigned int uid = getuid(), gid = getgid();

		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			_exit(77);
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		put("/proc/self/setgroups", "deny");
		put("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		put("/proc/self/gid_map", map);
		if (mount("none", small, "tmpfs", 0, options))
			_exit(77);
		setenv("SOFTRDMA_DIR", small, 1);
	} else {
		die_unless(!mount("none", small, "tmpfs", MS_REMOUNT, options));
	}
	mounted = 1;
}

/* With ever more room: each call in turn is the one that has too little. */
static void ever_more_room(void)
{
	int kib, reached = 0, err, last = -1, kinds = 0;
	struct things t;

	for (kib = 4; reached < THINGS; kib += 8) {
		die_unless(kib < 4096);
		room(kib);
		reached = things_make(&t, &err);
		die_unless(reached == THINGS || err == -ENOMEM);
		if (reached == THINGS)
			things_message(&t);
		things_unmake(&t);
		munmap(t.buf, THINGS_SIZE);
		die_unless(!directory_entries(small));
		kinds += reached != last;
		last = reached;
	}
	die_unless(kinds > 5);
}

static void fill_up(const char *path)
{
	static char block[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	die_unless(fd >= 0);
	memset(block, 1, sizeof(block));
	while (write(fd, block, sizeof(block)) > 0)
		;
	die_unless(errno == ENOSPC);
	close(fd);
}

static int made_until_full(struct things *t)
{
	int n = 0;

	while (ibv_reg_mr(t->pd, t->buf, 64, ALL_ACCESS))
		n++;
	die_unless(errno == ENOMEM);
	while (ibv_create_cq(t->ctx, 100, NULL, NULL, 0))
		n++;
	die_unless(errno == ENOMEM);
	while (things_qp(t, IBV_QPT_RC, NULL))
		n++;
	die_unless(errno == ENOMEM);
	return n;
}

/* A key that names any entry of the table, there or not, is refused; a look must not want memory. */
static void strange_keys(struct things *t)
{
	struct ibv_sge s = { (uintptr_t)t->buf, 8, t->mr->lkey };
	uint64_t va;
	uint32_t i;

	for (i = 0; i < SR_MAX_MR; i += 7)
		die_unless(sr_rkey_check(sr_context(t->ctx)->seg, 0x42000001u + (i << 8), s.addr, 8, 0, 1, 0, &va));
}

static void full_while_used(void)
{
	char ballast[64];
	struct things t;
	struct stat st;
	int err;

	room(4096);
	die_unless(things_make(&t, &err) == THINGS);
	snprintf(ballast, sizeof(ballast), "%s/ballast", small);
	fill_up(ballast);
	made_until_full(&t);
	strange_keys(&t);
	things_message(&t); /* what is there works on, without room for a bounce ring too */
	die_unless(!stat(ballast, &st) && !unlink(ballast));
	die_unless(made_until_full(&t) > 50);
	_exit(0);
}

static void full_checked(void (*fn)(void))
{
	int status;

	assert_non_null(mkdtemp(small));
	status = in_child(fn);
	rmdir(small);
	strcpy(small + strlen(small) - 6, "XXXXXX");
	if (status == 77) {
		print_message("no user namespace with a mount of its own here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void test_ever_more_room(void **state)
{
	full_checked(ever_more_room);
}

static void test_full_while_used(void **state)
{
	full_checked(full_while_used);
}

/* ---- no descriptor left ---- */

static int descriptors(void)
{
	DIR *in = opendir("/proc/self/fd");
	struct dirent *d;
	int n = 0;

	die_unless(in);
	while ((d = readdir(in)))
		n++;
	closedir(in);
	return n;
}

static void limit(int n)
{
	struct rlimit r;

	die_unless(!getrlimit(RLIMIT_NOFILE, &r));
	r.rlim_cur = (rlim_t)n;
	die_unless(!setrlimit(RLIMIT_NOFILE, &r));
}

/* So that a limit leaves exactly what it says: all numbers below are taken. */
static int lowest_free(void)
{
	int fd = dup(0);

	die_unless(fd >= 0);
	close(fd);
	return fd;
}

static void ever_more_descriptors(void)
{
	int more, reached = 0, err, free_fd, before;
	struct things t;
	const char *dir;

	die_unless(things_make(&t, &err) == THINGS);
	dir = sr_context(t.ctx)->dir;
	before = directory_entries(dir);
	free_fd = lowest_free();
	for (more = 0; reached < THINGS; more++) {
		struct things u;
		int had = descriptors();

		die_unless(more < 64);
		limit(free_fd + more);
		reached = things_make(&u, &err);
		die_unless(reached == THINGS || err == -EMFILE);
		if (reached == THINGS)
			things_message(&u);
		limit(1024);
		die_unless(reached == THINGS || directory_entries(dir) >= before);
		things_unmake(&u);
		munmap(u.buf, THINGS_SIZE);
		die_unless(descriptors() == had && directory_entries(dir) == before);
	}
	die_unless(more > 5);
	things_unmake(&t);
}

static void test_no_descriptor(void **state)
{
	assert_int_equal(in_child(ever_more_descriptors), 0);
}

/*
 * Whose lock we wait for lives, though we cannot look: the lock stays his. The holder goes on when it is told to; who
 * takes the lock from the living sees that it is still written to.
 */
static int lock_holder(int sock)
{
	struct end e;
	struct sr_context *ctx;
	struct sr_shm_qp *d;
	char byte = 0;

	end_open_connected(&e, 1, THINGS_SIZE, sock);
	ctx = sr_context(e.ctx);
	d = sr_qp_find(sr_qp_peer(ctx, sr_qp(e.qp[0]))->seg, e.other.qpn[0]);
	rlock_acquire(ctx, &d->rx_lock, ctx->self.token);
	die_unless(write(sock, &byte, 1) == 1 && read(sock, &byte, 1) == 1);
	die_unless((atomic_load(&d->rx_lock.word) & ~RLOCK_WAITERS) == ctx->self.token);
	rlock_release(&d->rx_lock);
	meet(sock);
	return 0;
}

/* How often the first thread has gone to sleep. */
static unsigned long naps(int status)
{
	static const char name[] = "\nvoluntary_ctxt_switches:";
	char text[4096];
	ssize_t n = pread(status, text, sizeof(text) - 1, 0);
	char *at;

	die_unless(n > 0);
	text[n] = 0;
	at = strstr(text, name);
	die_unless(at);
	return strtoul(at + sizeof(name) - 1, NULL, 10);
}

struct watch {
	int status, sock; /* /proc/self/status, open before there are no descriptors any more; to the holder */
	_Atomic int taken;
};

/* Lets the holder go on when the one who waits has looked at the lock LOOKS times, between two naps each, and waits still. */
static void *watch_waiter(void *arg)
{
	struct watch *w = arg;
	unsigned long begin = naps(w->status);

	while (naps(w->status) < begin + LOOKS)
		die_unless(!w->taken);
	limit(1024);
	die_unless(!w->taken && write(w->sock, "", 1) == 1);
	return NULL;
}

static void living_holder_unseen(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct watch w = { .status = open("/proc/self/status", O_RDONLY) };
	pthread_t watcher;
	struct sr_peer *p;
	struct end e;
	char byte;
	pid_t pid = spawn_end(lock_holder, &w.sock);

	end_open_connected(&e, 1, THINGS_SIZE, w.sock);
	die_unless(w.status >= 0 && read(w.sock, &byte, 1) == 1);
	/* No mapping of his that could tell, and no descriptor for a new one. */
	p = atomic_exchange(&sr_qp(e.qp[0])->peer, NULL);
	sr_peer_put(sr_context(e.ctx), p);
	limit(lowest_free());
	die_unless(!pthread_create(&watcher, NULL, watch_waiter, &w));
	die_unless(!ibv_modify_qp(e.qp[0], &a, IBV_QP_STATE));
	w.taken = 1;
	pthread_join(watcher, NULL);
	meet(w.sock);
	die_unless(!reap(pid));
	end_close(&e);
}

static void test_living_holder_unseen(void **state)
{
	assert_int_equal(in_child(living_holder_unseen), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ever_more_room), cmocka_unit_test(test_full_while_used),
		cmocka_unit_test(test_no_descriptor), cmocka_unit_test(test_living_holder_unseen),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
