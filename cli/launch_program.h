/* SPDX-License-Identifier: BSD-2-Clause */
/* What `launch` must know of a program before it becomes it. */
#pragma once

#include <stddef.h>

/*
 * Finds @program as the shell would (PATH, if it has no slash) and makes sure that fermata can hold it: there, executable, a dynamic
 * x86-64 ELF program, or a script whose interpreter is one; not setuid. 0 with the path, or -errno after it has said why not.
 */
int launch_program_check(const char *program, char *ret_path, size_t size);
