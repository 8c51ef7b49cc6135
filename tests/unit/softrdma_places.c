/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the device can be used from: a library opened with RTLD_LOCAL, a thread that the libc does not know, many
 * threads at once, a process in which an earlier context has vanished; and shared receive queues, which several
 * peers take from.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "softrdma_directory.h"
#include "softrdma_util.h"

/* A sanitizer has state of its own in each thread, and mappings that must not vanish. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define SIZE 65536u
#define SIG IBV_SEND_SIGNALED

static void one_loop(struct end *e)
{
	memset(e->buf, 0, e->size);
	fill(e->buf, 3000, 5);
	die_unless(!post_recv(e, 0, 1, 4096, 4096));
	die_unless(!post(e, 0, 2, IBV_WR_SEND, 0, 3000, 0, SIG));
	good_wc(e->scq, 2);
	good_wc(e->rcq, 1);
	die_unless(filled(e->buf + 4096, 3000, 5));
}

/* ---- a bare thread ---- */

#define STACK (256u << 10)
#define TLS (64u << 10)

static _Atomic int bare_done;

static int bare(void *arg)
{
	struct end e;
	struct ibv_cq *cq;
	void *context;

	end_open(&e, 1, SIZE);
	end_connect_to(&e, &e.me);
	die_unless(!ibv_req_notify_cq(e.scq, 0));
	one_loop(&e);
	die_unless(!ibv_get_cq_event(e.channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	end_close(&e);
	bare_done = 1;
	raw_exit_thread(0);
}

static void *idle(void *arg)
{
	pthread_mutex_lock(arg);
	return NULL;
}

/*
 * The program has threads, so the libc takes its careful ways; the caller has nothing of a thread but a stack and
 * a zeroed block.
 */
static void test_thread_without_libc(void **state)
{
	pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
	pthread_t other;
	char *block = mmap(NULL, STACK + TLS + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *tcb = block + STACK + TLS;
	long tid;

	if (SANITIZED)
		skip();
	pthread_mutex_lock(&hold);
	assert_int_equal(pthread_create(&other, NULL, idle, &hold), 0);
	memcpy(tcb, &tcb, sizeof(char *));
	memcpy(tcb + 16, &tcb, sizeof(char *));
	tid = clone(bare, block + STACK,
		    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS,
		    NULL, NULL, tcb);
	assert_true(tid > 0);
	while (!bare_done)
		sched_yield();
	while (!raw_tgkill(getpid(), (int)tid, 0)) /* its stack is in use until then */
		sched_yield();
	pthread_mutex_unlock(&hold);
	pthread_join(other, NULL);
	munmap(block, STACK + TLS + 4096);
}

/* ---- a context that has vanished ---- */

struct range {
	unsigned long from, to;
};

static size_t maps(struct range *r, size_t max)
{
	static char buf[1 << 18];
	long n = raw_read_file("/proc/self/maps", buf, sizeof(buf));
	size_t count = 0;
	char *line;

	die_unless(n > 0);
	for (line = buf; line && *line && count < max; line = strchr(line, '\n'), line += line != NULL)
		count += sscanf(line, "%lx-%lx", &r[count].from, &r[count].to) == 2;
	return count;
}

/* Unmaps what of @x was not there before; a new mapping may have been merged with an old neighbour. */
static void unmap_new(const struct range *before, size_t n, struct range x)
{
	while (x.from < x.to) {
		unsigned long end = x.to, inside = 0;
		size_t i;

		for (i = 0; i < n; i++) {
			if (before[i].from <= x.from && x.from < before[i].to)
				inside = before[i].to;
			else if (before[i].from > x.from && before[i].from < end)
				end = before[i].from;
		}
		if (!inside)
			munmap((void *)x.from, end - x.from);
		x.from = inside ? inside : end;
	}
}

static void test_earlier_context_vanished(void **state)
{
	static struct range before[500], after[500];
	size_t nb = maps(before, 500), na, i;
	int first = dup(0), fd;
	struct end e;

	if (SANITIZED)
		skip();
	close(first);
	end_open(&e, 1, SIZE);
	end_connect_to(&e, &e.me);
	one_loop(&e);
	na = maps(after, 500);
	for (i = 0; i < na; i++)
		unmap_new(before, nb, after[i]);
	for (fd = first; fd < first + 20; fd++)
		close(fd);
	end_open(&e, 1, SIZE);
	end_connect_to(&e, &e.me);
	one_loop(&e);
	end_close(&e);
}

/* ---- many threads ---- */

#define THREADS 4
#define EACH 2000

static struct end shared;

static void *poster(void *arg)
{
	int i, q = (int)(intptr_t)arg % 2;

	for (i = 0; i < EACH; i++)
		while (post(&shared, q, 1, IBV_WR_RDMA_WRITE, 0, 64, 4096 * (size_t)(q + 1), SIG) == ENOMEM)
			sched_yield();
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[THREADS];
	struct ibv_wc wc[8];
	intptr_t i;
	int got = 0, n;

	end_open(&shared, 2, SIZE);
	end_connect_to(&shared, &shared.me);
	for (i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, poster, (void *)i);
	while (got < THREADS * EACH) {
		n = ibv_poll_cq(shared.scq, 8, wc);
		die_unless(n >= 0);
		got += n;
		while (n--)
			die_unless(wc[n].status == IBV_WC_SUCCESS);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	expect_empty(shared.scq);
	end_close(&shared);
}

/* ---- RTLD_LOCAL ---- */

static void test_dlopen_local(void **state)
{
	const char *path = getenv("SOFTRDMA_LIB");
	struct ibv_device **(*list)(int *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_context *ctx;
	struct ibv_device **l;
	void *lib;

	if (!path)
		skip();
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		fail_msg("%s", dlerror());
	list = (__typeof__(list))dlsym(lib, "ibv_get_device_list");
	open_device = (__typeof__(open_device))dlsym(lib, "ibv_open_device");
	close_device = (__typeof__(close_device))dlsym(lib, "ibv_close_device");
	assert_true(list && open_device && close_device);
	assert_null(dlsym(lib, "verbs_register_driver_34"));
	l = list(NULL);
	ctx = open_device(l[0]);
	assert_non_null(ctx);
	assert_int_equal(close_device(ctx), 0);
	dlclose(lib);
}

/* ---- shared receive queues ---- */

#define SRQ_MESSAGES 300

static int srq_sender(int sock)
{
	struct end e;
	int i;

	end_open_connected(&e, 1, SIZE, sock);
	for (i = 0; i < SRQ_MESSAGES; i++) {
		uint32_t len = i % 3 ? 40 : 9000;

		fill(e.buf, len, (unsigned int)i);
		die_unless(!post(&e, 0, 1, IBV_WR_SEND_WITH_IMM, 0, len, 0, SIG));
		good_wc(e.scq, 1);
	}
	meet(sock);
	end_close(&e);
	return 0;
}

static void srq_post(struct end *e, struct ibv_srq *srq, uint64_t slot)
{
	struct ibv_sge s = { (uintptr_t)e->buf + slot * 16384, 16384, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &s, .num_sge = 1 }, *bad;

	die_unless(!ibv_post_srq_recv(srq, &wr, &bad));
}

static void srq_end(struct end *e, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = e->scq, .recv_cq = e->rcq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	int i;

	for (i = 0; i < e->nqp; i++) {
		die_unless(!ibv_destroy_qp(e->qp[i]));
		e->qp[i] = ibv_create_qp(e->pd, &init);
		die_unless(e->qp[i]);
		e->me.qpn[i] = e->qp[i]->qp_num;
	}
}

/* Two senders, one of them to each queue pair; four receives for all, so both often find none. */
static void test_shared_receive_queue(void **state)
{
	struct ibv_srq_init_attr sia = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_async_event ev;
	struct end e;
	struct ibv_srq *srq;
	int sock[2], q, got[2] = { 0, 0 };
	struct end_name me;
	pid_t pid[2];
	uint64_t i;

	for (q = 0; q < 2; q++)
		pid[q] = spawn_end(srq_sender, &sock[q]);
	end_open(&e, 2, SIZE);
	srq = ibv_create_srq(e.pd, &sia);
	die_unless(srq);
	srq_end(&e, srq);
	die_unless(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	me = e.me;
	for (q = 0; q < 2; q++) {
		struct end_name other;

		die_unless(read(sock[q], &other, sizeof(other)) == sizeof(other));
		qp_to_init(e.qp[q], ALL_ACCESS);
		qp_to_rts(e.qp[q], other.qpn[0], &e);
		me.qpn[0] = e.me.qpn[q];
		die_unless(write(sock[q], &me, sizeof(me)) == sizeof(me));
	}
	for (q = 0; q < 2; q++)
		meet(sock[q]);
	for (i = 0; i < 4; i++)
		srq_post(&e, srq, i);
	for (i = 0; i < 2 * SRQ_MESSAGES; i++) {
		struct ibv_wc wc = next_wc(e.rcq);

		die_unless(wc.status == IBV_WC_SUCCESS);
		q = wc.qp_num == e.me.qpn[1];
		die_unless(wc.byte_len == (got[q] % 3 ? 40u : 9000u));
		die_unless(filled(e.buf + wc.wr_id * 16384, wc.byte_len, (unsigned int)got[q]));
		got[q]++;
		srq_post(&e, srq, wc.wr_id);
	}
	for (q = 0; q < 2; q++)
		meet(sock[q]);
	die_unless(!ibv_get_async_event(e.ctx, &ev) && ev.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&ev);
	for (q = 0; q < 2; q++)
		assert_int_equal(reap(pid[q]), 0);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	for (q = 0; q < 2; q++)
		die_unless(!ibv_destroy_qp(e.qp[q]));
	die_unless(!ibv_destroy_srq(srq));
	e.nqp = 0;
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread_without_libc), cmocka_unit_test(test_earlier_context_vanished),
		cmocka_unit_test(test_threads),		    cmocka_unit_test(test_dlopen_local),
		cmocka_unit_test(test_shared_receive_queue),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
