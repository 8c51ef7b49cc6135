/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory whose pages come from chosen nodes, in a program that has asked nothing else of the kernel for its memory; the middle of a mapping, so that its neighbours have none.
 */
#include "feature.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096ul
enum { PAGES = 30, FROM = 10, TO = 20 };

static const unsigned long nodes[16] = { 1 };

static void page_check(unsigned char *at, unsigned int n)
{
	unsigned long has[16] = { 0 };
	int policy;

	CHECK(syscall(SYS_get_mempolicy, &policy, has, 8 * sizeof(has), at, MPOL_F_ADDR) == 0);
	if (n < FROM || n >= TO)
		CHECK(policy == MPOL_DEFAULT);
	else
		CHECK(policy == MPOL_BIND && !memcmp(has, nodes, sizeof(has)));
	CHECK(pattern_holds(at, PAGE, n));
}

int main(void)
{
	unsigned char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	if (syscall(SYS_mbind, at + FROM * PAGE, (TO - FROM) * PAGE, MPOL_BIND, nodes, 8 * sizeof(nodes), 0))
		feature_skip("this kernel, or a container, refuses mbind");
	for (unsigned int n = 0; n < PAGES; n++)
		pattern_fill(at + n * PAGE, PAGE, n);
	feature_ready();
	do {
		for (unsigned int n = 0; n < PAGES; n++)
			page_check(at + n * PAGE, n);
		feature_work();
	} while (feature_step());
	return 0;
}
