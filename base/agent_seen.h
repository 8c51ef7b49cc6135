/* SPDX-License-Identifier: BSD-2-Clause */
/* How the agent of a process shows from outside. */
#pragma once

#include <signal.h>

#define AGENT_SIGNAL (SIGRTMAX - 3) /* asks a thread to stand */
#define AGENT_THREAD_NAME "fermata" /* of its own threads */
