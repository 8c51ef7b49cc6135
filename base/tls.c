/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much thread-local memory compiled code may expect below a thread pointer. Each thread has that of the program and of all libraries that were loaded at the beginning in one piece, the
 * program's next to the pointer, ours farther away: a Fortran program's threadprivate arrays may be megabytes. The dynamic linker knows the sum (glibc, _dl_get_tls_static_info).
 */
#include <dlfcn.h>

#include "base/macro.h"
#include "base/sys.h"
#include "base/thread.h"

#define LEAST (64u << 10)

static size_t size;

/* When the library is loaded, for threads that cannot ask any more. */
__attribute__((constructor)) static void find_size(void)
{
	void (*info)(size_t *size, size_t *align) = (__typeof__(info))dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info");
	size_t found = 0, align;

	if (info)
		info(&found, &align);
	size = ALIGN_UP(found > LEAST ? found : LEAST, (size_t)FM_PAGE_SIZE);
}

size_t raw_thread_local_size(void)
{
	if (!size)
		find_size();
	return size;
}
