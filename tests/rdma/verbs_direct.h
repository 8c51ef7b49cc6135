/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include <infiniband/verbs.h>

/* Ends the program if a vendor's library offers something else than plain verbs for these; with 77 if there is none. */
void verbs_direct(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp);
