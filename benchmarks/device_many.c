/* SPDX-License-Identifier: BSD-2-Clause */
/* What it takes to make many objects, and to have them and do nothing. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

struct device {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(1);
	}
}

static void device_open(struct device *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	d->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	must(d->ctx != NULL, "opening the device");
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->ctx);
	d->channel = ibv_create_comp_channel(d->ctx);
	d->cq = d->channel ? ibv_create_cq(d->ctx, 1000, NULL, d->channel, 0) : NULL;
	must(d->pd && d->cq, "queues");
}

static void device_close(struct device *d)
{
	must(!ibv_destroy_cq(d->cq) && !ibv_destroy_comp_channel(d->channel) && !ibv_dealloc_pd(d->pd) &&
		     !ibv_close_device(d->ctx),
	     "closing");
}

double device_make_qps(unsigned int n)
{
	struct ibv_qp **qp = calloc(n, sizeof(struct ibv_qp *));
	struct device d;
	unsigned int i;
	double took;

	device_open(&d);
	took = bench_now();
	for (i = 0; i < n; i++) {
		struct ibv_qp_init_attr init = { .send_cq = d.cq, .recv_cq = d.cq, .qp_type = IBV_QPT_RC,
						 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
							  .max_recv_sge = 1 } };

		qp[i] = ibv_create_qp(d.pd, &init);
		must(qp[i] != NULL, "queue pair");
	}
	took = bench_now() - took;
	for (i = 0; i < n; i++)
		must(!ibv_destroy_qp(qp[i]), "end of a queue pair");
	device_close(&d);
	free(qp);
	return took / n;
}

double device_make_mrs(unsigned int n)
{
	struct ibv_mr **mr = calloc(n, sizeof(struct ibv_mr *));
	char *memory = calloc(n, 64);
	struct device d;
	unsigned int i;
	double took;

	device_open(&d);
	took = bench_now();
	for (i = 0; i < n; i++) {
		mr[i] = ibv_reg_mr(d.pd, memory + (size_t)i * 64, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		must(mr[i] != NULL, "region");
	}
	took = bench_now() - took;
	for (i = 0; i < n; i++)
		must(!ibv_dereg_mr(mr[i]), "end of a region");
	device_close(&d);
	free(mr);
	free(memory);
	return took / n;
}

static double processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double device_idle(void)
{
	struct timespec second = { .tv_sec = 1 };
	struct device d;
	double took;

	device_open(&d);
	must(!ibv_req_notify_cq(d.cq, 0), "arming");
	took = processor_time();
	nanosleep(&second, NULL);
	took = processor_time() - took;
	device_close(&d);
	return took;
}
