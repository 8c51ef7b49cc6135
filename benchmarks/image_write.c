/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast an image is written, against plain O_DIRECT writing of the same bytes to the same directory, in turns; the median of
 * each. Usage: image_write [DIR [MIB [ROUNDS [WRITERS]]]]. Prints the rates, then one line: image-write-ratio R.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "image_sample.h"

#define ROUNDS_MAX 25
#define CHUNK (64ul << 20)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	fprintf(stderr, "image_write: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double write_plain(int dir, const char *data, size_t size)
{
	int fd = openat(dir, "plain", O_WRONLY | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
	double begin = now(), end;

	if (fd < 0 && errno == EINVAL)
		fd = openat(dir, "plain", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		fail("open");
	for (size_t at = 0; at < size;) {
		ssize_t r = pwrite(fd, data + at, size - at < CHUNK ? size - at : CHUNK, (off_t)at);

		if (r <= 0)
			fail("pwrite");
		at += (size_t)r;
	}
	if (fsync(fd))
		fail("fsync");
	end = now();
	close(fd);
	unlinkat(dir, "plain", 0);
	return end - begin;
}

static double write_image(int dir, const struct sample *s)
{
	struct image_written written;
	char text[256];
	double begin = now(), end;

	if (image_write(dir, "image", &s->dump, &written, text, sizeof(text))) {
		fprintf(stderr, "image_write: %s\n", text);
		exit(1);
	}
	end = now();
	unlinkat(dir, "image", 0);
	return end - begin;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void fill(uint64_t *p, size_t size)
{
	uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < size / 8; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = x;
	}
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : sample_directory();
	size_t size = (argc > 2 ? strtoul(argv[2], NULL, 10) : 512) << 20;
	int rounds = argc > 3 ? atoi(argv[3]) : 7, dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	double plain[ROUNDS_MAX], image[ROUNDS_MAX];
	static struct sample s;
	char *data;

	if (dir < 0)
		fail(path);
	if (rounds < 1 || rounds > ROUNDS_MAX || !size) {
		fprintf(stderr, "usage: image_write [DIR [MIB [ROUNDS [WRITERS]]]]\n");
		return 2;
	}
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		fail("mmap");
	fill((uint64_t *)data, size);
	sample_init(&s);
	sample_add(&s, data, size, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	if (argc > 4)
		s.dump.writers = (uint32_t)atoi(argv[4]);
	for (int i = 0; i < rounds; i++) {
		plain[i] = write_plain(dir, data, size);
		image[i] = write_image(dir, &s);
	}
	qsort(plain, (size_t)rounds, sizeof(*plain), compare);
	qsort(image, (size_t)rounds, sizeof(*image), compare);
	printf("image-write-plain %.2f GB/s\n", (double)size / plain[rounds / 2] / 1e9);
	printf("image-write-image %.2f GB/s\n", (double)size / image[rounds / 2] / 1e9);
	printf("image-write-ratio %.2f\n", plain[rounds / 2] / image[rounds / 2]);
	return 0;
}
