/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which system call a thread was in when our signal interrupted it: by then %rax has the answer. It is what /proc/self/task/TID/syscall said just before the thread was asked to stop, and that holds only
 * if stack pointer, program counter and all six arguments are still the frame's; else it is read from the `mov $number, %eax` before the instruction, or one instruction further ahead: the thread has begun
 * the call in between, or is in it for the second time, after SIGCONT, which is another number (restart_syscall). In libc's syscall(2) there is none: its wrapper notes what is called.
 *
 * Owns where libc lies.
 */
#include "agent/call_number.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "agent/call_woken.h"
#include "agent/wrap.h"

#define CALLS_END 1024 /* no call has a number so high */
#define SYSCALL_SIZE 64 /* bytes, or more, of libc's syscall(2) */
#define WRAPPER_SIZE 512 /* bytes, or more, of the stack of its wrapper, which has noted what is called */

static uint64_t libc_begins, libc_ends;

/* Not by dl_iterate_phdr, which may be the program's own. */
void call_find_libc(void)
{
	const ElfW(Ehdr) *e;
	const ElfW(Phdr) *p;
	const void *at = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	Dl_info info;

	if (!at || !dladdr(at, &info))
		return;
	e = info.dli_fbase;
	p = (const void *)((const char *)info.dli_fbase + e->e_phoff);
	libc_begins = (uint64_t)info.dli_fbase;
	for (size_t i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD) /* in order of their addresses */
			libc_ends = libc_begins + p[i].p_vaddr + p[i].p_memsz;
}

bool call_is_of_libc(const ucontext_t *f)
{
	return (uint64_t)f->uc_mcontext.gregs[REG_RIP] - libc_begins < libc_ends - libc_begins;
}

/* Takes one number, decimal or 0x.., and what follows it up to the next. */
static uint64_t take_number(const char **p)
{
	uint64_t v = 0, base = 10;

	if ((*p)[0] == '0' && (*p)[1] == 'x') {
		base = 16;
		*p += 2;
	}
	for (;; (*p)++) {
		char c = **p;

		if (c >= '0' && c <= '9')
			v = v * base + (uint64_t)(c - '0');
		else if (base == 16 && c >= 'a' && c <= 'f')
			v = v * base + (uint64_t)(c - 'a' + 10);
		else
			break;
	}
	while (**p == ' ')
		(*p)++;
	return v;
}

void call_note(struct stop_thread *t)
{
	char path[64], buf[256];
	const char *p = buf;

	t->call = -1;
	t->before_call = false;
	fm_format(path, sizeof(path), "/proc/self/task/%d/syscall", t->tid);
	if (raw_read_file(path, buf, sizeof(buf)) <= 0 || *buf < '0' || *buf > '9')
		return; /* "running", or not to be had */
	t->call = (long)take_number(&p);
	for (size_t i = 0; i < 6; i++)
		t->args[i] = (long)take_number(&p);
	t->call_sp = take_number(&p);
	t->call_pc = take_number(&p);
	call_woken_seen(&t->call_pc, &t->call_sp);
}

void call_is_next(struct stop_thread *t, ucontext_t *f)
{
	const greg_t *g = f->uc_mcontext.gregs;

	t->before_call = true;
	t->call = g[REG_RAX];
	for (unsigned int i = 0; i < 6; i++)
		t->args[i] = *call_arg(f, i);
	t->call_sp = (uint64_t)g[REG_RSP];
	t->call_pc = (uint64_t)g[REG_RIP] + 2;
}

/* Nothing, or xor %edi,%edi; mov 28(%rsp),%edi; mov 28(%rsp),%rdi; and the like. */
static bool sets_argument(const uint8_t *at, size_t length)
{
	switch (length) {
	case 0: return true;
	case 2: return at[0] == 0x31;
	case 4: return at[0] == 0x8b && at[2] == 0x24;
	default: return at[0] == 0x48 && at[1] == 0x8b && at[3] == 0x24;
	}
}

/*
 * In libc's syscall(2), called by its wrapper: what that has noted. A note that a jump out of a handler has left behind is another frame's: it lies elsewhere, or in memory that has something
 * else by now. Compared are the arguments that no rule of call.c changes.
 */
static long noted_number(ucontext_t *f)
{
	const greg_t *g = f->uc_mcontext.gregs;
	const long *called = fermata_thread.by_number;

	if (!called || (uint64_t)g[REG_RIP] - (uint64_t)real.syscall >= SYSCALL_SIZE || (uint64_t)called - (uint64_t)g[REG_RSP] >= WRAPPER_SIZE)
		return -1;
	if (called[1 + 1] != *call_arg(f, 1) || called[1 + 5] != *call_arg(f, 5))
		return -1;
	return called[0];
}

long call_number(ucontext_t *f, const struct stop_thread *t)
{
	const uint8_t *pc = (const uint8_t *)f->uc_mcontext.gregs[REG_RIP];
	static const uint8_t lengths[] = { 0, 2, 4, 5 }; /* of what stands between */
	int32_t number;
	bool same = t->call >= 0 && t->call_pc == (uint64_t)pc && t->call_sp == (uint64_t)f->uc_mcontext.gregs[REG_RSP];

	for (unsigned int i = 0; same && i < 6; i++)
		same = t->args[i] == *call_arg(f, i);
	if (same && t->call != SYS_restart_syscall) /* that of one which a stop (SIGSTOP, a debugger) has interrupted: which, only its code says */
		return t->call;
	for (size_t i = 0; i < sizeof(lengths); i++) {
		const uint8_t *at = pc - 2 - lengths[i];

		memcpy(&number, at - 4, sizeof(number));
		if (at[-5] == 0xb8 && number >= 0 && number < CALLS_END && sets_argument(at, lengths[i]))
			return number;
	}
	return noted_number(f);
}
