/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between two ends of an rdma_cm connection: one struct cm_wire and its private data, as one packet of a
 * SOCK_SEQPACKET socket, or one after the other over TCP between hosts. Little-endian but for addresses, fixed width. A receiver takes a
 * message of its own version only; doc/softrdma.md says who sends which when.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CM_WIRE_MAGIC 0x6d637273u /* "srcm" */
#define CM_WIRE_VERSION 2
#define CM_PRIVATE_MAX 256u

enum cm_type {
	CM_MSG_REQ = 1,
	CM_MSG_REP,
	CM_MSG_RTU,
	CM_MSG_REJ,
	CM_MSG_DREQ,
	CM_MSG_DREP,
	CM_MSG_SIDR_REQ,
	CM_MSG_SIDR_REP,
	CM_MSG_JOIN, /* in another life: who has asked, by the request's names, and */
	CM_MSG_JOINED, /* who was asked, with their places in this one */
	CM_MSG_END,
};

/* An address and port, or an InfiniBand address and service. */
struct cm_wire_addr {
	uint16_t family; /* AF_INET, AF_INET6, AF_IB; 0: none */
	uint16_t port;	 /* network order */
	uint32_t scope;
	uint64_t sid; /* AF_IB */
	uint8_t addr[16];
};

struct cm_wire {
	uint32_t magic;
	uint16_t version;
	uint8_t type;
	uint8_t reserved;
	uint16_t length;      /* of the whole message */
	uint16_t private_len; /* bytes behind this struct */
	union {
		uint32_t reason; /* REJ: why; SIDR_REP: the status */
		uint32_t pid;	 /* REQ, REP, SIDR_REQ, JOIN, JOINED: the sender's, in its own namespace */
	};
	uint32_t qpn;
	uint32_t qkey; /* JOIN: the other end's process, in a life before; 0: not known */
	uint32_t psn;
	uint16_t ps; /* enum rdma_ucm_port_space */
	uint16_t lid;
	uint8_t qp_type;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t gid[16];
	uint32_t ece_vendor;
	uint32_t ece_options;
	struct cm_wire_addr src, dst; /* REQ, SIDR_REQ, JOIN: as the sender sees them */
};
_Static_assert(sizeof(struct cm_wire_addr) == 32, "no holes");
_Static_assert(sizeof(struct cm_wire) == 128, "no holes");

#define CM_WIRE_MAX (sizeof(struct cm_wire) + CM_PRIVATE_MAX)

struct cm_message {
	struct cm_wire h;
	uint8_t private[CM_PRIVATE_MAX]; /* behind private_len: zeros */
};

/* Bytes of private data that a kind of message carries on InfiniBand, and that its receiver is told. */
uint32_t cm_private_room(uint32_t type);

/* Of a stream: the message's length, which its first CM_WIRE_HEAD bytes say; 0: it is none. */
#define CM_WIRE_HEAD 12u
uint32_t cm_wire_length(const void *head);
/* 0, -EPROTO (no message of ours, or a bound passed), -EPROTONOSUPPORT (another version). */
int cm_wire_decode(const void *packet, size_t n, struct cm_message *ret_m);
/* Fills in length, magic and version of @m and writes the packet. Its length; @buf has CM_WIRE_MAX bytes. */
size_t cm_wire_encode(struct cm_message *m, void *buf);
