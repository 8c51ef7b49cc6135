/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hash tables of the fabric's names, open addressing, read by the data path without a lock: they change at a restart only
 * (verbs_fabric.c). A key may stand for several entries. Keys of regions: verbs_keys.h.
 */
#pragma once

#include "plugins/verbs/verbs_backend.h"

struct entry {
	uint64_t key; /* + 1; 0: free */
	uint64_t value;
	uint64_t address;
	uint32_t member; /* whose: a number of fermata_member(), in the life that the tables are of */
	uint32_t reserved;
};

struct table {
	uint32_t mask, count;
	struct entry entries[];
};

/* Of this life; written by verbs_names.c alone. */
extern struct table *verbs_qpns HIDDEN, *verbs_ports HIDDEN, *verbs_srqns HIDDEN;
/* By the upper 24 bits of the key; the value: a key that the program may have, and, in the lower half, the device's for it. */
extern struct table *verbs_windows HIDDEN;
extern uint32_t verbs_self HIDDEN; /* our own number in the tables */
/* By the names of this life; a port's is its LID or its GID's address. */
extern struct table *verbs_real_qpns HIDDEN, *verbs_real_ports HIDDEN;

/* The value of the name "verbs/qp", and of "verbs/srq". */
struct qp_chunk {
	uint32_t member, count;
	struct {
		uint32_t virtual, real;
		uint64_t address;
	} qp[63];
};

struct port_name {
	uint64_t address;
	uint64_t port; /* the first of its addresses: those of a port have it in common */
	uint64_t home; /* the port of this life: its LID, or its first GID's address */
	uint16_t lid;  /* 0: the port has none in this life, and is addressed by its GID */
	uint16_t virtual_lid;
	uint32_t member; /* who says so */
	union ibv_gid gid, virtual_gid;
};

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
