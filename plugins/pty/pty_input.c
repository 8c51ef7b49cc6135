/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input that a terminal has taken and nobody has read: units, and bytes that make them again. No state.
 *
 * A canonical terminal gives a line a read(2). What a read gave ends with the character that ended the line, or the line was ended by an end of
 * file, which is kept as a mark. An end-of-line character within a line had been quoted. What cannot be seen: that the last
 * character typed was the quoting one, and the column that erasing a tab goes back to.
 */
#include "plugins/pty/pty.h"

#include <errno.h>

bool pty_is_canonical(const struct pty_termios *t)
{
	return t->lflag & ICANON && !(t->lflag & EXTPROC);
}

static bool ends_line(const struct pty_termios *t, uint8_t c)
{
	return c == '\n' || (c && (c == t->cc[VEOL] || (c == t->cc[VEOL2] && t->lflag & IEXTEN)));
}

static void append(struct pty_input *in, const uint8_t *bytes, size_t n, const struct pty_termios *lines, bool last_is_end)
{
	for (size_t i = 0; i < n; i++) {
		bool quoted = lines && ends_line(lines, bytes[i]) && !(last_is_end && i == n - 1);

		in->units[in->count++] = (uint16_t)(bytes[i] | (quoted ? PTY_UNIT_QUOTED : 0));
	}
}

int pty_input_take(int slave, const struct pty_termios *t, struct pty_input *in)
{
	const bool canonical = pty_is_canonical(t);
	uint8_t line[4096];

	while (in->count + sizeof(line) < PTY_CONTENT_MAX) {
		long n = pty_read(slave, line, sizeof(line));

		if (n == -EAGAIN || (n == 0 && !canonical))
			return 0;
		if (n < 0)
			return (int)n;
		append(in, line, (size_t)n, canonical ? t : NULL, true);
		if (canonical && (!n || !ends_line(t, line[n - 1])))
			in->units[in->count++] = PTY_UNIT_EOF;
	}
	return -ENOSPC;
}

int pty_input_take_rest(int slave, const struct pty_termios *was, struct pty_input *in)
{
	uint8_t part[4096];
	long n;

	while ((n = pty_read(slave, part, sizeof(part))) > 0) {
		if (in->count + (size_t)n >= PTY_CONTENT_MAX)
			return -ENOSPC;
		append(in, part, (size_t)n, was, false);
	}
	return n == -EAGAIN || n == 0 ? 0 : (int)n;
}

/* A byte that occurs nowhere in @in and means nothing, or -ENOSPC. */
static int unused_byte(const struct pty_input *in, const struct pty_termios *t, int other, int another)
{
	for (int c = 1; c < 256; c++) {
		bool used = ends_line(t, (uint8_t)c) || c == other || c == another;

		for (uint32_t i = 0; i < in->count && !used; i++)
			used = !(in->units[i] & PTY_UNIT_EOF) && (in->units[i] & 0xff) == c;
		if (!used)
			return c;
	}
	return -ENOSPC;
}

int pty_input_encode(const struct pty_input *in, struct pty_record *r, uint8_t *ret_bytes)
{
	int eof = PTY_NO_MARK, quote = PTY_NO_MARK, stop, n = 0;
	uint16_t all = 0;

	for (uint32_t i = 0; i < in->count; i++)
		all |= in->units[i];
	if (all & PTY_UNIT_EOF)
		eof = unused_byte(in, &r->termios, -1, -1);
	if (all & PTY_UNIT_QUOTED)
		quote = unused_byte(in, &r->termios, eof, -1);
	stop = unused_byte(in, &r->termios, eof, quote);
	for (uint32_t i = 0; i < in->count; i++) {
		if (in->units[i] & PTY_UNIT_QUOTED && quote >= 0)
			ret_bytes[n++] = (uint8_t)quote;
		ret_bytes[n++] = in->units[i] & PTY_UNIT_EOF ? (uint8_t)(eof >= 0 ? eof : '\n') : (uint8_t)in->units[i];
	}
	r->mark_eof = (uint16_t)(eof < 0 ? PTY_NO_MARK : eof);
	r->mark_quote = (uint16_t)(quote < 0 ? PTY_NO_MARK : quote);
	r->mark_stop = (uint16_t)(stop < 0 ? PTY_NO_MARK : stop);
	r->input_length = (uint32_t)n;
	return eof < 0 || quote < 0 ? -ENOSPC : n;
}

struct pty_termios pty_literal(const struct pty_record *r)
{
	struct pty_termios t = r->termios;

	t.iflag = 0;
	t.oflag = 0;
	t.lflag = pty_is_canonical(&r->termios) ? ICANON | IEXTEN : 0;
	memset(t.cc, 0, sizeof(t.cc));
	if (t.lflag) {
		t.cc[VEOL] = r->termios.cc[VEOL];
		t.cc[VEOL2] = r->termios.lflag & IEXTEN ? r->termios.cc[VEOL2] : 0;
		t.cc[VEOF] = r->mark_eof == PTY_NO_MARK ? 0 : (uint8_t)r->mark_eof;
		t.cc[VLNEXT] = r->mark_quote == PTY_NO_MARK ? 0 : (uint8_t)r->mark_quote;
	} else {
		t.cc[VMIN] = 1;
	}
	return t;
}
