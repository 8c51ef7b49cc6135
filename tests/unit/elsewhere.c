/* SPDX-License-Identifier: BSD-2-Clause */
/* What a restart on another processor and another kernel changes in memory: the room of late binding, jumps out of the old vdso. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "agent/lazy.c"
#include "image/plan.h"
#include "restorer/arch/x86_64/arch.h"

struct agent agent;

static void room_of_late_binding(void **state)
{
	uint64_t page, need;

	lazy_init();
	need = room_needed();
	if (!need)
		skip();
	assert_non_null(word);
	assert_true(*word <= need && *word > LEGACY);
	page = ALIGN_DOWN((uint64_t)word, (uint64_t)FM_PAGE_SIZE);
	assert_int_equal(raw_mprotect((void *)page, FM_PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
	*word = ALIGN_UP(LEGACY + BEFORE_STATE, 64u); /* as on a processor without AVX */
	assert_int_equal(raw_mprotect((void *)page, FM_PAGE_SIZE, PROT_READ), 0);
	lazy_restarted();
	assert_int_equal(*word, need);
}

static int answer(int a, int b)
{
	return a * 100 + b;
}

static void jump(void **state)
{
	uint8_t *code = mmap(NULL, FM_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(code, MAP_FAILED);
	code[PLAN_JUMP_ROOM] = 0x5a;
	arch_write_jump(code, (uint64_t)answer);
	assert_int_equal(code[PLAN_JUMP_ROOM], 0x5a);
	assert_int_equal(mprotect(code, FM_PAGE_SIZE, PROT_READ | PROT_EXEC), 0);
	assert_int_equal(((int (*)(int, int))code)(7, 9), 709);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(room_of_late_binding), cmocka_unit_test(jump) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
