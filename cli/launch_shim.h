/* SPDX-License-Identifier: BSD-2-Clause */
/* See launch_shim.c. */
#pragma once

#include <stddef.h>

/* *ret_dir: the directory for LD_LIBRARY_PATH. 0; 1: this host has no libibverbs, or no shim was built; or -errno. */
int launch_prepare_shim(const char *jobdir, const char *libdir, char *ret_dir, size_t size);
