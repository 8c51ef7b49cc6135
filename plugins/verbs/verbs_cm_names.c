/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names in commands and answers of rdma_cm, after a restart: LIDs, GIDs and the device's GUID are of this life in the library, and as the
 * program knows them outside of it. Numbers of queue pairs are told from program to program, so they are the program's everywhere, and
 * ibv_modify_qp and the sends translate them. Handles are kept by the library itself.
 *
 * Ports of several hosts may have become this one's: then its LID and GID stand for more than one name that programs know. Where a queue pair is told with them it
 * is the one of the process at the other end, so its port's names are told: another host may have had a queue pair of that number. No state.
 */
#include <rdma/rdma_user_cm.h>

#include "plugins/verbs/verbs_cm.h"

#define AF_IB_FAMILY 27
#define IB_ADDRESS 8 /* where its GID stands in a struct sockaddr_ib */

/* The GID in a socket address of InfiniBand's own kind. */
static void address_change(void *address, void (*change)(union ibv_gid *gid))
{
	union ibv_gid gid;
	uint16_t family;

	memcpy(&family, address, sizeof(family));
	if (family != AF_IB_FAMILY)
		return;
	memcpy(&gid, (char *)address + IB_ADDRESS, sizeof(gid));
	change(&gid);
	memcpy((char *)address + IB_ADDRESS, &gid, sizeof(gid));
}

static void gid_virtual(uint8_t raw[16])
{
	union ibv_gid gid;

	memcpy(&gid, raw, sizeof(gid));
	verbs_gid_virtual(&gid);
	memcpy(raw, &gid, sizeof(gid));
}

/* @gid: the port's, still as the device knows it. */
static uint16_t lid_virtual(const void *gid, uint16_t lid)
{
	union ibv_gid in_subnet;

	memcpy(&in_subnet, gid, sizeof(in_subnet));
	return verbs_lid_virtual(&in_subnet, lid);
}

static uint16_t lid_be_virtual(const void *gid, uint16_t lid)
{
	return __builtin_bswap16(lid_virtual(gid, __builtin_bswap16(lid)));
}

static uint64_t guid_virtual(uint64_t guid)
{
	struct shadow_device *d;

	list_each(d, &verbs_devices, link)
		if (d->real && VERBS_DEVICE(verbs_backend.ibv_get_device_guid(d->real)) == guid)
			return d->guid;
	return guid;
}

/* ---- commands ---- */

size_t verbs_cm_command_real(void *command, size_t n)
{
	struct rdma_ucm_cmd_hdr h;
	char *in = (char *)command + sizeof(h);

	if (n < sizeof(h))
		return n;
	memcpy(&h, command, sizeof(h));
#define ADDRESS(type, member)                                                              \
	do {                                                                               \
		if (n >= sizeof(h) + sizeof(struct type))                                  \
			address_change(in + offsetof(struct type, member), verbs_gid_real); \
	} while (0)
	switch (h.cmd) {
	case RDMA_USER_CM_CMD_BIND:
		ADDRESS(rdma_ucm_bind, addr);
		break;
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
		ADDRESS(rdma_ucm_resolve_addr, src_addr);
		ADDRESS(rdma_ucm_resolve_addr, dst_addr);
		break;
	default: /* older commands have no room for such an address; a group's is not a port's */
		break;
	}
#undef ADDRESS
	return n;
}

/* ---- answers ---- */

static void route_virtual(struct rdma_ucm_query_route_resp *r)
{
	struct ib_user_path_rec *p = &r->ib_route[0];

	r->node_guid = guid_virtual(r->node_guid);
	p->slid = lid_be_virtual(p->sgid, p->slid);
	p->dlid = lid_be_virtual(p->dgid, p->dlid);
	gid_virtual(p->sgid);
	gid_virtual(p->dgid);
}

static void addresses_virtual(struct rdma_ucm_query_addr_resp *r)
{
	r->node_guid = guid_virtual(r->node_guid);
	address_change(&r->src_addr, verbs_gid_virtual);
	address_change(&r->dst_addr, verbs_gid_virtual);
}

/* As the subnet administrator sends it: service id, two GIDs, two LIDs. */
static void path_virtual(struct rdma_ucm_query_path_resp *r)
{
	char *record = (char *)r->path_data[0].path_rec;
	uint16_t lid[2];

	if (!r->num_paths)
		return;
	memcpy(lid, record + 40, sizeof(lid));
	lid[0] = lid_be_virtual(record + 8, lid[0]);
	lid[1] = lid_be_virtual(record + 24, lid[1]);
	memcpy(record + 40, lid, sizeof(lid));
	gid_virtual((uint8_t *)record + 8);
	gid_virtual((uint8_t *)record + 24);
}

/* The place in its port's table that a handle's own GID has. */
static void index_virtual(int fd, uint32_t handle, struct ib_uverbs_ah_attr *ah)
{
	uint64_t guid = __builtin_bswap64(verbs_backend.softrdma_cm_guid(fd, handle));
	struct shadow_device *d;

	list_each(d, &verbs_devices, link)
		if (d->real && ah->port_num >= 1 && ah->port_num <= d->ports && VERBS_DEVICE(verbs_backend.ibv_get_device_guid(d->real)) == guid) {
			ah->grh.sgid_index = (uint8_t)verbs_gid_index_virtual(&d->port[ah->port_num], ah->grh.sgid_index);
			return;
		}
}

static void ah_virtual(struct ib_uverbs_ah_attr *ah)
{
	ah->dlid = lid_virtual(ah->grh.dgid, (uint16_t)ah->dlid);
	gid_virtual(ah->grh.dgid);
}

/* Only what comes of a service, or of a group, names a port. */
static void event_virtual(int fd, struct rdma_ucm_event_resp *r)
{
	struct ib_uverbs_ah_attr *ah = &r->param.ud.ah_attr;

	if ((r->event != VERBS_CM_ESTABLISHED && r->event != VERBS_CM_JOINED) || !ah->is_global || !ah->port_num)
		return;
	index_virtual(fd, r->id, ah);
	if (r->event == VERBS_CM_ESTABLISHED)
		ah_virtual(ah);
}

static void query_virtual(void *answer, uint32_t option)
{
	if (option == RDMA_USER_CM_QUERY_PATH)
		path_virtual(answer);
	else
		addresses_virtual(answer);
}

/* @ah goes with a queue pair of the process at the other end of @id. */
static void attr_virtual(int fd, uint32_t id, struct ib_uverbs_qp_attr *attr)
{
	union ibv_gid gid;
	uint16_t lid;

	if (attr->ah_attr.is_global)
		index_virtual(fd, id, &attr->ah_attr);
	memcpy(&gid, attr->ah_attr.grh.dgid, sizeof(gid));
	if (!verbs_peer_virtual(attr->dest_qp_num, verbs_backend.softrdma_cm_peer(fd, id), &lid, &gid)) {
		ah_virtual(&attr->ah_attr);
		return;
	}
	attr->ah_attr.dlid = lid;
	memcpy(attr->ah_attr.grh.dgid, &gid, sizeof(gid));
}

void verbs_cm_answer_virtual(int fd, const void *command, size_t n)
{
	union {
		struct rdma_ucm_query_route_resp route;
		struct rdma_ucm_query_addr_resp addresses;
		struct rdma_ucm_query_path_resp path;
		struct rdma_ucm_event_resp event;
		struct ib_uverbs_qp_attr attr;
		char room[1024];
	} a = { .room = { 0 } };
	struct rdma_ucm_init_qp_attr attr = { 0 };
	struct rdma_ucm_query query = { 0 };
	struct rdma_ucm_cmd_hdr h;
	size_t len;

	memcpy(&h, command, sizeof(h));
	memcpy(&query, (const char *)command + sizeof(h), n - sizeof(h) < sizeof(query) ? n - sizeof(h) : sizeof(query));
	memcpy(&attr, (const char *)command + sizeof(h), n - sizeof(h) < sizeof(attr) ? n - sizeof(h) : sizeof(attr));
	len = h.out < sizeof(a) ? h.out : sizeof(a);
	switch (h.cmd) { /* each of these begins with where its answer goes */
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
	case RDMA_USER_CM_CMD_QUERY:
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
	case RDMA_USER_CM_CMD_GET_EVENT:
		break;
	default:
		return;
	}
	memcpy(&a, (void *)(uintptr_t)query.response, len);
	if (h.cmd == RDMA_USER_CM_CMD_QUERY_ROUTE)
		route_virtual(&a.route);
	else if (h.cmd == RDMA_USER_CM_CMD_QUERY)
		query_virtual(&a, query.option);
	else if (h.cmd == RDMA_USER_CM_CMD_INIT_QP_ATTR)
		attr_virtual(fd, attr.id, &a.attr);
	else
		event_virtual(fd, &a.event);
	memcpy((void *)(uintptr_t)query.response, &a, len);
}
