/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prctl, and what libseccomp calls through libc's syscall(): a filter of system calls that the program makes for itself is noted (begun.c) before it is there. No state.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "agent/agent.h"
#include "agent/wrap.h"

static bool makes_filter(long nr, const long *a)
{
	return nr == SYS_prctl ? a[0] == PR_SET_SECCOMP : a[0] == SECCOMP_SET_MODE_STRICT || a[0] == SECCOMP_SET_MODE_FILTER;
}

/* With TSYNC it answers a thread that could not follow. */
static bool made_none(long r, long flags)
{
	return r < 0 || (r > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

long wrap_prctl_syscall(long nr, const long *a)
{
	bool noted = makes_filter(nr, a) && begun_filter_begin();
	long r = real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	if (made_none(r, a[1]))
		begun_filter_failed(noted);
	return r;
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
	return r;
}
