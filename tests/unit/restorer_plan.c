/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan, the image that it is for, and what its threads run. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "image/hash.h"
#include "restorer_util.h"

/* What the threads run: slot r12 of the block at rbx gets what they find; thread 0 waits for all, unmaps the hole and reports. */
extern const char program_start[], program_end[];
__asm__(".pushsection .rodata\n"
	"program_start:\n"
	"	mov %r12, %r14\n"
	"	shl $6, %r14\n"
	"	lea 64(%rbx,%r14), %r14\n"
	"	mov %rax, 0(%r14)\n"
	"	mov %fs:0, %rcx\n"
	"	mov %rcx, 8(%r14)\n"
	"	mov %rsp, 16(%r14)\n"
	"	mov %rbp, 24(%r14)\n"
	"	mov %r15, 32(%r14)\n"
	"	mov $186, %eax\n" /* gettid */
	"	syscall\n"
	"	mov %rax, 40(%r14)\n"
	"	lock incl (%rbx)\n"
	"	test %r12, %r12\n"
	"	jz 2f\n"
	"1:	mov $34, %eax\n" /* pause */
	"	syscall\n"
	"	jmp 1b\n"
	"2:	cmpl $3, (%rbx)\n"
	"	je 3f\n"
	"	mov $24, %eax\n" /* sched_yield */
	"	syscall\n"
	"	jmp 2b\n"
	"3:	mov 8(%rbx), %rdi\n"
	"	mov 16(%rbx), %rsi\n"
	"	mov $11, %eax\n" /* munmap */
	"	syscall\n"
	"	mov 24(%rbx), %rdi\n"
	"	mov %rbx, %rsi\n"
	"	mov $4096, %edx\n"
	"	mov $1, %eax\n" /* write */
	"	syscall\n"
	"	mov 32(%rbx), %rdi\n"
	"	mov %rbx, %rsi\n"
	"	mov $1, %edx\n"
	"	mov $0, %eax\n" /* read */
	"	syscall\n"
	"	mov $7, %edi\n"
	"	mov $231, %eax\n" /* exit_group */
	"	syscall\n"
	"	hlt\n"
	"program_end:\n"
	".popsection\n");

static int scratch_file(void)
{
	char name[] = "/tmp/fermata-unit-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

unsigned char image_pattern(uint64_t i)
{
	return (unsigned char)(i * 2654435761u >> 24);
}

/* The image: the code page, then the data, then a page between holes. */
static void write_image(struct fixture *f)
{
	static unsigned char data[DATA_SIZE];
	struct block *b = (struct block *)data;
	char code[4096] = { 0 };

	for (uint64_t i = 4096; i < DATA_SIZE; i++)
		data[i] = image_pattern(i);
	b->hole = f->plan->hole_start;
	b->hole_length = f->plan->hole_end - f->plan->hole_start;
	b->report_fd = (uint64_t)f->report[1];
	b->wait_fd = (uint64_t)f->hold[0];
	for (uint64_t i = 0; i < THREADS; i++) /* each thread's fs base names itself */
		*(uint64_t *)&data[8192 + i * 64] = DATA + 8192 + i * 64;
	memcpy(code, program_start, (size_t)(program_end - program_start));
	assert_int_equal(pwrite(f->image, code, sizeof(code), 0), sizeof(code));
	assert_int_equal(pwrite(f->image, data, DATA_SIZE, 4096), DATA_SIZE);
	assert_int_equal(pwrite(f->image, data + 4096, 4096, EDGE + 4096), 4096);
	assert_int_equal(ftruncate(f->image, IMAGE_SIZE), 0);
}

void image_sign_block(struct fixture *f, uint32_t index)
{
	struct plan_block *b = (struct plan_block *)((char *)f->plan + f->plan->blocks) + index;
	static unsigned char bytes[IMAGE_SIZE];

	assert_int_equal(pread(f->image, bytes, b->length, (off_t)b->file_offset), b->length);
	b->sum = image_hash64(bytes, b->length);
}

void image_flip(struct fixture *f, uint64_t at)
{
	unsigned char byte;

	assert_int_equal(pread(f->image, &byte, 1, (off_t)at), 1);
	byte ^= 16;
	assert_int_equal(pwrite(f->image, &byte, 1, (off_t)at), 1);
}

static void add_mapping(struct plan *p, uint64_t start, uint64_t length, uint32_t kind, uint32_t prot, uint32_t flags, int fd,
			uint64_t offset)
{
	struct plan_mapping *m = (struct plan_mapping *)((char *)p + p->mappings) + p->mapping_count++;

	*m = (struct plan_mapping){ start, start + length, kind, prot, flags, fd, offset };
}

static void add_load(struct plan *p, uint64_t address, uint64_t length, uint64_t offset)
{
	struct plan_load *l = (struct plan_load *)((char *)p + p->loads) + p->load_count++;

	*l = (struct plan_load){ address, length, offset };
}

/* Of all loads that are added next, @count of them. */
static void add_block(struct plan *p, uint64_t offset, uint64_t length, uint32_t count)
{
	struct plan_block *b = (struct plan_block *)((char *)p + p->blocks) + p->block_count++;

	*b = (struct plan_block){ .file_offset = offset, .length = (uint32_t)length, .load_count = count, .first_load = p->load_count };
}

/* Blocks of many loads, of a single one, with holes, and one whose bytes are partly for no memory. */
static void plan_loads(struct plan *p)
{
	add_block(p, 0, 4096 + DATA_SIZE / 2, 1 + DATA_SIZE / 2 / PIECE);
	add_load(p, CODE, 4096, 0);
	for (uint64_t at = 0; at < DATA_SIZE / 2; at += PIECE)
		add_load(p, DATA + at, PIECE, 4096 + at);
	for (uint64_t at = DATA_SIZE / 2; at < DATA_SIZE; at += PIECE) {
		add_block(p, 4096 + at, PIECE, 1);
		add_load(p, DATA + at, PIECE, 4096 + at);
	}
	add_block(p, EDGE, 3 * 4096, 1);
	add_load(p, SHARED, 4096, EDGE + 4096);
	add_block(p, 2 * 4096, 2 * 4096, 2);
	add_load(p, SHARED + 4096, 4096, 4096 + 4096);
	add_load(p, PLAN_NOWHERE, 4096, 4096 + 2 * 4096);
	add_block(p, 4 * 4096, 4096, 1);
	add_load(p, SEGMENT_TRANSIENT + 8192, 4096, 4 * 4096);
}

static void add_segment(struct plan *p, uint64_t base, int id, uint32_t flags)
{
	struct plan_segment *s = (struct plan_segment *)((char *)p + p->segments) + p->segment_count++;

	*s = (struct plan_segment){ .base = base, .size = SEGMENT_SIZE, .id = id, .flags = flags, .mode = 0640 | SHM_DEST,
				    .uid = geteuid(), .gid = getegid() };
}

static void plan_segments(struct fixture *f)
{
	struct plan *p = f->plan;
	uint32_t id;

	f->segment = shmget(IPC_PRIVATE, SEGMENT_SIZE, IPC_CREAT | 0600);
	assert_true(f->segment >= 0);
	id = (uint32_t)f->segment;
	add_mapping(p, SEGMENT, 4096, IMAGE_MAPPING_SYSV, PROT_READ | PROT_WRITE, id, -1, 0);
	add_mapping(p, SEGMENT + 8192, 4096, IMAGE_MAPPING_SYSV, PROT_READ, id, -1, 8192);
	add_mapping(p, SEGMENT_READ_ONLY, 3 * 4096, IMAGE_MAPPING_SYSV, PROT_READ, id, -1, 0);
	add_mapping(p, SEGMENT_TRANSIENT, 3 * 4096, IMAGE_MAPPING_SYSV, PROT_READ | PROT_WRITE, id, -1, 0);
	add_segment(p, SEGMENT, f->segment, PLAN_SEGMENT_ATTACH);
	add_segment(p, SEGMENT_READ_ONLY, f->segment, PLAN_SEGMENT_ATTACH | PLAN_SEGMENT_READONLY);
	add_segment(p, SEGMENT_TRANSIENT, f->segment, PLAN_SEGMENT_ATTACH | PLAN_SEGMENT_TRANSIENT);
	add_segment(p, 0, f->segment, PLAN_SEGMENT_TOUCH | PLAN_SEGMENT_SETTLE);
}

/* The kernel's vvar and vdso, to be moved between the test's mappings and the stack. */
static void plan_vdso(struct plan *p)
{
	const uint64_t to = 0x7fe000000000;
	uint64_t start, end, base = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, "[vvar") && !strstr(line, "[vdso]"))
			continue;
		assert_int_equal(sscanf(line, "%lx-%lx", &start, &end), 2);
		base = base ? base : start;
		add_mapping(p, to + start - base, end - start, IMAGE_MAPPING_VDSO, PROT_READ, 0, -1, 0);
		if (strstr(line, "[vdso]")) {
			p->process.vvar_start = to;
			p->process.vdso_start = to + start - base;
			p->process.vdso_end = to + end - base;
		}
	}
	fclose(f);
}

static void plan_threads(struct plan *p)
{
	struct image_thread *t = (struct image_thread *)((char *)p + p->threads);

	for (uint32_t i = 0; i < THREADS; i++) {
		t[i].tid = i == 1 ? PID : 5000 + i; /* the leader is not the first one */
		t[i].flags = i == 1 ? IMAGE_THREAD_LEADER : i == 0 ? IMAGE_THREAD_AGENT : 0;
		t[i].context.rbx = DATA;
		t[i].context.r12 = i;
		t[i].context.r15 = 0xabc0 + i;
		t[i].context.rbp = 0xbb00 + i;
		t[i].context.rsp = STACK + STACK_SIZE - 4096 * i - 64;
		t[i].context.rip = CODE;
		t[i].fs_base = DATA + 8192 + i * 64;
		t[i].sigmask = ~0ull;
		snprintf(t[i].comm, sizeof(t[i].comm), "thread %u", i);
	}
	t[2].pending = 1ull << (SIGUSR2 - 1);
	p->thread_count = THREADS;
}

static void make_plan(struct fixture *f)
{
	struct plan *p = f->plan = calloc(1, 65536);

	assert_non_null(p);
	p->magic = PLAN_MAGIC;
	p->size = 65536;
	p->mappings = sizeof(*p);
	p->blocks = p->mappings + 16 * sizeof(struct plan_mapping);
	p->loads = p->blocks + 128 * sizeof(struct plan_block);
	p->threads = p->loads + 128 * sizeof(struct plan_load);
	p->signals = p->threads + THREADS * sizeof(struct image_thread);
	p->segments = p->signals + 64 * sizeof(struct image_sigaction);
	p->verify = 1;
	p->log_fd = (uint32_t)f->log[1];
	p->gate_fd = (uint32_t)f->gate[0];
	p->eager_threads = 3;
	p->helper_tid = 7000;
	p->process.pid = PID;
	p->process.umask = 0137;
	p->process.dumpable = 1;
	p->process.restart_info = DATA + offsetof(struct block, restart);
	p->process.mm = (struct image_mm){
		.start_code = CODE, .end_code = CODE + 4096, .start_data = DATA, .end_data = DATA + 4096,
		.start_brk = DATA + DATA_SIZE, .brk = DATA + DATA_SIZE, .start_stack = STACK + STACK_SIZE - 64,
		.arg_start = DATA + 16384, .arg_end = DATA + 16384 + 32, .env_start = DATA + 16416, .env_end = DATA + 16416,
	};
	p->restart.size = sizeof(p->restart);
	p->restart.exe_fd = UINT32_MAX;
	p->restart.caps = 1;
	strcpy(p->restart.rundir, "/run/somewhere");
	add_mapping(p, CODE, 4096, IMAGE_MAPPING_ANON, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	add_mapping(p, DATA, DATA_SIZE, IMAGE_MAPPING_ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	add_mapping(p, FILE_AT, 8192, IMAGE_MAPPING_FILE, PROT_READ, MAP_PRIVATE, f->file, 4096);
	add_mapping(p, SHARED, 8192, IMAGE_MAPPING_SHARED_ANON, PROT_READ, MAP_SHARED, f->shared, 0);
	plan_segments(f);
	plan_vdso(p);
	add_mapping(p, STACK, STACK_SIZE, IMAGE_MAPPING_ANON, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	plan_loads(p);
	p->dense_count = p->block_count / 2;
	plan_threads(p);
	((struct image_sigaction *)((char *)p + p->signals))[SIGUSR1 - 1].handler = CODE;
	p->hole_start = HOLE;
	p->hole_end = HOLE + plan_hole_size(p);
	p->restart.hole_start = p->hole_start;
	p->restart.hole_end = p->hole_end;
}

int fixture_make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(pipe(f->report) | pipe(f->hold) | pipe(f->log) | pipe(f->gate), 0);
	f->image = scratch_file();
	f->file = scratch_file();
	f->shared = memfd_create("shared", 0);
	assert_int_equal(ftruncate(f->shared, 8192) | ftruncate(f->file, 4096 * 3), 0);
	assert_int_equal(pwrite(f->file, "of the file", 11, 8192), 11);
	make_plan(f);
	write_image(f);
	for (uint32_t i = 0; i < f->plan->block_count; i++)
		image_sign_block(f, i);
	*state = f;
	return 0;
}

int fixture_free(void **state)
{
	struct fixture *f = *state;

	close(f->report[0]);
	close(f->hold[0]);
	close(f->log[0]);
	close(f->gate[0]);
	close(f->image);
	close(f->file);
	close(f->shared);
	shmctl(f->segment, IPC_RMID, NULL); /* a restorer that got so far has marked it */
	free(f->plan);
	free(f);
	return 0;
}
