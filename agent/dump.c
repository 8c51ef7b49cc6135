/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * WRITE: collects what the image says of the process and has it written.
 *
 * The image is also the state that a restart begins from, so order matters here. Records first: they allocate from the agent's
 * arena. Then arch_context_save: a restart returns from it with 1, into agent_restarted(). Nothing after it may allocate
 * from the arena, because the arena's pages are being written: what is needed from there on is scratch memory. The only thing that runs while pages
 * are written is the writer; the checkpoint thread's own stack below this frame is written in whatever state it has and is never
 * returned to.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#include "agent/advice.h"
#include "agent/agent.h"
#include "agent/arch/x86_64/context.h"
#include "agent/content.h"
#include "agent/device.h"
#include "agent/fd.h"
#include "agent/memory.h"
#include "agent/scratch.h"
#include "agent/sysv.h"
#include "base/begun.h"
#include "image/hash.h"
#include "image/writer.h"

#define WRITERS 2u

extern const char *gnu_get_libc_version(void);

static struct {
	struct image_process process;
	struct image_timer timers[3];
	struct image_cpu cpu;
	struct image_host host;
	struct image_sigaction signals[64];
} state;

static uint64_t clock_ns(clockid_t c)
{
	struct timespec t = { 0 };

	raw_clock_gettime(c, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The terminal, and the fields of /proc/self/stat from the 26th on that PR_SET_MM_MAP wants: proc_pid_stat(5). */
static int read_stat(struct image_process *process)
{
	struct image_mm *mm = &process->mm;
	char buf[2048], *p;
	uint64_t field[64] = { 0 };
	long n = raw_read_file("/proc/thread-self/stat", buf, sizeof(buf));

	if (n < 0 || !(p = strrchr(buf, ')')))
		return n < 0 ? (int)n : -EIO;
	p += 4;
	for (size_t i = 4; i < 53; i++) { /* the number after the state is field 4 */
		while (*p && (*p < '0' || *p > '9'))
			p++;
		for (; *p >= '0' && *p <= '9'; p++)
			field[i] = field[i] * 10 + (uint64_t)(*p - '0');
	}
	*mm = (struct image_mm){ .start_code = field[26], .end_code = field[27], .start_stack = field[28],
				 .start_data = field[45], .end_data = field[46], .start_brk = field[47],
				 .arg_start = field[48], .arg_end = field[49], .env_start = field[50],
				 .env_end = field[51] };
	mm->brk = (uint64_t)RAW1(SYS_brk, 0);
	process->terminal = field[7] ? (uint32_t)field[7] : UINT32_MAX;
	return 0;
}

static void read_link(const char *path, char *to, size_t size)
{
	long n = RAW4(SYS_readlinkat, AT_FDCWD, path, to, size - 1);

	to[n > 0 ? n : 0] = 0;
}

static int read_paths(struct image_process *p)
{
	struct stat st;

	read_link("/proc/thread-self/exe", p->exe, sizeof(p->exe));
	read_link("/proc/thread-self/cwd", p->cwd, sizeof(p->cwd));
	if (*p->cwd != '/' || strlen(p->cwd) == sizeof(p->cwd) - 1)
		return fermata_fail(-EOPNOTSUPP, "its working directory (%s) has no path from here, or one of more than %zu bytes, which is not supported: leave it before the checkpoint",
				    p->cwd, sizeof(p->cwd) - 2);
	if (strlen(p->exe) == sizeof(p->exe) - 1)
		return fermata_fail(-EOPNOTSUPP, "its program (%s) has a path of more than %zu bytes, which is not supported", p->exe, sizeof(p->exe) - 2);
	p->cwd_deleted = RAW4(SYS_newfstatat, AT_FDCWD, ".", &st, 0) == 0 && !st.st_nlink;
	return 0;
}

static int read_process(struct image_process *p)
{
	long n;

	memset(p, 0, sizeof(*p));
	p->pid = agent.pid;
	p->ppid = (uint32_t)raw_getppid();
	p->pgid = (uint32_t)RAW1(SYS_getpgid, 0);
	p->sid = (uint32_t)RAW1(SYS_getsid, 0);
	p->outer_known = 1;
	p->outer_pgid = fermata_begun()->pgid;
	p->outer_sid = fermata_begun()->sid;
	p->uid = (uint32_t)RAW0(SYS_getuid);
	p->gid = (uint32_t)RAW0(SYS_getgid);
	p->umask = (uint32_t)RAW1(SYS_umask, 077);
	RAW1(SYS_umask, p->umask);
	p->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	p->boottime_ns = clock_ns(CLOCK_BOOTTIME);
	p->realtime_ns = clock_ns(CLOCK_REALTIME);
	p->generation = agent.generation;
	p->dumpable = (uint32_t)RAW5(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
	p->no_new_privs = (uint32_t)RAW5(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	p->restart_info = (uint64_t)&agent.restart;
	p->restart_info_size = sizeof(agent.restart);
	p->thread_count = stop_count() + 1;
	p->foreground = fd_note_terminal();
	p->execute_only_key = advice_execute_only_key();
	p->huge_at_end = 1; /* plugins/process/ */
	p->stopped = (uint32_t)let_run_stopped();
	memcpy(p->timers, state.timers, sizeof(p->timers));
	itimers_at(p->timers, p->monotonic_ns);
	raw_read_file("/proc/sys/kernel/random/boot_id", (char *)p->boot_id, sizeof(p->boot_id));
	n = read_paths(p);
	if (n < 0)
		return (int)n;
	n = raw_read_file("/proc/thread-self/auxv", (char *)p->auxv, sizeof(p->auxv));
	if (n < 0)
		return (int)n;
	p->auxv_length = (uint32_t)n;
	p->pending = pending_mask();
	return read_stat(p);
}

static void read_host(struct image_host *h)
{
	struct utsname u;

	memset(h, 0, sizeof(*h));
	RAW1(SYS_uname, &u);
	fm_format(h->hostname, sizeof(h->hostname), "%s", agent.host);
	fm_format(h->kernel, sizeof(h->kernel), "%s", u.release);
	fm_format(h->glibc, sizeof(h->glibc), "%s", gnu_get_libc_version());
	h->page_size = FM_PAGE_SIZE;
}

static void read_signals(void)
{
	for (int sig = 1; sig <= 64; sig++)
		RAW4(SYS_rt_sigaction, sig, NULL, &state.signals[sig - 1], RAW_SIGSET_SIZE);
}

/*
 * The leader first: debuggers take the first thread as the one to show. The checkpoint thread last. @ret_fxsave: where the
 * threads' floating-point registers are.
 */
static struct image_thread *collect_threads(const void *const **ret_fxsave)
{
	struct image_thread *all = scratch_grow(NULL, 0, state.process.thread_count * sizeof(*all));
	const void **fxsave = scratch_grow(NULL, 0, state.process.thread_count * sizeof(*fxsave));
	struct stop_thread *t;
	uint32_t n = 0;

	if (!all || !fxsave)
		return NULL;
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; (t = stop_thread_at(i)); i++)
			if (stop_slot_state(t) == STOP_STOPPED && (t->tid == (int)agent.pid) == (pass == 0)) {
				fxsave[n] = t->fxsave;
				all[n++] = t->record;
			}
	fxsave[n] = NULL;
	*ret_fxsave = fxsave;
	all[n] = (struct image_thread){ .flags = IMAGE_THREAD_AGENT, .context = agent.context, .sigmask = ~0ull,
					.comm = "fermata" };
	thread_checkpoint_record(&all[n]);
	all[n].user_regs[16] = agent.context.rip;
	all[n].user_regs[19] = agent.context.rsp;
	all[n].user_regs[4] = agent.context.rbp;
	all[n].user_regs[5] = agent.context.rbx;
	all[n].user_regs[17] = 0x33;
	all[n].user_regs[20] = 0x2b;
	all[n].user_regs[21] = all[n].fs_base;
	memcpy(state.process.comm, all[0].comm, sizeof(state.process.comm));
	return all;
}

static int collect_runs(const struct maps *m, struct runs *runs)
{
	int r = 0;

	for (uint32_t i = 0; i < m->count && !r; i++) {
		const struct image_mapping *v = &m->mappings[i];

		runs->first = runs->count;
		switch (v->kind) {
		case IMAGE_MAPPING_SHARED_ANON:
			r = memory_shared_runs(m, v, runs);
			break;
		case IMAGE_MAPPING_SYSV:
			r = sysv_saves(v) ? pages_runs(v, v->start, v->end, runs) :
					    runs_add(runs, v->start, v->end, v->prot, IMAGE_RUN_EMPTY);
			break;
		case IMAGE_MAPPING_SHARED_FILE:
			r = runs_add(runs, v->start, v->end, v->prot, IMAGE_RUN_EMPTY);
			break;
		case IMAGE_MAPPING_VDSO: /* its code only, for debuggers and to know the kernel again */
			r = runs_add(runs, v->start, v->end, v->prot,
				     v->start == m->vdso_start ? IMAGE_RUN_DATA : IMAGE_RUN_EMPTY);
			break;
		default:
			r = pages_runs(v, v->start, v->end, runs);
		}
	}
	return r;
}

static int report_progress(void *arg, uint64_t done, uint64_t total)
{
	struct msg_progress p = { content_bytes() + done, content_bytes() + total };
	int r = phase_called_off();

	(void)arg;
	return r ? r : link_send(&agent.link, MSG_PROGRESS, &p, sizeof(p));
}

/* A parent's children that have ended stay in the groups that they were in until they are waited for. */
static struct image_group *groups_of(const struct image_zombie *zombies, int count)
{
	struct image_group *groups = scratch_grow(NULL, 0, (size_t)count * sizeof(*groups));

	for (int i = 0; groups && i < count; i++)
		groups[i] = (struct image_group){ (uint32_t)RAW1(SYS_getpgid, zombies[i].pid), (uint32_t)RAW1(SYS_getsid, zombies[i].pid) };
	return groups;
}

static const struct image_note_data *collect_notes(uint32_t *ret_count)
{
	uint32_t n, segments;
	const struct image_note_data *records = records_notes(&n);
	const struct image_sysv *sysv = sysv_records(&segments);
	struct image_note_data *all = scratch_grow(NULL, 0, (n + 7) * sizeof(*all));
	uint32_t contents_length;
	const void *contents = content_record(&contents_length);
	struct image_zombie *zombies;
	int dead = children_zombies(&zombies);
	struct image_group *groups = dead > 0 ? groups_of(zombies, dead) : NULL;

	if (!all || dead < 0 || (dead && !groups))
		return NULL;
	all[0] = (struct image_note_data){ IMAGE_NOTE_SIGNALS, sizeof(state.signals), state.signals };
	all[1] = (struct image_note_data){ IMAGE_NOTE_CPU, sizeof(state.cpu), &state.cpu };
	all[2] = (struct image_note_data){ IMAGE_NOTE_HOST, sizeof(state.host), &state.host };
	if (n)
		memcpy(all + 3, records, n * sizeof(*all));
	*ret_count = n + 3;
	if (dead) {
		all[(*ret_count)++] = (struct image_note_data){ IMAGE_NOTE_ZOMBIES, (uint32_t)dead * sizeof(*zombies), zombies };
		all[(*ret_count)++] = (struct image_note_data){ IMAGE_NOTE_ZOMBIE_GROUPS, (uint32_t)dead * sizeof(*groups), groups };
	}
	if (segments)
		all[(*ret_count)++] = (struct image_note_data){ IMAGE_NOTE_SYSV, segments * (uint32_t)sizeof(*sysv), sysv };
	if (contents)
		all[(*ret_count)++] = (struct image_note_data){ IMAGE_NOTE_CONTENTS, contents_length, contents };
	return all;
}

static int write_image(const struct msg_phase *where, struct msg_phase_done *done)
{
	struct maps m;
	struct runs runs = { 0 };
	/* report_progress() writes to the first, the device's threads to the others */
	const struct image_range live[] = { { (uint64_t)&agent, (uint64_t)(&agent + 1) }, device_live(), device_threads_live(),
					    device_pthreads_live() };
	struct image_dump d = { .process = &state.process, .writers = WRITERS, .progress = report_progress,
				.live = live, .live_count = ARRAY_SIZE(live) };
	struct image_written w;
	int r = maps_read(&m), dir;

	if (!r)
		r = sysv_mark(&m);
	if (!r)
		r = memory_settle(&m);
	if (!r)
		r = collect_runs(&m, &runs);
	if (r)
		return r;
	state.process.vdso_start = m.vdso_start;
	state.process.vdso_end = m.vdso_end;
	state.process.vvar_start = m.vvar_start;
	state.process.vvar_end = m.vvar_end;
	image_hash128(&(struct image_piece){ (const void *)m.vdso_start, m.vdso_end - m.vdso_start }, 1,
		      state.host.vdso_digest);
	d.threads = collect_threads(&d.fxsave);
	d.notes = collect_notes(&d.note_count);
	if (!d.threads || !d.notes)
		return fermata_fail(-ENOMEM, "no memory to list the threads of process %u", agent.pid);
	d.mappings = m.mappings;
	d.mapping_count = m.count;
	d.paths = m.paths;
	d.paths_length = m.paths_length;
	d.runs = runs.run;
	d.run_count = runs.count;
	dir = raw_open(where->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return fermata_fail(dir, "cannot open %s (errno %d)", where->directory, -dir);
	r = image_write(dir, where->name, &d, &w, agent.fail_text, sizeof(agent.fail_text));
	raw_close(dir);
	if (r)
		return r;
	done->bytes = w.bytes;
	done->file_size = w.file_size;
	memcpy(done->digest, w.digest, sizeof(done->digest));
	return 0;
}

/* Signals are out of their queues while the plugins look: what one of them is told of is told once. */
static int dump_records(void)
{
	int r = pending_record(), back;

	if (!r)
		r = itimers_record(state.timers);
	if (!r)
		r = records_dump();
	back = pending_give_back();
	return r ? r : back;
}

/* Nothing may be allocated in the arena any more: the state that a restart begins from is fixed. */
static int dump_image(const struct msg_phase *where, struct msg_phase_done *done)
{
	int r = scratch_begin();

	if (r)
		return fermata_fail(r, "no address space to make the image of process %u", agent.pid);
	read_host(&state.host);
	image_cpu_probe(&state.cpu);
	read_signals();
	r = read_process(&state.process);
	r = r ? fermata_fail(r, "cannot read what /proc says of process %u (errno %d)", agent.pid, -r) :
		write_image(where, done);
	scratch_end();
	return r;
}

int dump_write(const struct msg_phase *where, struct msg_phase_done *done)
{
	int r = content_write(where, done);

	if (!r)
		r = dump_records();
	if (!r)
		r = sysv_begin();
	if (!r && arch_context_save(&agent.context)) {
		agent_restarted();
		raw_exit_thread(0);
	}
	if (!r) {
		stop_await_asleep();
		r = dump_image(where, done);
	}
	sysv_detach(); /* before anybody's threads go on */
	return r;
}
