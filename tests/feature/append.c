/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes append to one log, each through a description of its own, in turns; a third description reads behind them. What is in the file
 * is what they remember to have written: no line more. An argument: MiB of random bytes that the log begins with.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LINE 32

static struct area {
	unsigned long lines;
	int turn;
} *area;
static off_t begin;

static void line_of(unsigned long n, char text[LINE + 1])
{
	snprintf(text, LINE + 1, "line %-*lu\n", LINE - 6, n);
}

static void append(int fd, int me)
{
	char text[LINE + 1];
	struct stat st;

	if (__atomic_load_n(&area->turn, __ATOMIC_ACQUIRE) != me)
		return;
	CHECK(fstat(fd, &st) == 0 && st.st_size == begin + (off_t)area->lines * LINE);
	line_of(area->lines, text);
	CHECK(write(fd, text, LINE) == LINE);
	area->lines++;
	__atomic_store_n(&area->turn, !me, __ATOMIC_RELEASE);
}

static void fill(int fd, int mib)
{
	static unsigned char block[1 << 20];

	for (int i = 0; i < mib; i++) {
		pattern_fill(block, sizeof(block), (uint64_t)i * 1000000);
		CHECK(write(fd, block, sizeof(block)) == sizeof(block));
	}
	begin = (off_t)mib << 20;
}

static void check_all(unsigned long lines)
{
	char text[LINE + 1], is[LINE];
	FILE *f = fopen("log", "r");

	CHECK(f && fseeko(f, begin, SEEK_SET) == 0);
	for (unsigned long n = 0; n < lines; n++) {
		line_of(n, text);
		CHECK(fread(is, 1, LINE, f) == LINE && memcmp(is, text, LINE) == 0);
	}
	CHECK(fgetc(f) == EOF && fclose(f) == 0);
}

int main(int argc, char **argv)
{
	int fd = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0640), reader = open("log", O_RDONLY), status;
	pid_t child;

	CHECK(fd >= 0 && reader >= 0);
	fill(fd, argc > 1 ? atoi(argv[1]) : 0);
	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED && (child = fork()) >= 0);
	if (child == 0) {
		CHECK((fd = open("log", O_WRONLY | O_APPEND)) >= 0);
		while (!feature_finished())
			append(fd, 1);
		_exit(0);
	}
	feature_ready();
	do {
		feature_work();
		append(fd, 0);
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	check_all(area->lines);
	return 0;
}
