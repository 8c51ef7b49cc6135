/* SPDX-License-Identifier: BSD-2-Clause */
/* A mapping that grows downwards by being touched (MAP_GROWSDOWN), a page with each step, as the first thread's stack does. */
#include "feature.h"

#include <sys/mman.h>

#define PAGE 4096
#define ROOM (32u << 20) /* free below it, and the kernel's gap */
#define PAGES_MAX 3000
#define PLACE ((void *)0x20000000000) /* where the kernel puts nothing: libraries below it would stop it */

static unsigned char *end;
static uint64_t pages;

static void make(void)
{
	unsigned char *room = mmap(PLACE, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(room != MAP_FAILED && munmap(room, ROOM - PAGE) == 0);
	end = room + ROOM;
	CHECK(mmap(end - PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0) == end - PAGE);
	pattern_fill(end - PAGE, PAGE, 1);
	pages = 1;
}

/* The next page below: nobody has mapped it. */
static void grow(void)
{
	if (pages == PAGES_MAX)
		return;
	pages++;
	pattern_fill(end - pages * PAGE, PAGE, pages);
}

int main(void)
{
	make();
	feature_ready();
	do {
		feature_work();
		grow();
		CHECK(pattern_holds(end - pages * PAGE, PAGE, pages) && pattern_holds(end - PAGE, PAGE, 1));
	} while (feature_step());
	for (uint64_t i = 1; i <= pages; i++)
		CHECK(pattern_holds(end - i * PAGE, PAGE, i));
	return 0;
}
