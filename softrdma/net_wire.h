/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What contexts on different hosts say to each other over TCP: doc/softrdma-protocol.md. Little-endian, fixed width.
 * Decoding is here, by itself: bounds, versions, nothing that depends on who said it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NET_MAGIC 0x74656e72736f6673ull /* "sfosrnet" */
#define NET_VERSION 1
#define NET_PORT 24576u
#define NET_INDEXES 4096u
#define NET_CM_PORT (NET_PORT + NET_INDEXES) /* the first of those of rdma_cm's listeners */
#define NET_CM_PORTS 4096u
#define NET_CM_SLOTS 8u /* ports that a listener may have */
#define NET_NONCE 32
#define NET_MAC 32
#define NET_PAYLOAD_MAX (256u << 10)
#define NET_MESSAGE_MAX (1u << 31)
#define NET_DATAGRAM_MAX (40u + 4096u)

struct net_hello {
	uint64_t magic;
	uint16_t version;
	uint16_t length; /* of this struct */
	uint32_t index;
	uint8_t gid[16];
	uint8_t nonce[NET_NONCE];
	uint8_t proof[NET_MAC]; /* listener's; the dialler's is sent by itself */
};
_Static_assert(sizeof(struct net_hello) == 96, "no holes");
#define NET_HELLO_SIGNED offsetof(struct net_hello, proof)

/* One message to a multicast group, as a datagram of UDP: this, then a frame with its payload, sealed. */
#define NET_GROUP_MAGIC 0x70726772736f6673ull /* "sfosrgrp" */
#define NET_GROUP_NONCE 24
#define NET_GROUP_TAG 16
struct net_group {
	uint64_t magic;
	uint16_t version;
	uint16_t length; /* of this struct */
	uint32_t host;	 /* who sends, network order */
	uint8_t nonce[NET_GROUP_NONCE];
};
_Static_assert(sizeof(struct net_group) == 40, "no holes");

enum net_type {
	NET_REQUEST = 1,
	NET_ACK,
	NET_NAK,
	NET_DATA,
	NET_READY,
	NET_DATAGRAM,
	NET_PING,
	NET_TYPES,
};

enum net_flag {
	NET_FIRST = 1,
	NET_LAST = 2,
	NET_SOLICITED = 4,
	NET_UNRELIABLE = 8,
	NET_IMMEDIATE = 16,
	NET_ROUTED = 32,
};

enum net_status {
	NET_RNR = 1,
	NET_INVALID_REQUEST,
	NET_REMOTE_ACCESS,
	NET_REMOTE_OPERATION,
	NET_ABSENT,
	NET_STATUSES,
};

/* As enum ibv_wr_opcode. */
enum net_opcode {
	NET_WRITE = 0,
	NET_WRITE_IMM = 1,
	NET_SEND = 2,
	NET_SEND_IMM = 3,
	NET_READ = 4,
	NET_COMPARE_SWAP = 5,
	NET_FETCH_ADD = 6,
	NET_SEND_INV = 9,
};

struct net_frame {
	uint8_t type;
	uint8_t opcode;
	uint8_t flags;
	uint8_t status;
	uint32_t length;
	uint32_t to, from;
	uint32_t life, seq;
	uint32_t offset, total;
	uint64_t address;
	uint32_t rkey, imm;
	uint64_t compare, swap;
	uint32_t target;
	uint16_t site; /* REQUEST, DATAGRAM: the port that it is for, */
	uint16_t pkey; /* and the partition key of who says it */
};
_Static_assert(sizeof(struct net_frame) == 72, "no holes");

/* 0, -EPROTO, or -EPROTONOSUPPORT: another version, which *ret_h has. */
int net_hello_decode(const void *bytes, size_t n, struct net_hello *ret_h);
/* The same of an end of rdma_cm, whose index is 0. */
int net_cm_hello_decode(const void *bytes, size_t n, struct net_hello *ret_h);
/* Its bounds: 0 or -EPROTO. */
int net_group_decode(const void *bytes, size_t n, struct net_group *ret_h);
/* 0 or -EPROTO. */
int net_frame_decode(const void *bytes, size_t n, struct net_frame *ret_f);
