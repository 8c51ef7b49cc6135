/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes that softrdma_cm_save writes: a struct cm_saved, then its channels, ids, requests that have not been said yet, groups and events, in the order in which they stand in
 * their lists. Little-endian, fixed width. They are read by the library that wrote them, brought to life again with its process, so
 * another version is refused. Ids and groups are named by their handles; CM_SAVED_NONE: none.
 */
#pragma once

#include "softrdma/cm.h"

#define CM_SAVED_MAGIC 0x736d6373u /* "scms" */
#define CM_SAVED_VERSION 4u
#define CM_SAVED_NONE UINT32_MAX

/* In cm_id.rejoin: what is to be done when all have loaded. */
enum { REJOIN_NOT, REJOIN_CONNECT, REJOIN_ACCEPT, REJOIN_ASK, REJOIN_QUERY };

struct cm_saved {
	uint32_t magic, version;
	uint32_t channels, ids, requests, mcasts, events;
	uint32_t next_handle;
	uint8_t gid[16]; /* softrdma's on this host, then: addresses of InfiniBand's own kind have it */
};

struct cm_saved_channel {
	int32_t fd;
	uint32_t status;   /* F_GETFL */
	uint32_t fd_flags; /* F_GETFD */
	uint32_t reserved;
	uint64_t serial;
};

struct cm_saved_id {
	uint32_t handle;
	int32_t channel; /* its descriptor */
	uint64_t uid;
	uint64_t deadline_ns; /* 0: waits for nobody */
	uint32_t state;	      /* enum cm_state */
	uint32_t backlog;
	uint32_t events_reported;
	uint16_t ps;
	uint8_t qp_type;
	uint8_t claim_shared, reuse, afonly, ack_timeout, has_device, watched, passive;
	uint8_t connected; /* has a socket, and somebody is at its other end */
	uint8_t is_far;
	uint32_t query_ms; /* how long another host may take after that to say that it is there */
	uint32_t reserved;
	struct cm_conn conn;
	union cm_addr src, dst, claim;
};

struct cm_saved_request {
	uint32_t id;
	uint32_t length;
	uint8_t packet[CM_WIRE_MAX];
};

struct cm_saved_mcast {
	uint32_t handle, id;
	uint32_t events_reported;
	uint32_t reserved;
	uint64_t uid;
	union cm_addr addr;
};

struct cm_saved_event {
	uint32_t id;	  /* who counts it */
	uint32_t mcast;
	uint32_t request; /* CONNECT_REQUEST: the new id */
	uint32_t reserved;
	struct rdma_ucm_event_resp resp;
};

_Static_assert(sizeof(struct cm_saved) == 48 && sizeof(struct cm_saved_channel) == 24 && sizeof(struct cm_conn) == 48 &&
	       sizeof(struct cm_saved_id) == 56 + 48 + 3 * 128 && sizeof(struct cm_saved_mcast) == 24 + 128, "no holes of another size");
