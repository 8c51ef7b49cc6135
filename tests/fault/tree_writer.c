/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes, rewrites, links and removes files in the directory `data`, and never keeps one open over a step. It remembers what is there, and fails as soon as something else is.
 * An argument: MiB of random bytes in one file that stays.
 */
#include "tests/feature/feature.h"

#include <dirent.h>
#include <sys/stat.h>

#define SLOTS 48
#define SIZE_MAX_FILE 20000

static struct slot {
	enum { NONE, FILE_, DIRECTORY, SYMLINK } kind;
	unsigned int seed, size;
} slots[SLOTS];
static unsigned int state = 1;

static unsigned int draw(unsigned int below)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % below;
}

static const char *name_of(int n)
{
	static char name[64];

	snprintf(name, sizeof(name), "data/s%d", n);
	return name;
}

static void make_file(int n)
{
	static unsigned char block[SIZE_MAX_FILE];
	struct slot *s = &slots[n];
	int fd = open(name_of(n), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	s->kind = FILE_;
	s->seed = draw(1u << 20);
	s->size = draw(SIZE_MAX_FILE / 8) * 8;
	pattern_fill(block, s->size, s->seed);
	CHECK(fd >= 0 && write(fd, block, s->size) == (ssize_t)s->size && close(fd) == 0);
}

static void check(int n)
{
	static unsigned char is[SIZE_MAX_FILE + 1], was[SIZE_MAX_FILE];
	struct slot *s = &slots[n];
	struct stat st;
	int fd;

	if (s->kind == NONE) {
		CHECK(lstat(name_of(n), &st) < 0 && errno == ENOENT);
		return;
	}
	CHECK(lstat(name_of(n), &st) == 0);
	CHECK(s->kind == FILE_ ? S_ISREG(st.st_mode) : s->kind == DIRECTORY ? S_ISDIR(st.st_mode) : S_ISLNK(st.st_mode));
	if (s->kind != FILE_)
		return;
	fd = open(name_of(n), O_RDONLY);
	pattern_fill(was, s->size, s->seed);
	CHECK(fd >= 0 && read(fd, is, sizeof(is)) == (ssize_t)s->size && memcmp(is, was, s->size) == 0 && close(fd) == 0);
}

static void change(int n)
{
	struct slot *s = &slots[n];

	if (s->kind == NONE) {
		unsigned int kind = draw(8);

		if (kind > 1) {
			make_file(n);
			return;
		}
		s->kind = kind ? DIRECTORY : SYMLINK;
		CHECK((kind ? mkdir(name_of(n), 0755) : symlink("nowhere", name_of(n))) == 0);
	} else if (s->kind == FILE_ && draw(2)) {
		make_file(n);
	} else {
		CHECK((s->kind == DIRECTORY ? rmdir(name_of(n)) : unlink(name_of(n))) == 0);
		s->kind = NONE;
	}
}

static void check_all(void)
{
	DIR *d = opendir("data");
	struct dirent *e;
	int is = 0, was = 0;

	for (int n = 0; n < SLOTS; n++) {
		check(n);
		was += slots[n].kind != NONE;
	}
	while ((e = readdir(d)))
		is += e->d_name[0] == 's';
	closedir(d);
	CHECK(is == was);
}

static void make_ballast(int mib)
{
	static unsigned char block[1 << 20];
	int fd = open("data/ballast", O_WRONLY | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	for (int i = 0; i < mib; i++) {
		pattern_fill(block, sizeof(block), (uint64_t)i * 1000000);
		CHECK(write(fd, block, sizeof(block)) == sizeof(block));
	}
	CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		make_ballast(atoi(argv[1]));
	for (int n = 0; n < SLOTS; n++)
		change(n);
	feature_ready();
	do {
		feature_work();
		change((int)draw(SLOTS));
		check((int)draw(SLOTS));
	} while (feature_step());
	check_all();
	return 0;
}
