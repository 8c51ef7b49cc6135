/* SPDX-License-Identifier: BSD-2-Clause */
/* Pseudo-terminals at a restart. One that is a session's was made before its processes (cli/restart_ptys.c): its maker has inherited it. No state. */
#include "plugins/pty/pty.h"

#include <errno.h>

#include "base/fdpass.h"
#include "base/log.h"
#include "base/numbered_pty.h"

static int make(const struct fermata_desc *d, const char *path, int flags, uint32_t want)
{
	int fd = numbered_pty_open(path, flags, want);

	if (fd == -ENOENT)
		fd = numbered_pty_open("/dev/ptmx", flags, want);
	return fd < 0 ? fermata_fail(fd, "fd %d: no new pseudo-terminal for /dev/pts/%u (errno %d)", d->fd, want, -fd) : fd;
}

static int restore_master(struct fermata_desc *d, const struct pty_record *r)
{
	int fd = fermata_terminal_inherited(d->fd), err;
	uint32_t number = r->number;

	if (fd < 0)
		fd = make(d, d->link, (int)d->status & (O_ACCMODE | O_NONBLOCK), r->number);
	if (fd < 0)
		return fd;
	raw_ioctl(fd, TIOCGPTN, &number);
	if (number != r->number)
		log_warn("process %u: /dev/pts/%u is somebody else's by now; its terminal is /dev/pts/%u", fermata_pid(), r->number, number);
	err = raw_ioctl(fd, TCSETS2, (void *)&r->termios);
	if (!err)
		err = raw_ioctl(fd, TIOCSWINSZ, (void *)r->window);
	if (!err && (r->slaves != PTY_SLAVES_NONE || !(r->flags & PTY_LOCKED)))
		err = raw_ioctl(fd, TIOCSPTLCK, &(int){ 0 });
	if (!err && r->slaves == PTY_SLAVES_NONE && r->flags & PTY_PACKET)
		err = raw_ioctl(fd, TIOCPKT, &(int){ 1 });
	if (!err)
		return fd;
	raw_close(fd);
	return fermata_fail(err, "fd %d: the pseudo-terminal for /dev/pts/%u does not take its settings (errno %d)", d->fd, r->number, -err);
}

static int restore_dead(struct fermata_desc *d)
{
	int master = make(d, "/dev/ptmx", O_RDWR, 0), slave = master;

	if (master < 0)
		return master;
	raw_ioctl(master, TIOCSPTLCK, &(int){ 0 });
	slave = pty_slave_open(master, (int)d->status & (O_ACCMODE | O_NONBLOCK));
	raw_close(master);
	return slave;
}

int pty_fd_restore(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pty_record *r = record;

	if (len < sizeof(*r) || r->version != PTY_RECORD_VERSION || len - sizeof(*r) < (size_t)r->output_length + r->input_length)
		return fermata_fail(-EBADMSG, "fd %d: the record of its terminal is damaged or of another version", d->fd);
	return r->kind == PTY_MASTER ? restore_master(d, r) : r->kind == PTY_DEAD ? restore_dead(d) : FERMATA_FD_LATER;
}

int pty_peer(uint32_t maker_pid, int maker_fd, int flags)
{
	int master = fdpass_take((int)maker_pid, maker_fd), slave;

	if (master < 0)
		return master;
	slave = pty_slave_open(master, flags);
	raw_close(master);
	return slave;
}

int pty_fd_reconnect(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pty_record *r = record;
	int fd = pty_peer(r->maker_pid, r->maker_fd, (int)d->status & (O_ACCMODE | O_NONBLOCK));

	(void)len;
	if (fd < 0)
		fermata_fail(fd, "fd %d: the terminal whose master is fd %d of process %u cannot be opened (errno %d)", d->fd,
			     r->maker_fd, r->maker_pid, -fd);
	return fd;
}

/* By now every slave of the job is open: that ours is closed again is a hang-up only where there was one. */
int pty_fd_refill(struct fermata_desc *d, const void *record, size_t len)
{
	const struct pty_record *r = record;
	int slave, err;

	(void)len;
	if (r->kind != PTY_MASTER || r->slaves == PTY_SLAVES_NONE)
		return 0;
	slave = pty_slave_open(d->fd, O_RDWR | O_NONBLOCK);
	if (slave < 0)
		return fermata_fail(slave, "fd %d: the terminal that it leads cannot be opened (errno %d)", d->fd, -slave);
	raw_fcntl(d->fd, F_SETFL, (long)(d->status | O_NONBLOCK));
	err = pty_content_put(d->fd, slave, r);
	raw_fcntl(d->fd, F_SETFL, (long)d->status);
	if (r->mode)
		RAW2(SYS_fchmod, slave, r->mode);
	if (r->flags & PTY_EXCLUSIVE)
		raw_ioctl(slave, TIOCEXCL, NULL);
	if (r->flags & PTY_LOCKED)
		raw_ioctl(d->fd, TIOCSPTLCK, &(int){ 1 });
	raw_close(slave);
	return err ? fermata_fail(err, "fd %d: the unread bytes of its terminal do not go back (errno %d)", d->fd, -err) : 0;
}
