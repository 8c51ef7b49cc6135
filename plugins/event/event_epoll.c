/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoll sets: what they watch, by number. The kernel watches an open file under the number that it had when it was added; if that number
 * has been closed since while a duplicate keeps the file open, nothing can name it any more, and the checkpoint is refused. If that is so in one process that has the set, but not in another (a child has closed what its
 * parent's set watches), the other one leads it. That is asked by
 * kcmp(2), so a number that has become another file is not taken for the old one. Where kcmp is refused, by adding it once more: what the set has under that
 * number and file, and nothing else, is there already (EEXIST), and stays as it was. Of two of one number one is old; what another process that has the set adds meanwhile to ask, and takes
 * out at once, is told by its data, and none of the set's.
 *
 * An EPOLLONESHOT that has fired watches nothing until it is armed again, but adding one always watches for errors and hang-ups. So those come first, into an empty
 * set, watching everything, and are told of at once: what is ready for anything stands disarmed again. One that is ready for nothing watches for errors and
 * hang-ups until its next arming. No state.
 */
#include <errno.h>
#include <linux/kcmp.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fdpass.h"
#include "base/sys.h"
#include "plugins/event/event.h"

#define PRIVATE ((uint32_t)(EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE))
#define TOLD 64
#define ASKS 0x9b5fd1c4a7e3602bull /* the data of what is there only to ask */

static int parse(const char *line, struct event_interest *ret)
{
	const char *events = strstr(line, "events:"), *data = strstr(line, "data:");

	if (!events || !data)
		return -EOPNOTSUPP;
	ret->fd = (int32_t)event_number(line, 10);
	ret->events = (uint32_t)event_number(events + 7, 16);
	ret->data = event_number(data + 5, 16);
	return 0;
}

/* Whether the file that the set watches as the @nth number @fd is what @fd is now. */
static int is_current(int set, int fd, uint32_t nth)
{
	struct kcmp_epoll_slot slot = { .efd = (uint32_t)set, .tfd = (uint32_t)fd, .toff = nth };
	struct epoll_event nothing = { .events = 0, .data.u64 = ASKS };
	long r = RAW5(SYS_kcmp, raw_gettid(), raw_gettid(), KCMP_EPOLL_TFD, fd, &slot);

	if (!fdpass_is_refused(r))
		return r == 0;
	r = nth ? -EINVAL : RAW4(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &nothing);
	if (r == 0)
		RAW4(SYS_epoll_ctl, set, EPOLL_CTL_DEL, fd, &nothing);
	return r == -EEXIST;
}

/* Numbers come in the order of their files: entries of one number need not be neighbours. */
static uint32_t same_before(const struct event_interest *all, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		n += all[i].fd == all[count].fd;
	return n;
}

struct set { /* what it watches */
	struct event_interest *all;
	uint32_t count, stale; /* the first of a file that is not under its number here: count, if there is none */
};

/* Of few numbers there are two: only then is it looked for the others. */
static int find_stale(int set, struct set *s)
{
	uint64_t *seen;
	int32_t most = 0;

	for (uint32_t i = 0; i < s->count; i++)
		most = s->all[i].fd > most ? s->all[i].fd : most;
	seen = fermata_alloc(((size_t)most / 64 + 1) * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	memset(seen, 0, ((size_t)most / 64 + 1) * sizeof(*seen));
	for (s->stale = 0; s->stale < s->count; s->stale++) {
		int32_t fd = s->all[s->stale].fd;
		uint64_t *word = &seen[fd / 64], bit = 1ull << (fd % 64);

		if (!is_current(set, fd, *word & bit ? same_before(s->all, s->stale) : 0))
			break;
		*word |= bit;
	}
	fermata_free(seen);
	return 0;
}

static uint32_t lines(const char *text)
{
	uint32_t n = 1;

	while ((text = strchr(text, '\n'))) {
		text++;
		n++;
	}
	return n;
}

/* ret->all is the caller's to free. 0 or -errno, said. */
static int read_set(const struct fermata_desc *d, struct set *ret)
{
	const char *at;
	char *text;
	int r = event_fdinfo(d->fd, &text);

	*ret = (struct set){ NULL, 0, 0 };
	if (r)
		return r;
	ret->all = fermata_alloc(lines(text) * sizeof(*ret->all));
	for (at = text; ret->all && !r && (at = event_field(at, "tfd:"));) {
		r = parse(at, &ret->all[ret->count]);
		ret->count += ret->all[ret->count].data != ASKS;
	}
	if (r)
		r = fermata_fail(r, "fd %d: the kernel does not tell what an epoll set watches", d->fd);
	else if (!ret->all || find_stale(d->fd, ret))
		r = fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	fermata_free(text);
	return r;
}

int event_epoll_check(struct fermata_desc *d)
{
	struct set s;
	int r = read_set(d, &s);

	d->partial = s.stale < s.count;
	fermata_free(s.all);
	return r;
}

int event_epoll_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct event_epoll record = { .head = { EVENT_RECORD_VERSION, EVENT_EPOLL } };
	struct set s;
	int r = read_set(d, &s);

	record.count = s.count;
	if (!r && s.stale < s.count)
		r = fermata_fail(-EOPNOTSUPP, "fd %d: the epoll set watches a file that was fd %d and is so no longer, which is not "
				 "supported: take a descriptor out of the set before it is closed", d->fd, s.all[s.stale].fd);
	if (!r)
		r = fermata_sink_write(sink, &record, sizeof(record));
	if (!r && record.count)
		r = fermata_sink_write(sink, s.all, record.count * sizeof(*s.all));
	fermata_free(s.all);
	return r;
}

static int control(const struct fermata_desc *d, int op, const struct event_interest *e, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = e->data };
	int r = (int)RAW4(SYS_epoll_ctl, d->fd, op, e->fd, &event);

	return r < 0 ? fermata_fail(r, "fd %d: fd %d cannot be put back into the epoll set (errno %d)", d->fd, e->fd, -r) : 0;
}

static int is_disarmed(const struct event_interest *e)
{
	return e->events & EPOLLONESHOT && !(e->events & ~PRIVATE);
}

static int add_disarmed(const struct fermata_desc *d, const struct event_interest *all, uint32_t count)
{
	const uint32_t anything = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;
	struct epoll_event told[TOLD];
	uint32_t added = 0;
	int r = 0;

	for (uint32_t i = 0; i < count && !r; i++) {
		if (!is_disarmed(&all[i]))
			continue;
		r = control(d, EPOLL_CTL_ADD, &all[i], all[i].events | anything);
		added++;
	}
	for (long n = TOLD; added && !r && n == TOLD;)
		n = RAW6(SYS_epoll_pwait, d->fd, told, TOLD, 0, NULL, RAW_SIGSET_SIZE);
	return r;
}

/* Those that were not ready lose what they do not watch; the others are disarmed, and stay it. */
static int rest_disarmed(const struct fermata_desc *d)
{
	char *text;
	int r = event_fdinfo(d->fd, &text);
	struct event_interest now;

	if (r)
		return r;
	for (const char *line = text; !r && (line = event_field(line, "tfd:"));) {
		r = parse(line, &now);
		if (!r && !is_disarmed(&now))
			r = control(d, EPOLL_CTL_MOD, &now, now.events & PRIVATE);
	}
	fermata_free(text);
	return r;
}

int event_epoll_refill(struct fermata_desc *d, const struct event_epoll *record)
{
	const struct event_interest *all = (const struct event_interest *)(record + 1);
	int r = add_disarmed(d, all, record->count);

	if (!r)
		r = rest_disarmed(d);
	for (uint32_t i = 0; i < record->count && !r; i++)
		if (!is_disarmed(&all[i]))
			r = control(d, EPOLL_CTL_ADD, &all[i], all[i].events);
	return r;
}
