/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of a socket: this struct, the options, the content. Little-endian. */
#pragma once

#include <stdint.h>

enum socket_kind {
	SOCKET_FRESH = 1,     /* not connected and not listening, perhaps bound */
	SOCKET_LISTENING = 2,
	SOCKET_CONNECTED = 3, /* the peer is in the job */
	SOCKET_ORPHAN = 4,    /* was connected; the peer is gone, what it sent may still be read */
	SOCKET_PENDING = 5,   /* connected, but not yet accepted by its listener, which is in the job; nothing sent yet */
	SOCKET_NAMED = 6,     /* datagrams: connected to whoever has the remote name */
	SOCKET_CONNECTING = 7, /* TCP: has asked the remote name for a connection, without an answer */
};

enum {
	SOCKET_END_OF_FILE = 1,	 /* the peer will send no more: end of file after the content. CONNECTING: it was refused */
	SOCKET_READ_SHUT = 2,	 /* shutdown(SHUT_RD) here */
	SOCKET_WRITE_SHUT = 4,	 /* shutdown(SHUT_WR) here */
	SOCKET_ERROR = 8,	 /* orphan: the next call reports a reset. CONNECTING: .. that it was refused */
	SOCKET_FAR = 32,	 /* CONNECTED, TCP: the peer is on another host of the job */
	SOCKET_FAR_LISTENS = 64, /* and of the two ends this one listens at a restart */
	SOCKET_EXTERNAL = 128,	 /* ORPHAN: its peer was not of the job */
	SOCKET_PATH_PRESENT = 16, /* the local name is a path, and a file stands there */
	SOCKET_PATH_MOVED = 256,  /* its file has another name by now: LISTENING and FRESH have that as their remote one */
};

struct socket_name { /* a struct sockaddr as the kernel has it; length 0: none */
	uint32_t length;
	uint8_t bytes[112];
};

struct socket_record {
	uint32_t version; /* 2 */
	uint32_t kind, flags;
	int32_t domain, type, protocol;
	uint32_t backlog;	 /* LISTENING */
	uint32_t option_count;	 /* struct socket_option array that follows */
	uint64_t content_length; /* of what lay in the receive queue; it follows the options: TCP's bytes, else struct socket_message */
	uint32_t maker_pid;	 /* CONNECTED: who re-creates both ends, the lower (pid, fd) of the two */
	int32_t maker_fd;
	uint32_t peer_pid;
	int32_t peer_fd, peer_domain;
	uint32_t mode; /* of the file at the local path */
	uint32_t receive_buffer, peer_receive_buffer; /* SO_RCVBUF as it was, set or tuned; the peer's, of TCP; 0: not known */
	uint64_t ino, peer_ino; /* for inspection */
	struct socket_name local, remote;
};
_Static_assert(sizeof(struct socket_record) == 320, "socket_record");

struct socket_option {
	int32_t level, name;
	uint32_t length;
	uint8_t value[20];
};
_Static_assert(sizeof(struct socket_option) == 32, "socket_option");

enum {
	SOCKET_MESSAGE_CREDENTIALS = 1, /* it came with its sender's ids */
};

/*
 * What one call receives: a message of a datagram or packet socket; of a stream, bytes that came with the same credentials and with
 * the same descriptors, which go with the first of them. After it, without padding in between: fd_count int32_t, the sender's name, the bytes. Of UDP the name is two struct socket_end, from
 * where it was sent and to where.
 */
struct socket_message {
	uint32_t size; /* with all that belongs to it, a multiple of 8 */
	uint32_t length, flags;
	uint32_t pid, uid, gid;
	uint32_t fd_count;    /* under which numbers the receiver holds them, from its checkpoint to its restart */
	uint32_t name_length; /* 0: its sender has none, or is the peer */
	uint32_t sender_pid;  /* a socket of the job that has that name; 0: there is none */
	int32_t sender_fd;
};
_Static_assert(sizeof(struct socket_message) == 40, "socket_message");
