/* SPDX-License-Identifier: BSD-2-Clause */
/* What any preloaded library costs, whatever it does: benchmarks/run calls. */
int bench_empty(void);

int bench_empty(void)
{
	return 0;
}
