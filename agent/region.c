/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions that a handler jumps out of (fermata/region.h). A thread that were thought to be in one for ever would be waited for by each checkpoint in vain.
 *
 * No code of the program runs within a region but handlers. So a jump of longjmp leads out of it if its target lies beyond the region's frame, else from one place of the handler to another. Who jumps in
 * ways of their own (an exception, a Lisp) is found by the place where the thread is asked to stop. A handler may stand on the alternate stack, where no address compares with those of the
 * region's: it is still in the region.
 */
#include "agent/region.h"

#include <setjmp.h>
#include <signal.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/jump_buffer.h"
#include "agent/device.h"
#include "agent/signal_stack.h"
#include "agent/wrap.h"

static bool has_left(uint64_t sp, const stack_t *alternate)
{
	const uint64_t frame = FERMATA_FRAME_OF(fermata_thread.region);

	return frame && sp >= frame && (signal_stack_holds(alternate, frame) || !signal_stack_holds(alternate, sp));
}

static void end(void)
{
	fermata_thread.region = 0;
	fermata_thread.device_depth &= DEVICE_THREAD;
}

bool region_holds(const ucontext_t *interrupted)
{
	if (!fermata_thread.region)
		return false;
	if (!has_left((uint64_t)interrupted->uc_mcontext.gregs[REG_RSP], &interrupted->uc_stack))
		return true;
	end();
	return false;
}

static void before_jump(struct __jmp_buf_tag *to)
{
	stack_t alternate = { 0 };

	RAW2(SYS_sigaltstack, NULL, &alternate);
	if (!has_left(arch_jump_buffer_sp(to), &alternate))
		return;
	end();
	if (fermata_thread.pending)
		fermata_stop_here();
}

/* libc's, of _FORTIFY_SOURCE. */
extern void __longjmp_chk(struct __jmp_buf_tag to[1], int value) __attribute__((noreturn));

#define JUMP(name)                                              \
	EXPORT void name(struct __jmp_buf_tag to[1], int value) \
	{                                                       \
		WRAP_READY(name);                               \
		if (unlikely(fermata_thread.region))            \
			before_jump(to);                        \
		real.name(to, value);                           \
		__builtin_unreachable();                        \
	}

JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)
