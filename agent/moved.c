/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies somewhere else since a restart (fermata restart --map): records of descriptors have the paths of the checkpoint, and whoever opens one in a restart asks here what it is
 * now. Owns the rules, from the moment at which the restorer's pages go, where they have come in, to the end of the restart. What the agent itself keeps of paths
 * over checkpoints is mapped once, as it comes back (restart.c); a later checkpoint finds the paths of this life.
 */
#include "agent/agent.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/path_map.h"

static struct path_map moved;

int moved_restarted(void)
{
	const struct image_restart *r = &agent.restart;
	char *texts;

	moved = (struct path_map){ 0 };
	if (!r->path_map_length)
		return 0;
	texts = fermata_alloc(r->path_map_length);
	if (!texts)
		return -ENOMEM;
	memcpy(texts, (const char *)r->path_map, r->path_map_length);
	moved = (struct path_map){ texts, r->path_map_length };
	return 0;
}

void moved_end(void)
{
	fermata_free((void *)moved.texts);
	moved = (struct path_map){ 0 };
}

const char *fermata_path_now(const char *path, char *buf, size_t size)
{
	const char *now = path_map_apply(&moved, path, buf, size);

	if (!now)
		fermata_fail(-ENAMETOOLONG, "%s: where that is now (--map) is too long a path", path);
	return now;
}

int moved_in_place(char *path, size_t size)
{
	char buf[PATH_MAX];
	const char *now = path_map_apply(&moved, path, buf, size < sizeof(buf) ? size : sizeof(buf));

	if (!now)
		return -ENAMETOOLONG;
	if (now == buf)
		memcpy(path, buf, strlen(buf) + 1);
	return 0;
}
