/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every feature program does towards the test driver, in its working directory:
 *   feature_ready()  its state is built: says "ready" on stdout
 *   feature_step()   one step of work is done and was right: the file "progress" grows by a byte. True until there is a file
 *                    "finish", which the driver makes; then the program verifies all that it holds and exits 0.
 * A program knows nothing of checkpoints. CHECK fails it with status 1; feature_skip ends it with 77 and the reason.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x)                                                                                              \
	do {                                                                                                  \
		if (!(x))                                                                                     \
			feature_fail("%s:%d: %s does not hold (errno %d: %s)", __FILE__, __LINE__, #x, errno, \
				     strerror(errno));                                                        \
	} while (0)

__attribute__((noreturn, format(printf, 1, 2), unused)) static void feature_fail(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	strcat(text, "\n");
	if (write(2, text, strlen(text)) < 0)
		_exit(2);
	_exit(1);
}

__attribute__((noreturn, unused)) static void feature_skip(const char *reason)
{
	printf("%s\n", reason);
	exit(77);
}

__attribute__((unused)) static void feature_ready(void)
{
	CHECK(write(1, "ready\n", 6) == 6);
}

/* For the processes and threads that do not count the steps. */
__attribute__((unused)) static int feature_finished(void)
{
	return access("finish", F_OK) == 0;
}

__attribute__((unused)) static int feature_step(void)
{
	int fd = open("progress", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK(write(fd, ".", 1) == 1);
	CHECK(close(fd) == 0);
	return !feature_finished();
}

__attribute__((unused)) static uint64_t feature_now(clockid_t clock)
{
	struct timespec ts;

	CHECK(clock_gettime(clock, &ts) == 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A chain whose n-th value can be computed without the n - 1 before it: what was computed in many small steps, over
 * checkpoints, is checked in one. */
struct chain {
	uint64_t value, length;
};

#define CHAIN_A 6364136223846793005u
#define CHAIN_C 1442695040888963407u

__attribute__((unused)) static void chain_step(struct chain *c, unsigned int n)
{
	uint64_t v = c->value;

	for (unsigned int i = 0; i < n; i++)
		v = v * CHAIN_A + CHAIN_C;
	c->value = v;
	c->length += n;
}

__attribute__((unused)) static void chain_check(const struct chain *c)
{
	uint64_t add = 0, a = CHAIN_A, b = CHAIN_C;

	for (uint64_t n = c->length; n; n >>= 1) {
		if (n & 1)
			add = add * a + b;
		b *= a + 1;
		a *= a;
	}
	if (c->value != add) /* chains begin at 0 */
		feature_fail("a chain of %llu steps is wrong", (unsigned long long)c->length);
}

/* About a fifth of a millisecond. */
__attribute__((unused)) static void feature_work(void)
{
	static __thread struct chain chain;

	chain_step(&chain, 200000);
	chain_check(&chain);
}

/* A page's bytes as a function of what it is and how often it was written. */
__attribute__((unused)) static void pattern_fill(void *at, size_t len, uint64_t seed)
{
	uint64_t *p = at;

	for (size_t i = 0; i < len / 8; i++)
		p[i] = (seed + i) * CHAIN_A + CHAIN_C;
}

__attribute__((unused)) static int pattern_holds(const void *at, size_t len, uint64_t seed)
{
	const uint64_t *p = at;

	for (size_t i = 0; i < len / 8; i++)
		if (p[i] != (seed + i) * CHAIN_A + CHAIN_C)
			return 0;
	return 1;
}
