/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a process of this host and pid namespace, be it that its first thread has ended. */
#pragma once

#include <sys/uio.h>

int sr_vm_thread(int pid); /* one of its threads that lives; 0: none does */
/* As process_vm_writev (@out) and process_vm_readv: bytes, or -errno. */
long sr_vm_copy(int pid, int out, const struct iovec *here, unsigned long here_count, const struct iovec *there, unsigned long there_count);
