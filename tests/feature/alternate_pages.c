/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of which every other page is touched: what is in them stays, what lies between reads as zeros. They are more pieces than an
 * ELF header counts (PN_XNUM), and a checkpoint does not make the pages between.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#define PAGE 4096ul
#define TOUCHED 33000ul
#define SIZE (2 * TOUCHED * PAGE)

static unsigned char *area, there[2 * TOUCHED];

/* A word of a page: another one in each. */
static unsigned long *word(unsigned long page)
{
	return (unsigned long *)(area + page * PAGE + page % (PAGE / sizeof(long)) * sizeof(long));
}

static void check(void)
{
	for (unsigned long page = 0; page < 2 * TOUCHED; page += 2)
		CHECK(*word(page) == page + 1);
}

int main(void)
{
	int disabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);

	area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED && madvise(area, SIZE, MADV_NOHUGEPAGE) == 0);
	for (unsigned long page = 0; page < 2 * TOUCHED; page += 2)
		*word(page) = page + 1;
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == disabled);
	CHECK(mincore(area, SIZE, there) == 0);
	for (unsigned long page = 1; page < 2 * TOUCHED; page += 2)
		CHECK(!(there[page] & 1));
	for (unsigned long page = 1; page < 2 * TOUCHED; page += 2)
		for (unsigned long at = 0; at < PAGE; at += sizeof(long))
			CHECK(*(unsigned long *)(area + page * PAGE + at) == 0);
	return 0;
}
