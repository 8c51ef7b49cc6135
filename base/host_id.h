/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of which host of the job a process is, in the environment of what it begins:
 *
 *   FERMATA_HOST=<where: 16 hex digits>:<part: 16 hex digits>:<name>
 *
 * The name is the node name that the host had when the first of these processes came into the job. They keep it over restarts, on whatever machine, and so do those
 * that are begun by them there. An environment may be carried to another machine (srun, ssh); there the entry means nothing, for it is true only where it was made:
 * under one kernel since one boot, in one pid namespace.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HOST_ID_VARIABLE "FERMATA_HOST="
#define HOST_ID_NAME 64
#define HOST_ID_ENTRY (sizeof(HOST_ID_VARIABLE) + 2 * 17 + HOST_ID_NAME)

uint64_t host_id_boot(void);  /* a number of the running kernel */
uint64_t host_id_where(uint64_t boot); /* of it and this pid namespace: asks the kernel */
uint64_t host_id_where_of(uint64_t boot, const char *ns); /* of the pid namespace that this file of /proc names */
void host_id_node(char name[HOST_ID_NAME]); /* the machine's node name now */

void host_id_entry(char *entry, uint64_t where, uint64_t part, const char *name); /* HOST_ID_ENTRY bytes */
/* 0, or -EINVAL: @value, what stands behind the =, is damaged or was not made @where. */
int host_id_take(const char *value, uint64_t where, uint64_t *ret_part, char ret_name[HOST_ID_NAME]);
/* Behind the 16 digits, or NULL: they are none. */
const char *host_id_digits(const char *at, uint64_t *ret);
