/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The restorer: rebuilds one process from a plan and an image and becomes it. Run as `restorer PLANFD IMAGEFD` by
 * `fermata restart`, in the capsule, with all signals blocked.
 *
 *   exec'd somewhere -> copies itself into the hole, goes on there -> parks the vdso, unmaps all else
 *   -> makes the mappings, reads the pages and checks them -> waits until all processes have got so far
 *   -> puts the vdso and the mm's fields in place -> signal actions
 *   -> clones the threads with their old ids -> each thread jumps to where it stood in the agent.
 *
 * The agent unmaps the hole once every thread has arrived in the agent's own code: no thread can tell from within the
 * hole that it has left it.
 *
 * Where there is no capsule it is a library that the program's own linker loads first (restart_plan.c): the rest is the same.
 *
 * Freestanding: no libc, no stack protector, no writable data, no relocations (restorer.h).
 */
#include <elf.h>
#include <errno.h>

#include "arch/x86_64/arch.h"
#include "restorer.h"

extern const char __ehdr_start[] HIDDEN, _end[] HIDDEN;

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int c, size_t n);

void *memcpy(void *to, const void *from, size_t n)
{
	arch_copy(to, from, n);
	return to;
}

void *memset(void *to, int c, size_t n)
{
	arch_fill(to, c, n);
	return to;
}

struct line {
	char text[256];
	uint32_t length;
};

static void line_text(struct line *l, const char *s)
{
	while (*s && l->length < sizeof(l->text) - 2)
		l->text[l->length++] = *s++;
}

static void line_number(struct line *l, uint64_t v, unsigned int base)
{
	char digits[24];
	unsigned int n = 0;

	do {
		unsigned int d = (unsigned int)(v % base);

		digits[n++] = (char)(d < 10 ? '0' + d : 'a' + d - 10);
		v /= base;
	} while (v);
	while (n && l->length < sizeof(l->text) - 2)
		l->text[l->length++] = digits[--n];
}

/* One write, so that lines of several processes do not mix. @mark behind the line: what that means; negative: nothing. */
static void say(const struct restorer *r, const char *kind, const char *step, uint64_t at, long err, int mark)
{
	struct line l;

	l.length = 0;
	line_text(&l, "fermata: process ");
	line_number(&l, r->pid, 10);
	line_text(&l, kind);
	line_text(&l, step);
	if (at) {
		line_text(&l, at < 1u << 22 ? " " : " 0x");
		line_number(&l, at, at < 1u << 22 ? 10 : 16);
	}
	if (err) {
		line_text(&l, ": errno ");
		line_number(&l, (uint64_t)-err, 10);
	}
	l.text[l.length++] = '\n';
	l.text[l.length] = (char)mark;
	raw_write(r->plan ? (int)r->plan->log_fd : 2, l.text, l.length + (mark >= 0));
}

void fail(const struct restorer *r, const char *step, uint64_t at, long err)
{
	say(r, " cannot be restored: ", step, at, err, PLAN_FAILED);
	raw_exit_group(5);
}

void damaged(const struct restorer *r, const char *step, uint64_t at, long err)
{
	say(r, " cannot be restored: ", step, at, err, PLAN_DAMAGED);
	raw_exit_group(6);
}

void warn(const struct restorer *r, const char *step, uint64_t at, long err)
{
	say(r, ": ", step, at, err, -1);
}

static void read_plan(struct restorer *r, void *to, uint64_t size)
{
	for (uint64_t done = 0; done < size;) {
		long n = raw_pread(r->plan_fd, (char *)to + done, size - done, done);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			fail(r, "reading the plan", 0, n ? n : -ENODATA);
		done += (uint64_t)n;
	}
}

static _Noreturn void run_in_hole(struct restorer *r)
{
	threads_place_memory(r);
	memory_clear(r);
	segments_attach(r);
	memory_map(r);
	memory_load(r);
	segments_detach(r);
	memory_await_others(r);
	memory_finish(r);
	segments_finish(r);
	process_restore(r);
	threads_restore(r);
}

static struct plan_turns *map_turns(const struct restorer *old, const struct plan *head, void *at)
{
	void *got;

	if (!head->turns_size)
		return NULL;
	got = raw_mmap(at, plan_page_up(head->turns_size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)head->turns_fd, 0);
	if (got != at)
		fail(old, "mapping the list of thread ids", 0, (long)got);
	raw_close((int)head->turns_fd);
	return got;
}

static struct restorer *move_to_hole(const struct plan *head, struct restorer *old)
{
	char *hole = (char *)head->hole_start;
	uint64_t at = PLAN_HOLE_PLAN, code = (uint64_t)(_end - __ehdr_start);
	struct restorer *r;
	struct plan *plan;
	void *got;

	if (code > PLAN_HOLE_CODE || head->hole_end - head->hole_start < plan_hole_size(head))
		fail(old, "the hole is too small for the restorer of size", code, -ENOSPC);
	got = raw_mmap(hole, head->hole_end - head->hole_start, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (got != hole)
		fail(old, "mapping the hole at", head->hole_start, raw_is_error(got) ? (long)got : -EEXIST);
	arch_copy(hole, __ehdr_start, code);
	r = (struct restorer *)(hole + PLAN_HOLE_CODE);
	*r = *old;
	plan = (struct plan *)(hole + at);
	read_plan(old, plan, head->size);
	at += plan_page_up(head->size);
	r->turns = map_turns(old, head, hole + at);
	at += plan_page_up(head->turns_size);
	r->plan = plan;
	r->mappings = (const void *)((char *)plan + plan->mappings);
	r->segments = (const void *)((char *)plan + plan->segments);
	r->patches = (const void *)((char *)plan + plan->patches);
	r->blocks = (const void *)((char *)plan + plan->blocks);
	r->loads = (const void *)((char *)plan + plan->loads);
	r->threads = (const void *)((char *)plan + plan->threads);
	r->signals = (const void *)((char *)plan + plan->signals);
	r->park = head->hole_start + at;
	at += plan_page_up(plan->process.vdso_end - plan->process.vvar_start);
	r->stacks = head->hole_start + at;
	return r;
}

static int parse_fd(const char *s)
{
	int v = 0;

	if (!s)
		return -EBADF;
	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (*s - '0');
	return v;
}

static uint64_t find_vdso(long *argument)
{
	Elf64_auxv_t *aux;

	while (*argument)
		argument++;
	for (aux = (Elf64_auxv_t *)(argument + 1); aux->a_type != AT_NULL; aux++)
		if (aux->a_type == AT_SYSINFO_EHDR)
			return aux->a_un.a_val;
	return 0;
}

_Noreturn void restorer_main(long *arguments);
_Noreturn __attribute__((used)) void restorer_main(long *arguments)
{
	long argc = arguments[0];
	char **argv = (char **)&arguments[1];
	struct restorer *r, old;
	struct plan head;
	int err;

	memset(&old, 0, sizeof(old));
	old.pid = (uint32_t)raw_getpid();
	if (argc != 3)
		fail(&old, "usage: restorer PLANFD IMAGEFD, run by fermata restart", 0, -EINVAL);
	old.plan_fd = parse_fd(argv[1]);
	old.image_fd = parse_fd(argv[2]);
	old.vdso_now = find_vdso(&arguments[argc + 2]);
	read_plan(&old, &head, sizeof(head));
	if (head.magic != PLAN_MAGIC)
		fail(&old, "the plan is not one", 0, -EINVAL);
	r = move_to_hole(&head, &old);
	err = raw_mprotect((void *)head.hole_start, PLAN_HOLE_CODE, PROT_READ | PROT_EXEC);
	if (err)
		fail(&old, "making the hole executable at", head.hole_start, err);
	arch_call_on_stack((char *)head.hole_start + ((char *)run_in_hole - __ehdr_start), r, stack_top(r, 0));
}

#ifdef RESTORER_LIBRARY
/* Of the linker, before it loads anything of the program (rtld-audit(7)): the argument block is where the kernel has put it. */
extern void *__libc_stack_end;
__attribute__((visibility("default"))) unsigned int la_version(unsigned int version);
unsigned int la_version(unsigned int version)
{
	(void)version;
	restorer_main(__libc_stack_end);
}
#else
ARCH_ENTRY(restorer_main);
#endif
