/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process that traces others of the job, a debugger, shares among tracer.c, tracer_tracee.c and wrap_ptrace.c, and with the traced one (traced.c): the two values by
 * which it holds a thread, and lets it go.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Of our signal, in the upper half of its value, where else the epoch of a stop is. The lower half: the attempt of a checkpoint. */
#define TRACER_HOLD 0xfffffffeu
#define TRACER_LET_GO 0xffffffffu
#define TRACER_KILLS 0x80000000u /* in the lower half of HOLD: who is held dies with its tracer (PTRACE_O_EXITKILL) */

/* What the kernel does not tell of a traced thread: the wrapper of ptrace notes it. */
struct ptrace_note {
	int tid; /* 0: free */
	bool seized;
	uint32_t options;
	int resumed; /* the last request that let it run; PTRACE_CONT if there was none */
};

/* What is told of a stop that a restart, or a checkpoint, has made again: the kernel's own has no event. */
struct ptrace_event {
	int tid; /* 0: free */
	bool unread;
	uint32_t event;
	unsigned long message;
};

struct tracee {
	int pid, tid;
	bool seen;     /* it stands, and what it stands for is in here */
	bool touched;  /* it stands, but not as its tracer has left it */
	bool held;     /* it is not traced any more */
	bool gone;
	bool running;  /* it ran: not what follows, but @note.resumed is done again */
	bool unread;   /* its tracer has not been told that it stands */
	bool owes_stop; /* a SIGSTOP waits for it */
	uint32_t event;
	unsigned long message;
	struct ptrace_note note;
	siginfo_t info;
	uint64_t mask, debug[8];
};

/* ---- wrap_ptrace.c ---- */
int ptrace_tracer(void); /* the thread that has traced; 0: none has. -1: several have */
void ptrace_tracer_forget(void); /* nobody is traced any more */
void ptrace_note_of(int pid, int tid, struct ptrace_note *ret);
void ptrace_event_keep(const struct tracee *t); /* its event and message, for when they are asked for */
void ptrace_event_kept(struct tracee *t);	/* those of a checkpoint before, not asked for yet */
int ptrace_told(int tid, int status); /* @status, of which a waiting tracer was just told, with the kind of event that @tid's stop once was */
void wrap_ptrace_forked(void);

/* ---- tracer_tracee.c: in the thread that traces; 0 or -errno, with fermata_fail ---- */
int tracee_stand(struct tracee *t);
int tracee_hold(struct tracee *t, uint32_t attempt);
int tracee_take_again(struct tracee *t);
