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

static void mark(const char *name, double value, const char *of, int ok, const char *mark)
{
	printf("softrdma-%s %.2f of %s (%s, %s)\n", name, value, of, mark, ok ? "ok" : "short");
}

/* 8 bytes, both ends polling; and both asleep. */
static void latencies(void)
{
	double tcp[TURNS], line[TURNS], poke[TURNS], event[TURNS], eventfd[TURNS], send[TURNS], write[TURNS], many[TURNS], s, w;
	int i;

	for (i = 0; i < TURNS; i++) {
		tcp[i] = device_tcp(8);
		line[i] = device_line();
		poke[i] = device_poke();
		eventfd[i] = device_eventfd();
		send[i] = device_verbs(DEVICE_SEND_PINGPONG, 8, 0);
		write[i] = device_verbs(DEVICE_WRITE_PINGPONG, 8, 0);
		many[i] = device_verbs(DEVICE_WRITE_PINGPONG, 8, 999);
		event[i] = device_verbs(DEVICE_EVENT_PINGPONG, 8, 0);
	}
	s = best(send);
	w = best(write);
	printf("softrdma-latencies write %.2f us, send %.2f, send with events %.2f; a shared line %.2f, pwrite of /proc/PID/mem %.2f, eventfd %.2f, TCP %.2f\n",
	       w * 1e6, s * 1e6, best(event) * 1e6, best(line) * 1e6, best(poke) * 1e6, best(eventfd) * 1e6, best(tcp) * 1e6);
	mark("write-latency", w / best(line), "a shared line's", w / best(line) <= 3, "at most 3");
	mark("send-latency", s / best(line), "a shared line's", s / best(line) <= 3, "at most 3");
	mark("write-latency-tcp", w / best(tcp), "TCP loopback's", w / best(tcp) <= 0.1, "at most 0.10");
	mark("send-latency-tcp", s / best(tcp), "TCP loopback's", s / best(tcp) <= 0.1, "at most 0.10");
	mark("event-latency", best(event) / best(eventfd), "eventfd's", best(event) / best(eventfd) <= 1.3, "at most 1.30");
	mark("write-latency-1000-qps", best(many) / w, "that of one", best(many) / w <= 1.2, "at most 1.20");
}

/* @huge: all of it in huge pages. */
static void bandwidth(size_t size, int marked, int huge)
{
	static const char *const names[] = { "write", "read", "send" };
	double copy[TURNS], cross[TURNS], way[3][TURNS], c;
	int i, k;

	device_huge = huge;

	for (i = 0; i < TURNS; i++) {
		copy[i] = device_copy(size);
		cross[i] = device_cross(size);
		for (k = 0; k < 3; k++)
			way[k][i] = device_verbs((enum device_way)(DEVICE_WRITE + k), size, 0);
	}
	c = better_half(copy);
	if (!huge)
		printf("process_vm_writev-bandwidth %.2f of one memcpy's, %zu KiB\n", c / better_half(cross), size >> 10);
	for (k = 0; k < 3; k++) {
		double w = better_half(way[k]);

		printf("softrdma-%s-bandwidth %.2f of one memcpy's, %zu KiB%s: %.1f GB/s against %.1f", names[k], c / w,
		       size >> 10, huge ? " in huge pages" : "", (double)size / w / 1e9, (double)size / c / 1e9);
		if (marked)
			printf(" (at least 0.85, %s)", c / w >= 0.85 ? "ok" : "short");
		putchar('\n');
	}
}

static void rate(void)
{
	double v[TURNS], r;
	int i;

	for (i = 0; i < TURNS; i++)
		v[i] = device_verbs(DEVICE_RATE, 8, 0);
	r = 1e-6 / best(v);
	printf("softrdma-write-rate %.2f million a second, 8 bytes, a queue of 64 (at least 3, %s)\n", r, r >= 3 ? "ok" : "short");
}

static void numbers(void)
{
	double qp = device_make_qps(10000) * 1e6, mr = device_make_mrs(100000) * 1e6, idle = device_idle() * 1e6;

	printf("softrdma-make-qp %.1f us, of 10000 (below 20, %s)\n", qp, qp < 20 ? "ok" : "short");
	printf("softrdma-make-mr %.1f us, of 100000 (below 20, %s)\n", mr, mr < 20 ? "ok" : "short");
	printf("softrdma-idle %.0f us of processor time in a second (below 100, %s)\n", idle, idle < 100 ? "ok" : "short");
}

int main(void)
{
	/* The children must not inherit lines that are not yet written. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	latencies();
	rate();
	numbers();
	bandwidth(64u << 10, 0, 0);
	bandwidth(1u << 20, 1, 0);
	bandwidth(1u << 20, 1, 1);
	bandwidth(64u << 20, 0, 0);
	return 0;
}
