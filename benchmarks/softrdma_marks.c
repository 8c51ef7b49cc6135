/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softrdma's marks, as ratios: its latency against TCP's over the loopback, its bandwidth against one memcpy of
 * the same size. What is compared is measured in turns; of the turns the better half counts, as others use this
 * machine too. Prints one line a figure: name value (mark, ok or short).
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench_time.h"
#include "device.h"

#define TURNS 6

/* The mean of the smaller half. */
static double better_half(double *v)
{
	double sum = 0;
	int i;

	bench_median(v, TURNS);
	for (i = 0; i < TURNS / 2; i++)
		sum += v[i];
	return sum / (TURNS / 2);
}

/* Two spinning processes need two processors: only the best turn had them for sure. */
static double best(double *v)
{
	bench_median(v, TURNS);
	return v[0];
}

static void show_latency(const char *what, size_t size, double it, double tcp)
{
	printf("softrdma-%s-latency %.3f of TCP loopback's, %zu bytes: %.2f us against %.2f (below 0.20, %s)\n", what,
	       it / tcp, size, it * 1e6, tcp * 1e6, it / tcp < 0.2 ? "ok" : "short");
}

static void latencies(size_t size)
{
	double tcp[TURNS], send[TURNS], write[TURNS], base, s, w;
	int i;

	for (i = 0; i < TURNS; i++) {
		tcp[i] = device_tcp(size);
		send[i] = device_verbs(DEVICE_SEND_PINGPONG, size);
		write[i] = device_verbs(DEVICE_WRITE_PINGPONG, size);
	}
	base = best(tcp);
	s = best(send);
	w = best(write);
	show_latency("send", size, s, base);
	show_latency("write", size, w, base);
}

static void bandwidth(size_t size, int marked)
{
	double copy[TURNS], write[TURNS], c, w;
	int i;

	for (i = 0; i < TURNS; i++) {
		copy[i] = device_copy(size);
		write[i] = device_verbs(DEVICE_WRITE, size);
	}
	c = better_half(copy);
	w = better_half(write);
	printf("softrdma-write-bandwidth %.2f of one memcpy's, %zu KiB: %.1f GB/s against %.1f", c / w, size >> 10,
	       (double)size / w / 1e9, (double)size / c / 1e9);
	if (marked)
		printf(" (at least 0.80, %s)", c / w >= 0.8 ? "ok" : "short");
	putchar('\n');
}

int main(void)
{
	/* The children must not inherit lines that are not yet written. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	latencies(8);
	/* Within the caches the kernel's page walk is what is seen; the mark is for messages beyond them. */
	bandwidth(64u << 10, 0);
	bandwidth(1u << 20, 0);
	bandwidth(8u << 20, 0);
	bandwidth(64u << 20, 1);
	return 0;
}
