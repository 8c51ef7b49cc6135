/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups of an id. A join is only an answer: which group an IP address is (RFC 4391, with the signature that
 * annex A11 gives to RDMA_PS_UDP; on the kernel's RoCE devices the address itself), and under which LID. librdmacm itself attaches the QP then. There is no subnet
 * manager, so a group's LID follows from its GID. Under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define MLID_FIRST 0xc000u
#define MLID_COUNT 0x3fffu /* 0xffff is the permissive one */

static void signature(const struct cm_id *id, uint8_t gid[16], uint8_t ip_version)
{
	gid[0] = 0xff;
	gid[1] = 0x12;
	gid[2] = ip_version == 4 ? 0x40 : 0x60;
	gid[3] = id->ps == RDMA_PS_UDP ? 0x01 : 0x1b;
	gid[4] = gid[5] = 0xff;
}

/* On RoCE it is the address; v1 has a multicast GID's prefix around one of IPv4. */
static int roce_gid(const struct cm_id *id, const union cm_addr *a, uint8_t gid[16])
{
	struct cm_place p;

	if (a->family == AF_IB)
		return -EINVAL;
	cm_place_of(id, &p);
	if (cm_address_any(a))
		return 0;
	cm_address_gid(a, gid);
	if (a->family == AF_INET && !p.v2) {
		gid[0] = 0xff;
		gid[1] = 0x0e;
	}
	return 0;
}

static int group_gid(const struct cm_id *id, const union cm_addr *a, uint8_t gid[16])
{
	static const uint8_t assigned[] = { 0xff, 0x10, 0xa0, 0x1b };

	memset(gid, 0, 16);
	if (cm_place_is_kernel())
		return roce_gid(id, a, gid);
	if (a->family == AF_IB) {
		memcpy(gid, a->ib.addr, 16);
	} else if (a->family == AF_INET6 && (cm_address_any(a) || !memcmp(&a->in6.sin6_addr, assigned, 4))) {
		memcpy(gid, &a->in6.sin6_addr, 16);
	} else if (a->family == AF_INET6) {
		signature(id, gid, 6);
		memcpy(gid + 6, a->in6.sin6_addr.s6_addr + 6, 10);
	} else if (a->family == AF_INET && !cm_address_any(a)) {
		signature(id, gid, 4);
		memcpy(gid + 12, &a->in.sin_addr, 4);
		gid[12] &= 0x0f;
	} else if (a->family != AF_INET) {
		return -EINVAL;
	}
	return 0;
}

static uint16_t group_lid(const uint8_t gid[16])
{
	uint32_t h = 0x811c9dc5u;
	size_t i;

	for (i = 0; i < 16; i++)
		h = (h ^ gid[i]) * 0x01000193u;
	return (uint16_t)(MLID_FIRST + h % MLID_COUNT);
}

static int joined_event(struct cm_mcast *mc)
{
	struct cm_event *ev = cm_event_new(mc->id, CM_EVENT_MULTICAST_JOIN, 0);
	struct rdma_ucm_ud_param *ud;
	uint8_t gid[16];

	if (!ev)
		return -ENOMEM;
	ud = &ev->resp.param.ud;
	group_gid(mc->id, &mc->addr, gid);
	ev->mcast = mc;
	ev->resp.uid = mc->uid;
	ev->resp.id = mc->handle;
	ud->qp_num = 0xffffff;
	ud->qkey = mc->id->ps == RDMA_PS_IPOIB ? CM_QKEY_IPOIB : CM_QKEY;
	cm_ah_fill(mc->id, &ud->ah_attr, cm_place_is_kernel() ? 0 : group_lid(gid), gid);
	cm_event_queue(ev);
	return 0;
}

/* RoCE v2's groups are IP's: the host takes what comes for them if somebody has said so to its interface. */
int cm_mcast_again(struct cm_mcast *mc)
{
	struct ip_mreq group = { .imr_multiaddr = mc->addr.in.sin_addr, .imr_interface = mc->id->src.in.sin_addr };
	int err;

	mc->sock = -1;
	if (!cm_place_is_kernel() || mc->addr.family != AF_INET || cm_address_any(&mc->addr) || mc->id->src.family != AF_INET)
		return 0;
	mc->sock = sr_socket(AF_INET, SOCK_DGRAM);
	if (mc->sock < 0)
		return mc->sock;
	err = (int)RAW5(SYS_setsockopt, mc->sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group));
	if (err == -ENODEV) { /* an address of another life, or any */
		group.imr_interface.s_addr = INADDR_ANY;
		err = (int)RAW5(SYS_setsockopt, mc->sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group));
	}
	if (err) {
		sr_close(mc->sock);
		mc->sock = -1;
	}
	return err;
}

void cm_mcast_free(struct cm_mcast *mc)
{
	sr_close(mc->sock);
	cm_event_drop(mc->id, mc);
	list_del(&mc->link);
	cm_handle_give(mc->handle);
	arena_free(&cm_process->arena, mc);
}

int cm_join(struct cm_id *id, const union cm_addr *a, uint64_t uid, uint32_t *ret_handle)
{
	struct cm_mcast *mc;
	uint8_t gid[16];
	int err = group_gid(id, a, gid);

	if (err)
		return err;
	if (!id->has_device || id->qp_type != IBV_QPT_UD ||
	    (id->state != CM_BOUND && id->state != CM_ADDR_RESOLVED && id->state != CM_ROUTE_RESOLVED))
		return -EINVAL;
	mc = arena_alloc(&cm_process->arena, sizeof(*mc));
	if (!mc || cm_handle_take(mc, &mc->handle)) {
		arena_free(&cm_process->arena, mc);
		return -ENOMEM;
	}
	mc->kind = CM_KIND_MCAST;
	mc->id = id;
	mc->uid = uid;
	mc->addr = *a;
	list_add_tail(&id->mcasts, &mc->link);
	err = cm_mcast_again(mc);
	err = err ? err : joined_event(mc);
	if (err)
		cm_mcast_free(mc);
	else
		*ret_handle = mc->handle;
	return err;
}

int cm_leave(struct cm_channel *ch, uint32_t handle, uint32_t *ret_reported)
{
	struct cm_mcast *mc = cm_handle_find(handle, CM_KIND_MCAST);

	if (!mc || mc->id->channel != ch)
		return -ENOENT;
	*ret_reported = mc->events_reported;
	cm_mcast_free(mc);
	return 0;
}
