/* SPDX-License-Identifier: BSD-2-Clause */
/* Resolves the table of interposed functions; owns it. Resolving twice at once is harmless: both find the same. */
#include "agent/wrap.h"

#include <dlfcn.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/call_number.h"
#include "agent/libc.h"

struct wrap_real real;

#define WRAP_NAME(ret, name, args) { #name, offsetof(struct wrap_real, name) },
static const struct {
	const char *name;
	size_t offset;
} table[] = { WRAP_TABLE(WRAP_NAME) };

void wrap_resolve(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		void *f = dlsym(RTLD_NEXT, table[i].name);

		memcpy((char *)&real + table[i].offset, &f, sizeof(f));
	}
	libc_resolve();
	call_find_libc();
}
