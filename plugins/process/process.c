/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flags that the kernel keeps for a process as a whole and tells of: whether orphans of its descendants come to it, which barriers of memory it has registered for, whether it has huge and
 * merged pages, what a core of it is to contain, how soon it is killed where memory runs out (oom_score_adj), whether it may use AMX, or have memory that was once written executed. All of them can be asked for and set by any of its threads. Owns what there is to be said, from RECREATE to the end of the restart.
 *
 * What a thread has for itself is in its image_thread (restorer/thread.c), how it is scheduled the schedule plugin's matter. When it was begun: process_began.c. What is not kept: doc/restart.md.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <linux/prctl.h>
#include <stddef.h>
#include <string.h>

#include "base/begun.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/process/process.h"
#include "plugins/process/process_record.h"

#ifndef PR_SET_MDWE /* Linux 6.3 */
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE /* Linux 6.4 */
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif
#define GET_REGISTRATIONS (1 << 9) /* MEMBARRIER_CMD_GET_REGISTRATIONS, Linux 6.3 */
#define LDT_READ 0
#define ARCH_SHSTK_STATUS 0x5005 /* Linux 6.6 */
#define ARCH_GET_XCOMP_PERM 0x1022 /* Linux 5.16 */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define STATES_ASKED_FOR (1ull << 18) /* the tiles of AMX; all others are everybody's */
#define CORE_FILTER "coredump_filter"
#define OOM "oom_score_adj"
#define OOM_ZERO 1001

enum { MERGE, CORE, EXECUTE, MEMORY, KINDS };

static int refused[KINDS]; /* -errno */
static uint32_t huge_disable;	   /* to be set when advice for memory is given: the restorer has left it at 1 */
static uint32_t write_xor_execute; /* to be set last: it is for good, and what a device has to map may come before */

static const struct {
	uint32_t command, registers;
} barriers[] = {
	{ MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED },
	{ MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE },
	{ MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ },
	{ MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED },
};

/*
 * Before Linux 6.3 a private barrier is tried: it is refused to who has not registered (EPERM). That of all processes is granted to everyone, and that others may count on us cannot be
 * seen: it is taken for registered, which costs a switch of threads some nanoseconds and harms nothing.
 */
static uint32_t registered(void)
{
	long got = RAW3(SYS_membarrier, GET_REGISTRATIONS, 0, 0);
	uint32_t mask = 0;

	if (got >= 0)
		return (uint32_t)got;
	for (size_t i = 0; i < ARRAY_SIZE(barriers); i++)
		if (!RAW3(SYS_membarrier, barriers[i].command, 0, 0))
			mask |= barriers[i].registers;
	return mask;
}

/* By a thread that lives: the first one may have ended, and has no memory then. */
static void own_file(char path[48], const char *name)
{
	fm_format(path, 48, "/proc/%d/%s", raw_gettid(), name);
}

static uint32_t read_core_filter(void)
{
	char path[48], text[32];
	uint32_t v = 0;

	own_file(path, CORE_FILTER);
	if (raw_read_file(path, text, sizeof(text)) <= 0)
		return UINT32_MAX;
	for (const char *p = text; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'); p++)
		v = v << 4 | (uint32_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
	return v;
}

static uint32_t read_oom(void)
{
	int v = begun_oom();

	return v == BEGUN_OOM_UNKNOWN || v == fermata_begun()->oom_score_adj ? 0 : (uint32_t)(v + OOM_ZERO);
}

/* What no restart could give back: the segments of modify_ldt, and a shadow stack, which would have to hold what only the processor writes to it. */
static int quiesce(void)
{
	uint64_t segment, features = 0;

	if (RAW3(SYS_modify_ldt, LDT_READ, &segment, sizeof(segment)) > 0)
		return fermata_fail(-EOPNOTSUPP, "process %u has segments of its own (modify_ldt), which is not supported", fermata_pid());
	if (RAW2(SYS_arch_prctl, ARCH_SHSTK_STATUS, &features) == 0 && features & 1)
		return fermata_fail(-EOPNOTSUPP, "process %u has a shadow stack, which is not supported: begin it with GLIBC_TUNABLES=glibc.cpu.hwcaps=-SHSTK", fermata_pid());
	return 0;
}

static int dump(struct fermata_sink *sink)
{
	struct process_record p = { .version = PROCESS_RECORD_VERSION, .barriers = registered(), .core_filter = read_core_filter(), .oom = read_oom(), .began = process_began() };
	long huge = RAW5(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0), merge = RAW5(SYS_prctl, PR_GET_MEMORY_MERGE, 0, 0, 0, 0), mdwe = RAW5(SYS_prctl, PR_GET_MDWE, 0, 0, 0, 0);

	RAW5(SYS_prctl, PR_GET_CHILD_SUBREAPER, &p.subreaper, 0, 0, 0);
	if (RAW2(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &p.states))
		p.states = 0;
	p.huge_disable = huge > 0 ? (uint32_t)huge : 0;
	p.merge = merge > 0;
	p.write_xor_execute = mdwe > 0 ? (uint32_t)mdwe : 0;
	return fermata_sink_write(sink, &p, sizeof(p));
}

static long write_own(const char *name, const char *format, uint32_t value)
{
	char path[48], text[16];
	long r, fd;

	own_file(path, name);
	fd = raw_open(path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	fm_format(text, sizeof(text), format, value);
	r = raw_write((int)fd, text, strlen(text));
	raw_close((int)fd);
	return r < 0 ? r : 0;
}

static int set_barriers(uint32_t mask)
{
	for (size_t i = 0; i < ARRAY_SIZE(barriers); i++) {
		long r = mask & barriers[i].registers ? RAW3(SYS_membarrier, barriers[i].registers, 0, 0) : 0;

		if (r)
			return fermata_fail((int)r, "process %u has registered for barriers of memory (membarrier %u), which this kernel does not have (errno %d): "
					    "restart it on one that has", fermata_pid(), barriers[i].registers, (int)-r);
	}
	return 0;
}

static int set_states(uint64_t states)
{
	long r = states & STATES_ASKED_FOR ? RAW2(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, 18) : 0;

	return r ? fermata_fail((int)r, "process %u has leave to use AMX tiles, which this host does not give (errno %d): restart it on one that does", fermata_pid(), (int)-r) : 0;
}

/* Not worth that a restart fails: it is said when the process' standard error is there. */
static void set_or_note(int which, long err)
{
	refused[which] = (int)err;
}

static void restarted(void)
{
	static const char *const what[] = { [MERGE] = "merged pages (PR_SET_MEMORY_MERGE)", [CORE] = CORE_FILTER,
					    [EXECUTE] = "memory that is not to be executed once it was written (PR_SET_MDWE)", [MEMORY] = OOM };

	if (write_xor_execute)
		set_or_note(EXECUTE, RAW5(SYS_prctl, PR_SET_MDWE, write_xor_execute, 0, 0, 0));
	write_xor_execute = 0;
	for (size_t i = 0; i < ARRAY_SIZE(what); i++)
		if (refused[i])
			log_warn("process %u: %s cannot be set here as it was (errno %d)", fermata_pid(), what[i], -refused[i]);
	memset(refused, 0, sizeof(refused));
}

/* Kernels before 6.18 know of no flags. */
static void watched(void)
{
	if (RAW5(SYS_prctl, PR_SET_THP_DISABLE, huge_disable != 0, huge_disable & ~1u, 0, 0) && huge_disable)
		RAW5(SYS_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0);
	huge_disable = 0;
}

static int recreate(const void *record, size_t len)
{
	const struct process_record *p = record;
	int r;

	if (len < sizeof(*p) || p->version != PROCESS_RECORD_VERSION)
		return fermata_fail(-EBADMSG, "the record of the flags of process %u is damaged or of another version", fermata_pid());
	if (p->subreaper)
		RAW5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	huge_disable = p->huge_disable;
	if (p->merge)
		set_or_note(MERGE, RAW5(SYS_prctl, PR_SET_MEMORY_MERGE, 1, 0, 0, 0));
	if (p->core_filter != UINT32_MAX && p->core_filter != read_core_filter())
		set_or_note(CORE, write_own(CORE_FILTER, "0x%x", p->core_filter));
	if (p->oom && (int)p->oom - OOM_ZERO != begun_oom())
		set_or_note(MEMORY, write_own(OOM, "%d", p->oom - OOM_ZERO));
	write_xor_execute = p->write_xor_execute;
	r = set_barriers(p->barriers);
	if (!r)
		r = set_states(p->states);
	return r ? r : process_began_recreate(p->began);
}

extern const struct fermata_plugin plugin_process;
const struct fermata_plugin plugin_process = {
	.api = FERMATA_PLUGIN_API,
	.name = "process",
	.quiesce = quiesce,
	.dump = dump,
	.recreate = recreate,
	.learn = process_began_learn,
	.restarted = restarted,
	.watched = watched,
	.proc_open = process_began_open,
};
