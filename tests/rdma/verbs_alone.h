/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include <infiniband/verbs.h>

/* What a variant of verbs_alone does besides, at its begin and every 64 rounds. Ends the program if something is wrong; with 77 if it cannot be tried. */
void verbs_also(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp);
