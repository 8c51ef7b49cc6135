/* SPDX-License-Identifier: BSD-2-Clause */
/* What files of the agent keep of the process: noted before a checkpoint, put right after a restart, and in the child of a fork. */
#pragma once

void kept_note(void);	   /* QUIESCE: all threads stand */
void kept_restarted(void); /* before they go on */
void kept_forked(void);
