/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Standard input, output and error over the connection, at either end. A stream is read at one end and written at the other. Who writes keeps a window of
 * bytes that its descriptor does not take yet, and grants as many: so both ends always take what comes, one stream never stands in another's way, and
 * the end of the command or of the connection is seen at once. All that may be under way in one direction fits into the window of 64 KiB with which TCP
 * begins, so no checkpoint finds a sender that waits for a receiver which stands still.
 *
 *     reader                              writer
 *       DATA stream, bytes  ------------->  kept until the descriptor takes it
 *                           <-------------  CREDIT stream, bytes: these were taken
 *       END stream          ------------->  its descriptor is closed when all is written
 *                           <-------------  CLOSED stream: the descriptor takes no more; the reader closes its own
 *
 * Descriptors may be shared with others, so they are not made non-blocking: no more is written at a time than a pipe takes that is ready. Owns the
 * channel and what is kept.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/remote.h"

#define STREAMS 3
#define WINDOW 57344u /* of standard input; output and error share as much */
#define FRAME_COST 64u /* that a frame counts for beside its bytes: also the shortest ones do not fill the socket */
#define WRITE_MAX 4096 /* PIPE_BUF */

struct stream {
	int fd; /* -EBADF: closed */
	bool reads;
	bool ended; /* read: END or CLOSED was said; written: END has come */
	uint32_t credit;	   /* read: what the other end takes */
	uint32_t start, have, owed; /* written: what is kept; is to be granted again */
	uint8_t *kept;
};

struct remote_pump {
	struct remote_channel *channel;
	struct stream stream[STREAMS];
	bool has_exit;
	int status;
};

static uint32_t window_of(unsigned int stream)
{
	return stream ? WINDOW / 2 : WINDOW;
}

struct remote_pump *remote_pump_make(struct remote_channel *c, const int fds[STREAMS], unsigned int reads)
{
	struct remote_pump *p = c ? calloc(1, sizeof(*p)) : NULL;

	for (unsigned int i = 0; p && i < STREAMS; i++) {
		struct stream *s = &p->stream[i];

		*s = (struct stream){ .fd = fds[i], .reads = reads & 1u << i, .credit = window_of(i) };
		if (!s->reads)
			s->kept = malloc(WINDOW);
		if (!s->reads && !s->kept)
			return NULL;
	}
	if (p)
		p->channel = c;
	return p;
}

static void stream_close(struct stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -EBADF;
}

static void stream_read(struct remote_pump *p, unsigned int i)
{
	struct stream *s = &p->stream[i];
	size_t most = s->credit - FRAME_COST < REMOTE_FRAME_MAX ? s->credit - FRAME_COST : REMOTE_FRAME_MAX;
	uint8_t data[REMOTE_FRAME_MAX];
	ssize_t n = read(s->fd, data, most);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		s->credit -= (uint32_t)n + FRAME_COST;
		remote_channel_put(p->channel, REMOTE_DATA + i, data, (size_t)n);
		return;
	}
	s->ended = true;
	stream_close(s);
	remote_channel_put(p->channel, REMOTE_END + i, NULL, 0);
}

/* Nobody takes it any more. */
static void stream_refuse(struct remote_pump *p, unsigned int i)
{
	struct stream *s = &p->stream[i];

	stream_close(s);
	s->have = 0;
	remote_channel_put(p->channel, REMOTE_CLOSED + i, NULL, 0);
}

static void stream_grant(struct remote_pump *p, unsigned int i)
{
	struct stream *s = &p->stream[i];

	if (s->owed < window_of(i) / 4 || s->ended)
		return;
	remote_channel_put(p->channel, REMOTE_CREDIT + i, &s->owed, sizeof(s->owed));
	s->owed = 0;
}

static void stream_write(struct remote_pump *p, unsigned int i)
{
	struct stream *s = &p->stream[i];
	uint32_t most = s->have < WINDOW - s->start ? s->have : WINDOW - s->start;
	ssize_t n = write(s->fd, s->kept + s->start, most < WRITE_MAX ? most : WRITE_MAX);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		stream_refuse(p, i);
		return;
	}
	s->start = (s->start + (uint32_t)n) % WINDOW;
	s->have -= (uint32_t)n;
	s->owed += (uint32_t)n;
	stream_grant(p, i);
	if (s->ended && !s->have)
		stream_close(s);
}

static int stream_keep(struct stream *s, const uint8_t *data, size_t len)
{
	size_t at = (s->start + s->have) % WINDOW, first = len < WINDOW - at ? len : WINDOW - at;

	if (s->reads || s->ended || len > WINDOW - s->have)
		return -EPROTO;
	if (s->fd < 0)
		return 0;
	memcpy(s->kept + at, data, first);
	memcpy(s->kept, data + first, len - first);
	s->have += (uint32_t)len;
	s->owed += FRAME_COST;
	return 0;
}

static int stream_end(struct stream *s)
{
	if (s->reads)
		return -EPROTO;
	s->ended = true;
	if (!s->have)
		stream_close(s);
	return 0;
}

static int stream_credit(struct stream *s, uint32_t more)
{
	if (!s->reads || more > WINDOW - s->credit)
		return -EPROTO;
	s->credit += more;
	return 0;
}

static int pump_take(struct remote_pump *p, unsigned int type, const uint8_t *data, size_t len)
{
	struct stream *s = &p->stream[(type - REMOTE_DATA) % 4 % STREAMS];
	uint32_t number = 0;

	if ((type - REMOTE_DATA) % 4 >= STREAMS)
		return -EPROTO;
	if (len == sizeof(number))
		memcpy(&number, data, sizeof(number));
	switch (REMOTE_DATA + (type - REMOTE_DATA) / 4 * 4) {
	case REMOTE_DATA: return stream_keep(s, data, len);
	case REMOTE_END: return stream_end(s);
	case REMOTE_CREDIT: return stream_credit(s, number);
	case REMOTE_CLOSED:
		s->ended = true;
		stream_close(s);
		return s->reads ? 0 : -EPROTO;
	case REMOTE_EXIT:
		p->has_exit = true;
		p->status = (int)number;
		return 0;
	default: return -EPROTO;
	}
}

static int pump_move(struct remote_pump *p)
{
	const uint8_t *data;
	unsigned int type;
	size_t len;
	int gone = remote_channel_move(p->channel), r;

	while ((r = remote_channel_next(p->channel, &type, &data, &len)) > 0) {
		r = pump_take(p, type, data, len);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : gone;
}

static short stream_events(const struct remote_pump *p, const struct stream *s)
{
	if (s->fd < 0 || !remote_channel_has_room(p->channel))
		return 0;
	if (s->reads)
		return s->credit > FRAME_COST ? POLLIN : 0;
	return s->have ? POLLOUT : 0;
}

int remote_pump_turn(struct remote_pump *p, const sigset_t *mask)
{
	struct pollfd f[STREAMS + 1];

	for (unsigned int i = 0; i < STREAMS; i++) {
		short events = stream_events(p, &p->stream[i]);

		f[i] = (struct pollfd){ .fd = events ? p->stream[i].fd : -1, .events = events };
	}
	f[STREAMS] = (struct pollfd){ .fd = remote_channel_fd(p->channel), .events = remote_channel_events(p->channel) };
	if (ppoll(f, STREAMS + 1, NULL, mask) < 0)
		return errno == EINTR ? 0 : -errno;
	for (unsigned int i = 0; i < STREAMS; i++) {
		if (!f[i].revents || !remote_channel_has_room(p->channel))
			continue;
		if (p->stream[i].reads)
			stream_read(p, i);
		else
			stream_write(p, i);
	}
	return pump_move(p);
}

bool remote_pump_has_exit(const struct remote_pump *p, int *ret_status)
{
	*ret_status = p->status;
	return p->has_exit;
}

void remote_pump_finish(struct remote_pump *p)
{
	for (unsigned int i = 0; i < STREAMS; i++) {
		struct stream *s = &p->stream[i];
		uint32_t first = s->have < WINDOW - s->start ? s->have : WINDOW - s->start;

		if (s->fd < 0 || s->reads)
			continue;
		if (raw_write_all(s->fd, s->kept + s->start, first) == 0)
			raw_write_all(s->fd, s->kept, s->have - first);
		s->have = 0;
	}
}

bool remote_pump_is_read(const struct remote_pump *p)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		if (p->stream[i].reads && !p->stream[i].ended)
			return false;
	return true;
}

void remote_pump_close(struct remote_pump *p)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		stream_close(&p->stream[i]);
}
