/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hash tables of the fabric's names, open addressing, read by the data path without a lock: they change at a restart only
 * (verbs_names.c). A key may stand for several entries. Keys of regions: verbs_keys.h.
 */
#pragma once

#include "plugins/verbs/verbs_shadow.h"

struct entry {
	uint64_t key; /* + 1; 0: free */
	uint64_t value;
	uint64_t address;
	struct verbs_owner owner; /* of a port, and of an owner's device: no context */
};

struct table {
	uint32_t mask, count;
	struct entry entries[];
};

/* Of this life; set by verbs_names.c alone. */
extern struct table *verbs_qpns HIDDEN, *verbs_ports HIDDEN, *verbs_srqns HIDDEN;
/* By the upper 24 bits of the key; the value: a key that the program may have, and, in the lower half, the device's for it. */
extern struct table *verbs_windows HIDDEN;
extern struct table *verbs_owners HIDDEN; /* who has keys -> which device they are of (port_name.device) */
extern uint32_t verbs_self HIDDEN; /* our own number in the tables */
extern struct table *verbs_selves HIDDEN; /* by pid, of all parts: the address of a port */
/* By the names of this life. A port's is its LID or its GID's address. */
extern struct table *verbs_real_qpns HIDDEN, *verbs_real_ports HIDDEN;

/* The names that a restart's processes tell each other by: verbs_publish.c, verbs_names_make.c. */
#define NAME_PORT "verbs/port"
#define NAME_QP "verbs/qp"
#define NAME_SRQ "verbs/srq"
#define NAME_MR "verbs/mr"
#define NAME_MW "verbs/mw"
#define NAME_HOST "verbs/host"
#define NAME_PART "verbs/part"
#define NAME_DOOR "verbs/door"
#define NAME_SELF "verbs/self"
#define NAME_LIFE "verbs/life"

/* The value of NAME_QP, and of NAME_SRQ. */
struct qp_chunk {
	struct verbs_owner owner;
	uint32_t count, reserved;
	struct {
		uint32_t virtual, real;
		uint64_t address;
	} qp[63];
};

/* The value of NAME_MR, and of NAME_MW. */
struct mr_chunk {
	struct verbs_owner owner;
	uint64_t device; /* of theirs: port_name.device */
	uint32_t count, reserved;
	struct {
		uint32_t virtual, real;
	} mr[125];
};
/* Restart, RECREATE: one is published whenever it is full, and at the end. 0 or -errno, said. */
void verbs_chunk_begin(struct mr_chunk *chunk, const struct shadow_context *c);
int verbs_chunk_add(const char *name, size_t len, struct mr_chunk *chunk, uint32_t virtual, uint32_t real);
int verbs_chunk_end(const char *name, size_t len, struct mr_chunk *chunk);
_Static_assert(sizeof(struct qp_chunk) <= 1024 && sizeof(struct mr_chunk) <= 1024, "a name's value");

/* The value of NAME_PORT. */
struct port_name {
	uint64_t address;
	uint64_t port; /* the first of its addresses: those of a port have it in common */
	uint64_t home; /* the port of this life: the first of its addresses there */
	uint64_t device; /* that it is of, in this life: the home of its first port that has one; 0: not known */
	uint16_t lid;  /* 0: the port has none in this life, and is addressed by its GID */
	uint16_t virtual_lid;
	uint32_t member; /* who says so */
	uint32_t mtu;	 /* enum ibv_mtu, of its packets in this life; 0: not known */
	uint32_t reserved;
	union ibv_gid gid, virtual_gid;
};

/* The value of NAME_HOST: an address that a host of that part has had since that life (NAME_LIFE), and what leads to it now; NAME_PART's is a part alone (host_id_where). */
struct host_name {
	uint8_t address[16], now[16];
	uint64_t part;
	uint32_t since, reserved;
};

/* The value of NAME_LIFE is a uint64_t: which life begins, of those in which some process that is left had addresses to tell; all take the greatest. Programs that are begun in it do so, too. */

/* The value of NAME_DOOR: where a process's ends of rdma_cm connections are dialled (softrdma/cm_door.c). */
struct door_name {
	uint64_t part;
	uint8_t address[16];
	uint32_t port, pid; /* as in self_name */
};

/* The value of NAME_SELF: a port of a process's, by the first of its addresses, as those of a queue pair of its are told (verbs_peer_virtual). */
struct self_name {
	uint64_t address;
	uint32_t pid, member;
};

/* What all have learnt, in one piece (verbs_names_make.c): where in it each part lies, from its beginning on; 0: it is empty. */
struct names {
	char magic[8];
	uint64_t size;
	uint64_t port_names; /* struct port_name[]: a value of ports and real_ports is an index */
	uint64_t ports, real_ports, qpns, real_qpns, srqns, windows, owners, selves; /* struct table */
	uint64_t keys; /* struct keys */
	uint64_t hosts, parts, doors; /* struct host_name[], uint64_t[], struct door_name[] */
	uint32_t host_count, part_count, door_count;
	uint32_t life;
};
#define NAMES_MAGIC "names-5" /* another one with each change of what is in it */

extern const struct names *verbs_names HIDDEN; /* NULL: there are none */
extern const struct port_name *verbs_port_names HIDDEN;

/* Restart, RECREATE: one process asks for everybody's names, and makes them what all learn: in PUBLISH, if it is the one. 0 or -errno. */
int verbs_names_ask(void);
int verbs_names_make(void);

static inline const struct port_name *port_name_of(const struct entry *e)
{
	return &verbs_port_names[e->value];
}

/* The port that process @member (0: whoever) has under that name, or NULL. */
const struct port_name *verbs_port_of(uint64_t address, uint32_t member);
/* What @gid of this life is called, or NULL: verbs_gid_virtual_as; @as NULL: by the first of its names. @port: as one of that port's, or NULL. */
const struct port_name *verbs_gid_name(const union ibv_gid *gid, const union ibv_gid *as, const struct port_name *port);
/* Its port_name.device. */
uint64_t verbs_device_of(uint64_t address, uint32_t member);

static inline uint64_t verbs_owner_key(struct verbs_owner owner)
{
	return (uint64_t)owner.member << 32 | owner.context;
}

static inline uint32_t slot_of(const struct table *t, uint64_t key)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & t->mask;
}

/* The next entry of @key from position *@at on, which moves behind it. */
static inline struct entry *table_next(struct table *t, uint64_t key, uint32_t *at)
{
	while (t && t->entries[*at & t->mask].key) {
		struct entry *e = &t->entries[(*at)++ & t->mask];

		if (e->key == key + 1)
			return e;
	}
	return NULL;
}

/* All entries of @wanted in @t, one after another. */
#define table_each(e, t, wanted)                                                          \
	for (uint32_t at_ = (t) ? slot_of(t, wanted) : 0; (e = table_next(t, wanted, &at_));)
