/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of connections. One follows from its request, which both ends know, and who carries it, too: addresses, QP number and PSN of who asked,
 * hashed; before that a letter for whose end is meant. No state.
 */
#include "softrdma/cm.h"

#include <string.h>

#include "base/log.h"
#include "base/sys.h"

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

/* @a: of who asked, and who was asked. */
static void name_fill(uint32_t qpn, uint32_t psn, struct cm_wire_addr a[2], int passive, uint8_t name[CM_NAME])
{
	uint64_t half[2] = { 0xcbf29ce484222325ull, 0x6c62272e07bb0142ull };
	uint32_t numbers[2] = { qpn, psn };

	for (int i = 0; i < 2; i++)
		if (a[i].family == AF_IB) /* the two may know more or less of a service, and a port's GID changes */
			memset(&a[i], 0, sizeof(a[i]));
	for (int i = 0; i < 2; i++)
		half[i] = mix(mix(half[i], numbers, sizeof(numbers)), a, 2 * sizeof(*a));
	name[0] = passive ? 'b' : 'a';
	memcpy(name + 1, half, sizeof(half));
}

void cm_name(const struct cm_id *id, int passive, uint8_t name[CM_NAME])
{
	const struct cm_conn *c = &id->conn;
	struct cm_wire_addr a[2];

	cm_address_to_wire(&id->src, &a[id->passive]);
	cm_address_to_wire(&id->dst, &a[!id->passive]);
	if (id->passive)
		name_fill(c->remote_qpn, c->remote_psn, a, passive, name);
	else
		name_fill(c->qpn, c->psn, a, passive, name);
}

void cm_name_of_request(const struct cm_message *m, int passive, uint8_t name[CM_NAME])
{
	struct cm_wire_addr a[2] = { m->h.src, m->h.dst };

	name_fill(m->h.qpn, m->h.psn, a, passive, name);
}

/* An abstract address: a zero and text. */
int cm_meeting_address(const uint8_t name[CM_NAME], struct sockaddr_un *sa)
{
	uint64_t half[2];
	size_t n;

	memcpy(half, name + 1, sizeof(half));
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	n = fm_format(sa->sun_path + 1, sizeof(sa->sun_path) - 1, "softrdma-cm-%u-%016lx%016lx", (uint32_t)RAW0(SYS_geteuid),
		      (unsigned long)half[0], (unsigned long)half[1]);
	return (int)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}
