/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program confines itself with is noted (begun.c): prctl, what libseccomp calls through libc's syscall(), namespaces, Landlock and keyrings (for which libc has no function). A filter of system calls
 * is noted before it is there, all else when it is. No state.
 */
#include <errno.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/agent.h"
#include "agent/wrap.h"
#include "base/begun.h"

static bool makes_filter(long nr, const long *a)
{
	return nr == SYS_prctl ? a[0] == PR_SET_SECCOMP : a[0] == SECCOMP_SET_MODE_STRICT || a[0] == SECCOMP_SET_MODE_FILTER;
}

/* With TSYNC it answers a thread that could not follow. */
static bool made_none(long r, long flags)
{
	return r < 0 || (r > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

static void prctl_done(const long *a)
{
	if (a[0] == PR_SET_SECUREBITS)
		begun_mark(BEGUN_SECUREBITS);
	else if (a[0] == PR_SET_SYSCALL_USER_DISPATCH && a[1] == PR_SYS_DISPATCH_ON)
		begun_mark(BEGUN_DISPATCH);
}

long wrap_prctl_syscall(long nr, const long *a)
{
	bool noted = makes_filter(nr, a) && begun_filter_begin();
	long r = real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (made_none(r, a[1]))
		begun_filter_failed(noted);
	if (nr == SYS_prctl && r >= 0)
		prctl_done(a);
	return r;
}

long wrap_confine_syscall(long nr, const long *a)
{
	long r = real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (!r && nr == SYS_landlock_restrict_self)
		begun_mark(BEGUN_LANDLOCK);
	else if (!r && (nr == SYS_setns || a[0] & (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME)))
		begun_mark(BEGUN_NAMESPACE);
	return r;
}

#define KEYS_LOOKED_AT 64

/* Where Kerberos keeps its tickets there is a link to the user's persistent keyring (persistent-keyring(7)), which it gets again by itself; in a session's one to what the user has in any. */
static bool is_users(int32_t key)
{
	char text[256] = ""; /* TYPE;UID;GID;RIGHTS;NAME */

	RAW4(SYS_keyctl, KEYCTL_DESCRIBE, key, text, sizeof(text) - 1);
	return !strncmp(text, "keyring;", 8) && (strstr(text, ";_persistent.") || strstr(text, ";_uid."));
}

/* How many of its own the keyring of the calling thread, its process or its session has; one that may not be looked into has one. */
static size_t keys(int which)
{
	long ring = RAW3(SYS_keyctl, KEYCTL_GET_KEYRING_ID, which, 0 /* do not make it */), n;
	int32_t all[KEYS_LOOKED_AT];
	size_t found, count = 0;

	if (ring <= 0)
		return 0;
	n = RAW4(SYS_keyctl, KEYCTL_READ, ring, all, sizeof(all)); /* bytes, of all of them */
	if (n < 0)
		return 1;
	found = (size_t)n / sizeof(*all);
	for (size_t i = 0; i < found; i++)
		count += i >= KEYS_LOOKED_AT || !is_users(all[i]);
	return count;
}

/* Many a command makes the keyring that it names. What was in a session's before is not the program's. */
long wrap_keys_syscall(long nr, const long *a)
{
	size_t before = keys(KEY_SPEC_SESSION_KEYRING);
	long r = real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	int saved = errno;

	if (keys(KEY_SPEC_THREAD_KEYRING) || keys(KEY_SPEC_PROCESS_KEYRING))
		begun_mark(BEGUN_KEYS);
	if (r > 0 && nr == SYS_keyctl && a[0] == KEYCTL_JOIN_SESSION_KEYRING)
		begun_mark(BEGUN_SESSION_KEYRING);
	else if (keys(KEY_SPEC_SESSION_KEYRING) > before)
		begun_mark(BEGUN_SESSION_KEYS);
	errno = saved;
	return r;
}

EXPORT int unshare(int flags)
{
	return (int)syscall(SYS_unshare, (long)flags);
}

EXPORT int setns(int fd, int type)
{
	return (int)syscall(SYS_setns, (long)fd, (long)type);
}

EXPORT int prctl(int option, ...)
{
	long a[5] = { option };
	bool noted;
	va_list ap;
	int r;

	WRAP_READY(prctl);
	va_start(ap, option);
	for (size_t i = 1; i < ARRAY_SIZE(a); i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	noted = makes_filter(SYS_prctl, a) && begun_filter_begin();
	r = real.prctl(option, a[1], a[2], a[3], a[4]);
	if (r < 0)
		begun_filter_failed(noted);
	else
		prctl_done(a);
	return r;
}
