/* SPDX-License-Identifier: BSD-2-Clause */
/* The sequence of operations that both sides can compute, the bytes that each of them carries, and what is said when they are wrong. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_stress.h"

_Noreturn void __attribute__((format(printf, 1, 2))) wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "verbs_stress (%s): ", options.host ? "client" : "server");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

void must(int good, const char *what)
{
	if (!good)
		wrong("%s: %s", what, strerror(errno));
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

struct op op_at(int direction, uint32_t q, uint64_t k)
{
	uint64_t h = mix(((uint64_t)options.seed << 40) ^ ((uint64_t)direction << 39) ^ ((uint64_t)q << 32) ^ k);
	struct op op = { .kind = h % OP_KINDS, .seed = (uint8_t)(h >> 8), .add = 1 + (h >> 16) % 9 };
	uint64_t bits = mix(h);

	op.size = (uint32_t)(1 + (bits >> 8) % options.largest) >> (bits % 16);
	op.size = op.size ? op.size : 1;
	op.signaled = (bits >> 40) % 4 == 0 || k % (options.depth / 2) == 0 || k + 1 == options.count || op.kind == OP_READ ||
		      op.kind == OP_ADD;
	op.inlined = (bits >> 44) % 2 == 0;
	return op;
}

int takes_receive(enum kind kind)
{
	return kind == OP_SEND || kind == OP_SEND_IMM || kind == OP_WRITE_IMM;
}

static uint8_t byte_at(uint8_t seed, uint32_t i)
{
	return (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

void fill(uint8_t *p, uint32_t size, uint8_t seed)
{
	for (uint32_t i = 0; i < size; i++)
		p[i] = byte_at(seed, i);
}

void check(const uint8_t *p, uint32_t size, uint8_t seed, const char *what, uint32_t q, uint64_t k)
{
	for (uint32_t i = 0; i < size; i++)
		if (p[i] != byte_at(seed, i))
			wrong("connection %u, %s %lu: byte %u of %u is 0x%02x, not 0x%02x", q, what, (unsigned long)k, i,
			      size, p[i], byte_at(seed, i));
}

int me(void)
{
	return options.host ? 0 : 1;
}

uint64_t sum_of_adds(int direction)
{
	uint64_t sum = 0;

	for (uint32_t q = 0; q < options.qps; q++) {
		int written = 0;

		for (uint64_t k = 0; k < options.count; k++) {
			struct op op = op_at(direction, q, k);

			written |= op.kind == OP_WRITE;
			if (op.kind == OP_ADD || (op.kind == OP_READ && !written))
				sum += op.add;
		}
	}
	return sum;
}
