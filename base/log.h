/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages without stdio: formatted on the stack (512 bytes), one write(2) a line, so lines of several processes do
 * not mix. fm_format knows %s %d %i %u %x %c %p %zu %zx %ld %lu %lx %lld %llu %llx %%, zero and width (%08x), %.*s.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "base/macro.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Shown up to and including this level; LOG_LEVEL_WARN at first. */
extern enum log_level log_level;
/* Descriptor that the lines go to; 2 at first. */
extern int log_fd;
/* Stands before "[pid]:" on each line; "fermata" at first. */
extern const char *log_name;

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                            \
	do {                                                      \
		if (unlikely(log_level >= LOG_LEVEL_DEBUG))       \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);  \
	} while (0)

/* As snprintf: always ended by NUL if @size > 0; the length it would have had. */
size_t fm_vformat(char *buf, size_t size, const char *fmt, va_list ap);
size_t fm_format(char *buf, size_t size, const char *fmt, ...) PRINTF(3, 4);
