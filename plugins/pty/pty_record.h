/* SPDX-License-Identifier: BSD-2-Clause */
/* What the image holds of one end of a pseudo-terminal, and of a session's controlling terminal. Little-endian. */
#pragma once

#include <stdint.h>

#define PTY_RECORD_VERSION 1

enum pty_kind {
	PTY_NONE,
	PTY_MASTER,
	PTY_SLAVE, /* also what was opened as /dev/tty */
	PTY_DEAD,  /* a slave whose master had been closed: nothing but the end of file comes from it */
};

enum pty_slaves { /* what the master sees of its other side */
	PTY_SLAVES_NONE, /* not opened yet */
	PTY_SLAVES_OPEN,
	PTY_SLAVES_CLOSED, /* hung up */
};

enum pty_flow { PTY_FLOW_RUNS, PTY_FLOW_TCOOFF /* by tcflow */, PTY_FLOW_XOFF /* by the stop character */ };

enum { PTY_LOCKED = 1 /* no unlockpt yet */, PTY_PACKET = 2, PTY_EXCLUSIVE = 4 /* no further open of the slave */ };

struct pty_termios { /* the kernel's struct termios2 */
	uint32_t iflag, oflag, cflag, lflag;
	uint8_t line, cc[19];
	uint32_t ispeed, ospeed;
};
_Static_assert(sizeof(struct pty_termios) == 44, "pty_termios");

/* Then, of a master: output_length bytes that the master has not read, input_length bytes that the slave has not read. */
struct pty_record {
	uint32_t version; /* 1 */
	uint32_t kind;	  /* enum pty_kind */
	uint32_t number;  /* N of /dev/pts/N */
	uint32_t maker_pid; /* who holds the master, and re-creates it; its number there */
	int32_t maker_fd;
	/* The rest in a master's record only. */
	uint32_t flags;
	uint32_t slaves; /* enum pty_slaves */
	uint32_t flow;	 /* enum pty_flow: of the slave's output */
	uint32_t mode;	 /* permissions of /dev/pts/N; 0: not known */
	uint16_t window[4]; /* struct winsize */
	struct pty_termios termios;
	uint32_t output_length, input_length;
	uint16_t mark_eof;   /* in the input this byte is an end of file (the VEOF character was typed); 256: there is none */
	uint16_t mark_quote; /* the byte behind this one is no end of a line; 256: there is none */
	uint16_t mark_stop;  /* a byte that does not occur in it; 256: there is none */
	uint16_t reserved;
};
_Static_assert(sizeof(struct pty_record) == 104, "pty_record");

/* The plain record: this process leads a session whose controlling terminal is a pseudo-terminal of the job. */
struct pty_session {
	uint32_t version; /* 1 */
	uint32_t number;
	uint32_t maker_pid;
	int32_t maker_fd;
	uint32_t foreground; /* process group */
	uint32_t reserved;
};
_Static_assert(sizeof(struct pty_session) == 24, "pty_session");
