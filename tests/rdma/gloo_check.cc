/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gloo over its ibverbs transport: RANK SIZE FOLDER of a rendezvous. Sums arrays around a ring and in chunks, broadcasts, meets at barriers, and checks all of it.
 * Rank 0 says "SIZE ranks are content". Nothing is given back: gloo's buffers may not end before the completions of their last sends, which nothing
 * waits for.
 */
#include <cstdio>
#include <cstdlib>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <memory>
#include <vector>

static void check(bool ok, const char *what, int n)
{
	if (ok)
		return;
	fprintf(stderr, "%s of %d is wrong\n", what, n);
	exit(1);
}

template <typename Algorithm>
static void sum(const std::shared_ptr<gloo::Context> &context, int n, const char *what)
{
	auto &values = *new std::vector<long>(n);
	auto &algorithm = *new Algorithm(context, {values.data()}, n);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < n; i++)
			values[i] = context->rank + i + round;
		algorithm.run();
		for (int i = 0; i < n; i++)
			check(values[i] == (long)context->size * (i + round) + (long)context->size * (context->size - 1) / 2, what, n);
	}
}

static void broadcast(const std::shared_ptr<gloo::Context> &context, int n)
{
	auto &values = *new std::vector<long>(n);
	auto &algorithm = *new gloo::BroadcastOneToAll<long>(context, {values.data()}, n, 0);

	for (int i = 0; i < n; i++)
		values[i] = context->rank ? -1 : i * 7;
	algorithm.run();
	for (int i = 0; i < n; i++)
		check(values[i] == i * 7, "broadcast", n);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	gloo::transport::ibverbs::attr attr = {};
	attr.name = "soft0";
	attr.port = 1;
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	gloo::rendezvous::FileStore store(argv[3]);
	auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), atoi(argv[2]));
	context->connectFullMesh(store, device);
	for (int n : {4, 1000, 100000}) {
		sum<gloo::AllreduceRing<long>>(context, n, "ring");
		sum<gloo::AllreduceRingChunked<long>>(context, n, "chunked ring");
		broadcast(context, n);
	}
	auto &barrier = *new gloo::BarrierAllToAll(context);
	for (int i = 0; i < 100; i++)
		barrier.run();
	if (!context->rank)
		printf("%d ranks are content\n", context->size);
	fflush(stdout);
	_Exit(0);
}
