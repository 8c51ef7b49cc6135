/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that is long in its constructor, with the dynamic linker's lock: VERBS_SLOW milliseconds. */
#include <stdlib.h>
#include <time.h>

__attribute__((constructor)) static void start(void)
{
	const char *ms = getenv("VERBS_SLOW");
	long n = ms ? atol(ms) : 0;
	struct timespec left = { n / 1000, n % 1000 * 1000000 };

	while (nanosleep(&left, &left))
		;
}
