/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The restorer alone: a plan made by hand for a process that never lived (a page of code, data, a stack, shared and file memory, three
 * threads with chosen ids) is restored in a user and pid namespace, and looked at from within and from outside.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "image/hash.h"
#include "image/plan.h"

#define CODE 0x10000000ul
#define DATA 0x20000000ul
#define DATA_SIZE (4ul << 20)
#define FILE_AT 0x30000000ul
#define SHARED 0x38000000ul
#define STACK 0x7ff000000000ul
#define STACK_SIZE 0x21000ul
#define HOLE 0x100000000000ul
#define PIECE 65536ul
#define THREADS 3u
#define PID 4300u
#define EDGE (4096 + DATA_SIZE) /* of the image: a page of zeros, one of bytes, one of zeros */
#define IMAGE_SIZE (EDGE + 3 * 4096)

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

struct slot {
	uint64_t rax, fs, rsp, rbp, r15, tid, unused[2];
};

struct block { /* at DATA */
	uint32_t arrived, pad;
	uint64_t hole, hole_length, report_fd, wait_fd, unused[3];
	struct slot slots[THREADS];
	struct image_restart restart;
};

struct fixture {
	int report[2], hold[2], log[2], gate[2], image, file, shared;
	pid_t outer;
	struct plan *plan;
	uint64_t vdso_shift;
};

static int scratch_file(void)
{
	char name[] = "/tmp/fermata-unit-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	return fd;
}

static unsigned char pattern(uint64_t i)
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
		data[i] = pattern(i);
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

/* The checksum of the image as it is. */
static void sign_block(struct fixture *f, uint32_t index)
{
	struct plan_block *b = (struct plan_block *)((char *)f->plan + f->plan->blocks) + index;
	static unsigned char bytes[IMAGE_SIZE];

	assert_int_equal(pread(f->image, bytes, b->length, (off_t)b->file_offset), b->length);
	b->sum = image_hash64(bytes, b->length);
}

static void flip(struct fixture *f, uint64_t at)
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
	plan_vdso(p);
	add_mapping(p, STACK, STACK_SIZE, IMAGE_MAPPING_ANON, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	plan_loads(p);
	plan_threads(p);
	((struct image_sigaction *)((char *)p + p->signals))[SIGUSR1 - 1].handler = CODE;
	p->hole_start = HOLE;
	p->hole_end = HOLE + plan_hole_size(p);
	p->restart.hole_start = p->hole_start;
	p->restart.hole_end = p->hole_end;
}

static void write_proc(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(77);
	close(fd);
}

static void raise_ambient(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	syscall(SYS_capget, &head, data);
	for (int i = 0; i < 2; i++)
		data[i].inheritable = data[i].permitted;
	syscall(SYS_capset, &head, data);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHECKPOINT_RESTORE, 0, 0);
}

static void exec_restorer(struct fixture *f, int plan_fd)
{
	char plan_text[16], image_text[16];
	sigset_t all;

	raise_ambient();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	snprintf(plan_text, sizeof(plan_text), "%d", plan_fd);
	snprintf(image_text, sizeof(image_text), "%d", f->image);
	execl(getenv("RESTORER"), "restorer", plan_text, image_text, (char *)NULL);
	_exit(76);
}

/* Pid 1 of the namespace: makes the process with its id and hands on its exit status. */
static void run_init(struct fixture *f, int plan_fd)
{
	pid_t pid = PID;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uint64_t)&pid, .set_tid_size = 1 };
	long child = syscall(SYS_clone3, &args, sizeof(args));
	int status;

	if (!child)
		exec_restorer(f, plan_fd);
	if (child < 0 || waitpid((pid_t)child, &status, 0) != child)
		_exit(75);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void start(struct fixture *f)
{
	char map[64], gmap[64];
	int plan_fd = memfd_create("plan", 0), status;
	pid_t init;

	snprintf(map, sizeof(map), "%u %u 1", geteuid(), geteuid());
	snprintf(gmap, sizeof(gmap), "%u %u 1", getegid(), getegid());
	assert_int_equal(write(plan_fd, f->plan, f->plan->size), f->plan->size);
	f->outer = fork();
	if (f->outer) {
		close(f->report[1]);
		close(f->log[1]);
		close(plan_fd);
		return;
	}
	close(f->hold[1]);
	close(f->gate[1]);
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID))
		_exit(77);
	write_proc("/proc/self/setgroups", "deny");
	write_proc("/proc/self/uid_map", map);
	write_proc("/proc/self/gid_map", gmap);
	init = fork();
	if (!init)
		run_init(f, plan_fd);
	waitpid(init, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 74);
}

static int setup(void **state)
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
		sign_block(f, i);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close(f->report[0]);
	close(f->hold[0]);
	close(f->log[0]);
	close(f->gate[0]);
	close(f->image);
	close(f->file);
	close(f->shared);
	free(f->plan);
	free(f);
	return 0;
}

static int wait_outer(struct fixture *f)
{
	int status;

	close(f->hold[1]);
	close(f->gate[1]);
	assert_int_equal(waitpid(f->outer, &status, 0), f->outer);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static pid_t first_child(pid_t of)
{
	char path[64];
	int child = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", of, of);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &child), 1);
	fclose(f);
	return child;
}

static char *read_proc(pid_t pid, const char *name)
{
	static char text[65536];
	char path[64];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

/* "task/TID/@file" of the thread called @comm. */
static const char *task_of(pid_t pid, const char *comm, const char *file)
{
	static char path[64];
	char dir[64], want[32];
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", pid);
	snprintf(want, sizeof(want), "%s\n", comm);
	d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "task/%.16s/comm", e->d_name);
		if (e->d_name[0] != '.' && !strcmp(read_proc(pid, path), want))
			break;
	}
	assert_non_null(e);
	snprintf(path, sizeof(path), "task/%.16s/%s", e->d_name, file);
	closedir(d);
	return path;
}

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
	char *text = read_proc(pid, "maps"), want[64];

	assert_non_null(strstr(text, "10000000-10001000 r-xp"));
	assert_non_null(strstr(text, "20000000-20400000 rw-p"));
	assert_non_null(strstr(text, "30000000-30002000 r--p 00001000"));
	assert_non_null(strstr(text, "38000000-38002000 r--s"));
	assert_non_null(strstr(text, "7ff000000000-7ff000021000 rw-p"));
	snprintf(want, sizeof(want), "%lx-%lx r-xp", p->vdso_start, p->vdso_end);
	assert_non_null(strstr(text, want));
	assert_null(strstr(text, "restorer"));
	assert_null(strstr(text, "100000000000-"));
	text = read_proc(pid, "cmdline");
	assert_int_equal((unsigned char)text[5], pattern(16384 + 5));
	text = read_proc(pid, "status");
	assert_non_null(strstr(text, "Name:\tthread 1\n"));
	assert_non_null(strstr(text, "Umask:\t0137\n"));
	assert_non_null(strstr(text, "Threads:\t3\n"));
	assert_non_null(strstr(text, "SigCgt:\t0000000000000200\n"));
	text = read_proc(pid, task_of(pid, "thread 2", "status"));
	assert_non_null(strstr(text, "SigPnd:\t0000000000000800\n"));
	text = read_proc(pid, "status");
	if (geteuid())
		assert_non_null(strstr(text, "CapPrm:\t0000000000000000\n"));
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
		assert_int_equal(data[i], pattern(i));
	assert_int_equal(pread(fd, text, 11, (off_t)(FILE_AT + 4096)), 11);
	assert_string_equal(text, "of the file");
	assert_int_equal(pread(fd, data, 4096, (off_t)(SHARED + 4096)), 4096);
	assert_int_equal(data[100], pattern(4096 + 100));
	assert_int_equal(pread(fd, data, 4096, (off_t)SHARED), 4096);
	assert_int_equal(data[100], pattern(4096 + 100));
	close(fd);
}

static void open_gate(struct fixture *f)
{
	assert_int_equal(write(f->gate[1], "", 1), 1);
}

/* What it has said, but for its progress; the process has ended. */
static const char *read_log(struct fixture *f, size_t *ret_length)
{
	static char text[4096];
	char byte;

	*ret_length = 0;
	while (read(f->log[0], &byte, 1) == 1)
		if (byte != PLAN_PROGRESS && *ret_length < sizeof(text) - 1)
			text[(*ret_length)++] = byte;
	text[*ret_length] = 0;
	return text;
}

static void test_restores(void **state)
{
	struct fixture *f = *state;
	char page[4096];
	size_t said;
	ssize_t n;

	start(f);
	open_gate(f);
	n = read(f->report[0], page, sizeof(page));
	if (n == 0 && wait_outer(f) == 77)
		skip(); /* no user namespaces here */
	assert_int_equal(n, sizeof(page));
	check_report(f, (struct block *)page);
	check_outside(f, first_child(first_child(f->outer)));
	check_memory(first_child(first_child(f->outer)));
	assert_int_equal(wait_outer(f), 7);
	assert_string_equal(read_log(f, &said), "\2");
}

/* Runs a plan that must not come to life, the gate open or not. The status, and the last thing that was said. */
static int run_in_vain(struct fixture *f, bool open, char *ret_mark, const char **ret_text)
{
	char page[4096];
	size_t said;
	int status;

	start(f);
	if (open)
		open_gate(f);
	status = wait_outer(f);
	if (status == 77)
		skip();
	assert_int_equal(read(f->report[0], page, sizeof(page)), 0);
	*ret_text = read_log(f, &said);
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
	flip(*state, 4096 + 8 * PIECE + 5000);
	expect_damage(*state);
}

static void test_damage_single(void **state)
{
	flip(*state, EDGE - 1);
	expect_damage(*state);
}

static void test_damage_loaded_between(void **state)
{
	flip(*state, EDGE + 4096);
	expect_damage(*state);
}

/* The plan was made of an image with holes there. */
static void test_sum_of_holes(void **state)
{
	struct fixture *f = *state;

	flip(f, EDGE);
	sign_block(f, f->plan->block_count - 2);
	expect_damage(f);
}

static void test_damage_unloaded(void **state)
{
	flip(*state, 4096 + 2 * 4096 + 17);
	sign_block(*state, 0); /* it has these bytes, too */
	expect_damage(*state);
}

/* Without verification nothing is summed. */
static void test_no_verify(void **state)
{
	struct fixture *f = *state;
	char page[4096];

	f->plan->verify = 0;
	flip(f, 4096 + 2 * 4096 + 17);
	start(f);
	open_gate(f);
	if (read(f->report[0], page, sizeof(page)) == 0 && wait_outer(f) == 77)
		skip();
	assert_int_equal(wait_outer(f), 7);
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
		cmocka_unit_test_setup_teardown(test_restores, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage_single, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage_loaded_between, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sum_of_holes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage_unloaded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_verify, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gate, setup, teardown),
		cmocka_unit_test_setup_teardown(test_image_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
