/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_pair.h"

#include <poll.h>
#include <setjmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct end e;

/* As a killed process leaves rdma_cm: no descriptor of it is open. The library is not told. */
static void cm_drop(void)
{
	int type, fd;

	for (fd = -1; verbs_backend.softrdma_cm_next && (fd = verbs_backend.softrdma_cm_next(fd)) >= 0;)
		raw_close(fd);
	for (fd = 3; fd < 1024; fd++) {
		socklen_t len = sizeof(type);
		char link[32], to[64] = "";

		fm_format(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (readlink(link, to, sizeof(to) - 1) > 0 && (strstr(to, "/cm-ports") || (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) &&
											  type == SOCK_SEQPACKET)))
			raw_close(fd);
	}
}

static void device_drop(void)
{
	struct shadow_context *c;
	struct shadow_channel *ch;
	struct shadow_mr *mr;
	struct shadow_mw *mw;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	struct shadow_xrcd *x;
	struct shadow_srq *srq;
	struct verbs_group *g;
	struct shadow_ah *ah;
	struct shadow_td *td;
	struct shadow_dm *dm;
	struct shadow_pd *pd;

	cm_drop();
	fermata_device_enter();
	for_each_context(c) {
		list_each(qp, &c->qps, link) {
			list_each(g, &qp->groups, link)
				die_unless(!verbs_backend.ibv_detach_mcast(qp->real, &g->gid, g->lid));
			die_unless(!qp->real || !verbs_backend.ibv_destroy_qp(qp->real));
			die_unless(!qp->nobody || !verbs_backend.ibv_destroy_ah(qp->nobody));
		}
		list_each(ah, &c->ahs, link)
			die_unless(!verbs_backend.ibv_destroy_ah(ah->real));
		list_each(srq, &c->srqs, link)
			die_unless(!verbs_backend.ibv_destroy_srq(srq->real));
		list_each(x, &c->xrcds, link)
			die_unless(!VERBS_REAL_OP(c->real, close_xrcd)(x->real));
		list_each(cq, &c->cqs, link)
			die_unless(!verbs_backend.ibv_destroy_cq(cq->real));
		list_each(ch, &c->channels, link)
			die_unless(!verbs_backend.ibv_destroy_comp_channel(ch->real));
		list_each(mw, &c->mws, link)
			die_unless(!mw->real->context->ops.dealloc_mw(mw->real));
		list_each(mr, &c->mrs, link)
			die_unless(!verbs_backend.ibv_dereg_mr(mr->real));
		for (int parents = 1; parents >= 0; parents--)
			list_each(pd, &c->pds, link)
				die_unless(pd->parent != parents || !verbs_backend.ibv_dealloc_pd(pd->real));
		list_each(td, &c->tds, link)
			die_unless(!VERBS_REAL_OP(c->real, dealloc_td)(td->real));
		list_each(dm, &c->dms, link)
			die_unless(!VERBS_REAL_OP(c->real, free_dm)(dm->real));
		die_unless(!verbs_backend.ibv_close_device(c->real));
	}
	fermata_device_leave();
}

void pair_checkpoint(void)
{
	size_t before = fake_host_sunk();

	die_unless(!fake_host_checkpoint(&plugin_verbs));
	die_unless(fake_host_sunk() > before);
}

void pair_restart(void)
{
	device_drop();
	fake_host_barrier();
	die_unless(!fake_host_restart(&plugin_verbs));
}

void pair_run(int (*a)(int), int (*b)(int))
{
	int sock[2];
	pid_t pa, pb;

	fake_host_init(2);
	alarm(50);
	pa = spawn_end(a, &sock[0]);
	pb = spawn_end(b, &sock[1]);
	for (;;) { /* carry the children's words to each other */
		struct pollfd p[2] = { { sock[0], POLLIN, 0 }, { sock[1], POLLIN, 0 } };
		char buf[4096];

		poll(p, 2, -1);
		for (int i = 0; i < 2; i++) {
			ssize_t n = p[i].revents ? read(sock[i], buf, sizeof(buf)) : 0;

			if (n > 0 && write(sock[!i], buf, (size_t)n) != n)
				break;
			if (p[i].revents && n <= 0)
				goto over;
		}
	}
over:
	assert_int_equal(reap(pa), 0);
	assert_int_equal(reap(pb), 0);
	close(sock[0]);
	close(sock[1]);
	alarm(0);
}

void pair_begin(int sock, int qps)
{
	alarm(45);
	end_open_connected(&e, qps, SIZE, sock);
}

int pair_over(void)
{
	fake_host_barrier();
	end_close(&e);
	fake_host_barrier();
	return 0;
}
