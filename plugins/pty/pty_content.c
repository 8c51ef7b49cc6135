/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has not been read of a pseudo-terminal. The kernel lets nobody peek: it is read and put back, all in one hook of the drain, by the
 * process that leads the master. No state.
 *
 *     K = the slave, opened once more (only where the job holds one, or the last was closed: an open and close is a hang-up)
 *     read the input from K: whole lines first, then, canonical mode off, the line under way
 *     read the output from the master
 *     settings to literal (pty_input.c): no echo, no signals, no changes; lines are lines
 *     write the input into the master, and behind it a stop character: when output has stopped, the terminal has looked at all of it
 *     write the output into K
 *     settings back; flow; close K
 *
 * A read or poll that finds nothing has waited for the kernel's worker, which carries bytes from one end to the other; one that finds something has
 * not. But a worker that found the reader's buffer full just before it was emptied asks to be run again, and that run nobody has waited for (n_tty_receive_buf_common). So all is
 * taken when two reads, one after the other, say EAGAIN (pty_read), and what is put back needs the stop character as a witness.
 *
 * Meanwhile no program of the job runs, and no other hook touches the terminal: what is put back is in its place before anybody looks.
 *   - It fits again: the same buffers held it, in pieces no larger.
 *   - It ends: nothing waits for another process, only for the kernel's worker.
 *   - The coordinator or another process dies: this hook goes on to its end. A checkpoint that fails later finds nothing to undo.
 *   - This process is killed: unless another shares the master, that is the end of the terminal, as if its window had been closed. The output was
 *     for this process, and the input goes with the hang-up. Where others share the master they find what was in hand
 *     gone, and may find literal settings; the checkpoint fails, and the one before is whole.
 * What was typed ahead beyond the 4 KiB that a terminal looks at, in a mode that echoes, is looked at now: its echo and signals come
 * early, and the echo of what is beyond 4 KiB comes again when it is read.
 *
 * In packet mode a change of state that the master has not been told of (POLLPRI) cannot be put back: refused before anything is touched.
 */
#include "plugins/pty/pty.h"

#include <errno.h>

#include "base/fdpass.h"
#include "base/log.h"

#define PATIENCE 2000 /* pauses of a millisecond without progress */

/* The kernel's buffers hold twice their size in bytes, its limit counts sizes, and the last one may exceed it: so they are packed best. */
#define PIECE 256u
#define LAST_PIECE 1792u
#define WELL_WITHIN 16384u
#define LOOKED_AT 4000u /* with a line of 4095 the reader's buffer is full */

int pty_poll(int fd, int events)
{
	struct pollfd p = { .fd = fd, .events = (short)events };
	long r;

	do
		r = RAW3(SYS_poll, &p, 1, 0);
	while (r == -EINTR);
	return r < 0 ? (int)r : p.revents;
}

long pty_read(int fd, void *buf, size_t size)
{
	long n = raw_read(fd, buf, size);

	return n == -EAGAIN ? raw_read(fd, buf, size) : n;
}

int pty_slave_open(int master, int flags)
{
	int fd = (int)RAW3(SYS_ioctl, master, TIOCGPTPEER, flags | O_NOCTTY); /* O_CLOEXEC would be one of its status flags */

	if (fd >= 0)
		raw_fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

/* Also where the slave is in exclusive mode, which one that is open already can lift. */
static int open_look(int master, const struct pty_state *s)
{
	int slave = pty_slave_open(master, O_RDWR | O_NONBLOCK), holder;

	if (slave != -EBUSY || !s->slave.kind)
		return slave;
	holder = fdpass_take((int)s->slave.pid, s->slave.fd);
	if (holder < 0)
		return holder;
	raw_ioctl(holder, TIOCNXCL, NULL);
	slave = pty_slave_open(master, O_RDWR | O_NONBLOCK);
	raw_ioctl(holder, TIOCEXCL, NULL);
	raw_close(holder);
	return slave;
}

static int set_termios(int master, const struct pty_termios *t)
{
	return raw_ioctl(master, TCSETS2, (void *)t); /* of the slave: a master has none */
}

static int take_output(int master, int slave, uint8_t *buf, uint32_t *length)
{
	for (int pass = 0; pass < 2; pass++) {
		long n;

		while ((n = pty_read(master, buf + *length, PTY_CONTENT_MAX - *length)) > 0)
			*length += (uint32_t)n;
		if (n != -EAGAIN)
			return n ? (int)n : -ENOSPC;
		raw_write(slave, "", 0); /* lets out the echo that found no room */
	}
	return 0;
}

/* Call with no output queued: then only a stopped terminal takes none. */
static enum pty_flow find_flow(int slave)
{
	if (pty_poll(slave, POLLOUT) & POLLOUT)
		return PTY_FLOW_RUNS;
	RAW3(SYS_ioctl, slave, TCXONC, TCOON);
	return pty_poll(slave, POLLOUT) & POLLOUT ? PTY_FLOW_TCOOFF : PTY_FLOW_XOFF;
}

static void pause_a_moment(void)
{
	const struct timespec step = { 0, 1000000 };

	RAW2(SYS_nanosleep, &step, NULL);
}

/* Output stops, or was full anyway. */
static bool await_stop(int slave)
{
	for (int i = 0; i < PATIENCE; i++) {
		if (!(pty_poll(slave, POLLOUT) & POLLOUT))
			return true;
		if (i > 100)
			pause_a_moment();
	}
	return false;
}

static void stop_flow(int master, int slave, const struct pty_record *r)
{
	struct pty_termios t = r->termios;

	if (r->flow == PTY_FLOW_TCOOFF)
		RAW3(SYS_ioctl, slave, TCXONC, TCOOFF);
	if (r->flow != PTY_FLOW_XOFF)
		return;
	t.iflag |= IXON;
	t.lflag &= ~(uint32_t)EXTPROC;
	t.cc[VSTOP] = t.cc[VSTOP] ? t.cc[VSTOP] : 0x13;
	if (t.lflag != r->termios.lflag)
		return; /* the change would break up its lines */
	set_termios(master, &t);
	raw_write(master, &t.cc[VSTOP], 1);
	await_stop(slave);
	set_termios(master, &r->termios);
}

/*
 * Writes all; @other is who gets it. Whatever was in the kernel's buffers fits in again, as they are filled as well as can be; what the
 * reader's buffer takes over comes on top.
 */
static int write_back(int fd, const uint8_t *bytes, size_t n, int other)
{
	const bool is_much = n > WELL_WITHIN;

	for (unsigned int idle = 0; n && idle < PATIENCE;) {
		const size_t piece = is_much && n <= 2 * LAST_PIECE ? LAST_PIECE : PIECE;
		long r = raw_write(fd, bytes, n < piece ? n : piece);

		if (r > 0) {
			bytes += r;
			n -= (size_t)r;
			idle = 0;
			continue;
		}
		if (r && r != -EAGAIN && r != -EINTR)
			return (int)r;
		pty_poll(other, POLLIN);
		pause_a_moment();
		idle++;
	}
	return n ? -ENOSPC : 0;
}

/* Beyond what the terminal can look at: until it has stopped looking. */
static void await_rest(int slave)
{
	int before = -1, now = 0;

	for (int same = 0; same < 20; same = now == before ? same + 1 : 0) {
		before = now;
		pause_a_moment();
		if (raw_ioctl(slave, FIONREAD, &now) < 0)
			return;
	}
}

/* With no output queued. */
static int put_input(int master, int slave, const struct pty_record *r, const uint8_t *input)
{
	struct pty_termios literal = pty_literal(r);
	int err = set_termios(master, &literal);
	uint8_t stop;

	if (err || !r->input_length)
		return err;
	if (r->input_length > LOOKED_AT || r->mark_stop == PTY_NO_MARK) {
		err = write_back(master, input, r->input_length, slave);
		await_rest(slave);
		return err;
	}
	stop = (uint8_t)r->mark_stop;
	literal.iflag = IXON;
	literal.cc[VSTOP] = stop;
	err = set_termios(master, &literal);
	if (!err)
		err = write_back(master, input, r->input_length, slave);
	if (!err)
		err = write_back(master, &stop, 1, slave);
	if (!err && !await_stop(slave))
		err = -ETIMEDOUT;
	literal.iflag = 0; /* starts it again */
	literal.cc[VSTOP] = 0;
	set_termios(master, &literal);
	return err;
}

int pty_content_put(int master, int slave, const struct pty_record *r)
{
	const uint8_t *output = (const uint8_t *)(r + 1);
	int err = put_input(master, slave, r, output + r->output_length), set;

	set = write_back(slave, output, r->output_length, master);
	err = err ? err : set;
	set = set_termios(master, &r->termios);
	err = err ? err : set;
	stop_flow(master, slave, r);
	if (r->flags & PTY_PACKET)
		raw_ioctl(master, TIOCPKT, &(int){ 1 });
	return err;
}

/* Everything that is under way, into @r and what follows it. The terminal is left literal. */
static int take(int master, int slave, struct pty_input *in, struct pty_record *r, bool *ret_touched)
{
	uint8_t *bytes = (uint8_t *)(r + 1);
	struct pty_termios raw = r->termios;
	int err = pty_input_take(slave, &r->termios, in), n;

	*ret_touched = !err || in->count;
	if (err && !in->count)
		return err;
	if (!err)
		err = take_output(master, slave, bytes, &r->output_length);
	r->flow = find_flow(slave);
	if (!err && pty_is_canonical(&r->termios)) {
		raw.lflag = 0;
		raw.iflag = raw.oflag = 0;
		raw.cc[VMIN] = raw.cc[VTIME] = 0;
		err = set_termios(master, &raw);
		if (!err)
			err = pty_input_take_rest(slave, &r->termios, in);
	}
	n = pty_input_encode(in, r, bytes + r->output_length);
	return err ? err : n < 0 ? n : 0;
}

static int look(struct fermata_desc *d, struct pty_state *s, struct pty_record *r, struct pty_input *in)
{
	int slave = open_look(d->fd, s), err;
	bool touched = false;

	if (slave < 0)
		return fermata_fail(slave, "fd %d: /dev/pts/%u, which it leads, cannot be opened (errno %d)", d->fd, s->number, -slave);
	raw_fcntl(d->fd, F_SETFL, (long)(d->status | O_NONBLOCK));
	raw_ioctl(d->fd, TIOCPKT, &(int){ 0 });
	err = take(d->fd, slave, in, r, &touched);
	if (touched) {
		int back = pty_content_put(d->fd, slave, r);

		err = err ? err : back;
	} else if (r->flags & PTY_PACKET) {
		raw_ioctl(d->fd, TIOCPKT, &(int){ 1 });
	}
	raw_fcntl(d->fd, F_SETFL, (long)d->status);
	raw_close(slave);
	return err ? fermata_fail(err, "fd %d: what is unread of /dev/pts/%u cannot be looked at (errno %d)", d->fd, s->number, -err) : 0;
}

/* Settings, into @r. */
static int describe(struct fermata_desc *d, struct pty_state *s, struct pty_record *r)
{
	int lock = 0, packet = 0, unread = 0, seen = pty_poll(d->fd, POLLPRI), err = raw_ioctl(d->fd, TCGETS2, &r->termios);

	*r = (struct pty_record){
		.version = PTY_RECORD_VERSION, .kind = PTY_MASTER, .number = s->number, .maker_pid = fermata_pid(),
		.maker_fd = d->fd, .termios = r->termios, .mark_eof = PTY_NO_MARK, .mark_quote = PTY_NO_MARK, .mark_stop = PTY_NO_MARK,
		.slaves = s->slave.kind ? PTY_SLAVES_OPEN : seen & POLLHUP ? PTY_SLAVES_CLOSED : PTY_SLAVES_NONE,
	};
	if (!err)
		err = raw_ioctl(d->fd, TIOCGWINSZ, r->window);
	if (!err)
		err = raw_ioctl(d->fd, TIOCGPKT, &packet);
	if (!err)
		err = raw_ioctl(d->fd, TIOCGPTLCK, &lock);
	if (err)
		return fermata_fail(err, "fd %d: /dev/pts/%u does not tell its settings (errno %d)", d->fd, s->number, -err);
	r->flags = (lock ? PTY_LOCKED : 0) | (packet ? PTY_PACKET : 0) | (s->slave.exclusive ? PTY_EXCLUSIVE : 0);
	if (r->slaves == PTY_SLAVES_NONE && raw_ioctl(d->fd, FIONREAD, &unread) == 0 && unread)
		return fermata_fail(-EOPNOTSUPP, "fd %d: a process outside the job writes to /dev/pts/%u: launch that one under the job too",
				    d->fd, s->number);
	if (packet && seen & POLLPRI)
		return fermata_fail(-EAGAIN, "fd %d: a change of /dev/pts/%u has not been read yet (packet mode): try again when the "
				    "program has read it", d->fd, s->number);
	return 0;
}

int pty_content_take(struct fermata_desc *d, struct pty_state *s)
{
	struct pty_input in = { 0, fermata_alloc(PTY_CONTENT_MAX * sizeof(uint16_t)) };
	struct pty_record *r = fermata_alloc(sizeof(*r) + 3 * PTY_CONTENT_MAX), *exact = NULL;
	int err = in.units && r ? describe(d, s, r) : fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);

	if (!err && r->slaves != PTY_SLAVES_NONE)
		err = look(d, s, r, &in);
	if (!err) {
		size_t size = sizeof(*r) + r->output_length + r->input_length;

		exact = fermata_alloc(size);
		err = exact ? 0 : fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
		if (exact)
			memcpy(exact, r, size);
	}
	fermata_free(in.units);
	fermata_free(r);
	s->record = exact;
	return err;
}
