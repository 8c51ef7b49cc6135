/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is not there or not ours: a full directory of shared memory, no descriptor left, a child's copy of a context,
 * another user's files. Each call that makes something says so with the right errno, nothing crashes, nothing is left
 * behind, and when there is room again it works.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
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
#include "softrdma_util.h"

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

/* ---- one of everything ---- */

struct things {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp[2], *ud;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	int joined;
	union ibv_gid group;
	char *buf;
};

#define STEPS 13

static struct ibv_qp *qp_make(struct things *t, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = t->cq, .recv_cq = t->cq, .srq = srq, .qp_type = type,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
						  .max_recv_sge = 1 } };

	return ibv_create_qp(t->pd, &init);
}

/* Makes thing number @step. 0 or -errno. */
static int make(struct things *t, int step)
{
	struct ibv_srq_init_attr sia = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1, .grh.dgid = t->group };
	struct ibv_device **list = NULL;
	void *made = t;

	errno = 0;
	switch (step) {
	case 0:
		list = ibv_get_device_list(NULL);
		made = t->ctx = list ? ibv_open_device(list[0]) : NULL;
		step = errno;
		if (list)
			ibv_free_device_list(list);
		errno = step;
		break;
	case 1:
		made = t->channel = ibv_create_comp_channel(t->ctx);
		break;
	case 2:
		made = t->pd = ibv_alloc_pd(t->ctx);
		break;
	case 3:
		made = t->mr = ibv_reg_mr(t->pd, t->buf, SIZE, ALL_ACCESS);
		break;
	case 4:
		made = t->cq = ibv_create_cq(t->ctx, 256, NULL, t->channel, 0);
		break;
	case 5:
		made = t->srq = ibv_create_srq(t->pd, &sia);
		break;
	case 6:
	case 7:
		made = t->qp[step - 6] = qp_make(t, IBV_QPT_RC, step == 7 ? t->srq : NULL);
		break;
	case 8:
		made = t->ud = qp_make(t, IBV_QPT_UD, NULL);
		break;
	case 9:
		made = t->mw = ibv_alloc_mw(t->pd, IBV_MW_TYPE_1);
		break;
	case 10:
		made = t->ah = ibv_create_ah(t->pd, &aa);
		break;
	case 11:
		t->joined = !(errno = ibv_attach_mcast(t->ud, &t->group, 0));
		made = t->joined ? t : NULL;
		break;
	case 12:
		return -ibv_resize_cq(t->cq, 1024);
	}
	return made ? 0 : -errno;
}

static void unmake(struct things *t)
{
	if (t->joined)
		die_unless(!ibv_detach_mcast(t->ud, &t->group, 0));
	if (t->ah)
		die_unless(!ibv_destroy_ah(t->ah));
	if (t->mw)
		die_unless(!ibv_dealloc_mw(t->mw));
	if (t->ud)
		die_unless(!ibv_destroy_qp(t->ud));
	if (t->qp[0])
		die_unless(!ibv_destroy_qp(t->qp[0]));
	if (t->qp[1])
		die_unless(!ibv_destroy_qp(t->qp[1]));
	if (t->srq)
		die_unless(!ibv_destroy_srq(t->srq));
	if (t->cq)
		die_unless(!ibv_destroy_cq(t->cq));
	if (t->mr)
		die_unless(!ibv_dereg_mr(t->mr));
	if (t->pd)
		die_unless(!ibv_dealloc_pd(t->pd));
	if (t->channel)
		die_unless(!ibv_destroy_comp_channel(t->channel));
	if (t->ctx)
		die_unless(!ibv_close_device(t->ctx));
}

static void things_init(struct things *t)
{
	*t = (struct things){ .group.raw = { 0xff, 0x12, 1, 2, 3 } };
	t->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	die_unless(t->buf != MAP_FAILED);
}

/* As far as it goes. The step that failed, or STEPS; *ret_err says why. */
static int make_all(struct things *t, int *ret_err)
{
	int step;

	things_init(t);
	*ret_err = 0;
	for (step = 0; step < STEPS && !*ret_err; step++)
		*ret_err = make(t, step);
	return *ret_err ? step - 1 : STEPS;
}

/* A message from QP 0 to itself. */
static void one_message(struct things *t)
{
	struct ibv_port_attr port;
	struct end e = { .timeout = 8, .retry_cnt = 1, .rnr_retry = 7 };
	struct ibv_sge from = { (uintptr_t)t->buf, 3000, t->mr->lkey };
	struct ibv_sge to = { (uintptr_t)t->buf + 8192, 8192, t->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = SIG },
			   *bad;
	struct ibv_recv_wr rr = { .wr_id = 2, .sg_list = &to, .num_sge = 1 }, *bad_rr;

	die_unless(!sr_query_port(t->ctx, 1, &port, sizeof(port)));
	e.me.lid = port.lid;
	qp_to_init(t->qp[0], ALL_ACCESS);
	die_unless(!ibv_post_recv(t->qp[0], &rr, &bad_rr));
	qp_to_rts(t->qp[0], t->qp[0]->qp_num, &e);
	fill(t->buf, 3000, 9);
	die_unless(!ibv_post_send(t->qp[0], &wr, &bad));
	good_wc(t->cq, 2);
	good_wc(t->cq, 1);
	die_unless(filled(t->buf + 8192, 3000, 9));
}

/* Entries of the directory that belong to contexts. */
static int entries(const char *dir)
{
	DIR *in = opendir(dir);
	struct dirent *d;
	int n = 0;

	die_unless(in);
	while ((d = readdir(in)))
		n += !strncmp(d->d_name, "ctx-", 4) || !strncmp(d->d_name, "wk-", 3) || !strncmp(d->d_name, "new-", 4);
	closedir(in);
	return n;
}

/* Runs @fn in a child, so that a signal is seen; 77 is passed on. */
static int in_child(void (*fn)(void))
{
	pid_t pid = fork();

	die_unless(pid >= 0);
	if (!pid) {
		alarm(60);
		fn();
		_exit(0);
	}
	return reap(pid);
}

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

	for (kib = 4; reached < STEPS; kib += 8) {
		die_unless(kib < 4096);
		room(kib);
		reached = make_all(&t, &err);
		die_unless(reached == STEPS || err == -ENOMEM);
		if (reached == STEPS)
			one_message(&t);
		unmake(&t);
		munmap(t.buf, SIZE);
		die_unless(!entries(small));
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
	while (qp_make(t, IBV_QPT_RC, NULL))
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
	die_unless(make_all(&t, &err) == STEPS);
	snprintf(ballast, sizeof(ballast), "%s/ballast", small);
	fill_up(ballast);
	made_until_full(&t);
	strange_keys(&t);
	one_message(&t); /* what is there works on, without room for a bounce ring too */
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

	die_unless(make_all(&t, &err) == STEPS);
	dir = sr_context(t.ctx)->dir;
	before = entries(dir);
	free_fd = lowest_free();
	for (more = 0; reached < STEPS; more++) {
		struct things u;
		int had = descriptors();

		die_unless(more < 64);
		limit(free_fd + more);
		reached = make_all(&u, &err);
		die_unless(reached == STEPS || err == -EMFILE);
		if (reached == STEPS)
			one_message(&u);
		limit(1024);
		die_unless(reached == STEPS || entries(dir) >= before);
		unmake(&u);
		munmap(u.buf, SIZE);
		die_unless(descriptors() == had && entries(dir) == before);
	}
	die_unless(more > 5);
	unmake(&t);
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

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
	ctx = sr_context(e.ctx);
	d = sr_qp_find(sr_qp_peer(ctx, sr_qp(e.qp[0]))->seg, e.other.qpn[0]);
	rlock_acquire(ctx, &d->rx_lock, ctx->self.token);
	die_unless(write(sock, &byte, 1) == 1 && read(sock, &byte, 1) == 1);
	die_unless((atomic_load(&d->rx_lock.word) & ~RLOCK_WAITERS) == ctx->self.token);
	rlock_release(&d->rx_lock);
	meet(sock);
	return 0;
}

static void *wait_for_lock(void *arg)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	return (void *)(intptr_t)ibv_modify_qp(arg, &a, IBV_QP_STATE);
}

static void living_holder_unseen(void)
{
	struct timespec nap = { .tv_nsec = 60000000 }; /* many looks; none can be waited for */
	pthread_t waiter;
	struct sr_peer *p;
	struct end e;
	void *result;
	int sock;
	char byte;
	pid_t pid = spawn_end(lock_holder, &sock);

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
	die_unless(read(sock, &byte, 1) == 1);
	/* No mapping of his that could tell, and no descriptor for a new one. */
	p = atomic_exchange(&sr_qp(e.qp[0])->peer, NULL);
	sr_peer_put(sr_context(e.ctx), p);
	limit(lowest_free());
	die_unless(!pthread_create(&waiter, NULL, wait_for_lock, e.qp[0]));
	nanosleep(&nap, NULL);
	limit(1024);
	die_unless(write(sock, &byte, 1) == 1);
	pthread_join(waiter, &result);
	die_unless(!result);
	meet(sock);
	die_unless(!reap(pid));
	end_close(&e);
}

static void test_living_holder_unseen(void **state)
{
	assert_int_equal(in_child(living_holder_unseen), 0);
}

/* ---- a forked child ---- */

static int echo(int sock)
{
	struct end e;
	struct ibv_wc wc;
	int i;

	end_open(&e, 1, SIZE);
	qp_to_init(e.qp[0], ALL_ACCESS);
	for (i = 0; i < 8; i++)
		die_unless(!post_recv(&e, 0, 1, 0, 4096));
	end_connect(&e, sock);
	for (i = 0; i < 3; i++) {
		wc = good_wc(e.rcq, 1);
		/* To both sorts of memory: sent, and written. */
		die_unless(!post(&e, 0, 2, IBV_WR_RDMA_WRITE, 0, wc.byte_len, 16384, SIG));
		die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, wc.byte_len, 0, SIG));
		good_wc(e.scq, 2);
		good_wc(e.scq, 2);
	}
	meet(sock);
	end_close(&e);
	return 0;
}

static void echo_round(struct end *e, unsigned int seed)
{
	fill(e->buf, 3000, seed);
	memset(e->buf + 8192, 0, 3000);
	memset(e->buf + 16384, 0, 3000);
	die_unless(!post_recv(e, 0, 3, 8192, 4096));
	die_unless(!post(e, 0, 4, IBV_WR_SEND, 0, 3000, 0, SIG));
	good_wc(e->scq, 4);
	good_wc(e->rcq, 3);
	die_unless(filled(e->buf + 8192, 3000, seed) && filled(e->buf + 16384, 3000, seed));
}

/* What the child does with its copy; its memory is another's from the moment of the fork on. */
static _Noreturn void child_of(struct end *e, int in)
{
	char byte;

	memset(e->buf, 0x77, e->size);
	die_unless(read(in, &byte, 1) == 1); /* the parent has been written to */
	die_unless(e->buf[8192] == 0x77 && e->buf[16384] == 0x77);
	die_unless(!ibv_close_device(e->ctx));
	/* One of its own. */
	end_open(e, 1, SIZE);
	end_connect_to(e, &e->me);
	die_unless(!post_recv(e, 0, 3, 8192, 4096));
	die_unless(!post(e, 0, 4, IBV_WR_SEND, 0, 3000, 0, SIG));
	good_wc(e->rcq, 3);
	end_close(e);
	_exit(0);
}

static void fork_in_mid_run(void)
{
	struct end e;
	int sock, pipefd[2], before;
	pid_t child, pid = spawn_end(echo, &sock);

	end_open(&e, 1, SIZE);
	end_connect(&e, sock);
	before = entries(sr_context(e.ctx)->dir);
	echo_round(&e, 1);
	die_unless(!pipe(pipefd));
	child = fork();
	die_unless(child >= 0);
	if (!child)
		child_of(&e, pipefd[0]);
	echo_round(&e, 2);
	die_unless(write(pipefd[1], "", 1) == 1);
	die_unless(reap(child) == 0);
	die_unless(entries(sr_context(e.ctx)->dir) == before);
	echo_round(&e, 3);
	meet(sock);
	die_unless(reap(pid) == 0);
	end_close(&e);
}

static void fork_init_first(void)
{
	die_unless(!ibv_fork_init());
	fork_in_mid_run();
}

static void test_fork(void **state)
{
	assert_int_equal(in_child(fork_in_mid_run), 0);
	assert_int_equal(in_child(fork_init_first), 0);
}

/* ---- other users ---- */

static void check_modes(const char *dir)
{
	char path[400];
	struct stat st;
	DIR *in = opendir(dir);
	struct dirent *d;

	die_unless(in && !stat(dir, &st) && (st.st_mode & 07777) == 0700);
	while ((d = readdir(in))) {
		snprintf(path, sizeof(path), "%s/%s", dir, d->d_name);
		if (d->d_name[0] == '.' || lstat(path, &st))
			continue;
		if ((st.st_mode & 07777) != 0600)
			fprintf(stderr, "%s: %o\n", path, st.st_mode & 07777);
		die_unless((st.st_mode & 07777) == 0600);
	}
	closedir(in);
}

static void modes(void)
{
	char dir[] = "/dev/shm/softrdma-modes-XXXXXX";
	struct things t;
	int err;

	die_unless(mkdtemp(dir));
	setenv("SOFTRDMA_DIR", dir, 1);
	umask(0);
	die_unless(make_all(&t, &err) == STEPS);
	die_unless(entries(dir) >= 3);
	check_modes(dir);
	unmake(&t);
}

static void test_modes(void **state)
{
	assert_int_equal(in_child(modes), 0);
}

#define FIRST_UID 61234u

static void become(unsigned int uid)
{
	die_unless(!setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
	unsetenv("SOFTRDMA_DIR");
}

static int first_user(int sock)
{
	struct end e;

	become(FIRST_UID);
	end_open(&e, 1, SIZE);
	die_unless(write(sock, sr_context(e.ctx)->dir, SR_PATH_MAX) == SR_PATH_MAX);
	die_unless(write(sock, &e.me, sizeof(e.me)) == sizeof(e.me));
	meet(sock);
	end_close(&e);
	return 0;
}

static int second_user(int sock)
{
	struct end_name other;
	char dir[SR_PATH_MAX], path[SR_PATH_MAX + 16];
	struct ibv_device **list;
	struct end e;

	become(FIRST_UID + 1);
	die_unless(read(sock, dir, sizeof(dir)) == sizeof(dir) && read(sock, &other, sizeof(other)) == sizeof(other));
	/* A device of its own, with a name that leads nowhere. */
	end_open(&e, 1, SIZE);
	die_unless(strcmp(sr_context(e.ctx)->dir, dir));
	die_unless(!sr_peer_get(sr_context(e.ctx), other.qpn[0] >> SR_QP_BITS));
	end_close(&e);
	snprintf(path, sizeof(path), "%s/ctx-%03x", dir, other.qpn[0] >> SR_QP_BITS);
	die_unless(open(path, O_RDONLY) < 0 && errno == EACCES);
	die_unless(!opendir(dir) && errno == EACCES);
	setenv("SOFTRDMA_DIR", dir, 1);
	list = ibv_get_device_list(NULL);
	die_unless(list && !ibv_open_device(list[0]) && errno == EPERM);
	meet(sock);
	return 0;
}

static void test_two_users(void **state)
{
	char dir[SR_PATH_MAX], command[160];
	struct end_name name;
	int sock[2];
	pid_t pid[2];

	if (geteuid()) {
		print_message("only root can be two users\n");
		skip();
	}
	pid[0] = spawn_end(first_user, &sock[0]);
	pid[1] = spawn_end(second_user, &sock[1]);
	die_unless(read(sock[0], dir, sizeof(dir)) == sizeof(dir));
	die_unless(read(sock[0], &name, sizeof(name)) == sizeof(name));
	die_unless(write(sock[1], dir, sizeof(dir)) == sizeof(dir));
	die_unless(write(sock[1], &name, sizeof(name)) == sizeof(name));
	meet(sock[1]);
	meet(sock[0]);
	assert_int_equal(reap(pid[0]), 0);
	assert_int_equal(reap(pid[1]), 0);
	snprintf(command, sizeof(command), "rm -rf /dev/shm/softrdma-%u /dev/shm/softrdma-%u", FIRST_UID, FIRST_UID + 1);
	assert_int_equal(system(command), 0);
}

/* All but the other users' in a directory of our own, so that what is counted is ours. */
static int own_directory(void **state)
{
	static char dir[] = "/dev/shm/softrdma-scarce-XXXXXX";

	*state = dir;
	return !mkdtemp(dir) || setenv("SOFTRDMA_DIR", dir, 1);
}

static int directory_remove(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s /dev/shm/softrdma-modes-*", (char *)*state);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ever_more_room), cmocka_unit_test(test_full_while_used),
		cmocka_unit_test(test_no_descriptor),  cmocka_unit_test(test_living_holder_unseen),
		cmocka_unit_test(test_fork),	       cmocka_unit_test(test_modes),
		cmocka_unit_test(test_two_users),
	};

	return cmocka_run_group_tests(tests, own_directory, directory_remove);
}
