/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exec: the new image goes on as the same member. Before the kernel is asked, the thread enters a no-checkpoint region and takes the
 * link's lock, so that no frame is half sent or half read; the link's descriptor loses close-on-exec and is named in
 * FERMATA_FD; the environment gets back what a child of the job must have (LD_PRELOAD, FERMATA_*), even when the program passed one
 * without. Blocked are both signals by which a thread is asked to stop: a new image has no handler yet, and dies of one. If exec fails, all of this is undone.
 *
 * In the child of a vfork (or of posix_spawn) the memory is the parent's: there the link must not be touched. It is told by the pid;
 * such a child gets no FERMATA_FD and connects anew. Nothing is allocated: the new environment lies on the stack. ssh becomes another
 * program (exec_remote.c).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/exec_remote.h"
#include "agent/libc.h"
#include "agent/wrap.h"
#include "base/begun.h"
#include "base/host_id.h"

#define EXTRA 12

static size_t count(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

static const char *find(char *const *env, const char *name)
{
	for (; env && *env; env++)
		if (!strncmp(*env, name, strlen(name)))
			return *env;
	return NULL;
}

static char *entry_of(char *entry, char *preload, size_t size)
{
	return environment_preload(environment_entry(entry), preload, size);
}

/*
 * @out has room for count(env) + EXTRA. LD_PRELOAD is put back only where it is absent: a program that sets its own keeps it, with ours
 * in front (@preload is room for that).
 */
static void make_env(char *const *env, char **out, char *preload, size_t preload_size, const char *fd_entry, const char *undo_entry)
{
	size_t n = 0;

	for (; env && *env; env++) {
		if (!strncmp(*env, "FERMATA_FD=", 11) || !strncmp(*env, "FERMATA_UNDO=", 13) || !strncmp(*env, HOST_ID_VARIABLE, sizeof(HOST_ID_VARIABLE) - 1) ||
		    !strncmp(*env, BEGUN_VARIABLE, sizeof(BEGUN_VARIABLE) - 1))
			continue;
		out[n++] = entry_of(*env, preload, preload_size);
	}
	out[n] = NULL;
	for (size_t i = 0; i < ENVIRONMENT_KEPT; i++) {
		const char *ours = environment_find(i);

		if (ours && !find(out, environment_kept[i])) {
			out[n++] = entry_of((char *)ours, preload, preload_size);
			out[n] = NULL;
		}
	}
	out[n++] = (char *)environment_host();
	out[n++] = (char *)environment_begun();
	if (*fd_entry)
		out[n++] = (char *)fd_entry;
	if (*undo_entry)
		out[n++] = (char *)undo_entry;
	out[n] = NULL;
}

struct exec_state {
	bool member; /* this process has the link, and it is handed on */
	uint64_t mask;
	char fd_entry[32], undo_entry[1024];
	char preload[4096];
};

static void exec_failed(struct exec_state *s)
{
	if (!s->member)
		return;
	raw_fcntl(agent.link.fd, F_SETFD, FD_CLOEXEC);
	lock_release(&agent.link_lock);
	raw_sigprocmask(SIG_SETMASK, &s->mask, NULL);
	fermata_leave();
}

static void exec_begin(struct exec_state *s)
{
	const uint64_t ours = 1ull << (agent.signal - 1) | 1ull << (LIBC_SIGNAL_SETXID - 1);

	s->fd_entry[0] = s->undo_entry[0] = 0;
	s->member = agent.active && raw_getpid() == (int)agent.pid && agent.link.fd >= 0;
	if (!s->member)
		return;
	fermata_enter_open();
	raw_sigprocmask(SIG_BLOCK, &ours, &s->mask);
	lock_acquire(&agent.link_lock);
	if (!agent.active) { /* a fork's child that could not join */
		exec_failed(s);
		s->member = false;
		return;
	}
	raw_fcntl(agent.link.fd, F_SETFD, 0);
	fm_format(s->fd_entry, sizeof(s->fd_entry), "FERMATA_FD=%d", agent.link.fd);
	wrap_undo_put(s->undo_entry, sizeof(s->undo_entry));
}

/* @call with what @path, @argv and @env become: @path, @argv and new_env. */
#define WITH_ENV(path, search, argv, env, call)                                            \
	do {                                                                               \
		char *new_env[count(env) + EXTRA], *new_argv[count(argv) + EXEC_REMOTE_EXTRA + 1]; \
		char command[EXEC_REMOTE_PATH];                                            \
		struct exec_state s;                                                       \
		int saved;                                                                 \
                                                                                           \
		exec_begin(&s);                                                            \
		make_env(env, new_env, s.preload, sizeof(s.preload), s.fd_entry, s.undo_entry); \
		if (exec_remote(&path, search, argv, new_env, new_argv, command))          \
			argv = new_argv;                                                   \
		(call);                                                                    \
		saved = errno;                                                             \
		exec_failed(&s);                                                           \
		errno = saved;                                                             \
		return -1;                                                                 \
	} while (0)

EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
	WRAP_READY(execve);
	if (!agent.active)
		return real.execve(path, argv, env);
	WITH_ENV(path, false, argv, env, real.execve(path, argv, new_env));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
	WRAP_READY(execvpe);
	if (!agent.active)
		return real.execvpe(file, argv, env);
	WITH_ENV(file, true, argv, env, real.execvpe(file, argv, new_env));
}

EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
	const char *none = "";

	WRAP_READY(fexecve);
	if (!agent.active)
		return real.fexecve(fd, argv, env);
	WITH_ENV(none, false, argv, env, real.fexecve(fd, argv, new_env));
}

EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

/* The arguments of the execl family as a vector on the stack; @env, if asked for, follows the NULL. */
#define EXECL(first, call, take_env)                                       \
	do {                                                               \
		size_t n = 1;                                              \
		va_list ap;                                                \
                                                                           \
		va_start(ap, first);                                       \
		while (va_arg(ap, const char *))                           \
			n++;                                               \
		va_end(ap);                                                \
		{                                                          \
			char *argv[n + 1];                                 \
			char *const *env = environ;                        \
                                                                           \
			va_start(ap, first);                               \
			argv[0] = (char *)first;                           \
			for (size_t i = 1; i <= n; i++)                    \
				argv[i] = va_arg(ap, char *);              \
			if (take_env)                                      \
				env = va_arg(ap, char *const *);           \
			va_end(ap);                                        \
			return call;                                       \
		}                                                          \
	} while (0)

EXPORT int execl(const char *path, const char *arg, ...)
{
	EXECL(arg, execve(path, argv, env), 0);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
	EXECL(arg, execvpe(file, argv, env), 0);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
	EXECL(arg, execve(path, argv, env), 1);
}

/* The child connects by itself; SUSPEND finds it among our children. Until it exists no checkpoint may begin here. */
#define SPAWN(name, search)                                                                                 \
	EXPORT int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,            \
			const posix_spawnattr_t *attr, char *const argv[], char *const env[])               \
	{                                                                                                   \
		char *new_env[count(env) + EXTRA], *new_argv[count(argv) + EXEC_REMOTE_EXTRA + 1], preload[4096];  \
		char command[EXEC_REMOTE_PATH];                                                              \
		int r;                                                                                      \
                                                                                                            \
		WRAP_READY(name);                                                                           \
		if (!agent.active)                                                                          \
			return real.name(pid, path, actions, attr, argv, env);                              \
		make_env(env, new_env, preload, sizeof(preload), "", "");                                   \
		if (exec_remote(&path, search, argv, new_env, new_argv, command))                           \
			argv = new_argv;                                                                    \
		fermata_enter();                                                                            \
		r = real.name(pid, path, actions, attr, argv, new_env);                                     \
		fermata_leave();                                                                            \
		return r;                                                                                   \
	}

SPAWN(posix_spawn, false)
SPAWN(posix_spawnp, true)
