/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All calls from many threads at once, on one context: traffic in loopback and with another process, while others make and
 * end regions, queues and channels, and one sleeps on events. What ThreadSanitizer looks at; by itself it counts. And
 * all threads on one processor, with a lock around ibv_poll_cq.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma_directory.h"
#include "softrdma_util.h"

#define SIZE (512u << 10)
/* Queue pairs 0 and 1 are each other's; 2 and 3 lead to the other process. */
#define EACH 1500 /* messages of a queue pair */
#define SIG IBV_SEND_SIGNALED

static struct end e;
static _Atomic int received[4], sent[4], done, stop;

static size_t place(int q, int receive, int i) { return (size_t)(((q * 2 + receive) * 16 + i % 16) * 2048); }

/* ---- traffic ---- */

static void *sender(void *arg)
{
	static const uint32_t lengths[] = { 8, 600, 2000 };
	int q = (int)(intptr_t)arg, i;

	for (i = 0; i < EACH; i++) {
		uint32_t len = lengths[i % 3];

		while (i - atomic_load(&sent[q]) >= 16)
			sched_yield();
		fill(e.buf + place(q, 0, i), len, (unsigned int)i);
		die_unless(!post(&e, q, (uint64_t)q, IBV_WR_SEND, place(q, 0, i), len, 0, SIG));
	}
	return NULL;
}

static void *send_poller(void *arg)
{
	struct ibv_wc wc[4];
	int n;

	while (!atomic_load(&stop)) {
		n = ibv_poll_cq(e.scq, 4, wc);
		die_unless(n >= 0);
		while (n--) {
			die_unless(wc[n].status == IBV_WC_SUCCESS);
			atomic_fetch_add(&sent[wc[n].wr_id], 1);
		}
	}
	return NULL;
}

static void receive_one(const struct ibv_wc *wc)
{
	static const uint32_t lengths[] = { 8, 600, 2000 };
	int q = (int)wc->wr_id, i = atomic_load(&received[q]);

	die_unless(wc->status == IBV_WC_SUCCESS && wc->byte_len == lengths[i % 3]);
	die_unless(filled(e.buf + place(q, 1, i), wc->byte_len, (unsigned int)i));
	die_unless(!post_recv(&e, q, (uint64_t)q, place(q, 1, i), 2048));
	if (atomic_fetch_add(&received[q], 1) + 1 == EACH)
		atomic_fetch_add(&done, 1);
}

/* By events; the receive CQ is its alone. */
static void *receiver(void *arg)
{
	struct pollfd p = { .fd = e.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	while (atomic_load(&done) < 4) {
		die_unless(!ibv_req_notify_cq(e.rcq, 0));
		while (ibv_poll_cq(e.rcq, 1, &wc) > 0)
			receive_one(&wc);
		if (atomic_load(&done) == 4)
			break;
		die_unless(poll(&p, 1, 20000) == 1);
		die_unless(!ibv_get_cq_event(e.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

/* ---- makers ---- */

static void *regions(void *arg)
{
	while (!atomic_load(&stop)) {
		struct ibv_mr *mr = ibv_reg_mr(e.pd, e.buf, SIZE, ALL_ACCESS);

		die_unless(mr && !ibv_dereg_mr(mr));
	}
	return NULL;
}

static void *queues(void *arg)
{
	while (!atomic_load(&stop)) {
		struct ibv_comp_channel *ch = ibv_create_comp_channel(e.ctx);
		struct ibv_cq *cq = ibv_create_cq(e.ctx, 16, NULL, ch, 0);
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
						 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
							  .max_recv_sge = 1 } };
		struct ibv_sge s = { (uintptr_t)e.buf + SIZE - 64, 8, e.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
					  .send_flags = SIG, .wr.rdma = { (uintptr_t)e.buf + SIZE - 128, e.mr->rkey } },
				   *bad;
		struct ibv_qp *qp;

		die_unless(ch && cq);
		qp = ibv_create_qp(e.pd, &init);
		die_unless(qp);
		qp_to_init(qp, ALL_ACCESS);
		qp_to_rts(qp, qp->qp_num, &e);
		die_unless(!ibv_post_send(qp, &wr, &bad));
		good_wc(cq, 5);
		die_unless(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch));
	}
	return NULL;
}

static void *contexts(void *arg)
{
	while (!atomic_load(&stop)) {
		struct end other;

		end_open(&other, 1, 4096);
		end_close(&other);
	}
	return NULL;
}

/* ---- the other process: sends back what comes ---- */

static int echo(int sock)
{
	struct end o;
	int i, q;

	end_open(&o, 2, SIZE);
	for (q = 0; q < 2; q++) {
		qp_to_init(o.qp[q], ALL_ACCESS);
		for (i = 0; i < 32; i++)
			die_unless(!post_recv(&o, q, (uint64_t)(q * 32 + i), (size_t)(q * 32 + i) * 2048, 2048));
	}
	end_connect(&o, sock);
	for (i = 0; i < 2 * EACH; i++) {
		struct ibv_wc wc = next_wc(o.rcq);

		die_unless(wc.status == IBV_WC_SUCCESS);
		q = (int)wc.wr_id / 32;
		die_unless(!post(&o, q, 9, IBV_WR_SEND, (size_t)wc.wr_id * 2048, wc.byte_len, 0, SIG));
		good_wc(o.scq, 9);
		die_unless(!post_recv(&o, q, wc.wr_id, (size_t)wc.wr_id * 2048, 2048));
	}
	meet(sock);
	end_close(&o);
	return 0;
}

static void connect_all(int sock)
{
	struct end_name me, other;
	int q, i;

	for (q = 0; q < 4; q++) {
		qp_to_init(e.qp[q], ALL_ACCESS);
		for (i = 0; i < 16; i++)
			die_unless(!post_recv(&e, q, (uint64_t)q, place(q, 1, i), 2048));
	}
	me = e.me;
	me.qpn[0] = e.me.qpn[2];
	me.qpn[1] = e.me.qpn[3];
	die_unless(write(sock, &me, sizeof(me)) == sizeof(me) && read(sock, &other, sizeof(other)) == sizeof(other));
	qp_to_rts(e.qp[0], e.me.qpn[1], &e);
	qp_to_rts(e.qp[1], e.me.qpn[0], &e);
	qp_to_rts(e.qp[2], other.qpn[0], &e);
	qp_to_rts(e.qp[3], other.qpn[1], &e);
	e.other = e.me;
	meet(sock);
}

static void test_all_at_once(void **state)
{
	void *(*const makers[])(void *) = { regions, queues, contexts, send_poller, send_poller };
	pthread_t traffic[5], maker[5];
	int sock, i;
	pid_t pid = spawn_end(echo, &sock);

	end_open(&e, 4, SIZE);
	e.timeout = 14; /* many threads, few processors */
	connect_all(sock);
	for (i = 0; i < 5; i++)
		pthread_create(&maker[i], NULL, makers[i], NULL);
	for (i = 0; i < 4; i++)
		pthread_create(&traffic[i], NULL, sender, (void *)(intptr_t)i);
	pthread_create(&traffic[4], NULL, receiver, NULL);
	for (i = 0; i < 5; i++)
		pthread_join(traffic[i], NULL);
	while (atomic_load(&sent[0]) + atomic_load(&sent[1]) + atomic_load(&sent[2]) + atomic_load(&sent[3]) < 4 * EACH)
		sched_yield();
	atomic_store(&stop, 1);
	for (i = 0; i < 5; i++)
		pthread_join(maker[i], NULL);
	meet(sock);
	assert_int_equal(reap(pid), 0);
	end_close(&e);
}

/* ---- one processor for all, and a lock around the poll ---- */

#define TURNS 40 /* of each that wants the lock */

static pthread_spinlock_t lock;

static void *locks_and_polls(void *arg)
{
	struct ibv_wc wc;

	while (!atomic_load(&stop)) {
		pthread_spin_lock(&lock);
		die_unless(!ibv_poll_cq(e.rcq, 1, &wc));
		pthread_spin_unlock(&lock);
		for (int i = 0; i < 20; i++)
			__builtin_ia32_pause();
	}
	return NULL;
}

static void *wants_lock(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		pthread_spin_lock(&lock);
		atomic_fetch_add(&done, 1);
		pthread_spin_unlock(&lock);
		sched_yield();
	}
	return NULL;
}

static void to_first_processor(void)
{
	cpu_set_t all, one;
	int i = 0;

	die_unless(!sched_getaffinity(0, sizeof(all), &all));
	while (!CPU_ISSET(i, &all))
		i++;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	die_unless(!sched_setaffinity(0, sizeof(one), &one));
}

/* As with UCX where Open MPI binds a rank: the poll is the wrong place to leave the processor to the others, for ever. */
static void test_lock_around_poll(void **state)
{
	struct timespec limit;
	pthread_t poller, other[2];
	int i;

	end_open(&e, 1, 4096);
	to_first_processor();
	atomic_store(&stop, 0);
	atomic_store(&done, 0);
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	pthread_create(&poller, NULL, locks_and_polls, NULL);
	for (i = 0; i < 2; i++)
		pthread_create(&other[i], NULL, wants_lock, NULL);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 40;
	for (i = 0; i < 2; i++)
		die_unless(!pthread_timedjoin_np(other[i], NULL, &limit));
	assert_int_equal(atomic_load(&done), 2 * TURNS);
	atomic_store(&stop, 1);
	pthread_join(poller, NULL);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_lock_around_poll) };

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
