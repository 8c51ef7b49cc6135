/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the user has to know and asks nobody for: that the interval's checkpoints fail, or that none will come any more. Owns coordinator.tell_fd: where the command that started this
 * coordinator has its standard error, if that is a terminal or a file. A pipe is not kept: who reads it would wait for our end, too.
 *
 * Of failures in a row the first is told, the second, the fourth, the eighth: a job of weeks is to be told again, and not each time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/internal.h"

void tell_open(struct coordinator *c)
{
	struct stat st;

	if (isatty(2)) /* opened anew: a terminal that is held by Ctrl-S must not hold us, nor the programs get O_NONBLOCK */
		c->tell_fd = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	else if (!fstat(2, &st) && S_ISREG(st.st_mode)) /* at the same place in it as the programs' */
		c->tell_fd = fcntl(2, F_DUPFD_CLOEXEC, 3);
}

void tell_close(struct coordinator *c)
{
	if (c->tell_fd >= 0)
		close(c->tell_fd);
	c->tell_fd = -EBADF;
}

void tell(const struct coordinator *c, const char *fmt, ...)
{
	char text[sizeof(c->last.text) + 128];
	va_list ap;

	if (c->tell_fd < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dprintf(c->tell_fd, "fermata: job %s: %s\n", c->options->job, text);
}

void tell_interval(struct coordinator *c)
{
	const struct outcome *o = &c->last;
	uint32_t before = c->interval_failures;

	if (!c->member_count || c->state == STATE_ENDING)
		return;
	c->interval_failures = o->error ? before + 1 : 0;
	if (o->error && !(before & (before + 1)))
		tell(c, "checkpoint failed (%u in a row), the job goes on: %s", before + 1, o->text);
	else if (!o->error && before)
		tell(c, "checkpoint %u is complete, the first after %u that failed", o->number, before);
}
