/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UCX asks this variable of its own library whether it may read the processor's time stamp counter for its clock (0: no; 1: yes; 2: it tries). The counter
 * of another host, or of this one after it was started anew, is another: timers would stand, and a time that lies in the future count as an endless
 * silence of the peer. As the agent is loaded first this definition is everybody's, and UCX 1.13's clock is gettimeofday. Nobody but UCX reads or writes it.
 *
 * That clock goes on while the job is away. What UCX would take for a peer's silence then is the launcher's matter (UCX_UD_TIMEOUT, cli/launch_become.c).
 */
#include "base/macro.h"

EXPORT int ucs_arch_x86_enable_rdtsc = 0;
