/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plugin's descriptor. A forked child inherits shadows whose device objects are its parent's, which RDMA does not support
 * beyond calls that the device itself answers: the child's checkpoints leave them out, and it opens devices of its own.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_table.h"
#include "plugins/verbs/verbs_write.h"

static void fork_prepare(void)
{
	verbs_devices_lock();
	lock_acquire(&verbs_lock);
}

static void fork_parent(void)
{
	lock_release(&verbs_lock);
	verbs_devices_unlock();
}

static void fork_child(void)
{
	struct shadow_context *c;

	list_each_safe(c, &verbs_contexts, link)
		list_del(&c->link);
	lock_release(&verbs_lock);
	verbs_devices_unlock();
	verbs_backend_forked();
}

static int quiesce(void)
{
	verbs_cm_quiesce();
	return verbs_plain_quiesce();
}

static int drain(unsigned int round)
{
	int r = verbs_drain(round), cm = r < 0 ? r : verbs_cm_drain(round);

	return cm ? cm : r;
}

static void resume(void)
{
	verbs_dm_resume();
	verbs_cm_resume();
}

static int numbers(int (*hold)(int fd))
{
	int r = verbs_numbers(hold);

	return r < 0 ? r : verbs_cm_numbers(hold);
}

static int recreate(const void *record, size_t len)
{
	int r = verbs_recreate(record, len);

	return r ? r : verbs_cm_recreate();
}

static int reconnect(void)
{
	int r = verbs_reconnect();

	return r ? r : verbs_cm_reconnect();
}

static int refill(void)
{
	int r = verbs_refill();

	return r ? r : verbs_cm_refill();
}

static void restarted(void)
{
	if (verbs_backend.handle && !verbs_backend.soft)
		fermata_libc_reserve(1); /* from now on: the life before may have been softrdma's */
	fermata_libc_return(verbs_backend.handle);
}

const struct fermata_plugin plugin_verbs = {
	.api = FERMATA_PLUGIN_API,
	.name = "verbs",
	.init = verbs_cm_init,
	.fork_prepare = fork_prepare,
	.fork_parent = fork_parent,
	.fork_child = fork_child,
	.quiesce = quiesce,
	.drain = drain,
	.dump = verbs_dump,
	.resume = resume,
	.numbers = numbers,
	.recreate = recreate,
	.learn = verbs_names_make,
	.reconnect = reconnect,
	.refill = refill,
	.restarted = restarted,
	.file_open = verbs_cm_open,
	.file_write = verbs_cm_write,
	.file_stat = verbs_cm_stat,
	.file_close = verbs_cm_close,
	.path_stat = verbs_path_stat,
	.device_write = verbs_device_write,
};
