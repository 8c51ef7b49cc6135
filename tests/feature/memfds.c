/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memfds by descriptor: one that can be sealed and is later, one sealed against all but reading (as compositors and sandboxes pass them), by two descriptions, one of
 * them for reading only; one that cannot be sealed; one that is mapped and may neither grow nor shrink.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define SIZE 50000
#define ALL (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static int open_one, sealed, reader, plain, fixed;
static unsigned char *map, page[SIZE];

static int make(const char *name, unsigned int flags, uint64_t seed)
{
	int fd = memfd_create(name, flags);

	pattern_fill(page, SIZE, seed);
	CHECK(fd >= 0 && write(fd, page, SIZE) == SIZE);
	return fd;
}

static void name_holds(int fd, const char *name)
{
	char path[64], link[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(readlink(path, link, sizeof(link) - 1) > 0 && strcmp(link, name) == 0);
}

static void check(uint64_t step)
{
	CHECK(pread(open_one, page, SIZE, 0) == SIZE && pattern_holds(page, SIZE, step));
	pattern_fill(page, SIZE, step + 1);
	CHECK(pwrite(open_one, page, SIZE, 0) == SIZE && fcntl(open_one, F_GET_SEALS) == 0);
	CHECK(fcntl(sealed, F_GET_SEALS) == ALL && fcntl(reader, F_GET_SEALS) == ALL);
	CHECK(pwrite(sealed, "x", 1, 0) == -1 && errno == EPERM && ftruncate(sealed, 0) == -1 && errno == EPERM);
	CHECK(pread(reader, page, SIZE, 0) == SIZE && pattern_holds(page, SIZE, 2000) && lseek(reader, 0, SEEK_CUR) == 55);
	CHECK(write(reader, "x", 1) == -1 && errno == EBADF && fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
	CHECK(fcntl(plain, F_GET_SEALS) == F_SEAL_SEAL && pread(plain, page, SIZE, 0) == SIZE && pattern_holds(page, SIZE, 3000));
	CHECK(fcntl(fixed, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW) && ftruncate(fixed, SIZE - 1) == -1 && ftruncate(fixed, SIZE + 1) == -1);
	CHECK(pwrite(fixed, &step, 8, 8) == 8 && memcmp(map + 8, &step, 8) == 0);
	name_holds(open_one, "/memfd:feature one (deleted)");
	name_holds(sealed, "/memfd: (deleted)");
}

int main(void)
{
	char path[40];
	uint64_t step = 1000;

	open_one = make("feature one", MFD_CLOEXEC | MFD_ALLOW_SEALING, step);
	sealed = make("", MFD_ALLOW_SEALING, 2000);
	CHECK(fcntl(sealed, F_ADD_SEALS, ALL) == 0 && fchmod(sealed, 0400) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", sealed);
	CHECK((reader = open(path, O_RDONLY)) >= 0 && lseek(reader, 55, SEEK_SET) == 55);
	plain = make("plain", 0, 3000);
	fixed = make("fixed", MFD_ALLOW_SEALING, 4000);
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fixed, 0);
	CHECK(map != MAP_FAILED && fcntl(fixed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	feature_ready();
	do {
		feature_work();
		check(step++);
	} while (feature_step());
	CHECK(fcntl(open_one, F_ADD_SEALS, F_SEAL_GROW) == 0 && fcntl(open_one, F_GET_SEALS) == F_SEAL_GROW);
	return 0;
}
