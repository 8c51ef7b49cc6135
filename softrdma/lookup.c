/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that open libibverbs by name and look its functions up by dlvsym, as NCCL does, where this library is preloaded: a preloaded name does
 * not reach them, so the look-up itself is answered. What this library does not have comes from libibverbs. No state but the next dlvsym.
 */
#include <dlfcn.h>
#include <string.h>

#include "base/macro.h"

#define VERSION "IBVERBS_1."

#ifndef __SANITIZE_THREAD__ /* whose runtime looks names up before it bears to be called */
/* The call is the last thing here, and a jump: the libc looks at who called, for RTLD_NEXT. */
EXPORT void *dlvsym(void *handle, const char *name, const char *version)
{
	static void *(*next)(void *, const char *, const char *);
	void *mine = NULL;

	if (!strncmp(version, VERSION, sizeof(VERSION) - 1))
		mine = dlsym(RTLD_DEFAULT, name);
	if (mine)
		return mine;
	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "dlvsym");
	return next(handle, name, version);
}
#endif
