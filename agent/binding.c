/* SPDX-License-Identifier: BSD-2-Clause */
/* No state. A mapping has one binding: mbind cuts it in two where it ends. */
#include <linux/mempolicy.h>
#include <string.h>

#include "agent/binding.h"
#include "base/sys.h"

#define NODES (8 * sizeof(((struct binding *)NULL)->nodes))

bool binding_get(uint64_t at, struct binding *ret)
{
	memset(ret, 0, sizeof(*ret));
	return !RAW5(SYS_get_mempolicy, &ret->policy, ret->nodes, NODES, at, MPOL_F_ADDR) && ret->policy != MPOL_DEFAULT;
}

int binding_set(uint64_t start, uint64_t length, const struct binding *b)
{
	return (int)RAW6(SYS_mbind, start, length, b->policy, b->nodes, NODES, MPOL_MF_MOVE);
}
