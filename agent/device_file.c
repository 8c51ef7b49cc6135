/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files below /dev that a device's library stands in for, and what such a library writes, and files below /proc: asks the plugins that have the file_* hooks, device_write, or proc_open, in their order. No state: which descriptors are
 * such files the library knows; they are among those that it made (device.c).
 */
#include <string.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/plugins.h"

#define ASK(hook, type, ...)                                                              \
	do {                                                                              \
		type r;                                                                   \
                                                                                          \
		for (const struct fermata_plugin *const *p = agent_plugins; *p; p++) {    \
			r = (*p)->hook ? (*p)->hook(__VA_ARGS__) : FERMATA_NOT_MINE;      \
			if (r != FERMATA_NOT_MINE)                                        \
				return r;                                                 \
		}                                                                         \
		return FERMATA_NOT_MINE;                                                  \
	} while (0)

int device_file_open(const char *path, int flags)
{
	if (!path || likely(strncmp(path, "/dev/", 5) != 0) || fermata_in_device())
		return FERMATA_NOT_MINE;
	ASK(file_open, int, path, flags);
}

int proc_file_open(const char *path, int flags)
{
	if (!path || likely(strncmp(path, "/proc/", 6) != 0) || fermata_in_device())
		return FERMATA_NOT_MINE;
	ASK(proc_open, int, path, flags);
}

long device_file_write(int fd, const void *data, size_t n)
{
	ASK(file_write, long, fd, data, n);
}

long device_write(int fd, const void *data, size_t n)
{
	ASK(device_write, long, fd, data, n);
}

int device_file_stat(int fd, struct stat *st)
{
	ASK(file_stat, int, fd, st);
}

int device_file_close(int fd)
{
	ASK(file_close, int, fd);
}

int device_path_stat(const char *path, struct stat *ret)
{
	if (!path || (strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/sys/class/", 11) != 0) || fermata_in_device())
		return FERMATA_NOT_MINE;
	ASK(path_stat, int, path, ret);
}
