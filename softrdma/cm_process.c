/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns what a process has of rdma_cm besides its channels: the memory, the file of ports, the handles of the objects. It is made with the first channel
 * and goes with the last one. Under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

struct cm_process *cm_process;
struct lock cm_lock;

uint32_t cm_random(void)
{
	uint32_t v = 0;

	RAW3(SYS_getrandom, &v, sizeof(v), 0);
	return v;
}

int cm_handle_take(void *object, uint32_t *ret_handle)
{
	struct cm_process *p = cm_process;
	uint32_t i;

	for (i = 0; i < CM_MAX_HANDLES; i++) {
		uint32_t h = (p->next_handle + i) % CM_MAX_HANDLES;

		if (p->object[h])
			continue;
		p->object[h] = object;
		p->next_handle = h + 1;
		*ret_handle = h;
		return 0;
	}
	return -ENOMEM;
}

void cm_handle_give(uint32_t handle)
{
	cm_process->object[handle] = NULL;
}

void *cm_handle_find(uint32_t handle, enum cm_kind kind)
{
	enum cm_kind *object = handle < CM_MAX_HANDLES ? cm_process->object[handle] : NULL;

	return object && *object == kind ? object : NULL;
}

static void *map_memory(size_t len)
{
	void *p = sr_memory.map(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void cm_process_free(struct cm_process *p)
{
	cm_net_stop(p->net);
	if (p->ports_fd >= 0)
		close(p->ports_fd);
	arena_free(&p->arena, p->object);
	arena_free(&p->arena, p->channel);
	arena_done(&p->arena);
	sr_memory.unmap(p, sizeof(*p));
}

static void patience_init(struct cm_process *p)
{
	const char *env = getenv("SOFTRDMA_CM_TIMEOUT");
	uint32_t s = 0;

	for (; env && *env >= '0' && *env <= '9' && s < 100000; env++)
		s = s * 10 + (uint32_t)(*env - '0');
	p->request_s = s ? s : CM_REQUEST_S;
	p->answer_s = s ? s : CM_ANSWER_S;
}

static int process_init(struct cm_process *p)
{
	char path[CM_DIR_MAX + 16];
	int err = sr_directory_find(p->dir);

	patience_init(p);
	if (err)
		return err;
	p->object = arena_alloc(&p->arena, CM_MAX_HANDLES * sizeof(*p->object));
	p->channel = arena_alloc(&p->arena, CM_MAX_FD * sizeof(*p->channel));
	if (!p->object || !p->channel)
		return -ENOMEM;
	fm_format(path, sizeof(path), "%s/cm-ports", p->dir);
	p->ports_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return p->ports_fd < 0 ? -errno : 0;
}

int cm_process_make(void)
{
	struct cm_process *p = map_memory(sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	log_name = "softrdma";
	p->ports_fd = -1;
	p->arena.map = map_memory;
	p->arena.unmap = sr_memory.unmap;
	list_init(&p->channels);
	list_init(&p->bound);
	err = process_init(p);
	if (err) {
		cm_process_free(p);
		return err;
	}
	cm_process = p;
	cm_port_sweep();
	return 0;
}
