/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_cm within the plugin: verbs_cm.c the calls, verbs_cm_names.c their names, verbs_cm_drain.c and verbs_cm_state.c a checkpoint. */
#pragma once

#include "plugins/verbs/verbs_internal.h"

#define VERBS_CM_ESTABLISHED 9 /* RDMA_CM_EVENT_ESTABLISHED */
#define VERBS_CM_JOINED 12	 /* RDMA_CM_EVENT_MULTICAST_JOIN */
#define VERBS_CM_COMMAND_MAX 1024
#define VERBS_CM_NAME 17 /* bytes of a connection's end's name */

/* A command for the device of this life, in place; the answer to one, for the program. Only after a restart. */
size_t verbs_cm_command_real(void *command, size_t n);
void verbs_cm_answer_virtual(int fd, const void *command, size_t n);

/* verbs_cm_hosts.c. A checkpoint notes this host; a restart publishes, learns (0 or -errno) and tells the library. */
int verbs_cm_hosts_note(void);
int verbs_cm_hosts_publish(uint32_t door); /* a TCP port that others' ends of connections are to dial, or 0 */
void verbs_cm_hosts_tell(void);
void verbs_cm_hosts_tell_anew(void);	/* in RECONNECT, */
int verbs_cm_hosts_tell_doors(void); /* and to a process that has loaded channels. 0 or -errno, said */
int verbs_cm_hosts_clear(void); /* in RECONNECT: it is clear where who is looked for is; else this process's host has come back in several parts */
