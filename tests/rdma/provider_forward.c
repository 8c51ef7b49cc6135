/* SPDX-License-Identifier: BSD-2-Clause */
/* Whatever provider.c does not define goes to softrdma as it is. */
#include "tests/rdma/provider.h"

#ifdef __x86_64__
#define FORWARD(answer, name, parameters)                                                              \
	void *provider_to_##name;                                                                      \
	__asm__(".pushsection .text\n.weak " #name "\n.type " #name ", @function\n" #name ": jmp *provider_to_" #name "(%rip)\n.popsection\n");
VERBS_NAMES(FORWARD)
#endif
