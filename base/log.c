/* SPDX-License-Identifier: BSD-2-Clause */
/* Formatting and logging with no libc state. Owns log_level and log_fd, set once at start. */
#include "base/log.h"

#include <string.h>

#include "base/sys.h"

enum log_level log_level = LOG_LEVEL_WARN;
int log_fd = 2;
const char *log_name = "fermata";

struct out {
	char *buf;
	size_t size, len;
};

static void out_char(struct out *o, char c)
{
	if (o->len + 1 < o->size)
		o->buf[o->len] = c;
	o->len++;
}

static void out_text(struct out *o, const char *s, size_t n, size_t width)
{
	for (size_t pad = n; pad < width; pad++)
		out_char(o, ' ');
	for (size_t i = 0; i < n; i++)
		out_char(o, s[i]);
}

static size_t text_length(const char *s, size_t most)
{
	size_t n = 0;

	while (n < most && s[n])
		n++;
	return n;
}

static void out_number(struct out *o, uint64_t v, unsigned int base, int negative, size_t width, char fill)
{
	char digits[24];
	size_t n = 0;

	do {
		digits[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	if (negative && fill == '0')
		out_char(o, '-');
	for (size_t have = n + (size_t)negative; have < width; have++)
		out_char(o, fill);
	if (negative && fill != '0')
		out_char(o, '-');
	while (n)
		out_char(o, digits[--n]);
}

static const char *out_one(struct out *o, const char *p, va_list *ap)
{
	size_t width = 0, most = SIZE_MAX;
	char fill = ' ';
	int longs = 0;

	if (*p == '0')
		fill = *p++;
	while (*p >= '0' && *p <= '9')
		width = width * 10 + (size_t)(*p++ - '0');
	if (p[0] == '.' && p[1] == '*') {
		int n = va_arg(*ap, int);

		most = n < 0 ? SIZE_MAX : (size_t)n;
		p += 2;
	}
	for (; *p == 'l' || *p == 'z'; p++)
		longs++;
	switch (*p) {
	case 's': {
		const char *s = va_arg(*ap, const char *);

		s = s ? s : "(null)";
		out_text(o, s, text_length(s, most), width);
		break;
	}
	case 'c':
		out_char(o, (char)va_arg(*ap, int));
		break;
	case 'd':
	case 'i': {
		long long v = longs ? va_arg(*ap, long) : va_arg(*ap, int);

		out_number(o, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 10, v < 0, width, fill);
		break;
	}
	case 'u':
	case 'x':
		out_number(o, longs ? va_arg(*ap, unsigned long) : va_arg(*ap, unsigned int), *p == 'u' ? 10 : 16, 0,
			   width, fill);
		break;
	case 'p':
		out_text(o, "0x", 2, 0);
		out_number(o, (uintptr_t)va_arg(*ap, void *), 16, 0, 0, ' ');
		break;
	case 0:
		return p;
	default:
		out_char(o, *p);
	}
	return p + 1;
}

size_t fm_vformat(char *buf, size_t size, const char *fmt, va_list ap)
{
	struct out o = { buf, size, 0 };
	va_list args;

	va_copy(args, ap);
	while (*fmt) {
		if (*fmt == '%')
			fmt = out_one(&o, fmt + 1, &args);
		else
			out_char(&o, *fmt++);
	}
	va_end(args);
	if (size)
		buf[o.len < size ? o.len : size - 1] = 0;
	return o.len;
}

size_t fm_format(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = fm_vformat(buf, size, fmt, ap);
	va_end(ap);
	return n;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	char line[512];
	va_list ap;
	size_t n;

	if (level > log_level)
		return;
	n = fm_format(line, sizeof(line), "%s[%d]: %s: ", log_name, raw_getpid(), names[level]);
	va_start(ap, fmt);
	n += fm_vformat(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	if (n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n] = '\n';
	(void)raw_write_all(log_fd, line, n + 1);
}
