/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread that is stopped notes of itself, in our handler, and what the kernel says of it. No state: the slots are stop_table.c's.
 */
#include <string.h>
#include <sys/prctl.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/context.h"
#include "base/speculation.h"

#define FXSAVE_SOFTWARE 464u /* where the kernel says how large its frame is: asm/sigcontext.h */
#define XSTATE_TILES 18u
#define PERSONALITY_ASK 0xffffffffu /* personality(2): changes nothing */

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* As the third field of proc_pid_stat(5); X as well if it is gone. */
static char state_of(int tid)
{
	char path[64], buf[512], *p;

	fm_format(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	if (raw_read_file(path, buf, sizeof(buf)) < 0)
		return 'X';
	p = strrchr(buf, ')');
	return p ? p[2] : 'X';
}

bool stop_is_zombie(int tid)
{
	char state = state_of(tid);

	return state == 'Z' || state == 'X';
}

bool stop_sleeps(int tid)
{
	return state_of(tid) == 'S';
}

void stop_await_one(int tid)
{
	char state;

	while ((state = state_of(tid)) == 'R' || state == 'D')
		RAW0(SYS_sched_yield);
}

/* What only the thread itself can ask the kernel. */
static void record_self(struct stop_thread *t, ucontext_t *frame)
{
	struct image_thread *r = &t->record;
	uint64_t mask;

	memset(r, 0, sizeof(*r));
	r->tid = (uint32_t)t->tid;
	r->flags = t->tid == (int)agent.pid ? IMAGE_THREAD_LEADER : 0;
	r->fs_base = arch_fs_base();
	r->gs_base = arch_gs_base();
	RAW3(SYS_get_robust_list, 0, &r->robust_list, &r->robust_length);
	RAW5(SYS_prctl, PR_GET_TID_ADDRESS, &r->clear_child_tid, 0, 0, 0);
	RAW5(SYS_prctl, PR_GET_NAME, r->comm, 0, 0, 0);
	RAW5(SYS_prctl, PR_GET_PDEATHSIG, &r->death_signal, 0, 0, 0);
	r->timer_slack_ns = (uint64_t)RAW5(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0);
	r->machine_check = (uint32_t)(1 + RAW5(SYS_prctl, PR_MCE_KILL_GET, 0, 0, 0, 0));
	r->speculation = speculation_note();
	r->personality = (uint32_t)RAW1(SYS_personality, PERSONALITY_ASK);
	if (RAW5(SYS_get_mempolicy, &r->memory_policy, r->memory_nodes, 8 * sizeof(r->memory_nodes), 0, 0))
		r->memory_policy = 0; /* a kernel without it, or a container that refuses it */
	if (&__rseq_offset && __rseq_size) {
		r->rseq = r->fs_base + (uint64_t)__rseq_offset;
		r->rseq_length = 32;
		r->rseq_signature = 0x53053053;
	}
	raw_sigprocmask(SIG_SETMASK, NULL, &mask);
	r->sigmask = mask;
	r->altstack_sp = (uint64_t)frame->uc_stack.ss_sp;
	r->altstack_size = frame->uc_stack.ss_size;
	r->altstack_flags = (uint32_t)frame->uc_stack.ss_flags;
}

static void record_user_regs(struct stop_thread *t, const ucontext_t *frame)
{
	const greg_t *g = frame->uc_mcontext.gregs;
	uint64_t *u = t->record.user_regs; /* struct user_regs_struct, <sys/user.h> */
	static const int8_t order[] = { REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11, REG_R10,
					REG_R9,	 REG_R8,  REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI };

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		u[i] = (uint64_t)g[order[i]];
	u[15] = ~0ull; /* orig_rax: not in a system call */
	u[16] = (uint64_t)g[REG_RIP];
	u[17] = (uint64_t)g[REG_CSGSFS] & 0xffff;
	u[18] = (uint64_t)g[REG_EFL];
	u[19] = (uint64_t)g[REG_RSP];
	u[20] = (uint64_t)g[REG_CSGSFS] >> 48;
	u[21] = t->record.fs_base;
	u[22] = t->record.gs_base;
	t->fxsave = frame->uc_mcontext.fpregs;
}

/*
 * What the frame has room for: the kernel's for who has used tiles (AMX) is larger, and in a new process, which has not, it would take nothing from such a frame but the oldest registers
 * (arch/x86/kernel/fpu/signal.c, check_xstate_in_sigframe).
 */
static bool has_tiles(const ucontext_t *frame)
{
	const struct _fpx_sw_bytes *room = (const void *)((const char *)frame->uc_mcontext.fpregs + FXSAVE_SOFTWARE);

	return frame->uc_mcontext.fpregs && room->magic1 == FP_XSTATE_MAGIC1 && room->xstate_bv & 1ull << XSTATE_TILES;
}

void stop_record(struct stop_thread *t, ucontext_t *frame)
{
	t->came_ns = raw_now_ns();
	t->tiles = has_tiles(frame);
	record_self(t, frame);
	record_user_regs(t, frame);
	spent_note_thread(&t->spent);
	rights_note(&t->rights);
}
