/* SPDX-License-Identifier: BSD-2-Clause */
/* What must be known of a program before it runs: whether fermata can hold it. */
#pragma once

#include <stddef.h>

struct program_refusal {
	char why[512];
	const char *remedy; /* or NULL */
};

/* Finds @program as the shell would (PATH, if it has no slash): there and executable. 0 with the path, or -errno. */
int program_find(const char *program, char *ret_path, size_t size);
/*
 * Whether fermata can hold the program @path: a dynamic x86-64 ELF program of glibc, or a script whose interpreter is one; without rights that its user has
 * not. @ret_file: what the kernel would run, or the file that stands in the way. 0, or -errno with the reason.
 */
int program_check(const char *path, char *ret_file, size_t size, struct program_refusal *ret);
