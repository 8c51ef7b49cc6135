/* SPDX-License-Identifier: BSD-2-Clause */
/* Fault points. Owns the one that is armed: written by fault_init before threads exist, counted down atomically. */
#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/macro.h"
#include "base/sys.h"

#define FAULT_TEXT(name, text) text,
static const char *const fault_names[FAULT_COUNT] = { "none", FAULT_POINTS(FAULT_TEXT) };

static enum fault fault_armed;
static const struct {
	const char *text;
	int signal; /* 0: answers with an error; SIGCONT: waits for it */
} fault_actions[] = { { "=kill", SIGKILL }, { "=error", 0 }, { "=stop", SIGSTOP }, { "=hang", SIGCONT } };
static int fault_signal;
static _Atomic unsigned int fault_left;

const char *fault_name(enum fault at)
{
	return at < FAULT_COUNT ? fault_names[at] : NULL;
}

static enum fault fault_find(const char *name, size_t len)
{
	for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
		if (strlen(fault_names[i]) == len && !memcmp(fault_names[i], name, len))
			return (enum fault)i;
	return FAULT_NONE;
}

static int fault_find_action(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(fault_actions); i++)
		if (!strcmp(text, fault_actions[i].text))
			return (int)i;
	return -1;
}

int fault_init(const char *spec)
{
	size_t len = spec ? strcspn(spec, ":=") : 0;
	enum fault at = fault_find(spec, len);
	unsigned int count = 0;
	int action;

	fault_armed = FAULT_NONE;
	if (!len)
		return 0;
	spec += len;
	if (*spec == ':')
		while (*++spec >= '0' && *spec <= '9')
			count = count * 10 + (unsigned int)(*spec - '0');
	action = *spec ? fault_find_action(spec) : 0;
	if (at == FAULT_NONE || action < 0)
		return -EINVAL;
	fault_signal = fault_actions[action].signal;
	fault_left = count ? count : 1;
	fault_armed = at;
	return 0;
}

/* Not as one that is stopped, whom the coordinator lets run. All threads of the program have blocked what this one waits for. */
static void fault_hang(void)
{
	const uint64_t set = 1ull << (SIGCONT - 1);

	while (RAW4(SYS_rt_sigtimedwait, &set, NULL, NULL, RAW_SIGSET_SIZE) == -EINTR)
		;
}

int fault_point(enum fault at)
{
	if (at == FAULT_NONE || at != fault_armed || fault_left == 0 || atomic_fetch_sub(&fault_left, 1) != 1)
		return 0;
	if (!fault_signal)
		return -EIO;
	if (fault_signal == SIGCONT)
		fault_hang();
	else
		RAW3(SYS_tgkill, raw_getpid(), raw_gettid(), fault_signal); /* to this thread: another may take it later */
	return 0;
}
