/* SPDX-License-Identifier: BSD-2-Clause */
/* How the agent of a process shows from outside. */
#pragma once

#include <signal.h>

#define AGENT_SIGNAL (SIGRTMAX - 3) /* asks a thread to stand */
#define AGENT_THREAD_NAME "fermata" /* of its own threads; what they are called begins so */
#define AGENT_THREAD_ASKED "fermata-asked" /* of the watch thread, from when each thread of the program has our signal waiting, or stands, until they are let go */
