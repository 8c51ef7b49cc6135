/* SPDX-License-Identifier: BSD-2-Clause */
/* libc for a device's library that is called while the program's threads are stopped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LIBC_SIGNAL_CANCEL 32 /* pthread_cancel(); of timer threads as well (SIGTIMER) */
#define LIBC_SIGNAL_SETXID 33 /* every thread takes it: setuid() and the like are calls of all threads (nptl/nptl_setxid.c) */

struct thread_block;

/* ---- libc_state.c ---- */
void libc_resolve(void); /* with the table of interposed functions */
void libc_probe_forget(void); /* after a fork or a restart: there is none */
/* Writes what libc keeps of a thread's identity where libc looks for it; in the thread itself. */
void libc_thread_number(char *tcb);
/* In the checkpoint thread: libc's thread state, if libc_probe has found that it can be had. */
void libc_thread_begin(const struct thread_block *b);
/* Around the attempts of one stop; in the watch thread, with everybody stopped: false: let them go and try again. */
void libc_probe_begin(void);
bool libc_probe(void);
void libc_probe_again(void); /* they run: before the next attempt */
void libc_probe_release(void); /* the attempt is given up: it is to hold nothing, and to end */
int libc_probe_tid(void);
int libc_name_the_cause(void);
/* No lock of libc was held by a stopped thread when the image was written. */
bool libc_is_free(void);

/* ---- libc_heap.c ---- */
void *libc_heap_alloc(size_t size, size_t align); /* NULL: no memory */
void libc_heap_free(void *p);
size_t libc_heap_size(const void *p); /* what was asked for */
bool libc_heap_owns(const void *p);
void libc_heap_lock(void); /* around a fork */
void libc_heap_unlock(void);

/* ---- libc_borrow.c ---- */
void libc_borrow_resolve(void);
