/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of naming: what port.c and site.c build on. */
#pragma once

#include "softrdma/device.h"

#define SR_LID_HOST_BITS 11 /* of the address; the 16 ports have their numbers above */
#define SR_ALIAS_SHIFT 58   /* of a GID's number in its alias GUID */
#define SR_SUBNET 0xfe80000000000000ull

struct sr_host sr_name_host(void);
uint64_t sr_name_port_guid(const struct sr_host *h, uint32_t device, uint32_t port);
uint16_t sr_name_lid(const struct sr_host *h, uint32_t device, uint32_t port);
void sr_name_mac(const struct sr_host *host, uint32_t device, uint32_t port, uint8_t mac[6]);
uint64_t sr_name_mac_id(const struct sr_host *h, uint32_t device, uint32_t port);
int sr_name_is_roce(void);
/* What the environment says, between 1 and @max. */
uint32_t sr_name_number(const char *name, uint32_t max);
/*
 * Calls @fn with each IPv4 address (mapped) of this host but the loopback's, in the host's order, until it answers non-zero. With a
 * network there is only the one that others find it at, which may be an IPv6 one.
 */
int sr_name_addresses(const struct sr_host *h, int (*fn)(struct sr_port *p, const uint8_t ip[16]), struct sr_port *p);
