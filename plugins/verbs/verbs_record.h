/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs plugin writes into an image: the objects of the process, for inspection (the objects themselves come back with
 * the process's memory). Little-endian, fixed width. A struct verbs_record, then `count` entries; each entry is a struct
 * verbs_record_entry and `length` bytes of the struct of its kind. Unknown kinds are skipped; a longer struct than known is
 * read up to what is known. Numbers and keys are those that the program knows.
 */
#pragma once

#include <stdint.h>

#define VERBS_RECORD_VERSION 1u

enum verbs_record_kind {
	VERBS_RECORD_CONTEXT = 1,
	VERBS_RECORD_PD = 2,
	VERBS_RECORD_MR = 3,
	VERBS_RECORD_CHANNEL = 4,
	VERBS_RECORD_CQ = 5,
	VERBS_RECORD_QP = 6,
	VERBS_RECORD_SRQ = 7,
	VERBS_RECORD_CM = 8,
	VERBS_RECORD_MW = 9,
};

struct verbs_record {
	uint32_t version;
	uint32_t count;
};

struct verbs_record_entry {
	uint32_t kind;
	uint32_t length;
};

/* Objects of a context follow it. */
struct verbs_record_context {
	char device[64];
	int32_t async_fd;
	int32_t cmd_fd;
	uint16_t lid; /* of port 1 */
	uint16_t reserved[3];
	uint8_t gid[16];
};

struct verbs_record_pd {
	uint32_t handle;
	uint32_t reserved;
};

struct verbs_record_mr {
	uint64_t address, length, iova;
	uint32_t access; /* enum ibv_access_flags */
	uint32_t lkey, rkey;
	uint32_t pd; /* its handle */
};

struct verbs_record_mw {
	uint32_t type; /* enum ibv_mw_type */
	uint32_t rkey; /* the newest */
	uint32_t pd;   /* its handle */
	uint32_t bound; /* 1: to what follows */
	uint64_t address, length;
	uint32_t access;
	uint32_t region_lkey;
	uint32_t qp; /* the number of the one that bound it */
	uint32_t reserved;
};

struct verbs_record_channel {
	int32_t fd;
	uint32_t reserved;
};

struct verbs_record_cq {
	uint32_t cqe;
	int32_t channel_fd; /* -1: none */
	uint32_t kept; /* completions met while draining */
	uint32_t armed; /* 0 no, 1 for all, 2 for solicited completions */
	uint32_t fired; /* events of it that are unread */
	uint32_t reserved;
};

struct verbs_record_qp {
	uint32_t number, state; /* enum ibv_qp_state */
	uint32_t dest_number;
	uint16_t dest_lid, port;
	uint32_t max_send_wr, max_recv_wr;
	uint32_t sends_pending; /* posted, not executed: posted again at a restart */
	uint32_t receives_pending;
	uint8_t dest_gid[16];
	uint64_t two_sided_sent, received;
};

struct verbs_record_srq {
	uint32_t max_wr, max_sge;
	uint32_t limit;	 /* of the event that is armed; 0: none */
	uint32_t posted; /* receives */
};

/* An event channel of rdma_cm; of no context. */
struct verbs_record_cm {
	int32_t fd;
	uint32_t reserved;
};
