/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a process, by its number. A process lives on when its first thread has ended (pthread_exit of main), but that number has no memory then: to the kernel it is that of the first thread. So another of its
 * threads is looked for, anew each time: whose number one was that has ended, nobody knows. No state.
 */
#include <errno.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "softrdma/vm.h"

static int look(const char *name, void *arg)
{
	int *tid = arg;
	char state;

	*tid = 0;
	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9')
			return 0;
		*tid = *tid * 10 + (*c - '0');
	}
	state = raw_process_state(*tid);
	return state && state != 'Z' && state != 'X';
}

int sr_vm_thread(int pid)
{
	char path[32];
	int tid;

	fm_format(path, sizeof(path), "/proc/%d/task", pid);
	return raw_dir_each(path, look, &tid) > 0 ? tid : 0;
}

long sr_vm_copy(int pid, int out, const struct iovec *here, unsigned long here_count, const struct iovec *there, unsigned long there_count)
{
	const long nr = out ? SYS_process_vm_writev : SYS_process_vm_readv, r = RAW6(nr, pid, here, here_count, there, there_count, 0);
	int tid;

	if (likely(r != -ESRCH) || !(tid = sr_vm_thread(pid)))
		return r;
	return RAW6(nr, tid, here, here_count, there, there_count, 0);
}
