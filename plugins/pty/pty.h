/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this plugin share. All of it runs in the checkpoint thread. */
#pragma once

#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "base/macro.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/pty/pty_record.h"

#define PTY_NO_MARK 256
#define PTY_SESSION_OUTSIDE UINT32_MAX

struct pty_end { /* the published value: one of who holds an end */
	uint32_t kind;
	uint32_t pid;
	int32_t fd;
	uint32_t exclusive;
	uint64_t devpts; /* device number of its file system, as several may be mounted; 0: not known */
	uint32_t session; /* whose controlling terminal it is; 0: nobody's, or not known */
	uint32_t reserved;
};

struct pty_state { /* priv, from claim on */
	struct pty_end self;
	uint32_t number;
	struct pty_end master, slave; /* found in the drain: the lowest of each; kind PTY_NONE: the job holds none */
	bool exclusive;
	struct pty_record *record; /* of a master, with its content; from drain to dump */
};

/* ---- pty.c ---- */
/* Publishes @end of terminal @number (PTY_NONE: nothing), and asks for the others. */
int pty_publish(uint32_t number, const struct pty_end *end);
/* The lowest holder of a @kind of end that @of may belong to; false: nobody in the job. */
bool pty_find(uint32_t number, const struct pty_end *of, uint32_t kind, struct pty_end *ret);
static inline uint32_t pty_number_of(uint64_t rdev) { return (uint32_t)((rdev & 0xff) | ((rdev >> 12) & 0xfff00)); }
static inline bool pty_is_slave_device(uint64_t rdev) { return ((rdev >> 8) & 0xfff) >= 136 && ((rdev >> 8) & 0xfff) <= 143; }

/* ---- pty_content.c ---- */
int pty_content_take(struct fermata_desc *d, struct pty_state *s);
/* Puts back content and settings of @r; @slave is open for both, non-blocking. */
int pty_content_put(int master, int slave, const struct pty_record *r);
int pty_slave_open(int master, int flags);
/* What can be done without waiting: revents of @fd. The kernel first finishes what is on its way to @fd. */
int pty_poll(int fd, int events);
/* -EAGAIN: nothing is on its way any more. */
long pty_read(int fd, void *buf, size_t size);

/* ---- pty_input.c ---- */
#define PTY_CONTENT_MAX 65536u /* the kernel holds 4 KiB at the reader, and 8 KiB and a little before */

struct pty_input {
	uint32_t count;
	uint16_t *units; /* a byte each, PTY_UNIT_* */
};
enum { PTY_UNIT_EOF = 0x100, PTY_UNIT_QUOTED = 0x200 };

bool pty_is_canonical(const struct pty_termios *t);
/* Whole lines, each as read(2) gives it; of a terminal that is not canonical all there is. Appends. 0 or -errno. */
int pty_input_take(int slave, const struct pty_termios *t, struct pty_input *in);
/* The line that is not finished: @slave is no longer canonical. */
int pty_input_take_rest(int slave, const struct pty_termios *was, struct pty_input *in);
/* As bytes that a terminal in pty_literal mode takes for the same; chooses the marks. The length, or -errno. */
int pty_input_encode(const struct pty_input *in, struct pty_record *r, uint8_t *ret_bytes);
/* Settings of @r under which nothing is echoed, changed or acted on, but lines are lines. */
struct pty_termios pty_literal(const struct pty_record *r);

/* ---- pty_restart.c ---- */
int pty_fd_restore(struct fermata_desc *d, const void *record, size_t len);
int pty_fd_reconnect(struct fermata_desc *d, const void *record, size_t len);
int pty_fd_refill(struct fermata_desc *d, const void *record, size_t len);
/* A new descriptor of the slave of terminal @number, whose master is @maker_fd of @maker_pid. */
int pty_peer(uint32_t maker_pid, int maker_fd, int flags);

/* ---- pty_session.c ---- */
int pty_session_quiesce(void);
int pty_session_drain(unsigned int round);
int pty_session_dump(struct fermata_sink *sink);
int pty_session_recreate(const void *record, size_t len);
int pty_session_reconnect(void);
int pty_session_refill(void);
