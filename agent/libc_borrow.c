/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc during a restart: from RECREATE until the program goes on. Owns where it begins, and what was there.
 *
 * Who allocates at that time is the device's library, in its own name or through libc (opendir, asprintf, ..) and the dynamic linker (dlopen). All of
 * them call the function that the program's look-up of the name gives. That function may have been cut in the middle by the stop of a thread,
 * so it must not run. Its first bytes become a jump to ours, and are put back before any thread of the program moves: the program itself never meets
 * it, and pays nothing, whatever malloc it has. Nobody stands in these bytes who runs meanwhile.
 *
 * What was allocated there is alive afterwards, and is freed by the device's library, or by libc in its name. So for good from a restart on, the slots for free
 * and realloc of these objects alone (the library, what it needs, and the drivers that it has loaded) lead to functions that know whose a
 * block is. What was allocated before the restart is left alone in it: freeing would mean the program's malloc.
 *
 * Standard error is used without its lock meanwhile: a stopped thread may hold it.
 *
 * The bytes are written through /proc/self/mem, for which neither text nor relocated slots have to be writable; else by changing the protection.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/jump.h"
#include "agent/libc.h"

#define OBJECTS 512u

/* ---- while the program stands: nothing that was there before is touched ---- */

static size_t (*usable_size)(void *p);

static void *stand_malloc(size_t n)
{
	void *p = libc_heap_alloc(n, 16);

	if (!p)
		errno = ENOMEM;
	return p;
}

static void *stand_calloc(size_t n, size_t size)
{
	size_t all;
	void *p;

	if (__builtin_mul_overflow(n, size, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	p = stand_malloc(all);
	return p ? memset(p, 0, all) : NULL;
}

static void stand_free(void *p)
{
	if (libc_heap_owns(p))
		libc_heap_free(p);
}

static void *stand_realloc(void *p, size_t n)
{
	size_t have = !p ? 0 : libc_heap_owns(p) ? libc_heap_size(p) : usable_size(p);
	void *q = stand_malloc(n);

	if (!q)
		return NULL;
	memcpy(q, p, have < n ? have : n);
	stand_free(p);
	return q;
}

static void *stand_aligned(size_t align, size_t n)
{
	void *p = libc_heap_alloc(n, align);

	if (!p)
		errno = ENOMEM;
	return p;
}

static int stand_posix_memalign(void **ret, size_t align, size_t n)
{
	void *p;

	if (!align || align & (align - 1) || align % sizeof(void *))
		return EINVAL;
	p = libc_heap_alloc(n, align);
	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}

static void *stand_valloc(size_t n)
{
	return stand_aligned(FM_PAGE_SIZE, n);
}

static struct site {
	const char *name;
	void *to;
	unsigned char *at; /* NULL: nobody has it */
	unsigned char was[ARCH_JUMP_SIZE];
} sites[] = {
	{ .name = "malloc", .to = stand_malloc },	      { .name = "calloc", .to = stand_calloc },
	{ .name = "realloc", .to = stand_realloc },	      { .name = "free", .to = stand_free },
	{ .name = "memalign", .to = stand_aligned },	      { .name = "aligned_alloc", .to = stand_aligned },
	{ .name = "posix_memalign", .to = stand_posix_memalign }, { .name = "valloc", .to = stand_valloc },
	{ .name = "pvalloc", .to = stand_valloc },
};

static struct {
	bool able, open;
	int stderr_lock; /* how it was */
	FILE **stderr_at;
	int (*set_locking)(FILE *, int);
} borrowed;

/* A name that stands for another's function is written over once. */
static bool have_before(const struct site *s)
{
	for (const struct site *o = sites; o < s; o++)
		if (o->at == s->at)
			return true;
	return false;
}

/*
 * Where @s is. A program that does not lie anywhere (not a PIE) and takes a function's address has that as a call of its own, an undefined symbol with a value, which
 * the look-up of the name gives to all; but who calls it from elsewhere gets to the function. That is what we want then: the next one, behind the program and us, who are the first
 * that is preloaded (cli/launch_become.c).
 */
static const ElfW(Sym) *site_find(struct site *s)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	s->at = dlsym(RTLD_DEFAULT, s->name);
	if (s->at && dladdr1(s->at, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol && symbol->st_shndx == SHN_UNDEF) {
		s->at = dlsym(RTLD_NEXT, s->name);
		symbol = NULL;
		if (s->at)
			dladdr1(s->at, &info, (void **)&symbol, RTLD_DL_SYMENT);
	}
	return symbol;
}

void libc_borrow_resolve(void)
{
	borrowed.able = true;
	for (struct site *s = sites; s < sites + ARRAY_SIZE(sites); s++) {
		const ElfW(Sym) *symbol = site_find(s);

		if (!s->at || have_before(s))
			s->at = NULL;
		else if (symbol && symbol->st_size && symbol->st_size < ARCH_JUMP_SIZE)
			borrowed.able = false;
	}
	usable_size = (__typeof__(usable_size))dlsym(RTLD_DEFAULT, "malloc_usable_size");
	borrowed.stderr_at = dlsym(RTLD_DEFAULT, "stderr");
	borrowed.set_locking = (__typeof__(borrowed.set_locking))dlsym(RTLD_DEFAULT, "__fsetlocking");
	if (!usable_size || !sites[0].at || !borrowed.stderr_at || !borrowed.set_locking)
		borrowed.able = false;
}

/* 0 or -errno. @prot: what the pages of it become where /proc/self/mem cannot be had. */
static int write_over(void *at, const void *from, size_t n, int prot)
{
	uint64_t start = (uint64_t)at & ~(uint64_t)(FM_PAGE_SIZE - 1), len = ALIGN_UP((uint64_t)at + n, (uint64_t)FM_PAGE_SIZE) - start;
	int fd = raw_open("/proc/thread-self/mem", O_RDWR | O_CLOEXEC, 0), r = fd;

	if (fd >= 0) {
		r = raw_pwrite_all(fd, from, n, (uint64_t)at);
		raw_close(fd);
	}
	if (r >= 0)
		return 0;
	r = raw_mprotect((void *)start, len, prot | PROT_WRITE);
	if (r)
		return r;
	memcpy(at, from, n);
	return prot & PROT_WRITE ? 0 : raw_mprotect((void *)start, len, prot);
}

int fermata_libc_borrow(void)
{
	int r = 0;

	if (borrowed.open)
		return 0;
	if (!libc_is_free() || !borrowed.able)
		return fermata_fail(-EOPNOTSUPP, "process %u cannot restart on an RDMA device of the kernel: at the checkpoint %s; --rdma soft can",
				    agent.pid, borrowed.able ? "a thread held a lock of libc" : "its libc or malloc was of a kind that cannot be lent");
	for (struct site *s = sites; s < sites + ARRAY_SIZE(sites) && !r; s++) {
		unsigned char code[ARCH_JUMP_SIZE];

		if (!s->at)
			continue;
		memcpy(s->was, s->at, sizeof(s->was));
		arch_jump_make(code, s->to);
		r = write_over(s->at, code, sizeof(code), PROT_READ | PROT_EXEC);
	}
	if (r)
		return fermata_fail(r, "malloc of process %u cannot be lent to the RDMA device (error %d)", agent.pid, -r);
	borrowed.stderr_lock = borrowed.set_locking(*borrowed.stderr_at, FSETLOCKING_BYCALLER);
	borrowed.open = true;
	return 0;
}

/* ---- afterwards: in the device's objects ---- */

static void (*true_free)(void *p);
static void *(*true_malloc)(size_t n), *(*true_realloc)(void *p, size_t n);

static void after_free(void *p)
{
	if (likely(!libc_heap_owns(p))) {
		true_free(p);
		return;
	}
	fermata_enter();
	libc_heap_free(p);
	fermata_leave();
}

static void *after_realloc(void *p, size_t n)
{
	size_t have;
	void *q;

	if (likely(!libc_heap_owns(p)))
		return true_realloc(p, n);
	q = true_malloc(n);
	if (!q)
		return NULL;
	have = libc_heap_size(p);
	memcpy(q, p, have < n ? have : n);
	after_free(p);
	return q;
}

/* What the dynamic section of an object says; addresses are relocated in it, but for libcs that leave it as it is. */
static uint64_t dynamic(const struct link_map *m, int64_t tag, bool address)
{
	for (const ElfW(Dyn) *d = m->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return address && d->d_un.d_ptr < m->l_addr ? d->d_un.d_ptr + m->l_addr : d->d_un.d_val;
	return 0;
}

static const char *name_of(const struct link_map *m)
{
	const char *slash = strrchr(m->l_name, '/'), *strings = (const char *)dynamic(m, DT_STRTAB, true);
	uint64_t own = dynamic(m, DT_SONAME, false);

	return own && strings ? strings + own : slash ? slash + 1 : m->l_name;
}

typedef void slot_fn(const char *name, void **slot, void *arg);

static void each_slot_of(const struct link_map *m, const ElfW(Rela) *first, uint64_t size, slot_fn *fn, void *arg)
{
	const ElfW(Sym) *symbols = (const ElfW(Sym) *)dynamic(m, DT_SYMTAB, true);
	const char *strings = (const char *)dynamic(m, DT_STRTAB, true);

	for (const ElfW(Rela) *r = first; r && symbols && (const char *)(r + 1) <= (const char *)first + size; r++) {
		uint32_t type = ELF64_R_TYPE(r->r_info);

		if (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT)
			fn(strings + symbols[ELF64_R_SYM(r->r_info)].st_name, (void **)(m->l_addr + r->r_offset), arg);
	}
}

static void each_slot(const struct link_map *m, slot_fn *fn, void *arg)
{
	each_slot_of(m, (const ElfW(Rela) *)dynamic(m, DT_JMPREL, true), dynamic(m, DT_PLTRELSZ, false), fn, arg);
	each_slot_of(m, (const ElfW(Rela) *)dynamic(m, DT_RELA, true), dynamic(m, DT_RELASZ, false), fn, arg);
}

static void lead(const char *name, void **slot, void *failed)
{
	void *to = strcmp(name, "free") == 0 ? (void *)after_free : strcmp(name, "realloc") == 0 ? (void *)after_realloc : NULL;

	if (to && *slot != to && write_over(slot, &to, sizeof(to), PROT_READ | PROT_WRITE))
		*(int *)failed = 1;
}

/* A driver of libibverbs is known by what it calls. */
static void is_driver(const char *name, void **slot, void *ret)
{
	(void)slot;
	if (strncmp(name, "verbs_register_driver", strlen("verbs_register_driver")) == 0)
		*(bool *)ret = true;
}

static bool needs(const struct link_map *m, const char *what)
{
	const char *strings = (const char *)dynamic(m, DT_STRTAB, true);

	for (const ElfW(Dyn) *d = m->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED && strcmp(strings + d->d_un.d_val, what) == 0)
			return true;
	return false;
}

/* The device's library, its drivers, and what any of these needs, but for the dynamic linker. */
static uint32_t own_objects(struct link_map *library, const struct link_map *ret[OBJECTS])
{
	const struct link_map *m = library, *first;
	uint32_t n = 0;

	while (m->l_prev)
		m = m->l_prev;
	first = m;
	for (ret[n++] = library; m && n < OBJECTS; m = m->l_next) {
		bool driver = false;

		if (m != library && m->l_ld)
			each_slot(m, is_driver, &driver);
		if (driver)
			ret[n++] = m;
	}
	for (uint32_t i = 0; i < n; i++)
		for (m = first; m && n < OBJECTS; m = m->l_next) {
			bool have = !m->l_ld || strncmp(name_of(m), "ld-", 3) == 0 || !needs(ret[i], name_of(m));

			for (uint32_t k = 0; k < n && !have; k++)
				have = ret[k] == m;
			if (!have)
				ret[n++] = m;
		}
	return n;
}

void fermata_libc_return(void *library)
{
	static const struct link_map *objects[OBJECTS];
	struct link_map *map = NULL;
	int failed = 0;
	uint32_t n;

	if (!borrowed.open)
		return;
	true_malloc = (__typeof__(true_malloc))(void *)sites[0].at;
	true_realloc = (__typeof__(true_realloc))(void *)sites[2].at;
	true_free = (__typeof__(true_free))(void *)sites[3].at;
	if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map) {
		n = own_objects(map, objects);
		for (uint32_t i = 0; i < n; i++)
			each_slot(objects[i], lead, &failed);
	}
	borrowed.set_locking(*borrowed.stderr_at, borrowed.stderr_lock);
	for (struct site *s = sites; s < sites + ARRAY_SIZE(sites); s++)
		if (s->at)
			failed |= write_over(s->at, s->was, sizeof(s->was), PROT_READ | PROT_EXEC);
	if (failed)
		log_error("process %u has got memory from a malloc that it cannot give back to", agent.pid);
	borrowed.open = false;
}
