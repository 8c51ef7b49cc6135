/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The controlling terminal of a session, where it is a pseudo-terminal of the job: the leader of the session writes it down and takes it
 * again. A session without its leader has none. To the other processes of the session it comes by fork alone, so `fermata restart` has given it to the leader before that, as a rule (cli/restart_ptys.c): then the terminal is the
 * leader's already, and to take it changes nothing. Owns what the hooks of one checkpoint, or of one restart, tell each other.
 *
 * A session loses its terminal when the last descriptor of the terminal is closed. So the leader keeps one from RECONNECT, when slaves are
 * opened, to its REFILL, when all are open everywhere.
 */
#include "plugins/pty/pty.h"

#include <errno.h>

#include "base/log.h"

static struct pty_session found, restored;
static bool in_job; /* found's master is */
static int keeper = -EBADF;

/* The @n-th word, from 0 on, after the name in /proc/self/stat. */
static long stat_word(const char *text, unsigned int n)
{
	long value = 0;
	bool negative;

	while (n--) {
		text += strcspn(text, " ");
		text += strspn(text, " ");
	}
	negative = *text == '-';
	for (text += negative; *text >= '0' && *text <= '9'; text++)
		value = value * 10 + (*text - '0');
	return negative ? -value : value;
}

int pty_session_quiesce(void)
{
	const struct pty_end nobody = { 0 };
	char text[1024];
	const char *name_end;
	uint64_t device;
	long n, group;

	memset(&found, 0, sizeof(found));
	in_job = false;
	if (RAW1(SYS_getsid, 0) != (long)fermata_pid())
		return 0;
	n = raw_read_file("/proc/self/stat", text, sizeof(text));
	name_end = n < 0 ? NULL : strrchr(text, ')');
	if (!name_end)
		return 0;
	device = (uint64_t)stat_word(name_end + 2, 4);
	if (!pty_is_slave_device(device))
		return 0;
	group = stat_word(name_end + 2, 5);
	found = (struct pty_session){ .version = PTY_RECORD_VERSION, .number = pty_number_of(device),
				      .foreground = group > 0 ? (uint32_t)group : 0 };
	return pty_publish(found.number, &nobody);
}

int pty_session_drain(unsigned int round)
{
	const struct pty_end ours = { .session = fermata_pid() };
	struct pty_end master;

	if (round || !found.version || !pty_find(found.number, &ours, PTY_MASTER, &master))
		return FERMATA_DRAINED;
	in_job = true;
	found.maker_pid = master.pid;
	found.maker_fd = master.fd;
	return FERMATA_DRAINED;
}

int pty_session_dump(struct fermata_sink *sink)
{
	return in_job ? fermata_sink_write(sink, &found, sizeof(found)) : 0;
}

int pty_session_recreate(const void *record, size_t len)
{
	memset(&restored, 0, sizeof(restored));
	if (len >= sizeof(restored))
		memcpy(&restored, record, sizeof(restored));
	return 0;
}

int pty_session_reconnect(void)
{
	int group = (int)restored.foreground, r;

	if (!restored.version)
		return 0;
	keeper = pty_peer(restored.maker_pid, restored.maker_fd, O_RDWR);
	r = keeper < 0 ? keeper : (int)RAW3(SYS_ioctl, keeper, TIOCSCTTY, 0);
	if (r < 0)
		return fermata_fail(r, "session %u: its terminal cannot be its controlling terminal again (errno %d)", fermata_pid(), -r);
	if (!group || group == (int)RAW1(SYS_getpgid, 0))
		return 0;
	r = raw_ioctl(keeper, TIOCSPGRP, &group);
	if (r < 0) /* nobody is in that group any more */
		log_info("session %u: group %d is not its foreground any more (errno %d)", fermata_pid(), group, -r);
	return 0;
}

int pty_session_refill(void)
{
	if (keeper >= 0)
		raw_close(keeper);
	keeper = -EBADF;
	restored.version = 0;
	return 0;
}
