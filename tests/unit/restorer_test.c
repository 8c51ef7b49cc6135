/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The restorer alone: what it makes of a plan is looked at from within and from outside; images that do not match their checksums, and plans that
 * cannot be carried out, come to nothing.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cmocka.h>

#include "restorer_util.h"

static void check_report(struct fixture *f, const struct block *b)
{
	const struct image_thread *t = (const struct image_thread *)((char *)f->plan + f->plan->threads);

	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(b->slots[i].rax, 1);
		assert_int_equal(b->slots[i].fs, t[i].fs_base);
		assert_int_equal(b->slots[i].rsp, t[i].context.rsp);
		assert_int_equal(b->slots[i].rbp, t[i].context.rbp);
		assert_int_equal(b->slots[i].r15, t[i].context.r15);
		assert_int_equal(b->slots[i].tid, t[i].tid);
	}
	assert_string_equal(b->restart.rundir, "/run/somewhere");
	assert_int_equal(b->restart.hole_start, HOLE);
	assert_int_equal(b->restart.image_fd, f->image);
}

static void check_outside(struct fixture *f, pid_t pid)
{
	const struct image_process *p = &f->plan->process;
	char *text = proc_read(pid, "maps"), want[64];

	assert_non_null(strstr(text, "10000000-10001000 r-xp"));
	assert_non_null(strstr(text, "20000000-20400000 rw-p"));
	assert_non_null(strstr(text, "30000000-30002000 r--p 00001000"));
	assert_non_null(strstr(text, "38000000-38002000 r--s"));
	assert_non_null(strstr(text, "7ff000000000-7ff000021000 rw-p"));
	snprintf(want, sizeof(want), "%lx-%lx r-xp", p->vdso_start, p->vdso_end);
	assert_non_null(strstr(text, want));
	assert_null(strstr(text, "restorer"));
	assert_null(strstr(text, "100000000000-"));
	assert_non_null(strstr(text, "3c000000-3c001000 rw-s"));
	assert_null(strstr(text, "3c001000-"));
	assert_non_null(strstr(text, "3c002000-3c003000 r--s 00002000"));
	assert_non_null(strstr(text, "3d000000-3d003000 r--s"));
	assert_null(strstr(text, "3e000000-"));
	text = proc_read(pid, "cmdline");
	assert_int_equal((unsigned char)text[5], image_pattern(16384 + 5));
	text = proc_read(pid, "status");
	assert_non_null(strstr(text, "Name:\tthread 1\n"));
	assert_non_null(strstr(text, "Umask:\t0137\n"));
	assert_non_null(strstr(text, "Threads:\t3\n"));
	assert_non_null(strstr(text, "SigCgt:\t0000000000000200\n"));
	text = proc_read(pid, proc_task(pid, "thread 2", "status"));
	assert_non_null(strstr(text, "SigPnd:\t0000000000000800\n"));
	text = proc_read(pid, "status");
	if (geteuid())
		assert_non_null(strstr(text, "CapPrm:\t0000000000000000\n"));
}

/* Counted by the kernel: two attachments, one of them in two parts. */
static void check_segment(const struct fixture *f)
{
	struct shmid_ds d;

	assert_int_equal(shmctl(f->segment, IPC_STAT, &d), 0);
	assert_int_equal(d.shm_nattch, 3);
	assert_int_equal(d.shm_perm.mode, 0640 | SHM_DEST);
}

static void check_memory(pid_t pid)
{
	static unsigned char data[DATA_SIZE];
	char path[64], text[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, data, DATA_SIZE, (off_t)DATA), DATA_SIZE);
	for (uint64_t i = 16384; i < DATA_SIZE; i++)
		assert_int_equal(data[i], image_pattern(i));
	assert_int_equal(pread(fd, text, 11, (off_t)(FILE_AT + 4096)), 11);
	assert_string_equal(text, "of the file");
	assert_int_equal(pread(fd, data, 4096, (off_t)(SHARED + 4096)), 4096);
	assert_int_equal(data[100], image_pattern(4096 + 100));
	assert_int_equal(pread(fd, data, 4096, (off_t)SHARED), 4096);
	assert_int_equal(data[100], image_pattern(4096 + 100));
	assert_int_equal(pread(fd, data, 4096, (off_t)(SEGMENT_READ_ONLY + 8192)), 4096);
	assert_int_equal(data[100], image_pattern(3 * 4096 + 100));
	close(fd);
}

static void test_restores(void **state)
{
	struct fixture *f = *state;
	char page[4096];
	size_t said;
	ssize_t n;

	restorer_start(f);
	restorer_open_gate(f);
	n = read(f->report[0], page, sizeof(page));
	if (n == 0 && restorer_wait(f) == 77)
		skip(); /* no user namespaces here */
	assert_int_equal(n, sizeof(page));
	check_report(f, (struct block *)page);
	check_outside(f, proc_first_child(proc_first_child(f->outer)));
	check_memory(proc_first_child(proc_first_child(f->outer)));
	check_segment(f);
	assert_int_equal(restorer_wait(f), 7);
	assert_string_equal(restorer_log(f, &said), "\2");
}

/* Runs a plan that must not come to life, the gate open or not. The status, and the last thing that was said. */
static int run_in_vain(struct fixture *f, bool open, char *ret_mark, const char **ret_text)
{
	char page[4096];
	size_t said;
	int status;

	restorer_start(f);
	if (open)
		restorer_open_gate(f);
	status = restorer_wait(f);
	if (status == 77)
		skip();
	assert_int_equal(read(f->report[0], page, sizeof(page)), 0);
	*ret_text = restorer_log(f, &said);
	assert_int_not_equal(said, 0);
	*ret_mark = (*ret_text)[said - 1];
	return status;
}

static void expect_damage(struct fixture *f)
{
	const char *text;
	char mark;

	assert_int_equal(run_in_vain(f, true, &mark, &text), 6);
	assert_int_equal(mark, PLAN_DAMAGED);
	assert_non_null(strstr(text, "process 4300 cannot be restored: its image does not match its checksum"));
}

/* A flipped bit: in a block of many loads, in one of a single load, where zeros should be, in bytes for no memory. */
static void test_damage_many(void **state)
{
	image_flip(*state, 4096 + 8 * PIECE + 5000);
	expect_damage(*state);
}

static void test_damage_single(void **state)
{
	image_flip(*state, EDGE - 1);
	expect_damage(*state);
}

static void test_damage_loaded_between(void **state)
{
	image_flip(*state, EDGE + 4096);
	expect_damage(*state);
}

/* The plan was made of an image with holes there. */
static void test_sum_of_holes(void **state)
{
	struct fixture *f = *state;

	image_flip(f, EDGE);
	image_sign_block(f, f->plan->block_count - 3);
	expect_damage(f);
}

static void test_damage_unloaded(void **state)
{
	image_flip(*state, 4096 + 2 * 4096 + 17);
	image_sign_block(*state, 0); /* it has these bytes, too */
	expect_damage(*state);
}

/* Without verification nothing is summed. */
static void test_no_verify(void **state)
{
	struct fixture *f = *state;
	char page[4096];

	f->plan->verify = 0;
	image_flip(f, 4096 + 2 * 4096 + 17);
	restorer_start(f);
	restorer_open_gate(f);
	if (read(f->report[0], page, sizeof(page)) == 0 && restorer_wait(f) == 77)
		skip();
	assert_int_equal(restorer_wait(f), 7);
}

/* The memory is in and whole, but that of another process is not: no thread is made. */
static void test_gate(void **state)
{
	const char *text;
	char mark;

	assert_int_equal(run_in_vain(*state, false, &mark, &text), 5);
	assert_string_equal(text, "\2");
}

static void test_image_ends(void **state)
{
	struct fixture *f = *state;
	const char *text;
	char mark;

	assert_int_equal(ftruncate(f->image, 65536), 0);
	assert_int_equal(run_in_vain(f, true, &mark, &text), 6);
	assert_int_equal(mark, PLAN_DAMAGED);
}

/* A plan that cannot be carried out ends the process with status 5. */
static void test_refuses(void **state)
{
	struct fixture *f = *state;
	const char *text;
	char mark;

	((struct plan_mapping *)((char *)f->plan + f->plan->mappings))[2].fd = 9999;
	assert_int_equal(run_in_vain(f, true, &mark, &text), 5);
	assert_int_equal(mark, PLAN_FAILED);
	assert_non_null(strstr(text, "mapping at 0x30000000: errno 9"));
}

/* The copy in the hole runs as it is: nothing to relocate. */
static void test_no_relocations(void **state)
{
	FILE *f = fopen(getenv("RESTORER"), "re");
	Elf64_Ehdr head;
	Elf64_Shdr section;

	assert_non_null(f);
	assert_int_equal(fread(&head, sizeof(head), 1, f), 1);
	assert_int_equal(head.e_type, ET_DYN);
	for (int i = 0; i < head.e_shnum; i++) {
		fseek(f, (long)(head.e_shoff + (uint64_t)i * head.e_shentsize), SEEK_SET);
		assert_int_equal(fread(&section, sizeof(section), 1, f), 1);
		assert_true((section.sh_type != SHT_RELA && section.sh_type != SHT_REL) || !section.sh_size);
		assert_false(section.sh_type == SHT_NOBITS && section.sh_size);
	}
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_relocations),
		cmocka_unit_test_setup_teardown(test_restores, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_damage_many, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_damage_single, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_damage_loaded_between, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_sum_of_holes, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_damage_unloaded, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_no_verify, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_gate, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_image_ends, fixture_make, fixture_free),
		cmocka_unit_test_setup_teardown(test_refuses, fixture_make, fixture_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
