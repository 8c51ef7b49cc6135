/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program changes while a message from another host is taken in: what ends well has its data, at whatever moment.
 *
 * A receive that is posted: a child is both hosts. The thread that takes messages in for the receiving one is stepped by ptrace, from the first
 * bytes of a message on; after the n-th instruction the program posts the receive, and the thread goes on. Each n is a message, every
 * STRIDE-th from a random one on. A region that is registered again: a thread does so all the time.
 */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE 65536u
#define LENGTH 20000u /* its place is looked for when its first bytes are there */
#define STRIDE 13
#define STEPS 800
#define SLEEPS_MS 100
#define CHANGE_MS 20 /* the change may have to wait for the thread */
#define ROUNDS 4000

struct scene {
	const char *name;
	enum ibv_wr_opcode op;
	enum ibv_qp_type type;
};

static const struct scene receives[] = {
	{ "a receive is posted", IBV_WR_SEND, IBV_QPT_RC },
	{ "a receive is posted for a write", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QPT_RC },
	{ "a receive is posted, unreliable", IBV_WR_SEND, IBV_QPT_UC },
};
static const struct scene regions[] = {
	{ "a region is registered again", IBV_WR_RDMA_WRITE, IBV_QPT_RC },
	{ "a region is registered again, with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QPT_RC },
	{ "a receive's region is registered again", IBV_WR_SEND, IBV_QPT_RC },
};
#define LENGTH_OF(array) (sizeof(array) / sizeof(*(array)))

static const struct scene *scene;

/* ---- both hosts ---- */

static void connect_both(struct pair *p)
{
	end_connect_to(&p->b, &p->a.me);
	end_connect_to(&p->a, &p->b.me);
}

static void queue_again(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;

	die_unless(!ibv_modify_qp(e->qp[0], &a, IBV_QP_STATE));
	while (ibv_poll_cq(e->scq, 1, &wc) || ibv_poll_cq(e->rcq, 1, &wc))
		;
}

static void both_again(struct pair *p)
{
	queue_again(&p->a);
	queue_again(&p->b);
	connect_both(p);
}

static void begin(struct pair *p)
{
	memset(p->b.buf, 0, SIZE);
	fill(p->a.buf, LENGTH, 5);
	die_unless(!post(&p->a, 0, 1, scene->op, 0, LENGTH, 0, IBV_SEND_SIGNALED));
}

/* The two hosts, and the thread of b's, which is made when b has somebody to talk to. */
static pid_t hosts_open(struct pair *p)
{
	struct dirent *entry;
	pid_t tid = 0;
	DIR *d;

	end_open_as(&p->a, 1, SIZE, scene->type);
	end_open_as(&p->b, 1, SIZE, scene->type);
	end_connect_to(&p->b, &p->a.me);
	d = opendir("/proc/self/task");
	while ((entry = readdir(d)))
		if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid())
			tid = atoi(entry->d_name);
	closedir(d);
	end_connect_to(&p->a, &p->b.me);
	return tid;
}

/* An unreliable message that found no receive is gone, and nothing is said of it: the next one takes that. */
static void end_well(struct pair *p)
{
	good_wc(p->a.scq, 1);
	if (scene->type != IBV_QPT_RC) {
		die_unless(!post(&p->a, 0, 3, scene->op, 0, 1, 0, IBV_SEND_SIGNALED));
		good_wc(p->a.scq, 3);
	}
	if (good_wc(p->b.rcq, 2).byte_len == LENGTH || scene->type == IBV_QPT_RC)
		die_unless(filled(p->b.buf, LENGTH, 5));
}

static int hosts(int sock)
{
	struct pair p;
	pid_t tid = hosts_open(&p);
	char what;

	die_unless(write(sock, &tid, sizeof(tid)) == sizeof(tid));
	while (read(sock, &what, 1) == 1) {
		if (what == 'b') {
			begin(&p);
		} else if (what == 'c') {
			die_unless(!post_recv(&p.b, 0, 2, 0, SIZE));
		} else {
			end_well(&p);
			both_again(&p);
		}
		die_unless(write(sock, &what, 1) == 1);
	}
	pair_close(&p);
	return 0;
}

/* ---- who steps ---- */

/* 0: the child has not answered yet. */
static int answered(int sock, int ms)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	char what;

	if (!poll(&p, 1, ms))
		return 0;
	die_unless(read(sock, &what, 1) == 1);
	return 1;
}

static void tell(int sock, char what)
{
	die_unless(send(sock, &what, 1, MSG_NOSIGNAL) == 1);
}

static int stopped(pid_t tid, int ms)
{
	struct timespec begin, now;
	int status;
	pid_t pid;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		pid = waitpid(tid, &status, __WALL | WNOHANG);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!pid && (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
	die_unless(!pid || (pid == tid && WIFSTOPPED(status)));
	return pid != 0;
}

/* Up to the end of the system call that brings the first bytes. */
static void until_arrival(pid_t tid)
{
	struct user_regs_struct regs;

	do {
		die_unless(!ptrace(PTRACE_SYSCALL, tid, 0, 0) && stopped(tid, 10000));
		die_unless(!ptrace(PTRACE_GETREGS, tid, 0, &regs));
	} while (regs.orig_rax != SYS_recvfrom || (long long)regs.rax < 100);
}

/* 1: it sleeps, all that came is taken in. */
static int steps(pid_t tid, unsigned int n)
{
	while (n--) {
		die_unless(!ptrace(PTRACE_SINGLESTEP, tid, 0, 0));
		if (stopped(tid, SLEEPS_MS))
			continue;
		/* A step that ends in being interrupted ends once more. */
		die_unless(!ptrace(PTRACE_INTERRUPT, tid, 0, 0) && stopped(tid, 10000));
		die_unless(!ptrace(PTRACE_SINGLESTEP, tid, 0, 0) && stopped(tid, 10000));
		return 1;
	}
	return 0;
}

static int one_moment(int sock, pid_t tid, unsigned int n)
{
	int ended, changed;

	die_unless(!ptrace(PTRACE_SEIZE, tid, 0, 0) && !ptrace(PTRACE_INTERRUPT, tid, 0, 0) && stopped(tid, 10000));
	tell(sock, 'b');
	die_unless(answered(sock, 10000));
	until_arrival(tid);
	ended = steps(tid, n);
	tell(sock, 'c');
	changed = answered(sock, CHANGE_MS);
	die_unless(!ptrace(PTRACE_DETACH, tid, 0, 0));
	die_unless(changed || answered(sock, 10000));
	tell(sock, 'e');
	die_unless(answered(sock, 30000));
	return ended;
}

static void test_receive(void **state)
{
	unsigned int n = (unsigned int)random() % STRIDE;
	pid_t pid, tid;
	int sock;

	scene = *state;
	pid = spawn_end(hosts, &sock);
	die_unless(read(sock, &tid, sizeof(tid)) == sizeof(tid));
	while (n < STEPS && !one_moment(sock, tid, n))
		n += STRIDE;
	close(sock);
	print_message("%s: %u instructions\n", scene->name, n);
	assert_int_equal(reap(pid), 0);
}

/* ---- a region ---- */

static atomic_int stop;

static void *registers_again(void *arg)
{
	struct ibv_mr *mr = arg;

	while (!atomic_load(&stop))
		die_unless(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS));
	return NULL;
}

/* Both ends agree: the data is there, or the region was not. 1: it ended well. */
static int one_message(struct pair *p)
{
	struct ibv_wc sent, got;

	if (scene->op != IBV_WR_RDMA_WRITE)
		die_unless(!post_recv(&p->b, 0, 2, 0, SIZE));
	begin(p);
	sent = next_wc(p->a.scq);
	got = scene->op == IBV_WR_RDMA_WRITE ? sent : next_wc(p->b.rcq);
	if (sent.status == IBV_WC_SUCCESS) {
		die_unless(got.status == IBV_WC_SUCCESS && filled(p->b.buf, LENGTH, 5));
		return 1;
	}
	die_unless(sent.status == (scene->op == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR));
	die_unless(got.status != IBV_WC_SUCCESS);
	both_again(p);
	return 0;
}

static void test_region(void **state)
{
	int well = 0, i;
	pthread_t t;
	struct pair p;

	scene = *state;
	pair_open(&p, SIZE);
	atomic_store(&stop, 0);
	die_unless(!pthread_create(&t, NULL, registers_again, p.b.mr));
	for (i = 0; i < ROUNDS; i++)
		well += one_message(&p);
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	pair_close(&p);
	print_message("%s: %d of %d found it\n", scene->name, well, i);
}

int main(void)
{
	struct CMUnitTest tests[LENGTH_OF(receives) + LENGTH_OF(regions)], *t = tests;

	srandom((unsigned int)getpid());
	for (size_t i = 0; i < LENGTH_OF(receives); i++)
		*t++ = (struct CMUnitTest){ .name = receives[i].name, .test_func = test_receive, .initial_state = (void *)&receives[i] };
	for (size_t i = 0; i < LENGTH_OF(regions); i++)
		*t++ = (struct CMUnitTest){ .name = regions[i].name, .test_func = test_region, .initial_state = (void *)&regions[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
