/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptions that lead out of the job: its terminal, and the pipes and sockets that its standard streams were given. They
 * cannot be re-created; at restart the process gets those of `fermata restart` in their place.
 *
 *   number 0, 1, 2 of a description     that stream of `fermata restart`
 *   another number of a terminal	 the first of its streams 0, 2, 1 that is a terminal
 *   another number of a pipe or socket  the stream that the description was, here or in another process, now or as that was begun (base/streams.h)
 *
 * A terminal takes its settings (termios) along if they are the job's: at the checkpoint its foreground is, and at the restart that is ours
 * to give (cli/restart_session.c). They are set at the end, when nothing can fail any more: a terminal is shared with whoever reads the reason.
 * Then, too, and before it can read from it in the background, a process whose group had the foreground gives it to that group again, as a
 * shell in the job has once; and it is told by SIGWINCH if the new window has another size.
 *
 * Owns the inherited descriptors from RECREATE to the end of the restart. A terminal is re-attached by each process
 * for itself; any other such description has a leader, and the others take it from there.
 */
#include "agent/fd_table.h"

#include <asm/termios.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/fd.h"
#include "base/fdpass.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/streams.h"
#include "base/sys.h"

/* The record of a re-attached description: plugin "stdio" in the image. */
struct fd_stdio_record {
	uint32_t stdio_mask; /* bit N: it was descriptor N of some process of the job, or one was begun so */
	uint32_t type;	     /* S_IFMT bits */
	char link[64];	     /* what /proc/self/fd showed, cut; for inspection */
	uint32_t has_settings;
	struct termios2 settings;
};
_Static_assert(sizeof(struct fd_stdio_record) == 120, "fd_stdio_record");

static int inherited[3] = { -EBADF, -EBADF, -EBADF };
static uint32_t terminal_is; /* IMAGE_TERMINAL_*: the new one */

/* Of the terminal at the checkpoint, in memory that comes back. */
static struct {
	bool foreground; /* of our group */
	struct winsize window;
} had;

static int is_terminal(int fd)
{
	struct termios t;

	return raw_ioctl(fd, TCGETS, &t) == 0;
}

/* A pseudo-terminal may be the job's own: its plugin says so in the drain. */
int fd_stdio_claim(const struct fermata_desc *d)
{
	return S_ISCHR(d->st.st_mode) && !(d->status & O_PATH) && is_terminal(d->fd);
}

static void note_stream(struct fd_entry *e, void *arg)
{
	const struct stream *s = arg;

	if (s->access == O_RDWR || s->access == (e->desc.status & O_ACCMODE))
		e->stdio_mask |= 1u << s->number;
}

static void find_stream(const struct stream *s, void *arg)
{
	struct stat st = { .st_dev = s->dev, .st_ino = s->ino };

	(void)arg;
	if (s->number <= 2)
		fd_table_each_of(&st, note_stream, (void *)s);
}

void fd_stdio_find(const char *jobdir)
{
	streams_each(jobdir, find_stream, NULL); /* without the file a stream is known by its number alone */
}

int fd_stdio_take_over(struct fd_entry *e)
{
	if (!e->stdio_mask && e->plugin->fd_let_go && fermata_option_external() != FERMATA_EXTERNAL_FAIL)
		return e->plugin->fd_let_go(&e->desc);
	if (!e->stdio_mask)
		return fermata_fail(-EOPNOTSUPP, "fd %d (%s) leads to a process outside the job: launch that one under the "
				    "job too, or close fd %d before the checkpoint%s", e->desc.fd, e->desc.link, e->desc.fd,
				    e->plugin->fd_let_go ? ", or let it go (--external=error)" : "");
	e->plugin = NULL;
	return 0;
}

static uint32_t parent_of(uint32_t pid)
{
	char path[32], buf[512], *p;
	uint32_t parent = 0;

	fm_format(path, sizeof(path), "/proc/%u/stat", pid);
	if (raw_read_file(path, buf, sizeof(buf)) < 0 || !(p = strrchr(buf, ')')))
		return 0;
	for (p += 4; *p >= '0' && *p <= '9'; p++)
		parent = parent * 10 + (uint32_t)(*p - '0');
	return parent;
}

/*
 * Our group is the terminal's foreground, or one that was made below us, as a shell makes it; or no session of ours has the terminal. In the background
 * its settings are those of somebody else, of the shell that began the job for one.
 */
static bool has_foreground(int terminal)
{
	uint32_t group, pid;

	if (raw_ioctl(terminal, TIOCGPGRP, &group) < 0 || (long)group == RAW1(SYS_getpgid, 0))
		return true;
	for (pid = group; pid > 1 && pid != fermata_pid(); pid = parent_of(pid))
		;
	return pid == fermata_pid();
}

int fd_stdio_dump(const struct fd_entry *e, struct fermata_sink *sink)
{
	struct fd_stdio_record r = { .stdio_mask = e->stdio_mask, .type = e->desc.st.st_mode & S_IFMT };

	for (size_t i = 0; i < sizeof(r.link) - 1 && e->desc.link[i]; i++)
		r.link[i] = e->desc.link[i];
	r.has_settings = r.type == S_IFCHR && has_foreground(e->desc.fd) && raw_ioctl(e->desc.fd, TCGETS2, &r.settings) == 0;
	return fermata_sink_write(sink, &r, sizeof(r));
}

/* Any number of the terminal, or -EBADF. */
static int terminal_number(void)
{
	for (uint32_t i = 0; i < fd_table.count; i++) {
		const struct fd_entry *e = fd_table.entries[i];

		if (!e->plugin && S_ISCHR(e->desc.st.st_mode))
			return e->fds[0].fd;
	}
	return -EBADF;
}

bool fd_note_terminal(void)
{
	int terminal = terminal_number();
	uint32_t group;

	memset(&had, 0, sizeof(had));
	if (terminal < 0)
		return false;
	had.foreground = raw_ioctl(terminal, TIOCGPGRP, &group) == 0 && (long)group == RAW1(SYS_getpgid, 0);
	raw_ioctl(terminal, TIOCGWINSZ, &had.window);
	return had.foreground;
}

int fd_copy_above(int fd, int above)
{
	int to = raw_fcntl(fd, F_DUPFD_CLOEXEC, above < FDPASS_PARK_BASE ? FDPASS_PARK_BASE : above);

	return to < 0 ? raw_fcntl(fd, F_DUPFD_CLOEXEC, above) : to;
}

int fd_stdio_inherit(const struct image_restart *r, int above)
{
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++) {
		int fd = (int)r->stdio[i];
		int to = fd < 0 ? -EBADF : fd_copy_above(fd, above);

		if (to < 0 && to != -EBADF)
			return fermata_fail(to == -EINVAL ? -EMFILE : to, "cannot come back with fd %d", above - 1);
		inherited[i] = to;
	}
	terminal_is = r->terminal;
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++)
		if ((int)r->stdio[i] >= 0)
			raw_close((int)r->stdio[i]);
	return 0;
}

/* A stream that `fermata restart` was started without. */
static int stream(int number)
{
	if (inherited[number] < 0) {
		int fd = raw_open("/dev/null", O_RDWR | O_CLOEXEC, 0);

		inherited[number] = fd < 0 ? fd : fdpass_park(fd);
	}
	return inherited[number];
}

int fd_stdio_pick(const struct fd_entry *e, int fd)
{
	static const int order[] = { 0, 2, 1 };

	if (fd <= 2)
		return stream(fd);
	if (!S_ISCHR(e->desc.st.st_mode))
		return stream(__builtin_ctz(e->stdio_mask | 4));
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		if (inherited[order[i]] >= 0 && is_terminal(inherited[order[i]]))
			return inherited[order[i]];
	if (e->stdio_mask)
		return stream(__builtin_ctz(e->stdio_mask));
	return fermata_fail(-ENOTTY, "fd %d was the terminal %s: restart from a terminal", fd, e->desc.link);
}

/* What is no terminal now refuses. */
static void set_terminal(const struct fd_entry *e)
{
	const struct fd_stdio_record *r = (const void *)e->record.data;

	if (e->record.len < sizeof(*r) || !r->has_settings) /* of a version before it had them */
		return;
	for (uint32_t i = 0; i < e->fd_count; i++)
		raw_ioctl(e->fds[i].fd, TCSETS2, (void *)&r->settings);
}

/* SIGTTOU is blocked here. */
static void be_foreground(void)
{
	uint32_t group = (uint32_t)RAW1(SYS_getpgid, 0);
	int terminal = terminal_number();
	struct winsize window;

	if (!had.foreground || terminal < 0)
		return;
	if (terminal_is & IMAGE_TERMINAL_FOREGROUND)
		raw_ioctl(terminal, TIOCSPGRP, &group);
	if (raw_ioctl(terminal, TIOCGWINSZ, &window) == 0 && memcmp(&window, &had.window, sizeof(window)) != 0)
		RAW2(SYS_kill, raw_getpid(), SIGWINCH);
}

void fd_stdio_done(void)
{
	if (terminal_is)
		be_foreground();
	for (uint32_t i = 0; i < fd_table.count && terminal_is; i++)
		if (!fd_table.entries[i]->plugin && fd_entry_led(fd_table.entries[i]))
			set_terminal(fd_table.entries[i]);
	terminal_is = 0;
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++) {
		if (inherited[i] >= 0)
			raw_close(inherited[i]);
		inherited[i] = -EBADF;
	}
}
