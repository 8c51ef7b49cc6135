/* SPDX-License-Identifier: BSD-2-Clause */
/* The slots of the threads that a stop asks. */
#pragma once

#include "agent/agent.h"

void stop_table_clear(void); /* a new attempt, or a child of a fork */
/* A slot of @epoch, or NULL: no memory. */
struct stop_thread *stop_slot_new(int tid, uint32_t epoch, uint32_t *ret_slot);
struct stop_thread *stop_slot_find(int tid, uint32_t *ret_slot);
/* Also one that an attempt before this one has given out. */
struct stop_thread *stop_slot_at(uint32_t slot);
/* For whoever has the slot: the thread in it from ENTERED to STOPPED, else who asks. */
void stop_slot_set(struct stop_thread *t, enum stop_state to);
/* For a test: until another attempt has asked whoever has it then. */
void stop_slot_await_another(const struct stop_thread *t, uint32_t epoch);
/* False: it is in another state, or another epoch's. */
bool stop_slot_move(struct stop_thread *t, uint32_t epoch, enum stop_state from, enum stop_state to);
