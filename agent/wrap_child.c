/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls that wait for children and those that send signals, for what a process knows of its children's ends. One that a signal ends just as a checkpoint begins cannot say so, and may have crashed: the
 * coordinator asks its parent (coordinator/conduct_lost.c), who has waited for it, or can, and who may have sent the signal itself. SIGPIPE is expected of anybody: so end those whose reader has had enough.
 *
 * One that has ended by itself says so as a rule, but not where it calls the kernel past libc, or its connection is busy for long: then, too, its parent knows.
 *
 * Owns three rings of words that are written as wholes, so notes take no lock, in a signal handler neither: children that signals have ended, those that have ended by themselves, and signals that were sent, within the last
 * seconds. Who sends to a group, or to all, may have meant any child. A fork's child has its parent's notes, which name none of its own children. What falls out of a ring is not known: then the checkpoint
 * fails, and can be taken again.
 */
#include <errno.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/tracer.h"
#include "agent/wrap.h"

#define NOTES 64u
#define SENT_S 10u /* so long a child may take to end by a signal that it was sent */
#define EXPECTED (1ull << 40)

static uint64_t ended[NOTES]; /* pid, signal << 32, EXPECTED */
static uint64_t sent[NOTES];  /* to whom, 0: to several; signal << 32, seconds << 40 */
static uint32_t exited[NOTES]; /* pid */
static uint32_t ended_next, sent_next, exited_next;

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void store(uint64_t *at, uint64_t word)
{
	__atomic_store_n(at, word, __ATOMIC_RELAXED);
}

static uint32_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)now.tv_sec & 0xffffff;
}

/* Before the call: what it sends may have ended, and be waited for, when it returns. */
static void note_sent(pid_t pid, int sig)
{
	if (sig <= 0 || sig > 64 || sig == SIGCONT || sig == SIGCHLD || sig == SIGSTOP)
		return;
	store(&sent[__atomic_fetch_add(&sent_next, 1, __ATOMIC_RELAXED) % NOTES],
	      (pid > 0 ? (uint32_t)pid : 0) | (uint64_t)sig << 32 | (uint64_t)seconds() << 40);
}

static bool is_expected(uint32_t pid, uint32_t sig)
{
	uint32_t now = seconds();

	if (sig == SIGPIPE)
		return true;
	for (uint32_t i = 0; i < NOTES; i++) {
		uint64_t s = load(&sent[i]);

		if ((s >> 32 & 0xff) == sig && (!(uint32_t)s || (uint32_t)s == pid) && ((now - (uint32_t)(s >> 40)) & 0xffffff) <= SENT_S)
			return true;
	}
	return false;
}

/* The note of a former child of that number gives way. */
static void note_ended(uint32_t pid, uint32_t sig)
{
	uint32_t i = 0;

	while (i < NOTES && (uint32_t)load(&ended[i]) != pid)
		i++;
	if (i == NOTES)
		i = __atomic_fetch_add(&ended_next, 1, __ATOMIC_RELAXED) % NOTES;
	store(&ended[i], pid | (uint64_t)sig << 32 | (is_expected(pid, sig) ? EXPECTED : 0));
}

static void note_exited(uint32_t pid)
{
	uint32_t next = __atomic_load_n(&exited_next, __ATOMIC_RELAXED);

	if (next && __atomic_load_n(&exited[(next - 1) % NOTES], __ATOMIC_RELAXED) == pid)
		return; /* WNOWAIT */
	__atomic_store_n(&exited[__atomic_fetch_add(&exited_next, 1, __ATOMIC_RELAXED) % NOTES], pid, __ATOMIC_RELAXED);
}

/* They are its parent's children, and it may be short-lived. */
void child_forked(void)
{
	exited_next = 0;
}

static struct msg_ended of_note(uint64_t note)
{
	return (struct msg_ended){ .pid = (uint32_t)note, .signal = (uint16_t)(note >> 32 & 0xff), .expected = (note & EXPECTED) != 0 };
}

static struct msg_ended of_zombie(const struct image_zombie *z)
{
	uint32_t sig = z->status & 0x7f;

	return (struct msg_ended){ .pid = z->pid, .signal = (uint16_t)sig, .expected = !sig || is_expected(z->pid, sig) };
}

/* A number that somebody has again is no matter here. */
int child_ended_send(const struct image_zombie *dead, uint32_t count)
{
	struct msg_ended m[3 * NOTES];
	uint32_t n = 0, exits = __atomic_load_n(&exited_next, __ATOMIC_RELAXED);

	for (uint32_t i = 0; ended_next && i < NOTES; i++) {
		uint64_t note = load(&ended[i]);

		if (note && RAW2(SYS_kill, (uint32_t)note, 0) == -ESRCH)
			m[n++] = of_note(note);
	}
	for (uint32_t i = 0; i < exits && i < NOTES; i++) {
		uint32_t pid = __atomic_load_n(&exited[i], __ATOMIC_RELAXED);

		if (pid && RAW2(SYS_kill, pid, 0) == -ESRCH)
			m[n++] = (struct msg_ended){ .pid = pid, .expected = 1 };
	}
	for (int by_signal = 1; by_signal >= 0; by_signal--)
		for (uint32_t i = 0; i < count && n < ARRAY_SIZE(m); i++)
			if (((dead[i].status & 0x7f) != 0) == by_signal)
				m[n++] = of_zombie(&dead[i]);
	return n ? link_send(&agent.link, MSG_ENDED, m, n * (uint32_t)sizeof(*m)) : 0;
}

static pid_t waited(pid_t pid, int *status)
{
	if (pid <= 0)
		return pid;
	if (WIFSIGNALED(*status))
		note_ended((uint32_t)pid, (uint32_t)WTERMSIG(*status));
	else if (WIFEXITED(*status))
		note_exited((uint32_t)pid);
	*status = ptrace_told(pid, *status);
	return pid;
}

EXPORT pid_t wait(int *status)
{
	int own;

	WRAP_READY(wait);
	status = status ? status : &own;
	return waited(real.wait(status), status);
}

EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
	int own;

	WRAP_READY(waitpid);
	status = status ? status : &own;
	return waited(real.waitpid(pid, status, options), status);
}

EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
	int own;

	WRAP_READY(wait3);
	status = status ? status : &own;
	return waited(real.wait3(status, options, usage), status);
}

EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	int own;

	WRAP_READY(wait4);
	status = status ? status : &own;
	return waited(real.wait4(pid, status, options, usage), status);
}

EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	siginfo_t own;
	int r;

	WRAP_READY(waitid);
	info = info ? info : &own;
	r = real.waitid(type, id, info, options);
	if (!r && info->si_pid && (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED))
		note_ended((uint32_t)info->si_pid, (uint32_t)info->si_status);
	else if (!r && info->si_pid && info->si_code == CLD_EXITED)
		note_exited((uint32_t)info->si_pid);
	return r;
}

EXPORT int kill(pid_t pid, int sig)
{
	WRAP_READY(kill);
	note_sent(pid, sig);
	return real.kill(pid, sig);
}

EXPORT int killpg(pid_t group, int sig)
{
	WRAP_READY(killpg);
	note_sent(0, sig);
	return real.killpg(group, sig);
}

EXPORT int sigqueue(pid_t pid, int sig, const union sigval value)
{
	WRAP_READY(sigqueue);
	note_sent(pid, sig);
	return real.sigqueue(pid, sig, value);
}
