/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include <stdbool.h>

/* True: our own pid is not one to come back to, and the next process gets one that is. */
bool launch_apart(void);
