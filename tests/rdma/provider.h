/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the provider that checks share (provider.c). */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "plugins/verbs/verbs_names.h"

/* verbs.h wraps these in macros that call the symbol; here the symbols are defined. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define MUST(condition)                                                                                \
	do {                                                                                           \
		if (!(condition)) {                                                                    \
			dprintf(2, "provider: %s:%d: wrong: %s\n", __FILE_NAME__, __LINE__, #condition); \
			abort();                                                                       \
		}                                                                                      \
	} while (0)

/* Where each function of softrdma is. */
#define PROVIDER_TO(answer, name, parameters) extern void *provider_to_##name __attribute__((visibility("hidden")));
VERBS_NAMES(PROVIDER_TO)
#undef PROVIDER_TO

/* Uses libc in every way that a provider does. */
void provider_want_libc(void) __attribute__((visibility("hidden")));
