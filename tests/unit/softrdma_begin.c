/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first messages between two hosts, when both ends say something at once: each dials the other, one of the two connections goes, and what
 * was said on it must not go with it. Each round is another pair of contexts.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "softrdma_datagram.h"
#include "softrdma_directory.h"
#include "softrdma_pair.h"
#include "softrdma_util.h"

#define SIZE 4096u
#define MESSAGES 4
#define ROUNDS 60

static pthread_barrier_t begin;

struct sender {
	struct end *e;
	struct ibv_ah *ah; /* NULL: connected */
	pthread_t thread;
};

static void *send_all(void *arg)
{
	struct sender *s = arg;
	uint64_t i;

	pthread_barrier_wait(&begin);
	for (i = 0; i < MESSAGES; i++)
		if (s->ah)
			die_unless(!datagram_post(s->e, s->ah, s->e->other.qpn[0], END_QKEY, i, 100));
		else
			die_unless(!post(s->e, 0, i, IBV_WR_SEND, 0, 100, 0, IBV_SEND_SIGNALED));
	return NULL;
}

static void receive_all(struct end *e)
{
	uint64_t i;

	for (i = 0; i < MESSAGES; i++)
		good_wc(e->rcq, i);
	for (i = 0; i < MESSAGES; i++)
		good_wc(e->scq, i);
}

static void end_ready(struct end *e, struct sender *s, int datagrams)
{
	struct ibv_ah_attr to = { .dlid = e->other.lid, .port_num = 1 };
	uint64_t i;

	*s = (struct sender){ .e = e };
	if (datagrams)
		die_unless((s->ah = ibv_create_ah(e->pd, &to)) != NULL);
	for (i = 0; i < MESSAGES; i++)
		die_unless(!post_recv(e, 0, i, 1024 + (size_t)i * 256, 200));
	die_unless(!pthread_create(&s->thread, NULL, send_all, s));
}

static void round_of(enum ibv_qp_type type)
{
	struct sender s[2];
	struct pair p;
	int i;

	pair_open_as(&p, type, SIZE);
	end_ready(&p.a, &s[0], type == IBV_QPT_UD);
	end_ready(&p.b, &s[1], type == IBV_QPT_UD);
	receive_all(&p.a);
	receive_all(&p.b);
	for (i = 0; i < 2; i++) {
		pthread_join(s[i].thread, NULL);
		die_unless(!s[i].ah || !ibv_destroy_ah(s[i].ah));
	}
	pair_close(&p);
}

static void test_connections(void **state)
{
	for (int i = 0; i < ROUNDS; i++)
		round_of(IBV_QPT_UC);
}

static void test_datagrams(void **state)
{
	for (int i = 0; i < ROUNDS; i++)
		round_of(IBV_QPT_UD);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_connections), cmocka_unit_test(test_datagrams) };

	die_unless(!pthread_barrier_init(&begin, NULL, 2));
	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
