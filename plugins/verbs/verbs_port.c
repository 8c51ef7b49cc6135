/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ports of a device: the virtual LID and GIDs that the program is told, and what is behind them in this life. What it was told first stays what it is told. In a job that
 * has moved already it is told what the others were: what a port is called by one (rdma_cm, the sender of a datagram) is what its own process publishes at the next
 * checkpoint.
 */
#include "plugins/verbs/verbs_internal.h"

#define COMPAT_PORT_ATTR 48 /* bytes of the port attributes that the exported ibv_query_port may write */
#define ENTRIES_MAX 4096 /* of all ports' tables */

int verbs_real_query_port(struct ibv_context *real, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct verbs_context *v = verbs_get_ctx_op(real, query_port);

	if (v)
		return v->query_port(real, port, attr, len);
	if (!verbs_backend.ibv_query_port)
		return EOPNOTSUPP;
	memset(attr, 0, len);
	return verbs_backend.ibv_query_port(real, port, (struct _compat_ibv_port_attr *)attr);
}

/* ---- what the ports are ---- */

/* What the device says of its ports, by their numbers. */
struct found {
	unsigned int count;
	struct ibv_port_attr attr[VERBS_PORTS + 1];
	struct verbs_port port[VERBS_PORTS + 1];
};

static void gid_take(struct found *f, const struct ibv_gid_entry *e)
{
	struct verbs_port *p = e->port_num <= f->count ? &f->port[e->port_num] : NULL;

	if (!p || e->gid_index >= VERBS_GIDS || !e->gid.global.interface_id)
		return;
	p->real_gid[e->gid_index] = e->gid;
	p->real_kind[e->gid_index] = verbs_gid_kind(&e->gid, e->gid_type);
}

/* @count: the length of the tables of all ports. 0: the device's library cannot say it so. */
static int gids_read_table(struct found *f, struct ibv_context *real, size_t count)
{
	struct ibv_gid_entry *all = verbs_backend._ibv_query_gid_table ? fermata_alloc(count * sizeof(*all)) : NULL;
	ssize_t n = all ? verbs_backend._ibv_query_gid_table(real, all, count, 0, sizeof(*all)) : -1;

	for (ssize_t i = 0; i < n; i++)
		gid_take(f, &all[i]);
	fermata_free(all);
	return n >= 0;
}

static void gids_read(struct found *f, struct ibv_context *real, unsigned int port)
{
	const int length = f->attr[port].gid_tbl_len < (int)VERBS_GIDS ? f->attr[port].gid_tbl_len : (int)VERBS_GIDS;
	struct ibv_gid_entry e = { .port_num = port };

	for (int i = 0; verbs_backend.ibv_query_gid && i < length; i++) {
		if (verbs_backend.ibv_query_gid(real, (uint8_t)port, i, &e.gid))
			break;
		e.gid_index = (uint32_t)i;
		gid_take(f, &e);
	}
}

static void port_read(struct found *f, struct ibv_context *real, unsigned int number)
{
	struct ibv_port_attr *attr = &f->attr[number];
	struct verbs_port *p = &f->port[number];

	if (verbs_real_query_port(real, (uint8_t)number, attr, sizeof(*attr)))
		memset(attr, 0, sizeof(*attr));
	p->real_lid = attr->lid;
	p->real_lmc = attr->lmc & 7;
	p->real_mtu = (uint8_t)attr->active_mtu;
	verbs_pkeys_read(p, real, number, attr->pkey_tbl_len);
}

/* @phys: the ports that the device has. */
static void ports_find(struct found *f, struct ibv_context *real, unsigned int phys)
{
	size_t entries = 0;

	f->count = phys < VERBS_PORTS ? phys : VERBS_PORTS;
	for (unsigned int i = 1; i <= f->count; i++) {
		port_read(f, real, i);
		entries += f->attr[i].gid_tbl_len > 0 ? (size_t)f->attr[i].gid_tbl_len : 0;
	}
	if (phys > VERBS_PORTS || entries > ENTRIES_MAX)
		entries = ENTRIES_MAX;
	if (!gids_read_table(f, real, entries))
		for (unsigned int i = 1; i <= f->count; i++)
			gids_read(f, real, i);
}

/* What is there now. Written over what there was, of which most is the same: threads may be reading it. */
static void port_take(struct verbs_port *p, const struct verbs_port *found)
{
	p->real_lid = found->real_lid;
	p->real_lmc = found->real_lmc;
	p->real_mtu = found->real_mtu;
	memcpy(p->real_gid, found->real_gid, sizeof(p->real_gid));
	memcpy(p->real_kind, found->real_kind, sizeof(p->real_kind));
	memcpy(p->real_pkey, found->real_pkey, sizeof(p->real_pkey));
}

/* What the port is called: the job may know it by older names already, from other processes. */
static void port_name(struct verbs_port *p, const struct ibv_port_attr *attr)
{
	uint16_t lid = verbs_lid_virtual(&p->real_gid[0], p->real_lid);

	p->link_layer = attr->link_layer;
	p->gid_count = attr->gid_tbl_len;
	p->virtual_lid = lid ? lid : p->real_lid; /* 0: there were no LIDs */
	p->virtual_lmc = p->real_lmc;
	memcpy(p->virtual_gid, p->real_gid, sizeof(p->virtual_gid));
	memcpy(p->virtual_kind, p->real_kind, sizeof(p->virtual_kind));
	for (int i = 0; i < VERBS_GIDS; i++)
		verbs_gid_virtual(&p->virtual_gid[i]);
	verbs_pkeys_name(p, attr->pkey_tbl_len);
}

int verbs_ports_read(struct shadow_device *d, struct ibv_context *real, int restarted)
{
	struct found *f = fermata_alloc(sizeof(*f));
	struct ibv_device_attr attr;
	int r;

	memset(&attr, 0, sizeof(attr));
	r = !f ? ENOMEM : verbs_backend.ibv_query_device ? verbs_backend.ibv_query_device(real, &attr) : 0;
	if (r) {
		fermata_free(f);
		return r > 0 ? -r : -EIO;
	}
	d->reads_in = (uint8_t)(attr.max_qp_rd_atom < UINT8_MAX ? attr.max_qp_rd_atom : UINT8_MAX);
	d->reads_out = (uint8_t)(attr.max_qp_init_rd_atom < UINT8_MAX ? attr.max_qp_init_rd_atom : UINT8_MAX);
	ports_find(f, real, attr.phys_port_cnt);
	for (unsigned int i = 1; i <= f->count; i++) {
		port_take(&d->port[i], &f->port[i]);
		/* before a restart the program sees what is there, and that may have come since it opened the device first: a link, an address */
		if (!restarted && (i > d->ports || !verbs_moved)) {
			port_name(&d->port[i], &f->attr[i]);
			d->ports = i > d->ports ? i : d->ports;
		}
		verbs_gid_places(&d->port[i]);
	}
	fermata_free(f);
	return 0;
}

/* ---- what the program is told of them ---- */

static struct verbs_port *port_of(struct ibv_context *context, uint32_t port)
{
	struct shadow_device *d = shadow_context(context)->device;

	return port >= 1 && port <= d->ports ? &d->port[port] : NULL;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct verbs_port *p = port_of(context, port);
	int r = VERBS_DEVICE(verbs_real_query_port(shadow_context(context)->real, port, attr, len));

	if (r || !verbs_moved || !p)
		return r;
	attr->lid = p->virtual_lid;
	attr->lmc = p->virtual_lmc;
	attr->gid_tbl_len = p->gid_count;
	attr->pkey_tbl_len = p->pkey_count;
	if (len > offsetof(struct ibv_port_attr, link_layer))
		attr->link_layer = p->link_layer;
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr whole;
	int r;

	VERBS_PASS(ibv_query_port, EOPNOTSUPP, context, port, attr);
	memset(&whole, 0, sizeof(whole));
	r = verbs_query_port(context, port, &whole, sizeof(whole));
	if (!r)
		memcpy(attr, &whole, COMPAT_PORT_ATTR);
	return r;
}

/* The port and its GID at @index that the program knows, or NULL: it is told what is there now. */
static struct verbs_port *known_at(struct ibv_context *context, uint32_t port, uint32_t index)
{
	struct verbs_port *p = verbs_moved ? port_of(context, port) : NULL;

	return p && index < VERBS_GIDS && p->virtual_kind[index] ? p : NULL;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	const struct verbs_port *p = known_at(context, port, (uint32_t)index);

	if (!p)
		return verbs_backend.ibv_query_gid(shadow_context(context)->real, port, index, gid);
	*gid = p->virtual_gid[index];
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	VERBS_PASS(ibv_query_gid, -1, context, port, index, gid);
	return VERBS_DEVICE(query_gid(context, port, index, gid));
}

/* The rest of the entry (its interface) is that of what stands behind it now. */
static void entry_virtual(const struct verbs_port *p, uint32_t index, struct ibv_gid_entry *entry)
{
	entry->gid = p->virtual_gid[index];
	entry->gid_index = index;
	entry->gid_type = verbs_gid_type(p, index);
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	const struct verbs_port *p = fermata_in_device() ? NULL : known_at(context, port, index);
	uint32_t at = p ? verbs_gid_index_real(p, index) : index;
	int r;

	VERBS_PASS(_ibv_query_gid_ex, EOPNOTSUPP, context, port, index, entry, flags, size);
	r = VERBS_DEVICE(verbs_backend._ibv_query_gid_ex(shadow_context(context)->real, port, at, entry, flags, size));
	if (!r && p)
		entry_virtual(p, index, entry);
	return r;
}

/* All that the program knows, however many the port has now; what has no room for them, and flags, which there are none of, are refused as the kernel does. */
static ssize_t table_virtual(struct ibv_context *context, void *entries, size_t max, uint32_t flags, size_t size)
{
	const unsigned int ports = shadow_context(context)->device->ports;
	size_t n = 0;
	int r;

	if (flags)
		return -EINVAL;
	for (uint32_t port = 1; port <= ports; port++)
		for (uint32_t g = 0; g < VERBS_GIDS; g++) {
			if (!known_at(context, port, g))
				continue;
			if (n == max)
				return -EINVAL;
			r = _ibv_query_gid_ex(context, port, g, (void *)((char *)entries + n * size), flags, size);
			if (r)
				return -r;
			n++;
		}
	return (ssize_t)n;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	VERBS_PASS(_ibv_query_gid_table, -EOPNOTSUPP, context, entries, max, flags, size);
	if (verbs_moved)
		return table_virtual(context, entries, max, flags, size);
	return VERBS_DEVICE(verbs_backend._ibv_query_gid_table(shadow_context(context)->real, entries, max, flags, size));
}

/* Declared in libibverbs' private header only, but ibv_devinfo calls it. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	const struct verbs_port *p = fermata_in_device() ? NULL : known_at(context, port, index);

	if (fermata_in_device())
		return verbs_backend.ibv_query_gid_type(context, port, index, type);
	*type = p ? verbs_gid_is_v2(p, index) : 0; /* 0: InfiniBand or RoCE v1 */
	if (p || !verbs_backend.ibv_query_gid_type)
		return 0;
	return VERBS_DEVICE(verbs_backend.ibv_query_gid_type(shadow_context(context)->real, port, index, type));
}
