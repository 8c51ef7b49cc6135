/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lets a stopped process run for a checkpoint: traces all of its threads, and continues them. The kernel leaves the process stopped meanwhile (for its parent, and for threads that nobody traces), and stops each
 * thread again when it is let go of. What the agent does of it, and the file by which we tell each other: base/let_run.h, agent/let_run.c.
 *
 *   seized      each thread stands. Only the agent's own are continued: they ask the others to stand, by a signal
 *   kept        a thread of the program goes on when that signal waits for it, so that it takes it before any instruction of the program; or when the agent says that all are asked: then it stands already
 *   bare        there is no thread of the agent yet: the process has been forked, or executes a program. It runs, but stands when a thread is made, which is the agent's, and that goes on alone: who makes it waits for it.
 *               Where it is another's (BARE_NS), all go on
 *   run         whatever they stop for, they are continued, with the signal that they stopped for. A thread that is made now is born stopped, and seized in its turn
 *   let go      all are made to stand, the file is removed, and all are let go of: when the agent is through, or when SIGCONT has come and the agent has not yet decided that the image is of a stopped process.
 *               The kernel has each traced thread stand at a SIGCONT, before it does anything more: so the agent cannot decide between that and our look at the file.
 *
 * A process of its own for each stopped one, forked by the coordinator or relay: ptrace binds a thread to what it traces, and the tracer has to outlive a coordinator that is killed, or a process would stop where
 * others wait for it (agent/standing.c). If it is killed itself, its threads stop where they are, and another one is forked when they are next looked at. Nothing here allocates: who forks has other threads.
 *
 * Sources: ptrace(2), group-stop and PTRACE_SEIZE; kernel/signal.c, do_jobctl_trap, ptrace_trap_notify; kernel/ptrace.c, __ptrace_unlink.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/agent_seen.h"
#include "base/log.h"
#include "base/sys.h"
#include "coordinator/internal.h"

#define THREADS_MAX (1u << 16)
#define BARE_NS 20000000u
#define LOOK_KEPT_NS 500000
#define LOOK_NS 2000000

struct thread {
	int tid;
	int signal;  /* it stands for: it is given it as it goes on */
	bool stands, kept;
	bool fresh; /* it has been made since the tracing began */
};

static struct {
	pid_t pid;
	struct thread *threads; /* THREADS_MAX */
	size_t count, standing, kept;
	int stopped_by;	 /* the signal; 0: the process is not stopped any more */
	bool bare;
	uint64_t bare_since_ns; /* that a new thread runs alone */
	char tasks[32];	 /* the directory of its threads */
	struct let_run_file file;
} run;

static struct thread *find(int tid)
{
	for (size_t i = 0; i < run.count; i++)
		if (run.threads[i].tid == tid)
			return &run.threads[i];
	return NULL;
}

static struct thread *add(int tid)
{
	if (run.count == THREADS_MAX)
		return NULL;
	run.threads[run.count] = (struct thread){ .tid = tid, .fresh = true };
	return &run.threads[run.count++];
}

static void forget(struct thread *t)
{
	run.standing -= t->stands;
	run.kept -= t->kept;
	*t = run.threads[--run.count];
}

static void go_on(struct thread *t)
{
	if (!t->stands || ptrace(PTRACE_CONT, t->tid, NULL, (void *)(long)t->signal) < 0)
		return; /* it was killed: its end is seen */
	t->stands = false;
	run.standing--;
}

static void note_stop(struct thread *t, int status)
{
	const int event = status >> 16, sig = WSTOPSIG(status);

	run.standing += !t->stands;
	t->stands = true;
	t->signal = event ? 0 : sig;
	if (event == PTRACE_EVENT_STOP)
		run.stopped_by = sig == SIGTRAP ? 0 : sig;
}

/* What has become of a thread; NULL in *@ret where it has ended. False: nothing has happened. */
static bool take_event(int flags, struct thread **ret)
{
	int status, tid;
	struct thread *t;

	do
		tid = waitpid(-1, &status, __WALL | flags);
	while (tid < 0 && errno == EINTR);
	*ret = NULL;
	if (tid < 0)
		run.count = 0; /* all have ended */
	if (tid <= 0)
		return false;
	t = find(tid);
	if (t && WIFSTOPPED(status))
		note_stop(*ret = t, status);
	else if (t)
		forget(t);
	return true;
}

/* Until every thread stands. */
static void gather(void)
{
	struct thread *t;

	for (size_t i = 0; i < run.count; i++)
		if (!run.threads[i].stands)
			ptrace(PTRACE_INTERRUPT, run.threads[i].tid, NULL, NULL);
	while (run.standing < run.count && take_event(0, &t))
		;
}

/* A first thread that is waited for when the others have ended, too. */
static bool has_ended(int tid)
{
	char state = raw_process_state(tid);

	return !state || state == 'Z' || state == 'X';
}

static int seize(const char *name, void *arg)
{
	int *added = arg, tid = atoi(name);

	if (tid <= 0 || find(tid))
		return 0;
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
		return errno == ESRCH || has_ended(tid) ? 0 : -errno;
	if (!add(tid)) {
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return -E2BIG;
	}
	++*added;
	return 0;
}

static int seize_all(void)
{
	int added, r;

	do {
		added = 0;
		r = raw_dir_each(run.tasks, seize, &added);
		gather();
	} while (!r && added);
	return r;
}

static void let_go(void)
{
	for (size_t i = 0; i < run.count; i++)
		ptrace(PTRACE_DETACH, run.threads[i].tid, NULL, (void *)(long)run.threads[i].signal);
	run.count = 0;
}

/* ---- the threads ---- */

static bool is_called(int tid, const char *begin)
{
	char path[64], name[20];

	fm_format(path, sizeof(path), "%s/%d/comm", run.tasks, tid);
	return raw_read_file(path, name, sizeof(name)) > 0 && !strncmp(name, begin, strlen(begin));
}

static bool any_is_called(const char *begin)
{
	for (size_t i = 0; i < run.count; i++)
		if (is_called(run.threads[i].tid, begin))
			return true;
	return false;
}

static void keep(struct thread *t, bool kept)
{
	run.kept += (size_t)kept - t->kept;
	t->kept = kept;
	if (!kept)
		go_on(t);
}

static bool is_asked(int tid)
{
	char path[64], text[4096], *p;

	fm_format(path, sizeof(path), "%s/%d/status", run.tasks, tid);
	if (raw_read_file(path, text, sizeof(text)) < 0 || !(p = strstr(text, "\nSigPnd:")))
		return false;
	return strtoull(p + 8, NULL, 16) >> (AGENT_SIGNAL - 1) & 1;
}

/* The agent's first. */
static void begin(void)
{
	run.bare = !any_is_called(AGENT_THREAD_NAME);
	for (size_t n = 0; n < run.count; n++) {
		run.threads[n].fresh = false;
		run.kept += run.threads[n].kept = run.bare ? run.count > 1 && run.threads[n].tid == run.pid : !is_called(run.threads[n].tid, AGENT_THREAD_NAME);
	}
	for (size_t n = 0; n < run.count; n++)
		if (!run.threads[n].kept)
			go_on(&run.threads[n]);
	run.bare_since_ns = raw_now_ns();
}

/* Whoever gathers and sees that SIGCONT has come lets nobody go on: is_over() is next. */
static void run_fresh_alone(void)
{
	gather();
	if (!run.stopped_by)
		return;
	for (size_t n = 0; n < run.count; n++) {
		keep(&run.threads[n], !run.threads[n].fresh);
		run.threads[n].fresh = false;
	}
	run.bare_since_ns = raw_now_ns();
}

static void look_at_bare(void)
{
	if (any_is_called(AGENT_THREAD_NAME)) {
		gather();
		if (!run.stopped_by)
			return;
		run.bare = false;
		for (size_t n = 0; n < run.count; n++)
			keep(&run.threads[n], !is_called(run.threads[n].tid, AGENT_THREAD_NAME));
	} else if (run.kept && raw_now_ns() - run.bare_since_ns > BARE_NS) {
		for (size_t n = 0; n < run.count; n++)
			keep(&run.threads[n], false);
	}
}

static void look_at_kept(void)
{
	const bool all = run.kept && any_is_called(AGENT_THREAD_ASKED);

	for (size_t i = 0; run.kept && i < run.count; i++) {
		struct thread *t = &run.threads[i];

		if (t->kept && (all || is_asked(t->tid)))
			keep(t, false);
	}
}

/* The directory has a link for each. An error: the coordinator, by whom Yama has let us, is gone. */
static int seize_new(void)
{
	struct stat st;
	int added = 0, r = 0;

	if (stat(run.tasks, &st) == 0 && st.st_nlink != run.count + 2)
		r = raw_dir_each(run.tasks, seize, &added);
	if (added && run.bare)
		run_fresh_alone();
	return r;
}

static void await_event(void)
{
	const struct timespec limit = { .tv_nsec = run.kept || run.bare ? LOOK_KEPT_NS : LOOK_NS };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigtimedwait(&child, NULL, &limit);
}

/* True: it is over. */
static bool is_over(void)
{
	const bool through = let_run_file_is(run.file.through);

	if (!through && (run.stopped_by || let_run_file_is(run.file.stopped)))
		return false;
	gather();
	if (!through && let_run_file_is(run.file.stopped)) { /* it has decided before all stood */
		for (size_t i = 0; i < run.count; i++)
			if (!run.threads[i].kept)
				go_on(&run.threads[i]);
		return false;
	}
	return true;
}

static void serve(void)
{
	struct thread *t;

	begin();
	while (run.count) {
		while (take_event(WNOHANG, &t))
			if (t && !t->kept && run.stopped_by)
				go_on(t);
		if (!run.count || is_over())
			break;
		for (size_t i = 0; !run.stopped_by && i < run.count; i++) /* SIGCONT, but it is in the image as stopped */
			if (!run.threads[i].kept)
				go_on(&run.threads[i]);
		if (run.bare)
			look_at_bare();
		look_at_kept();
		if (seize_new() < 0) {
			gather();
			break; /* it stops here, and goes on with SIGCONT */
		}
		await_event();
	}
}

int let_run_trace(pid_t pid, const char *jobdir)
{
	int r;

	run.pid = pid;
	fm_format(run.tasks, sizeof(run.tasks), "/proc/%d/task", pid);
	run.threads = mmap(NULL, THREADS_MAX * sizeof(*run.threads), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (run.threads == MAP_FAILED)
		return -errno;
	r = seize_all();
	if (!r && run.stopped_by)
		r = let_run_file_make(&run.file, jobdir, run.pid, run.stopped_by);
	if (!r && run.stopped_by) {
		serve();
		let_run_file_remove(&run.file);
	}
	let_go();
	return r;
}
