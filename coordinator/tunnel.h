/* SPDX-License-Identifier: BSD-2-Clause */
/* What goes over the one connection between a coordinator and the relay of another host: doc/protocol.md, section 8. */
#pragma once

#include <stdint.h>

enum tunnel_kind {
	TUNNEL_HELLO = 1,   /* relay: struct tunnel_hello */
	TUNNEL_WELCOME = 2, /* coordinator: struct tunnel_welcome */
	TUNNEL_REFUSED = 3, /* either: why, in words; the sender closes */
	TUNNEL_OPEN = 4,    /* relay: @channel is a new connection; value: pid of who made it */
	TUNNEL_DATA = 5,    /* either: bytes of it; from the relay, value: pid of their sender */
	TUNNEL_CLOSE = 6,   /* either: it is closed */
	TUNNEL_SHUT = 7,    /* coordinator: no more will be sent on it */
	TUNNEL_SYNC = 8,    /* coordinator: value is a number */
	TUNNEL_SYNCED = 9,  /* relay: the same value; each connection made before TUNNEL_SYNC came has been told */
	TUNNEL_KILL = 10,   /* coordinator: end the process behind it */
	TUNNEL_LOOK = 11,   /* coordinator: what keeps that process from answering? value: for how many ms it has not; with TUNNEL_LOOK_LET_RUN */
	TUNNEL_LOOKED = 12, /* relay: value -errno, and words; only when there is something to say */
	TUNNEL_LEAVING = 13, /* relay: it goes, its last process has */
};

#define TUNNEL_LOOK_LET_RUN 0x80000000u /* it, or a child that it has connected for, can be let run if it is stopped */
#define TUNNEL_DATA_MAX 65536u /* of a frame */

struct tunnel_frame {
	uint32_t channel; /* 0: none */
	uint16_t kind, reserved;
	uint32_t value;
	uint32_t length; /* bytes that follow */
};

struct tunnel_hello {
	char host[64];	  /* node name */
	char target[128]; /* ADDR:PORT, as it was told to connect to */
};

enum { TUNNEL_WELCOME_PROTECTED = 1 }; /* who is lost is brought back elsewhere */

struct tunnel_welcome {
	char directory[512]; /* where checkpoints go */
	char mark[128];	     /* the first line of its file ".lock": it has to be the same directory on both hosts */
	uint32_t silence_s;  /* a relay that does not answer for so long is lost */
	uint32_t flags;
};

_Static_assert(sizeof(struct tunnel_frame) == 16, "wire format");
_Static_assert(sizeof(struct tunnel_hello) == 192, "wire format");
_Static_assert(sizeof(struct tunnel_welcome) == 648, "wire format");
