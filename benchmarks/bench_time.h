/* SPDX-License-Identifier: BSD-2-Clause */
/* Clocks and medians of the small benchmark programs. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int bench_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double bench_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), bench_order);
	return v[n / 2];
}

/* About 1 GB moved in all, at least 7 times. */
static inline size_t bench_repeats(size_t size, size_t max)
{
	size_t n = 1000000000u / (size ? size : 1);

	return n < 7 ? 7 : n > max ? max : n;
}
