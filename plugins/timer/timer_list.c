/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which timers there are: the kernel lists them by blocks of four lines in /proc/self/timers (CONFIG_CHECKPOINT_RESTORE),
 *
 *	ID: 3
 *	signal: 34/00007ffe12345678		sigev_signo, sigev_value
 *	notify: signal/tid.4711			or none, thread; pid.N: the process
 *	ClockID: 1
 *
 * the newest first. No state.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/timer/timer.h"

#define TEXT_FIRST 4096u
#define CLOCK_OF_CALLER (-2) /* libc's CLOCK_THREAD_CPUTIME_ID as the kernel has it */

static int read_text(char **ret)
{
	long n;

	for (size_t size = TEXT_FIRST;; size *= 2) {
		*ret = fermata_alloc(size);
		n = *ret ? raw_read_file("/proc/self/timers", *ret, size) : -ENOMEM;
		if (n >= 0)
			return 0;
		fermata_free(*ret);
		*ret = NULL;
		if (n == -ENOENT) /* there are none then: phase.c */
			return 0;
		if (n != -EFBIG)
			return fermata_fail((int)n, "the timers of process %u cannot be listed (errno %ld)", fermata_pid(), -n);
	}
}

static uint64_t number(const char **p, unsigned int base)
{
	uint64_t v = 0;

	for (;; (*p)++) {
		unsigned int digit = **p >= 'a' ? (unsigned int)(**p - 'a') + 10 : (unsigned int)(**p - '0');

		if (digit >= base)
			return v;
		v = v * base + digit;
	}
}

/* Moves *p behind the next @word; 0 where there is none. */
static int find(const char **p, const char *word)
{
	const char *at = strstr(*p, word);

	if (at)
		*p = at + strlen(word);
	return at != NULL;
}

static uint32_t notify_of(const char *p)
{
	return *p == 'n' ? SIGEV_NONE : *p == 't' ? SIGEV_THREAD : SIGEV_SIGNAL;
}

/* One block; *p ends behind it. */
static int parse(const char **p, struct timer_entry *e)
{
	e->id = (int32_t)number(p, 10);
	if (!find(p, "signal: "))
		return -EBADMSG;
	e->signal = (uint32_t)number(p, 10);
	*p += **p == '/';
	e->value = number(p, 16);
	if (!find(p, "notify: "))
		return -EBADMSG;
	e->notify = notify_of(*p);
	if (!find(p, "/") || !find(p, "id."))
		return -EBADMSG;
	e->flags = (*p)[-4] == 't' ? TIMER_THREAD : 0;
	e->tid = (uint32_t)number(p, 10);
	if (!find(p, "ClockID: "))
		return -EBADMSG;
	e->clock = **p == '-' ? (++*p, -(int32_t)number(p, 10)) : (int32_t)number(p, 10);
	return 0;
}

static int check(const struct timer_entry *e)
{
	if (e->clock == CLOCK_OF_CALLER || e->clock == CLOCK_THREAD_CPUTIME_ID)
		return fermata_fail(-EOPNOTSUPP, "timer %d measures the processor time of the thread that made it by a system call of its own, "
				    "and nothing says which one: give it the thread's clock (pthread_getcpuclockid)", e->id);
	return 0;
}

static uint32_t count_blocks(const char *p)
{
	uint32_t n = 0;

	while (find(&p, "ClockID: "))
		n++;
	return n;
}

/* Nearly in order when it is turned round. */
static void sort(struct timer *t, uint32_t n)
{
	for (uint32_t i = 0; i < n / 2; i++) {
		struct timer one = t[i];

		t[i] = t[n - 1 - i];
		t[n - 1 - i] = one;
	}
	for (uint32_t i = 1; i < n; i++) {
		struct timer one = t[i];
		uint32_t at = i;

		for (; at && t[at - 1].entry.id > one.entry.id; at--)
			t[at] = t[at - 1];
		t[at] = one;
	}
}

static int parse_all(const char *p, struct timer *t, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && !r; i++) {
		r = find(&p, "ID: ") ? parse(&p, &t[i].entry) : -EBADMSG;
		r = r ? fermata_fail(r, "/proc/self/timers of process %u is not as expected", fermata_pid()) : check(&t[i].entry);
	}
	sort(t, n);
	return r;
}

int timer_list(struct timer **ret, uint32_t *ret_count)
{
	char *text;
	int r = read_text(&text);
	uint32_t n = r || !text ? 0 : count_blocks(text);

	*ret = NULL;
	*ret_count = 0;
	if (n) {
		*ret = fermata_alloc(n * sizeof(**ret));
		r = *ret ? parse_all(text, *ret, n) : fermata_fail(-ENOMEM, "no memory to list %u timers", n);
	}
	fermata_free(text);
	if (!r)
		*ret_count = n;
	return r;
}
