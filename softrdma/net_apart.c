/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts of one machine, and one user, that cannot see each other's processes: in sibling pid namespaces (two containers with a common /dev/shm; two hosts of a
 * checkpoint that come back on one machine, each in namespaces of its own). Who executes a request has to reach the other's memory, and there is no name to reach it by. So
 * these speak to each other as contexts of two hosts do, over TCP, at this host's own address: the port follows from the index, and indices are this machine's,
 * so each name is one context's here, too.
 *
 *   seen          when the peer's segment is mapped: a cookie that is not found, and a pid that counts elsewhere. Both ends see it
 *   attached      when a queue pair moves to RTR, so by both ends, as to another host
 *   datagrams     by who sends; without a user's key a queue pair listens for them if there is such a context when it moves to RTR
 *   groups        are not heard
 *
 * Without a user's key there is one of this machine, in the shared directory, and the address is that of the loopback: who can read that directory could read the
 * segments as well. It is made without a lock: each word is whoever's was first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/net.h"

#define WORDS 4

static const uint8_t loopback[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };

void net_host_name(const struct sr_net *net, uint32_t host, uint8_t ret[16])
{
	if (host)
		net_name_fill(&net->ctx->host, host, ret);
	else
		memcpy(ret, net->gid, sizeof(net->gid));
}

static int key_shared(struct sr_context *ctx, uint64_t ret[WORDS])
{
	_Atomic uint64_t *words;
	void *page;
	int err = sr_shared_map(ctx, "key", FM_PAGE_SIZE, &page), i;

	if (err)
		return err;
	words = page;
	for (i = 0; i < WORDS && !err; i++) {
		uint64_t mine = 0, none = 0;

		if (RAW3(SYS_getrandom, &mine, sizeof(mine), 0) != sizeof(mine) || !mine)
			err = -EIO;
		else if (atomic_compare_exchange_strong(&words[i], &none, mine))
			ret[i] = mine;
		else
			ret[i] = none;
	}
	sr_memory.unmap(page, FM_PAGE_SIZE);
	return err;
}

/* Other threads see it when it listens. */
static int open_here(struct sr_context *ctx)
{
	uint64_t key[WORDS];
	int err = key_shared(ctx, key);
	struct sr_net *net = err ? NULL : net_make(ctx, (const uint8_t *)key, sizeof(key), loopback, 0);

	if (!net)
		return err ? err : -ENOMEM;
	err = net_claim(net, ctx->seg->index);
	if (err)
		net_discard(net);
	else
		ctx->net = net;
	return err;
}

static int need(struct sr_context *ctx)
{
	int err = 0;

	lock_acquire(&ctx->apart_lock);
	if (!ctx->net)
		err = open_here(ctx);
	lock_release(&ctx->apart_lock);
	return err;
}

void sr_net_attach_apart(struct sr_context *ctx, struct sr_qp *qp, uint16_t site)
{
	int err = need(ctx);

	if (err) {
		log_error("queue pair 0x%06x leads to a process of another pid namespace, and there is no way to it: error %d", qp->shm->qpn, -err);
		return;
	}
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	qp->shm->dest_qpn = 0;
	rlock_release(&qp->shm->sq_lock);
	qp->apart = site;
	sr_peer_put(ctx, atomic_exchange(&qp->peer, NULL));
	sr_net_attach(ctx, qp);
}

/* ---- datagrams ---- */

/* 1: a context of another pid namespace. */
static int is_elsewhere(const char *name, void *arg)
{
	struct sr_context *ctx = arg;
	char path[SR_PATH_MAX + 300];
	uint32_t pid_ns = 0;
	int fd;

	if (strncmp(name, "ctx-", 4))
		return 0;
	fm_format(path, sizeof(path), "%s/%s", ctx->dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	raw_pread(fd, &pid_ns, sizeof(pid_ns), offsetof(struct sr_seg, pid_ns));
	close(fd);
	return pid_ns && pid_ns != ctx->seg->pid_ns;
}

int sr_net_listen_apart(struct sr_context *ctx)
{
	return raw_dir_each(ctx->dir, is_elsewhere, ctx) == 1 && !need(ctx);
}

int sr_net_datagram_apart(struct sr_run *r, struct op *o, const struct sr_sender *from, const struct sr_peer *to, const struct sr_av *av)
{
	struct ibv_ah_attr a = { .dlid = av->dlid, .is_global = av->global };
	struct sr_sender s = *from;

	memcpy(a.grh.dgid.raw, av->dgid, sizeof(av->dgid));
	s.site = sr_site_of(r->ctx, to->seg, &a);
	return s.site && r->ctx->net ? sr_net_datagram(r, o, &s, 0) : IBV_WC_SUCCESS;
}
