/* SPDX-License-Identifier: BSD-2-Clause */
/* What is written is what is read: memory of every kind, notes, holes, checksums. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "image_sample.h"

#define MIB (1ul << 20)
#define PAGE 4096ul

static int dir;
static struct sample s;

static char *map(size_t length)
{
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void fill(char *p, size_t length, unsigned int seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i + 8 <= length; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p + i, &x, 8);
	}
}

static int setup(void **state)
{
	sample_init(&s);
	dir = open(sample_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int teardown(void **state)
{
	unlinkat(dir, "image", 0);
	return close(dir);
}

static struct image *write_and_open(struct image_written *ret)
{
	struct image_error error;
	struct image *i = NULL;
	char text[256] = "", path[300];
	struct stat st;
	uint8_t digest[16];
	int r = image_write(dir, "image", &s.dump, ret, text, sizeof(text));

	assert_string_equal(text, "");
	assert_int_equal(r, 0);
	snprintf(path, sizeof(path), "%s/image", sample_directory());
	r = image_open(path, &i, &error);
	assert_string_equal(error.text, "");
	assert_int_equal(r, 0);
	assert_int_equal(image_verify(i, 3, &error), 0);
	image_digest(i, digest);
	assert_memory_equal(digest, ret->digest, 16);
	assert_int_equal(fstat(image_fd(i), &st), 0);
	assert_int_equal(st.st_size, ret->file_size);
	assert_int_equal(st.st_mode & 07777, 0600);
	return i;
}

/* The file's bytes of segment @n against @data. */
static void check_segment(const struct image *i, size_t n, const char *data, size_t length)
{
	size_t count;
	const Elf64_Phdr *p = &image_get_segments(i, &count)[n];
	char *got = malloc(length);

	assert_true(n < count);
	assert_int_equal(p->p_filesz, length);
	assert_int_equal(pread(image_fd(i), got, length, (off_t)p->p_offset), length);
	assert_memory_equal(got, data, length);
	free(got);
}

static void test_notes(void **state)
{
	struct image_written written;
	struct image_note_view note;
	size_t count, cursor = 0, resources = 0;
	struct image *i;

	sample_add(&s, map(PAGE), PAGE, IMAGE_MAPPING_FILE, IMAGE_RUN_EMPTY);
	i = write_and_open(&written);
	assert_memory_equal(image_get_process(i), &s.process, sizeof(s.process));
	assert_memory_equal(image_get_threads(i, &count), s.threads, sizeof(s.threads));
	assert_int_equal(count, 2);
	assert_memory_equal(image_get_mappings(i, &count), s.mappings, sizeof(s.mappings[0]));
	assert_int_equal(count, 1);
	assert_string_equal(image_mapping_path(i, image_get_mappings(i, &count)), "/usr/bin/sample");
	assert_memory_equal(image_get_signals(i), s.signals, sizeof(s.signals));
	assert_memory_equal(image_get_cpu(i), &s.cpu, sizeof(s.cpu));
	assert_memory_equal(image_get_host(i), &s.host, sizeof(s.host));
	while (image_next_note(i, &cursor, &note)) {
		assert_int_equal((uintptr_t)note.data % 8, 0);
		if (note.type != IMAGE_NOTE_RESOURCE)
			continue;
		resources++;
		assert_memory_equal(note.data, &s.resource, sizeof(s.resource));
	}
	assert_int_equal(resources, 1);
	assert_int_equal(image_get_segments(i, &count)[0].p_filesz, 0);
	assert_int_equal(written.bytes, 0);
	image_free(i);
}

static void test_memory(void **state)
{
	const size_t sizes[] = { PAGE, 3 * PAGE, 5 * MIB + 7 * PAGE, PAGE, 20 * MIB, 2 * MIB - PAGE };
	size_t total = 0, at = 0;
	struct image_written written;
	struct image *i;
	char *base;

	for (size_t n = 0; n < 6; n++)
		total += sizes[n] + PAGE;
	base = map(total);
	for (size_t n = 0; n < 6; n++) {
		fill(base + at, sizes[n], (unsigned int)n);
		sample_add(&s, base + at, sizes[n], n == 3 ? IMAGE_MAPPING_SHARED_ANON : IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
		at += sizes[n] + PAGE;
	}
	i = write_and_open(&written);
	at = 0;
	for (size_t n = 0; n < 6; n++) {
		check_segment(i, n, base + at, sizes[n]);
		at += sizes[n] + PAGE;
	}
	image_free(i);
	munmap(base, total);
}

/*
 * Memory of zeros with a few bytes in it takes little room on the disk and reads as it was (3 pages are no
 * hole).
 */
static void test_holes(void **state)
{
	const size_t size = 64 * MIB;
	struct image_written written;
	struct image *i;
	struct stat st;
	char *base = map(size);

	memset(base + 10 * MIB, 7, 100 * PAGE);
	base[30 * MIB + MIB / 2 + 12345] = 1;
	base[size - 1] = 1;
	sample_add(&s, base, size, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	i = write_and_open(&written);
	check_segment(i, 0, base, size);
	assert_int_equal(written.bytes, 102 * PAGE);
	assert_int_equal(fstat(image_fd(i), &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 < 2 * MIB);
	image_free(i);
	munmap(base, size);
}

/* Guard pages are read behind the program's back; so is write-only memory. */
static void test_unreadable(void **state)
{
	struct image_written written;
	struct image *i;
	char *base = map(4 * MIB), copy[PAGE];

	fill(base, 4 * MIB, 9);
	memcpy(copy, base + PAGE, PAGE);
	assert_int_equal(mprotect(base, 4 * MIB, PROT_NONE), 0);
	sample_add(&s, base, 4 * MIB, IMAGE_MAPPING_ANON, IMAGE_RUN_UNREADABLE);
	i = write_and_open(&written);
	assert_int_equal(mprotect(base, 4 * MIB, PROT_READ), 0);
	check_segment(i, 0, base, 4 * MIB);
	assert_memory_equal(base + PAGE, copy, PAGE);
	image_free(i);
	munmap(base, 4 * MIB);
}

/* A page behind the end of its file: neither signal nor silence. */
static void test_beyond_file(void **state)
{
	struct image_written written;
	char text[256], want[64], *base;
	int fd = memfd_create("short", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, PAGE), 0);
	base = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	assert_true(base != MAP_FAILED);
	sample_add(&s, base, 4 * PAGE, IMAGE_MAPPING_FILE, IMAGE_RUN_DATA);
	assert_true(image_write(dir, "image", &s.dump, &written, text, sizeof(text)) < 0);
	snprintf(want, sizeof(want), "memory at 0x%lx cannot be read", (unsigned long)(base + PAGE));
	assert_non_null(strstr(text, want));
	assert_int_equal(faccessat(dir, "image", F_OK, 0), -1);
	munmap(base, 4 * PAGE);
	close(fd);
}

/* Pages that a file has as well say so; who cannot have the file takes them as memory. */
static void test_whole_mapping(void **state)
{
	struct image_written written;
	const struct image_mapping *m;
	const Elf64_Phdr *p;
	char *base = map(4 * PAGE);
	struct image *i;
	size_t n;

	fill(base, 3 * PAGE, 7);
	sample_add(&s, base, 4 * PAGE, IMAGE_MAPPING_FILE, IMAGE_RUN_CLEAN)->end = (uint64_t)(uintptr_t)base + PAGE;
	s.mappings[0].flags = IMAGE_MAPPING_WHOLE;
	for (size_t k = 1; k < 4; k++) {
		uint64_t at = (uint64_t)(uintptr_t)base + k * PAGE;

		s.runs[s.dump.run_count++] = (struct image_run){ at, at + PAGE, 3, k == 1 ? IMAGE_RUN_DATA : k == 2 ? IMAGE_RUN_CLEAN : IMAGE_RUN_EMPTY };
	}
	i = write_and_open(&written);
	p = image_get_segments(i, &n);
	assert_int_equal(n, 4);
	for (size_t k = 0; k < 4; k++)
		assert_int_equal(p[k].p_flags, PF_R | PF_W | (k % 2 ? 0 : IMAGE_SEGMENT_CLEAN));
	for (size_t k = 0; k < 3; k++)
		check_segment(i, k, base + k * PAGE, PAGE);
	m = image_get_mappings(i, &n);
	assert_int_equal(m->flags, IMAGE_MAPPING_WHOLE);
	assert_string_not_equal(image_mapping_path(i, m), "");
	image_take_pages(i, m);
	assert_int_equal(m->kind, IMAGE_MAPPING_ANON);
	assert_string_equal(image_mapping_path(i, m), "");
	assert_int_equal(m->end - m->start, 4 * PAGE);
	image_free(i);
	munmap(base, 4 * PAGE);
}

/* The stack that writes is part of what is written: its checksum must be that of the bytes in the file. */
static void test_own_stack(void **state)
{
	struct image_written written;
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0) & ~(PAGE - 1);

	sample_add(&s, (void *)(here - 8 * PAGE), 10 * PAGE, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	for (int n = 0; n < 20; n++) {
		image_free(write_and_open(&written));
		unlinkat(dir, "image", 0);
	}
}

static int changing(void *arg, uint64_t done, uint64_t total)
{
	memset(arg, (int)(done >> 20), PAGE);
	return 0;
}

static void test_live(void **state)
{
	struct image_written written;
	char *base = map(64 * MIB);
	struct image_range live;

	fill(base, 64 * MIB, 3);
	sample_add(&s, base, 60 * MIB, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	sample_add(&s, base + 60 * MIB, 4 * MIB, IMAGE_MAPPING_ANON, IMAGE_RUN_LIVE);
	s.dump.progress = changing;
	s.dump.progress_arg = base + 62 * MIB;
	image_free(write_and_open(&written));
	unlinkat(dir, "image", 0);
	s.dump.progress_arg = base + 59 * MIB;
	live = (struct image_range){ (uint64_t)(uintptr_t)s.dump.progress_arg, (uint64_t)(uintptr_t)s.dump.progress_arg + PAGE };
	s.dump.live = &live;
	s.dump.live_count = 1;
	image_free(write_and_open(&written));
	munmap(base, 64 * MIB);
}

/* Up to where ELF's own count of headers ends, and beyond. */
static void test_many_runs(void **state)
{
	const uint32_t counts[] = { 65532, 65533, 65534, 100000 };
	struct image_run *runs = calloc(100000, sizeof(*runs));
	struct image_mapping *mappings = calloc(100000, sizeof(*mappings));
	struct image_written written;
	char *base = map(100001 * PAGE);
	size_t count;

	memset(base + 50000 * PAGE, 5, PAGE);
	for (uint32_t n = 0; n < 100000; n++) {
		uint64_t at = (uint64_t)(uintptr_t)base + n * PAGE;

		mappings[n] = (struct image_mapping){ .start = at, .end = at + PAGE, .kind = IMAGE_MAPPING_ANON, .prot = 3 };
		runs[n] = (struct image_run){ at, at + PAGE, 3, n == 50000 ? IMAGE_RUN_DATA : IMAGE_RUN_EMPTY };
	}
	s.dump.runs = runs;
	s.dump.mappings = mappings;
	for (size_t n = 0; n < 4; n++) {
		struct image *i;

		s.dump.run_count = s.dump.mapping_count = counts[n];
		i = write_and_open(&written);
		image_get_segments(i, &count);
		assert_int_equal(count, counts[n]);
		check_segment(i, 50000, base + 50000 * PAGE, PAGE);
		image_free(i);
		unlinkat(dir, "image", 0);
	}
	munmap(base, 100001 * PAGE);
	free(runs);
	free(mappings);
}

static void test_refused_runs(void **state)
{
	struct image_written written;
	struct image_run *r;
	char text[256];
	char *base = map(4 * PAGE);

	r = sample_add(&s, base, 2 * PAGE, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	r->end += PAGE; /* leaves its mapping */
	assert_int_equal(image_write(dir, "image", &s.dump, &written, text, sizeof(text)), -EINVAL);
	assert_non_null(strstr(text, "not in order"));
	munmap(base, 4 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_notes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unreadable, setup, teardown),
		cmocka_unit_test_setup_teardown(test_beyond_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whole_mapping, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own_stack, setup, teardown),
		cmocka_unit_test_setup_teardown(test_live, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_runs, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
