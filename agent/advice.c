/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the program has asked of the kernel for its memory besides protection: that it is locked (mlock, mlockall), and advice that lasts (madvise): wiped, or not given to a child; left out
 * of cores; in huge pages or none; merged; how it is read; the nodes of its pages (mbind); its protection key (pkey_mprotect). Noted in QUIESCE, and so in the image with the memory; asked
 * for again when a restart is done.
 *
 * The kernel tells of it in /proc/self/smaps alone, where each mapping costs a walk over its pages. So that is read only where there is something: memory that is locked is counted in
 * /proc/self/status, keys are there if some are taken, and advice is seen by the wrapper of madvise, which notes no more than that such advice was given. What libc gives on its own (tunables of malloc) is not
 * seen. mlockall(MCL_FUTURE) is told by a page that is mapped for that. Nodes are asked for mapping by mapping, of /proc/self/maps, in a program that has called mbind.
 *
 * A device's library may keep children from its registered memory (ibv_fork_init, before Linux 5.12). A restart registers anew, on another device maybe, whose library would not take that
 * back: where a device has given such advice, none of that kind is kept.
 *
 * Owns the notes, and whether advice was given: the former are the checkpoint thread's, the latter is set by any thread and stays until exec.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "agent/advice.h"
#include "agent/agent.h"
#include "agent/binding.h"
#include "agent/device.h"
#include "agent/keys.h"
#include "base/begun.h"

#define TEXT 32768u

struct piece {
	uint64_t start, end;
	uint32_t asked; /* bit N: asked[N] */
	uint8_t prot, key;
	struct binding nodes; /* BOUND */
};

static const struct {
	char flag[3]; /* in VmFlags: proc_pid_smaps(5) */
	int advice;   /* 0: not madvise */
} asked[] = {
	{ "lo", 0 }, { "lf", 0 }, { "dc", MADV_DONTFORK }, { "wf", MADV_WIPEONFORK }, { "dd", MADV_DONTDUMP }, { "hg", MADV_HUGEPAGE },
	{ "nh", MADV_NOHUGEPAGE }, { "mg", MADV_MERGEABLE }, { "sr", MADV_SEQUENTIAL }, { "rr", MADV_RANDOM }, { "", 0 }, { "", 0 },
};
enum { LOCKED = 1, ON_FAULT = 2, DONT_FORK = 4, BOUND = 1 << 10, KEYED = 1 << 11 };

static struct {
	struct piece *pieces;
	uint32_t count, room;
	uint32_t keys, execute_only_key; /* a set, of the program's; 0: the kernel has none for that */
	uint32_t future; /* LOCKED, ON_FAULT: what comes will be */
	bool beyond;     /* the limit (ulimit -l) */
	bool said;       /* that something is refused */
} noted;

static uint32_t given; /* bit N: advice N was, by the program; and these, which are none of LASTING */
#define DEVICE_DONT_FORK 1u
#define MAY_BE_BOUND (1u << 31)
#define LASTING                                                                                                                                         \
	(1u << MADV_DONTFORK | 1u << MADV_WIPEONFORK | 1u << MADV_DONTDUMP | 1u << MADV_HUGEPAGE | 1u << MADV_NOHUGEPAGE | 1u << MADV_MERGEABLE | \
	 1u << MADV_SEQUENTIAL | 1u << MADV_RANDOM)
_Static_assert(!(LASTING & (DEVICE_DONT_FORK | MAY_BE_BOUND)), "given");

void advice_given(int advice)
{
	uint32_t bit = advice > 0 && advice < 32 ? LASTING & 1u << advice : 0;

	if (fermata_in_device())
		bit = advice == MADV_DONTFORK ? DEVICE_DONT_FORK : 0;
	if (bit & ~__atomic_load_n(&given, __ATOMIC_RELAXED))
		__atomic_fetch_or(&given, bit, __ATOMIC_RELAXED);
}

void advice_bound(void)
{
	if (!fermata_in_device() && !(__atomic_load_n(&given, __ATOMIC_RELAXED) & MAY_BE_BOUND))
		__atomic_fetch_or(&given, MAY_BE_BOUND, __ATOMIC_RELAXED);
}

static void forget(void)
{
	fermata_free(noted.pieces);
	memset(&noted, 0, sizeof(noted));
}

static int add_piece(const struct piece *p)
{
	if (noted.count == noted.room) {
		uint32_t room = noted.room * 2 + 64;
		struct piece *more = fermata_alloc(room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		if (noted.count)
			memcpy(more, noted.pieces, noted.count * sizeof(*more));
		fermata_free(noted.pieces);
		noted.pieces = more;
		noted.room = room;
	}
	noted.pieces[noted.count++] = *p;
	return 0;
}

/* Less what is the device's. */
static int add(struct piece p)
{
	uint64_t cut_start, cut_end, end = p.end;
	int r = 0;

	while (p.start < end && !r) {
		bool cut = device_range_next(p.start, end, &cut_start, &cut_end);

		p.end = cut ? cut_start : end;
		if (p.end > p.start)
			r = add_piece(&p);
		p.start = cut ? cut_end : end;
	}
	return r;
}

static uint64_t hexadecimal(const char **at)
{
	uint64_t v = 0;

	for (; (**at >= '0' && **at <= '9') || (**at >= 'a' && **at <= 'f'); (*at)++)
		v = v << 4 | (uint64_t)(**at <= '9' ? **at - '0' : **at - 'a' + 10);
	return v;
}

static uint8_t decimal(const char *at)
{
	unsigned int v = 0;

	for (at += strspn(at, " "); *at >= '0' && *at <= '9'; at++)
		v = v * 10 + (unsigned int)(*at - '0');
	return (uint8_t)v;
}

/*
 * Kernels without letters for memory that is locked as it is touched show "??", as for all that they have none for. Taken for that, memory that is locked altogether is locked in the same
 * way: it is all there when it comes back.
 */
static uint32_t flags_in(const char *line)
{
	uint32_t mask = 0;

	for (const char *p = strchr(line, ' '); p && p[1] && p[2]; p = strchr(p + 1, ' '))
		if (p[1] == '?')
			mask |= ON_FAULT;
		else
			for (uint32_t i = 0; i < ARRAY_SIZE(asked); i++)
				mask |= p[1] == asked[i].flag[0] && p[2] == asked[i].flag[1] ? 1u << i : 0;
	if (!(mask & LOCKED))
		mask &= ~(uint32_t)ON_FAULT;
	return given & DEVICE_DONT_FORK ? mask & ~(uint32_t)DONT_FORK : mask;
}

/* The probe's mapping, in which the kernel may show the program's neighbours too. */
static int take_probed(const struct piece *p, uint64_t probe)
{
	struct piece before = *p, after = *p;
	int r;

	noted.future = p->asked & (LOCKED | ON_FAULT);
	before.end = probe;
	after.start = probe + FM_PAGE_SIZE;
	r = add(before);
	return r ? r : add(after);
}

/* One of smaps: a mapping's first, "start-end perms ...", which maps has too, or one of those below it, "Name: ...". @p: the mapping so far. */
static int take_line(const char *line, struct piece *p, uint64_t probe)
{
	if (!strncmp(line, "VmFlags:", 8)) {
		p->asked = flags_in(line) | (p->key && p->key != noted.execute_only_key ? (uint32_t)KEYED : 0);
		if (!p->asked)
			return 0;
		return p->start <= probe && probe < p->end ? take_probed(p, probe) : add(*p);
	}
	if (!strncmp(line, "ProtectionKey:", 14))
		p->key = decimal(line + 14);
	if (*line >= 'A' && *line <= 'Z')
		return 0;
	p->start = hexadecimal(&line);
	line++;
	p->end = hexadecimal(&line);
	p->prot = (uint8_t)((line[1] == 'r' ? PROT_READ : 0) | (line[2] == 'w' ? PROT_WRITE : 0) | (line[3] == 'x' ? PROT_EXEC : 0));
	p->key = 0;
	p->asked = BOUND;
	return given & MAY_BE_BOUND && binding_get(p->start, &p->nodes) ? add(*p) : 0;
}

/* Takes the whole lines of @text; the bytes that are left stand at its beginning then. */
static int take_lines(char *text, size_t *have, struct piece *p, uint64_t probe)
{
	char *line = text, *end;
	int r = 0;

	while (!r && (end = memchr(line, '\n', *have - (size_t)(line - text)))) {
		*end = 0;
		r = take_line(line, p, probe);
		line = end + 1;
	}
	*have -= (size_t)(line - text);
	memmove(text, line, *have);
	return r;
}

static int read_all(int fd, char *text, uint64_t probe)
{
	struct piece p = { 0 };
	size_t have = 0;
	long n;
	int r = 0;

	while (!r && (n = raw_read(fd, text + have, TEXT - have))) {
		if (n < 0 && n != -EINTR)
			return (int)n;
		have += n > 0 ? (size_t)n : 0;
		r = take_lines(text, &have, &p, probe);
		if (have == TEXT)
			return -EFBIG;
	}
	return r;
}

static int read_mappings(const char *path, uint64_t probe)
{
	char *text = fermata_alloc(TEXT);
	int r, fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);

	device_list_begin();
	r = fd < 0 ? fd : !text ? -ENOMEM : read_all(fd, text, probe);
	device_list_end();
	if (fd >= 0)
		raw_close(fd);
	fermata_free(text);
	return r == -ENOENT ? 0 : r; /* a kernel without it (CONFIG_PROC_PAGE_MONITOR) */
}

/* Whether more may be locked than the limit says (CAP_IPC_LOCK, which is of the host: a capsule's root has it not). */
static bool may_lock_beyond(void)
{
	uint64_t limit[2] = { 0 };
	size_t length;
	char *at;
	bool may;

	RAW4(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, limit);
	if (*limit == RLIM64_INFINITY)
		return true;
	length = ALIGN_UP(*limit + 1, FM_PAGE_SIZE);
	at = raw_mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_is_error(at))
		return false;
	may = !RAW3(SYS_mlock2, at, length, MLOCK_ONFAULT);
	raw_munmap(at, length);
	return may;
}

/* Is the probe refused, so are all that follow, and those are to be locked. */
static int note(void)
{
	char *probe = raw_mmap(NULL, FM_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t locked = begun_number("/proc/thread-self/status", "\nVmLck:");
	int r = 0;

	noted.keys = keys_taken();
	if (noted.keys && !raw_is_error(probe))
		noted.execute_only_key = keys_execute_only(noted.keys, probe);
	noted.keys &= ~(noted.execute_only_key ? 1u << noted.execute_only_key : 0);
	if (noted.keys || (locked && locked != UINT64_MAX) || given & LASTING)
		r = read_mappings("/proc/thread-self/smaps", (uint64_t)probe);
	else if (given & MAY_BE_BOUND)
		r = read_mappings("/proc/thread-self/maps", (uint64_t)probe);
	if (raw_is_error(probe))
		noted.future = LOCKED;
	else
		raw_munmap(probe, FM_PAGE_SIZE);
	noted.beyond = noted.future && may_lock_beyond();
	return r;
}

int advice_note(void)
{
	int r;

	forget();
	r = note();
	return r ? fermata_fail(r, "what process %u has asked for its memory (madvise, mlock, mbind, pkey_mprotect) cannot be told (errno %d)", agent.pid, -r) : 0;
}

uint32_t advice_execute_only_key(void)
{
	return noted.execute_only_key;
}

static void say_refused(const struct piece *p, uint32_t i, int err)
{
	const char *text = asked[i].advice ? "as it had advised (madvise)" : 1u << i == BOUND ? "on the nodes that it had chosen (mbind)" : 1u << i == KEYED ? "under its protection key (pkey_mprotect)" : "locked";

	if (!noted.said)
		log_warn("process %u: its memory at %lx cannot be %s here (errno %d)%s", agent.pid, p->start, text, -err, 1u << i == LOCKED ? ": raise the limit (ulimit -l)" : "");
	noted.said = true;
}

/* False: refused. The first time it is said: the program runs on as it would on a host that refuses the call. */
static bool ask(const struct piece *p, uint32_t i)
{
	uint64_t length = p->end - p->start;
	bool lazy = p->asked & ON_FAULT || !(p->prot & PROT_READ); /* what cannot be read cannot be read in */
	int r = 0;

	if (asked[i].advice)
		r = (int)RAW3(SYS_madvise, p->start, length, asked[i].advice);
	else if (1u << i == BOUND)
		r = binding_set(p->start, length, &p->nodes);
	else if (1u << i == KEYED)
		r = keys_give(p->start, length, p->prot, p->key);
	else if (1u << i == LOCKED)
		r = (int)RAW3(SYS_mlock2, p->start, length, lazy ? MLOCK_ONFAULT : 0);
	if (r)
		say_refused(p, i, r);
	return !r;
}

/* Who may lock no more, and had all that comes locked, would get no more memory: left out, unless it was bound by the limit before. */
static void lock_future(bool all_locked)
{
	if (!all_locked || (noted.beyond && !may_lock_beyond()))
		log_warn("process %u: what memory it gets from now on is not locked, as it had asked (mlockall): raise the limit (ulimit -l)", agent.pid);
	else
		RAW1(SYS_mlockall, MCL_FUTURE | (noted.future & ON_FAULT ? MCL_ONFAULT : 0));
}

void advice_restarted(void)
{
	uint32_t keys = noted.keys ? keys_take_all() : 0;
	bool all_locked = true;

	for (uint32_t n = 0; n < noted.count; n++)
		for (uint32_t i = 0; i < ARRAY_SIZE(asked); i++)
			if (noted.pieces[n].asked & 1u << i)
				all_locked &= ask(&noted.pieces[n], i) || 1u << i != LOCKED;
	keys_free(keys & ~noted.keys); /* one that is free may be some mapping's yet */
	if (noted.future)
		lock_future(all_locked);
	forget();
}
