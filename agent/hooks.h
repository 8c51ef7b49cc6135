/* SPDX-License-Identifier: BSD-2-Clause */
/* What a phase has to do in this process. In the checkpoint thread, the others stand; 0, or -errno with fermata_fail. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/message.h"

void hooks_each(size_t hook); /* of every plugin, the one at that offset, which cannot fail: by any thread */
int hooks_quiesce(void);
int hooks_drain(uint32_t round); /* or PHASE_STATUS_MORE */
void hooks_resume(const struct msg_phase *m); /* then the threads are to be let go */
int hooks_restart(uint32_t phase); /* RECREATE to REFILL */
void hooks_restarted(void); /* RESUME of a restart; as hooks_resume */
