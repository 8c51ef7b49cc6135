/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names in commands and answers of rdma_cm, after a restart: LIDs, GIDs and the device's GUID are of this life in the library, and as the
 * program knows them outside of it. Numbers of queue pairs are told from program to program, so they are the program's everywhere, and
 * ibv_modify_qp and the sends translate them. Handles are kept by the library itself.
 *
 * Ports of several hosts may have become this one's: then its LID and GID stand for more than one name that programs know. Where a queue pair is told with them it
 * is the one of the process at the other end, so its port's names are told, whether the queue pair is older than this life or not.
 *
 * Over softrdma all GIDs of a port that the program knows mean one, and the answer has to be the one that a RoCE device answers, the id's address's, as the place of its own
 * and as the other end's: both ends of a queue pair are of one kind of GID there, and the other end may be asking in another life, on such a device:
 *
 *      a   (over softrdma) INIT_QP_ATTR                           |            modify_qp, sends
 *      b                                       REQ, a's answer    |  (on RoCE) INIT_QP_ATTR, modify_qp, sends
 *
 * No state.
 */
#include <rdma/rdma_user_cm.h>

#include "plugins/verbs/verbs_cm.h"

#define AF_IB_FAMILY 27
#define IB_ADDRESS 8 /* where its GID stands in a struct sockaddr_ib */

/* The GID in a socket address of InfiniBand's own kind, or NULL: it is of another. */
static void *gid_in(void *address)
{
	uint16_t family;

	memcpy(&family, address, sizeof(family));
	return family == AF_IB_FAMILY ? (char *)address + IB_ADDRESS : NULL;
}

/* Of an id: its device's GUID, and the addresses of its ends as RoCE has them in GIDs. */
struct ends {
	uint64_t guid;
	union ibv_gid own, other;
};

static struct ends ends_of(int fd, uint32_t handle)
{
	struct ends e;

	e.guid = __builtin_bswap64(verbs_backend.softrdma_cm_ends(fd, handle, &e.own, &e.other));
	return e;
}

static void gid_virtual(void *raw, const union ibv_gid *as)
{
	union ibv_gid gid;

	memcpy(&gid, raw, sizeof(gid));
	verbs_gid_virtual_as(&gid, as);
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

static void address_real(void *address)
{
	void *raw = gid_in(address);
	union ibv_gid gid;

	if (!raw)
		return;
	memcpy(&gid, raw, sizeof(gid));
	verbs_gid_real(&gid);
	memcpy(raw, &gid, sizeof(gid));
}

size_t verbs_cm_command_real(void *command, size_t n)
{
	struct rdma_ucm_cmd_hdr h;
	char *in = (char *)command + sizeof(h);

	if (n < sizeof(h))
		return n;
	memcpy(&h, command, sizeof(h));
#define ADDRESS(type, member)                                             \
	do {                                                              \
		if (n >= sizeof(h) + sizeof(struct type))                 \
			address_real(in + offsetof(struct type, member)); \
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

static void route_virtual(struct rdma_ucm_query_route_resp *r, const struct ends *e)
{
	struct ib_user_path_rec *p = &r->ib_route[0];

	r->node_guid = guid_virtual(r->node_guid);
	p->slid = lid_be_virtual(p->sgid, p->slid);
	p->dlid = lid_be_virtual(p->dgid, p->dlid);
	gid_virtual(p->sgid, &e->own);
	gid_virtual(p->dgid, &e->other);
}

static void addresses_virtual(struct rdma_ucm_query_addr_resp *r, const struct ends *e)
{
	void *own = gid_in(&r->src_addr), *other = gid_in(&r->dst_addr);

	r->node_guid = guid_virtual(r->node_guid);
	if (own)
		gid_virtual(own, &e->own);
	if (other)
		gid_virtual(other, &e->other);
}

/* As the subnet administrator sends it: service id, two GIDs, two LIDs, each first the other end's. */
static void path_virtual(struct rdma_ucm_query_path_resp *r, const struct ends *e)
{
	char *record = (char *)r->path_data[0].path_rec;
	uint16_t lid[2];

	if (!r->num_paths)
		return;
	memcpy(lid, record + 40, sizeof(lid));
	lid[0] = lid_be_virtual(record + 8, lid[0]);
	lid[1] = lid_be_virtual(record + 24, lid[1]);
	memcpy(record + 40, lid, sizeof(lid));
	gid_virtual(record + 8, &e->other);
	gid_virtual(record + 24, &e->own);
}

/* The place in its port's table that the id's own GID has. */
static void index_virtual(struct ib_uverbs_ah_attr *ah, const struct ends *e)
{
	struct shadow_device *d;

	list_each(d, &verbs_devices, link)
		if (d->real && ah->port_num >= 1 && ah->port_num <= d->ports && VERBS_DEVICE(verbs_backend.ibv_get_device_guid(d->real)) == e->guid) {
			ah->grh.sgid_index = (uint8_t)verbs_gid_index_virtual(&d->port[ah->port_num], ah->grh.sgid_index, &e->own);
			return;
		}
}

static void ah_virtual(struct ib_uverbs_ah_attr *ah, const struct ends *e)
{
	union ibv_gid gid;

	memcpy(&gid, ah->grh.dgid, sizeof(gid));
	verbs_told_by_chance(&gid, (uint16_t)ah->dlid, &gid);
	ah->dlid = lid_virtual(ah->grh.dgid, (uint16_t)ah->dlid);
	gid_virtual(ah->grh.dgid, &e->other);
}

/* Only what comes of a service, or of a group, names a port. */
static void event_virtual(int fd, struct rdma_ucm_event_resp *r)
{
	struct ib_uverbs_ah_attr *ah = &r->param.ud.ah_attr;
	struct ends e;

	if ((r->event != VERBS_CM_ESTABLISHED && r->event != VERBS_CM_JOINED) || !ah->is_global || !ah->port_num)
		return;
	e = ends_of(fd, r->id);
	index_virtual(ah, &e);
	if (r->event == VERBS_CM_ESTABLISHED)
		ah_virtual(ah, &e);
}

static void query_virtual(void *answer, uint32_t option, const struct ends *e)
{
	if (option == RDMA_USER_CM_QUERY_PATH)
		path_virtual(answer, e);
	else
		addresses_virtual(answer, e);
}

/* @ah goes with a queue pair of the process at the other end of @id. */
static void attr_virtual(int fd, uint32_t id, struct ib_uverbs_qp_attr *attr)
{
	const struct ends e = ends_of(fd, id);
	union ibv_gid gid;
	uint16_t lid;

	if (attr->ah_attr.is_global)
		index_virtual(&attr->ah_attr, &e);
	memcpy(&gid, attr->ah_attr.grh.dgid, sizeof(gid));
	if (!verbs_peer_virtual(verbs_backend.softrdma_cm_peer(fd, id), &lid, &gid, &e.other)) {
		ah_virtual(&attr->ah_attr, &e);
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
	struct rdma_ucm_query query = { 0 };
	struct rdma_ucm_cmd_hdr h;
	struct ends e = { 0 };
	size_t len;

	memcpy(&h, command, sizeof(h));
	memcpy(&query, (const char *)command + sizeof(h), n - sizeof(h) < sizeof(query) ? n - sizeof(h) : sizeof(query));
	len = h.out < sizeof(a) ? h.out : sizeof(a);
	switch (h.cmd) { /* each of these begins with where its answer goes, and then the id, if it has one */
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
	case RDMA_USER_CM_CMD_QUERY:
		e = ends_of(fd, query.id);
		break;
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
	case RDMA_USER_CM_CMD_GET_EVENT:
		break;
	default:
		return;
	}
	memcpy(&a, (void *)(uintptr_t)query.response, len);
	if (h.cmd == RDMA_USER_CM_CMD_QUERY_ROUTE)
		route_virtual(&a.route, &e);
	else if (h.cmd == RDMA_USER_CM_CMD_QUERY)
		query_virtual(&a, query.option, &e);
	else if (h.cmd == RDMA_USER_CM_CMD_INIT_QP_ATTR)
		attr_virtual(fd, query.id, &a.attr);
	else
		event_virtual(fd, &a.event);
	memcpy((void *)(uintptr_t)query.response, &a, len);
}
