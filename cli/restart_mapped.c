/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process's mappings are mapped from: one descriptor an object, however often and beside whatever else it is mapped, for a process may have 65,530 mappings
 * and far fewer descriptors. Runs in the new process, as restart_plan.c does. Owns the list of them, by objects; the descriptors live over exec.
 */
#include "cli/restart.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"

/* A descriptor, or -errno after it has said why. */
static int open_mapped(const struct restart_mapped *l, const struct image_mapping *m)
{
	const char *path = image_mapping_path(l->process->image, m);
	int fd = -ENOENT;

	if (m->kind == IMAGE_MAPPING_SHARED_FILE)
		fd = m->prot & PROT_WRITE ? raw_open_again(path, O_RDWR) : raw_open(path, O_RDWR, 0);
	if (fd < 0)
		fd = raw_open(path, O_RDONLY, 0);
	if (fd < 0) {
		errno = -fd;
		warn("process %u: mapped file %s", l->process->info->pid, path);
	}
	return fd;
}

static int inherit_shared(const struct restart_mapped *l, const struct image_mapping *m)
{
	int fd = dup(restart_shared_find(l->restart, m)->fd);

	if (fd >= 0)
		return fd;
	fd = -errno;
	warn("process %u: shared memory", l->process->info->pid);
	return fd;
}

/* @m can be made of what @o is. */
static bool serves(const struct restart_mapped *l, const struct image_mapping *o, const struct image_mapping *m)
{
	if (o->kind != m->kind || o->dev != m->dev || o->ino != m->ino)
		return false;
	if (m->kind == IMAGE_MAPPING_SHARED_ANON)
		return true;
	return (o->prot & PROT_WRITE || !(m->prot & PROT_WRITE)) && !strcmp(image_mapping_path(l->process->image, o), image_mapping_path(l->process->image, m));
}

int restart_mapped_begin(struct restart_mapped *l, const struct restart *r, const struct restart_process *p, size_t mappings)
{
	*l = (struct restart_mapped){ .restart = r, .process = p, .list = calloc(mappings + 1, sizeof(*l->list)) };
	return l->list ? 0 : -ENOMEM;
}

int restart_mapped_get(struct restart_mapped *l, const struct image_mapping *m, int *ret)
{
	uint32_t *head = &l->first[(m->ino ^ m->dev) % RESTART_MAPPED_LISTS];
	int fd;

	*ret = -1;
	if (m->kind != IMAGE_MAPPING_SHARED_ANON && m->kind != IMAGE_MAPPING_FILE && m->kind != IMAGE_MAPPING_SHARED_FILE)
		return 0;
	for (uint32_t i = *head; i; i = l->list[i].next)
		if (serves(l, l->list[i].mapping, m)) {
			*ret = l->list[i].fd;
			return 0;
		}
	fd = m->kind == IMAGE_MAPPING_SHARED_ANON ? inherit_shared(l, m) : open_mapped(l, m);
	if (fd < 0)
		return fd;
	l->list[++l->count] = (struct restart_mapped_object){ .mapping = m, .fd = *ret = fd, .next = *head };
	*head = l->count;
	return 0;
}
