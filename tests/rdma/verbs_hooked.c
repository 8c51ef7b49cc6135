/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes a jump over the first instructions of whatever function is named mmap and munmap, as UCX and Open MPI do (on x86-64); theirs, too, end in syscall(). The device of
 * the test is provider.c's, which maps a page for each of its objects. What it maps by then has to be gone after a restart (it looks itself); and where it has given back
 * a page that it had mapped before, there is memory of the program's, which has to be there; as has what the hook maps for itself in the device's call, as UCX does.
 */
#include "tests/rdma/verbs_alone.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OBJECTS 16
#define PAGE 4096u

static struct ibv_pd *pd; /* of a context of its own, open to the end */
static struct ibv_mr *made_after[OBJECTS];
static unsigned char memory[PAGE], *given_back[OBJECTS], *taken[OBJECTS];
static int given, took;
static unsigned char *kept[OBJECTS]; /* the hook's own */
static int keeps;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("wrong: %s\n", what);
	exit(1);
}

static void *hooked_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (keeps < OBJECTS) {
		kept[keeps] = (void *)syscall(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(kept[keeps], ~keeps, PAGE);
		keeps++;
	}
	return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

static int hooked_munmap(void *at, size_t length)
{
	if (given < OBJECTS && length == PAGE)
		given_back[given++] = at;
	return (int)syscall(SYS_munmap, at, length);
}

static void hook(const char *name, void *to)
{
	unsigned char jump[12] = { 0x48, 0xb8, [10] = 0xff, 0xe0 }; /* mov $to, %rax; jmp *%rax */
	unsigned char *code = dlsym(RTLD_DEFAULT, name), *page = (unsigned char *)((uintptr_t)code & ~(uintptr_t)(PAGE - 1));

	memcpy(jump + 2, &to, sizeof(to));
	must(code && !mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), "mprotect");
	memcpy(code, jump, sizeof(jump));
	must(!mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC), "mprotect");
}

static struct ibv_mr *region(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);

	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void begin(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_mr *before[OBJECTS];

	pd = context ? ibv_alloc_pd(context) : NULL;
	must(pd != NULL, "ibv_alloc_pd");
	for (int i = 0; i < OBJECTS; i++)
		before[i] = region();
	hook("mmap", (void *)hooked_mmap);
	hook("mmap64", (void *)hooked_mmap); /* the provider's name for it */
	hook("munmap", (void *)hooked_munmap);
	for (int i = 0; i < OBJECTS; i++)
		must(!ibv_dereg_mr(before[i]), "ibv_dereg_mr");
	for (int i = 0; i < given; i++) {
		void *at = (void *)syscall(SYS_mmap, given_back[i], PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (at != given_back[i])
			continue;
		taken[took] = at;
		memset(at, ++took, PAGE);
	}
	must(took > OBJECTS / 2, "pages are not given back");
	for (int i = 0; i < OBJECTS; i++)
		made_after[i] = region();
}

void verbs_also(struct ibv_context *context, struct ibv_pd *its_pd, struct ibv_qp *qp)
{
#ifndef __x86_64__
	exit(77);
#endif
	(void)its_pd;
	(void)qp;
	if (!took)
		begin(context->device);
	for (int i = 0; i < took; i++)
		must(taken[i][0] == i + 1 && taken[i][PAGE - 1] == i + 1, "memory where the device's was");
	for (int i = 0; i < keeps; i++)
		must(kept[i][0] == (unsigned char)~i && kept[i][PAGE - 1] == (unsigned char)~i, "memory of the hook's own");
	for (int i = 0; i < OBJECTS; i++) {
		must(!ibv_dereg_mr(made_after[i]), "ibv_dereg_mr");
		made_after[i] = region();
	}
}
