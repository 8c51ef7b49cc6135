/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is stopped (SIGSTOP, Ctrl-Z) at a checkpoint, and comes back stopped. Its threads run for the checkpoint alone, under a tracer of the coordinator's (base/let_run.h). Owns what the
 * image says of it: by which signal this process is stopped, which of its children are, and which go on again without their parent having waited for that (continued.c).
 *
 *   QUIESCE        Is there a tracer, the process is stopped, and so it will be in the image. Whoever of the job stops or continues another one does so before all have answered SUSPEND; and when SIGCONT comes each
 *                  traced thread stands before it does anything more, and the tracer, who sees it, takes the file away before it lets this thread go on. From here on a SIGCONT is from outside of the job,
 *                  and of the time after the checkpoint: the file stays, and the image is as if it had not come.
 *   DRAIN          A parent looks at its children's files, which say what they have decided. Whether it has been told of the stop the kernel knows; what is left to tell is so again after a restart.
 *   RESUME         Before a thread of the program is let go, all have to be untraced: each stops again then, by itself, where it stands (kernel/ptrace.c, __ptrace_unlink). So does this one, and goes on with SIGCONT.
 *                  A tracer that is killed lets all of them stop at once; then a SIGCONT finds nobody who takes the file away, hence the limit.
 *   restart        The process stops itself, in the thread that lets the others go after that. Its parent waits for it, takes the news that was no news before the checkpoint, and the SIGCHLD that came with it.
 *
 * In the checkpoint thread, but for let_run_through, which is the watch thread's, too, where no thread was stopped or an attempt is given up.
 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/let_run.h"

#define LIMIT_NS 10000000000u
#define LOOK_AGAIN_NS 1000000u
#define CHILDREN_MAX 4096u

struct child {
	uint32_t pid;
	bool continued; /* its parent has not waited for its going on; else it is stopped, */
	bool untold;	/* and its parent has not waited for that */
};

static int stopped_by; /* 0: it runs */
static bool said_asked;
static struct child children[CHILDREN_MAX];
static uint32_t child_count;

static void own_path(char path[LET_RUN_PATH], const char *suffix)
{
	let_run_path(path, agent.jobdir, agent.where, agent.pid, suffix);
}

static int rename_own(const char *from, const char *to)
{
	char old[LET_RUN_PATH], new[LET_RUN_PATH];

	own_path(old, from);
	own_path(new, to);
	return (int)RAW4(SYS_renameat, AT_FDCWD, old, AT_FDCWD, new);
}

void let_run_note(void)
{
	char path[LET_RUN_PATH], text[16];
	long n;

	child_count = 0;
	stopped_by = 0;
	if (rename_own("", LET_RUN_STOPPED))
		return;
	own_path(path, LET_RUN_STOPPED);
	n = raw_read_file(path, text, sizeof(text));
	for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
		stopped_by = stopped_by * 10 + text[i] - '0';
	if (stopped_by != SIGTSTP && stopped_by != SIGTTIN && stopped_by != SIGTTOU)
		stopped_by = SIGSTOP;
}

int let_run_stopped(void)
{
	return stopped_by;
}

static bool look(uint32_t pid, int flags, siginfo_t *ret)
{
	ret->si_pid = 0;
	return !RAW5(SYS_waitid, P_PID, pid, ret, flags | WNOHANG | __WALL, NULL) && ret->si_pid;
}

void let_run_note_children(const uint32_t *living, uint32_t count)
{
	char path[LET_RUN_PATH];
	siginfo_t info;

	child_count = 0;
	for (uint32_t i = 0; i < count && child_count < CHILDREN_MAX; i++) {
		let_run_path(path, agent.jobdir, agent.where, living[i], LET_RUN_STOPPED);
		if (!RAW3(SYS_faccessat, AT_FDCWD, path, 0))
			children[child_count++] = (struct child){ living[i], .untold = look(living[i], WSTOPPED | WNOWAIT, &info) };
		else if (look(living[i], WCONTINUED | WNOWAIT, &info) && !tracer_has((int)living[i]))
			children[child_count++] = (struct child){ living[i], .continued = true };
	}
}

/* Who lets us run sees it by the watch thread's name (base/agent_seen.h), before and after its tracing begins. */
void let_run_asked(bool asked)
{
	static const char before[] = AGENT_THREAD_NAME, from_now_on[] = AGENT_THREAD_ASKED;
	const char *name = asked ? from_now_on : before;
	char path[64];
	int fd;

	if (asked == said_asked)
		return;
	said_asked = asked;
	if (raw_gettid() == agent.watch_tid) {
		RAW5(SYS_prctl, PR_SET_NAME, name, 0, 0, 0);
		return;
	}
	fm_format(path, sizeof(path), "/proc/self/task/%d/comm", agent.watch_tid);
	fd = raw_open(path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	raw_write(fd, name, asked ? sizeof(from_now_on) - 1 : sizeof(before) - 1);
	raw_close(fd);
}

void let_run_through(void)
{
	const struct timespec nap = { .tv_nsec = LOOK_AGAIN_NS };
	const uint64_t limit = raw_now_ns() + LIMIT_NS;
	char path[LET_RUN_PATH];

	let_run_asked(false);
	if (rename_own("", LET_RUN_THROUGH) && rename_own(LET_RUN_STOPPED, LET_RUN_THROUGH))
		return;
	own_path(path, LET_RUN_THROUGH);
	while (!RAW3(SYS_faccessat, AT_FDCWD, path, 0) && raw_now_ns() < limit)
		RAW2(SYS_nanosleep, &nap, NULL);
	RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* Where the kernel's Yama lets only ancestors trace. In a capsule the coordinator has no number, nor need of this: its user owns the namespace. */
void let_run_allow(void)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	if (!RAW5(SYS_getsockopt, agent.link.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.pid > 0)
		RAW5(SYS_prctl, PR_SET_PTRACER, peer.pid, 0, 0, 0);
}

/* ---- restart ---- */

/* A stop from the terminal does nothing to a process group that is orphaned. Our own parent is reason enough for its not being so. */
static bool may_stop_by(int sig)
{
	const uint32_t parent = (uint32_t)raw_getppid();

	return sig != SIGSTOP && parent && RAW1(SYS_getsid, parent) == RAW1(SYS_getsid, 0) && RAW1(SYS_getpgid, parent) != RAW1(SYS_getpgid, 0);
}

/* Every thread of the program stands with all signals blocked, so none but this one takes it. */
static void stop_by(int sig)
{
	struct image_sigaction sa, standard = { 0 };
	const uint64_t set = 1ull << (sig - 1);

	RAW4(SYS_rt_sigaction, sig, NULL, &sa, RAW_SIGSET_SIZE);
	RAW4(SYS_rt_sigaction, sig, &standard, NULL, RAW_SIGSET_SIZE);
	raw_tgkill((int)agent.pid, raw_gettid(), sig);
	raw_sigprocmask(SIG_UNBLOCK, &set, NULL);
	raw_sigprocmask(SIG_BLOCK, &set, NULL);
	RAW4(SYS_rt_sigaction, sig, &sa, NULL, RAW_SIGSET_SIZE);
}

void let_run_stop_again(void)
{
	int sig = stopped_by;

	said_asked = false; /* another watch thread */
	stopped_by = 0;
	if (!sig)
		return;
	if (may_stop_by(sig))
		stop_by(sig);
	else
		raw_tgkill((int)agent.pid, raw_gettid(), SIGSTOP);
}

/* Until it has stopped again; it does so whoever waits for it. True: it has, and its parent is told no more of that than it was. */
static bool await_stop(const struct child *c)
{
	const struct timespec nap = { .tv_nsec = LOOK_AGAIN_NS };
	const uint64_t limit = raw_now_ns() + LIMIT_NS;
	siginfo_t info;

	while (!look(c->pid, WSTOPPED | WCONTINUED | WEXITED | WNOWAIT, &info)) {
		if (raw_now_ns() > limit) {
			log_warn("process %u, a child of %u, has not stopped again", c->pid, agent.pid);
			return false;
		}
		RAW2(SYS_nanosleep, &nap, NULL);
	}
	if (info.si_code == CLD_STOPPED && !c->untold)
		look(c->pid, WSTOPPED, &info);
	return info.si_code == CLD_STOPPED;
}

static const struct child *find(uint32_t pid)
{
	for (uint32_t i = 0; i < child_count; i++)
		if (children[i].pid == pid)
			return &children[i];
	return NULL;
}

/* Of the others that lived: one may have ended by now. */
static bool is_news(const uint32_t *living, uint32_t count)
{
	siginfo_t info;

	for (uint32_t i = 0; i < count; i++)
		if (!find(living[i]) && look(living[i], WSTOPPED | WCONTINUED | WEXITED | WNOWAIT, &info))
			return true;
	return false;
}

int let_run_restart(void)
{
	int r = 0;

	for (uint32_t i = 0; i < child_count && !r; i++)
		r = children[i].continued ? continued_ask(children[i].pid) : 0;
	return r;
}

/* One stands for all that have come since: where there is other news, it waits again. */
static void take_signal(bool news)
{
	static const struct timespec now;
	const uint64_t set = 1ull << (SIGCHLD - 1);
	siginfo_t info = { 0 };

	if (RAW4(SYS_rt_sigtimedwait, &set, &info, &now, RAW_SIGSET_SIZE) < 0)
		return;
	if (news || (info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED) || !find((uint32_t)info.si_pid))
		RAW3(SYS_rt_sigqueueinfo, raw_gettid(), SIGCHLD, &info);
}

void let_run_children_restarted(const uint32_t *living, uint32_t count)
{
	bool news = false;

	for (uint32_t i = 0; i < child_count; i++)
		news |= !(children[i].continued ? continued_await(children[i].pid) : await_stop(&children[i]));
	if (child_count && !(pending_mask() >> (SIGCHLD - 1) & 1)) /* else one waits since before the checkpoint, and stands for all */
		take_signal(news || is_news(living, count));
	child_count = 0;
}
