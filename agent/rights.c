/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capabilities of the program's threads over a restart. A thread of a user who is not root comes without (restorer/thread.c): those that there are have been the capsule's, for the
 * rebuilding. One of root comes with all, and gives up here what it had not: what a program has given up of its sets, or of the one that bounds what it executes, stays given up. No state: what a
 * thread had is noted with it as it stops.
 *
 * A thread whose sets change has credentials of its own from then on, with which no driver takes what it writes to a device that another one has opened (plugins/verbs/verbs_write.c).
 */
#include <linux/capability.h>
#include <sys/prctl.h>

#include "agent/agent.h"

struct sets {
	struct __user_cap_data_struct low, high;
};

static struct __user_cap_header_struct header(void)
{
	return (struct __user_cap_header_struct){ _LINUX_CAPABILITY_VERSION_3, 0 };
}

/* Bit N: capability N may be had by what it executes. */
static uint64_t bounding(void)
{
	uint64_t set = 0;
	long r;

	for (unsigned int cap = 0; cap < 64 && (r = RAW5(SYS_prctl, PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		set |= (uint64_t)r << cap;
	return set;
}

void rights_note(struct rights *ret)
{
	struct __user_cap_header_struct h = header();
	struct sets s = { 0 };

	RAW2(SYS_capget, &h, &s);
	*ret = (struct rights){ .effective = (uint64_t)s.high.effective << 32 | s.low.effective,
				.permitted = (uint64_t)s.high.permitted << 32 | s.low.permitted,
				.inheritable = (uint64_t)s.high.inheritable << 32 | s.low.inheritable };
	if (RAW0(SYS_geteuid) == 0)
		ret->bounding = bounding();
}

static void set(const struct rights *r)
{
	struct __user_cap_header_struct h = header();
	struct sets s = { { (uint32_t)r->effective, (uint32_t)r->permitted, (uint32_t)r->inheritable },
			  { (uint32_t)(r->effective >> 32), (uint32_t)(r->permitted >> 32), (uint32_t)(r->inheritable >> 32) } };

	RAW2(SYS_capset, &h, &s);
}

void rights_drop(void)
{
	RAW5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	set(&(struct rights){ 0 });
}

void rights_restarted(const struct rights *had)
{
	struct rights now, again;

	rights_note(&now);
	for (unsigned int cap = 0; had->bounding && cap < 64; cap++)
		if ((now.bounding & ~had->bounding) >> cap & 1)
			RAW5(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
	again = (struct rights){ .effective = had->effective & now.permitted, .permitted = had->permitted & now.permitted,
				 .inheritable = had->inheritable & (now.inheritable | now.permitted) };
	if (again.effective == now.effective && again.permitted == now.permitted && again.inheritable == now.inheritable)
		return;
	agent.own_credentials = true;
	set(&again);
}
