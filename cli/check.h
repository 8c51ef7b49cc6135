/* SPDX-License-Identifier: BSD-2-Clause */
/* What `fermata check` asks of a host. A probe changes nothing: it runs in a child, in namespaces of its own where it needs some. */
#pragma once

#include <stddef.h>

enum check_need { CHECK_CHECKPOINT, CHECK_RESTART, CHECK_OPTIONAL };

struct check {
	const char *name;
	enum check_need need;
	/* 0: yes. -errno: no. Runs in a child of its own; may say more about a yes or a no in @detail. */
	int (*probe)(char *detail, size_t size);
	const char *remedy;
};

extern const struct check check_table[];
extern const size_t check_count;
