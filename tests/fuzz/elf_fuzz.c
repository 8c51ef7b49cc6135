/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzer of the reader of programs and libraries: whatever the file, each name that it gives ends within it. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/program_elf.h"
#include "tests/fuzz/fuzz.h"

struct inside {
	const struct elf_file *file;
	size_t length;
};

static void name_inside(void *arg, const char *name)
{
	struct inside *in = arg;
	size_t at = (size_t)((const uint8_t *)name - in->file->at);

	if (at >= in->file->size || at + strlen(name) >= in->file->size)
		abort();
	in->length += strlen(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct elf_file f;
	struct inside in = { &f, 0 };
	char path[64], loader[64];
	const char *other;
	int r;

	if (fd < 0)
		fd = memfd_create("input", 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	r = elf_file_open(path, &f, &other);
	if (!r && !elf_file_loader(&f, loader, sizeof(loader)) && strlen(loader) >= sizeof(loader))
		abort();
	if (!r)
		r = elf_file_imports(&f, name_inside, &in);
	if (r == -EBADMSG && !f.damage)
		abort();
	elf_file_close(&f);
	return 0;
}
