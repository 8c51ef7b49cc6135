/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that begin again, but for a signal that comes just then. */
#pragma once

#include "agent/agent.h"

void call_woken_look(void); /* at the program's handlers; before the threads go on */
/*
 * The frame stands before a call, with its number and arguments: it goes on in it, and a signal of the program's, should it come first, ends it; not one whose flags have any of @without. Nothing is changed if the
 * program has no such signal, or where a frame cannot be told.
 */
void call_woken(ucontext_t *f, uint64_t without);
/* A frame that has gone on so stands where the program has its call again, before or behind it. True: before it, as it does, too, if the kernel is to restart it. */
bool call_woken_undo(ucontext_t *f);
/* The same for what the kernel tells of a thread of this process that is in a call, from outside. */
void call_woken_seen(uint64_t *pc, uint64_t *sp);
