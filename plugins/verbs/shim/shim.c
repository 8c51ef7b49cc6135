/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs.so.1 that leads to fermata, for programs that a preloaded symbol does not reach: those that dlopen
 * "libibverbs.so.1" and look names up in it with dlvsym, as NCCL does.
 *
 * Each name of the plugin's table stands here under the version that libibverbs gives it (shim.map) and jumps to where the
 * constructor found it: libfermata.so, or the system's library where that is not preloaded. The system's library is a
 * dependency under the name libibverbs-real.so.1, a link that `fermata launch` lays beside the one to this file; all
 * that is not here (strings, rates, PRIVATE names of providers) the dynamic linker finds there, because this library defines their
 * version nodes.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stddef.h>

#include "plugins/verbs/verbs_names.h"

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#ifdef __x86_64__
#define JUMP(name)                                        \
	".globl " #name "\n.type " #name ", @function\n"  \
	#name ":\n\tendbr64\n\tjmp *shim_to_" #name "(%rip)\n" \
	".size " #name ", .-" #name "\n"
#elif defined(__aarch64__)
#define JUMP(name)                                        \
	".globl " #name "\n.type " #name ", @function\n"  \
	#name ":\n\tadrp x16, shim_to_" #name "\n\tldr x16, [x16, #:lo12:shim_to_" #name "]\n\tbr x16\n" \
	".size " #name ", .-" #name "\n"
#endif

#define TARGET(answer, name, parameters) \
	extern void *shim_to_##name __attribute__((visibility("hidden"))); \
	void *shim_to_##name;            \
	__asm__(".pushsection .text\n" JUMP(name) ".popsection\n");
VERBS_NAMES(TARGET)

__attribute__((constructor)) static void shim_find(void)
{
	void *fermata = dlopen("libfermata.so", RTLD_LAZY | RTLD_NOLOAD);
	void *real = dlopen("libibverbs-real.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *to;

#define FIND(answer, name, parameters)                    \
	to = fermata ? dlsym(fermata, #name) : NULL;      \
	shim_to_##name = to ? to : real ? dlsym(real, #name) : NULL;
	VERBS_NAMES(FIND)
#undef FIND
}
