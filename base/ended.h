/* SPDX-License-Identifier: BSD-2-Clause */
/* What leads to a process that is no more: a pidfd, a file below /proc/PID. */
#pragma once

/*
 * Makes a child with a copy of our memory that does nothing and that nobody is told of, calls @open with its pid, ends it, and waits for it. Returns what @open did,
 * a descriptor or a negative errno; or why there was no child.
 */
int ended_child_open(int (*open)(int pid, void *arg), void *arg);
