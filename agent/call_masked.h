/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits that go on as calls which open signals for their time. */
#pragma once

#include "agent/agent.h"

/*
 * The thread of @f stood in @number, whose arguments were @args, and are the frame's now. If that has a kin which takes a signal mask the frame goes on in it, and behind @number after that. False: it has
 * none, or the frame is not libc's; nothing is changed.
 */
bool call_masked(ucontext_t *f, long number, const greg_t args[6]);
/* The same, if it has been interrupted in such a kin: it waits for what is left. */
bool call_masked_again(ucontext_t *f);
