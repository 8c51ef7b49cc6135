/* SPDX-License-Identifier: BSD-2-Clause */
/* A reliable queue pair of one process connected to itself, for benchmarks of what a call costs: the device does the least. */
#pragma once

#include <infiniband/verbs.h>
#include <time.h>

struct ibv_context *self_open(void);
struct ibv_qp *self_qp(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap);
/* Ends the program if @good is 0. */
void self_must(int good, const char *what);
double self_now_ns(void);
/* One RDMA WRITE of 8 bytes from @at to @at + 64, signalled. */
void self_write(struct ibv_qp *qp, const struct ibv_mr *mr, char *at);
/* Until @n completions have come; all have to be good. */
void self_poll(struct ibv_cq *cq, int n);
