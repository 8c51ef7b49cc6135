/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the reader says of images that are not whole: each kind of damage in each region, and what the writer
 * says when it cannot.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "image/hash.h"
#include "image_sample.h"

#define MIB (1ul << 20)
#define PAGE 4096ul
#define TAIL_HEAD 20u /* note header and owner */

static struct sample s;
static char *memory;
static uint8_t *whole; /* a good image */
static size_t size;
static struct image_blocks blocks;

static int make(void **state)
{
	int dir = open(sample_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	struct image_written written;
	const Elf64_Phdr *tail;
	char text[256];

	memory = mmap(NULL, 5 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t n = 0; n < 3 * MIB + PAGE; n += 8)
		memory[n] = (char)(n / 8 + n / PAGE);
	sample_init(&s);
	sample_add(&s, memory, 5 * MIB, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	if (image_write(dir, "whole", &s.dump, &written, text, sizeof(text))) {
		fprintf(stderr, "%s\n", text);
		return -1;
	}
	fd = openat(dir, "whole", O_RDONLY | O_CLOEXEC);
	size = written.file_size;
	whole = malloc(size);
	if (read(fd, whole, size) != (ssize_t)size)
		return -1;
	close(fd);
	close(dir);
	tail = (const Elf64_Phdr *)(whole + sizeof(Elf64_Ehdr)) + 1;
	memcpy(&blocks, whole + tail->p_offset + TAIL_HEAD, sizeof(blocks));
	return 0;
}

/* Opens, then verifies; IMAGE_OK if nothing is wrong. */
static enum image_fault examine(const uint8_t *data, size_t length, struct image_error *e)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct image *i = NULL;

	assert_int_equal(write(fd, data, length), length);
	if (image_open_fd(fd, "job/1/sample.1", &i, e)) {
		assert_non_null(strstr(e->text, "job/1/sample.1"));
		return e->fault;
	}
	if (image_verify(i, 2, e))
		assert_non_null(strstr(e->text, "job/1/sample.1"));
	image_free(i);
	return e->fault;
}

static enum image_fault with_flip(size_t at, struct image_error *e)
{
	enum image_fault r;

	whole[at] ^= 0x10;
	r = examine(whole, size, e);
	whole[at] ^= 0x10;
	return r;
}

/* Makes the head digest true again, for faults that it would hide. */
static void seal(uint8_t *data)
{
	size_t tail = blocks.data_end + TAIL_HEAD;
	struct image_blocks *b = (struct image_blocks *)(data + tail);
	uint8_t digest[16];
	struct image_piece pieces[] = { { data, blocks.data_start }, { b, size - tail } };

	memset((char *)b + offsetof(struct image_blocks, head_digest), 0, 16);
	image_hash128(pieces, 2, digest);
	memcpy((char *)b + offsetof(struct image_blocks, head_digest), digest, 16);
}

static void test_whole(void **state)
{
	struct image_error e;

	assert_int_equal(examine(whole, size, &e), IMAGE_OK);
}

static void test_truncated(void **state)
{
	const size_t lengths[] = { 0, 3, 63, 64, 120, 500, PAGE, size / 2, blocks.data_end, size - 8, size - 1 };
	struct image_error e;

	for (size_t n = 0; n < sizeof(lengths) / sizeof(*lengths); n++) {
		assert_int_equal(examine(whole, lengths[n], &e), IMAGE_TRUNCATED);
		assert_int_equal(e.block, UINT64_MAX);
	}
}

/* The machine stopped between data and tail, and the file system had the new length already. */
static void test_unfinished(void **state)
{
	uint8_t *copy = malloc(size);
	struct image_error e;

	memcpy(copy, whole, blocks.data_end);
	memset(copy + blocks.data_end, 0, size - blocks.data_end);
	assert_int_equal(examine(copy, size, &e), IMAGE_TRUNCATED);
	free(copy);
}

static void test_longer(void **state)
{
	uint8_t *copy = calloc(1, size + 1);
	struct image_error e;

	memcpy(copy, whole, size);
	assert_int_equal(examine(copy, size + 1, &e), IMAGE_DAMAGED);
	free(copy);
}

static void test_foreign(void **state)
{
	uint8_t text[5000], *core = malloc(size);
	struct image_error e;
	struct image *i = NULL;

	memset(text, 'x', sizeof(text));
	assert_int_equal(examine(text, sizeof(text), &e), IMAGE_FOREIGN);
	assert_int_equal(image_open("/proc/self/exe", &i, &e), -ENOEXEC);
	assert_int_equal(e.fault, IMAGE_FOREIGN);
	assert_int_equal(image_open("/dev/null", &i, &e), -ENOEXEC);
	assert_int_equal(image_open("/nonexistent/image", &i, &e), -ENOENT);
	assert_int_equal(e.fault, IMAGE_MISSING);
	memcpy(core, whole, size); /* a core whose first note is another's */
	memcpy(core + sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) + sizeof(Elf64_Nhdr), "OTHERS!", 8);
	assert_int_equal(examine(core, size, &e), IMAGE_FOREIGN);
	free(core);
}

static void test_newer(void **state)
{
	size_t at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) + TAIL_HEAD;
	uint8_t *copy = malloc(size);
	struct image_error e;

	memcpy(copy, whole, size);
	copy[at] = IMAGE_VERSION + 1;
	assert_int_equal(examine(copy, size, &e), IMAGE_NEWER);
	assert_non_null(strstr(e.text, "version 3"));
	copy[at] = 0;
	seal(copy);
	assert_int_equal(examine(copy, size, &e), IMAGE_DAMAGED);
	free(copy);
}

/* One flipped bit anywhere is found; in the data with the number of its block. */
static void test_flips(void **state)
{
	struct image_error e;

	for (size_t at = 0; at < blocks.data_start; at += 97)
		assert_int_not_equal(with_flip(at, &e), IMAGE_OK);
	for (size_t at = blocks.data_start; at < blocks.data_end; at += 300007) {
		assert_int_equal(with_flip(at, &e), IMAGE_DAMAGED);
		assert_int_equal(e.block, (at - blocks.data_start) / MIB);
	}
	assert_int_equal(with_flip(blocks.data_end - 1, &e), IMAGE_DAMAGED);
	assert_int_equal(e.block, 4);
	for (size_t at = blocks.data_end; at < size; at++) {
		assert_int_equal(with_flip(at, &e), IMAGE_DAMAGED);
		assert_int_equal(e.block, UINT64_MAX);
	}
	/* Headers behind the version, before the data: the digest's matter. */
	assert_int_equal(with_flip(blocks.data_start - 1, &e), IMAGE_DAMAGED);
	assert_int_equal(with_flip(sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr) + 16, &e), IMAGE_DAMAGED);
}

/* The lowest of several bad blocks is named. */
static void test_first_block(void **state)
{
	uint8_t *copy = malloc(size);
	struct image_error e;

	memcpy(copy, whole, size);
	for (size_t block = 2; block < 5; block++)
		copy[blocks.data_start + block * MIB] ^= 1;
	for (int n = 0; n < 20; n++) {
		assert_int_equal(examine(copy, size, &e), IMAGE_DAMAGED);
		assert_int_equal(e.block, 2);
	}
	assert_non_null(strstr(e.text, "block 2"));
	free(copy);
}

/* Lies under a true digest: bounds and order are checked all the same. */
static void test_lies(void **state)
{
	size_t load = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
	const struct {
		size_t at;
		uint64_t value;
	} lies[] = {
		{ load + offsetof(Elf64_Phdr, p_offset), blocks.data_end },
		{ load + offsetof(Elf64_Phdr, p_offset), ~0xfffull },
		{ load + offsetof(Elf64_Phdr, p_offset), 0 },
		{ load + offsetof(Elf64_Phdr, p_filesz), 6 * MIB },
		{ load + offsetof(Elf64_Phdr, p_memsz), ~0xfffull },
		{ load + offsetof(Elf64_Phdr, p_memsz), 5 * MIB + PAGE },
		{ load + offsetof(Elf64_Phdr, p_vaddr), 0x1000 },
		{ load + offsetof(Elf64_Phdr, p_vaddr), (uint64_t)(uintptr_t)memory + 1 },
	};
	uint8_t *copy = malloc(size);
	struct image_error e;

	for (size_t n = 0; n < sizeof(lies) / sizeof(*lies); n++) {
		memcpy(copy, whole, size);
		memcpy(copy + lies[n].at, &lies[n].value, 8);
		seal(copy);
		assert_int_equal(examine(copy, size, &e), IMAGE_DAMAGED);
	}
	free(copy);
}

/* A note that is not known is skipped; one that must be there is missed. */
static void test_notes(void **state)
{
	const struct {
		uint32_t type, becomes;
		enum image_fault fault;
	} cases[] = {
		{ IMAGE_NOTE_RESOURCE, 0x46524dffu, IMAGE_OK },
		{ IMAGE_NOTE_HOST, 0x46524dffu, IMAGE_DAMAGED },
		{ IMAGE_NOTE_THREAD, 0x46524dffu, IMAGE_DAMAGED },
		{ IMAGE_NOTE_CPU, IMAGE_NOTE_HOST, IMAGE_DAMAGED },
	};
	uint8_t *copy = malloc(size);
	struct image_error e;

	for (size_t n = 0; n < sizeof(cases) / sizeof(*cases); n++) {
		memcpy(copy, whole, size);
		for (size_t at = 0; at < blocks.data_start; at += 4)
			if (!memcmp(copy + at, &cases[n].type, 4))
				memcpy(copy + at, &cases[n].becomes, 4);
		seal(copy);
		assert_int_equal(examine(copy, size, &e), cases[n].fault);
	}
	free(copy);
}

static void test_cpu(void **state)
{
	struct image_cpu host, image;
	char names[200];

	image_cpu_probe(&host);
	image = host;
	assert_int_equal(image_cpu_missing(&image, &host, names, sizeof(names)), 0);
	assert_string_equal(names, "");
	host.leaf1_ecx &= ~(1u << 20);
	image.leaf1_ecx |= 1u << 20;
	host.leaf7_ebx &= ~(1u << 16);
	image.leaf7_ebx |= 1u << 16;
	image.xcr0 |= 1ull << 18;
	host.xcr0 &= ~(1ull << 18);
	assert_int_equal(image_cpu_missing(&image, &host, names, sizeof(names)), 3);
	assert_string_equal(names, "sse4.2, avx512f, xsave state amx-tiledata");
	image = host;
	image.xcr0 |= 1u << 9;
	host.xcr0 |= 1u << 9;
	image.xsave_offset[9] = host.xsave_offset[9] + 64;
	assert_int_equal(image_cpu_missing(&image, &host, names, 5), 1);
	assert_string_equal(names, "xsav");
}

/* In a child: a limit on files and a file system of 2 MiB, in a namespace of its own. */
static int write_in(const char *directory, char *text, size_t text_size)
{
	int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	struct image_written written;

	r = image_write(dir, "full", &s.dump, &written, text, text_size);
	if (!faccessat(dir, "full", F_OK, 0))
		r = -EEXIST;
	close(dir);
	return r;
}

static void test_file_limit(void **state)
{
	struct rlimit old, small;
	char text[400];

	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){ MIB, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); /* SIGXFSZ would end us */
	assert_int_equal(write_in(sample_directory(), text, sizeof(text)), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_non_null(strstr(text, "ulimit -f"));
}

static int put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	close(fd);
	return n < 0 ? -errno : 0;
}

/* A mount of our own, as user 0 of a user namespace of our own: no right is needed for it. */
static int mount_small(const char *directory)
{
	char map[64];
	unsigned int uid = getuid(), gid = getgid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -errno;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (put_text("/proc/self/uid_map", map))
		return -EPERM;
	put_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", gid);
	put_text("/proc/self/gid_map", map);
	return mount("none", directory, "tmpfs", 0, "size=2m") ? -errno : 0;
}

static void test_disk_full(void **state)
{
	const char *directory = sample_directory();
	char text[400] = "";
	int status;
	pid_t child = fork();

	if (!child) {
		int r;

		if (mount_small(directory))
			_exit(77);
		r = write_in(directory, text, sizeof(text));
		_exit(r == -ENOSPC && strstr(text, "No space left on") && strstr(text, "there were 2 MiB") ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int give_up(void *arg, uint64_t done, uint64_t total)
{
	return -ECANCELED;
}

static void test_given_up(void **state)
{
	char text[400];

	s.dump.progress = give_up;
	assert_int_equal(write_in(sample_directory(), text, sizeof(text)), -ECANCELED);
	s.dump.progress = NULL;
	assert_non_null(strstr(text, "given up"));
}

static void test_taken_name(void **state)
{
	int dir = open(sample_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct image_written written;
	char text[400];

	assert_int_equal(image_write(dir, "whole", &s.dump, &written, text, sizeof(text)), -EEXIST);
	assert_non_null(strstr(text, "/whole"));
	assert_int_equal(faccessat(dir, "whole", F_OK, 0), 0);
	close(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	   cmocka_unit_test(test_truncated),  cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_longer),	   cmocka_unit_test(test_foreign),    cmocka_unit_test(test_newer),
		cmocka_unit_test(test_flips),	   cmocka_unit_test(test_first_block), cmocka_unit_test(test_lies),
		cmocka_unit_test(test_notes),	   cmocka_unit_test(test_cpu),	      cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_disk_full),  cmocka_unit_test(test_given_up),   cmocka_unit_test(test_taken_name),
	};

	return cmocka_run_group_tests(tests, make, NULL);
}
