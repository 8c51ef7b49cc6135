/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mappings: what a device's library makes is noted, and what it ends (device.c); and the program's stacks that grow. For all other callers a wrapper is one test
 * and a jump.
 *
 * UCX and Open MPI write a jump over the first instructions of whatever function is named mmap and munmap: those here. What they put there ends in syscall()
 * (ucm_orig_mmap_syscall, memory_patcher_syscall), which is ours as well (wrap_wait.c): so a device's mapping is noted on that way, too. A note that
 * missed a mapping's end would be worse than none: the program's memory might come to lie there, and would not be saved.
 *
 * What they put there may map memory of its own on the way, in the device's call (UCX: for its cache of regions, by syscall() as well), and that is the program's. Hence
 * of what comes through syscall() only what is mapped of a descriptor of the device is the device's. Its anonymous memory is then saved as well, and lies there
 * unused after a restart, as what it has got from malloc.
 */
#include "agent/advice.h"
#include "agent/agent.h"
#include "agent/device.h"
#include "agent/maps.h"
#include "agent/wrap.h"

/* Stands behind device_making_enter and the call. */
static void *mapped(void *at, size_t len, int flags)
{
	if (likely(!fermata_in_device())) {
		if (unlikely(flags & MAP_GROWSDOWN) && at != MAP_FAILED)
			growing_note(at, len);
		return at;
	}
	if (at != MAP_FAILED)
		device_range_add((uint64_t)at, len);
	device_making_end();
	return at;
}

/* Before the call: behind it the addresses may be the program's at once. */
static void unmap_begin(void *at, size_t len)
{
	if (likely(!fermata_in_device()))
		return;
	device_making_begin();
	device_range_remove((uint64_t)at, len);
}

static void unmap_end(void)
{
	if (unlikely(fermata_in_device()))
		device_making_end();
}

EXPORT void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	WRAP_READY(mmap);
	device_making_enter();
	return mapped(real.mmap(at, len, prot, flags, fd, offset), len, flags);
}

EXPORT void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
	WRAP_READY(mmap64);
	device_making_enter();
	return mapped(real.mmap64(at, len, prot, flags, fd, offset), len, flags);
}

EXPORT int munmap(void *at, size_t len)
{
	int r;

	WRAP_READY(munmap);
	unmap_begin(at, len);
	r = real.munmap(at, len);
	unmap_end();
	return r;
}

/* Pages of an object without a name that no window shows any more can be had back by this call alone, and not be read by us. */
EXPORT int remap_file_pages(void *at, size_t len, int prot, size_t page, int flags)
{
	WRAP_READY(remap_file_pages);
	agent.rearranges = true;
	return real.remap_file_pages(at, len, prot, page, flags);
}

EXPORT int madvise(void *at, size_t len, int advice)
{
	WRAP_READY(madvise);
	advice_given(advice);
	return real.madvise(at, len, advice);
}

static long map_syscall(long nr, const long *a)
{
	int flags = (int)a[3];

	if (unlikely(fermata_in_device()) && (flags & MAP_ANONYMOUS || !device_owns_fd((int)a[4])))
		return real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	device_making_enter();
	return (long)mapped((void *)real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]), (size_t)a[1], flags);
}

long wrap_map_syscall(long nr, const long *a)
{
	long r;

	if (nr == SYS_mmap)
		return map_syscall(nr, a);
	if (nr == SYS_madvise) {
		advice_given((int)a[2]);
		return real.syscall(nr, a[0], a[1], a[2]);
	}
	if (nr == SYS_mbind) { /* libnuma's mbind comes here */
		advice_bound();
		return real.syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
	unmap_begin((void *)a[0], (size_t)a[1]);
	r = real.syscall(nr, a[0], a[1]);
	unmap_end();
	return r;
}
