/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is large: so many MiB (the argument, else 64) of bytes that do not compress, a quarter of that in zeros that
 * were touched. Looks at a part of them in each step and at all of them in the end. A second argument "renew": some bytes
 * are written anew in each step.
 */
#include "feature.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

int main(int argc, char **argv)
{
	size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64), zeros = size / 4 + 1, at = 0;
	int renew = argc > 2 && strcmp(argv[2], "renew") == 0;
	uint64_t *seed = calloc(size, sizeof(*seed));
	unsigned char *data = mmap(NULL, (size + zeros) * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(seed && data != MAP_FAILED);
	for (size_t i = 0; i < size; i++) {
		seed[i] = i * 1000003;
		pattern_fill(data + i * MIB, MIB, seed[i]);
	}
	for (size_t i = 0; i < zeros * MIB; i += 4096)
		data[size * MIB + i] = 0;
	feature_ready();
	do {
		CHECK(pattern_holds(data + at * MIB, MIB, seed[at]));
		CHECK(data[(size + at % zeros) * MIB + 12345] == 0);
		if (renew)
			pattern_fill(data + at * MIB, MIB, ++seed[at]);
		at = (at + 1) % size;
	} while (feature_step());
	for (size_t i = 0; i < size; i++)
		CHECK(pattern_holds(data + i * MIB, MIB, seed[i]));
	return 0;
}
