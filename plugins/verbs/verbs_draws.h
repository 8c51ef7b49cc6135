/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * New objects after a restart, until the device gives one whose name (number, key) is none of before: who has been told an old one would be led to what it means now. What is
 * drawn in vain is held meanwhile, so that the device gives other names.
 *
 *	struct verbs_draws draws = { 0 };
 *
 *	do
 *		real = create();
 *	while (real && verbs_draws_hold(&draws, known(real->name), real));
 *	real = verbs_draws_end(&draws, real, destroy);
 */
#pragma once

#include <stdint.h>

enum name_known {
	NAME_NEW,
	NAME_OTHERS, /* somebody else's at the device: taken for that where it is not known whose queue pair it is used with (one made since the restart) */
	NAME_OWN     /* an own one: always taken for that */
};

struct verbs_draws {
	void **held;
	void *last; /* bad, too, and no room to hold it */
	uint32_t count;
};

/* Where names crowd so that none else is found, one of others' is as good as can be had. */
static inline int verbs_name_is_bad(enum name_known known, uint32_t drawn)
{
	return known == NAME_OWN || (known == NAME_OTHERS && drawn < 32);
}

/* 1: its name is bad; draw again. */
int verbs_draws_hold(struct verbs_draws *d, enum name_known known, void *object);
/* Gives back what is held. @object, which may be NULL, with errno set; so it is where no good one was found (ENOMEM). */
void *verbs_draws_end(struct verbs_draws *d, void *object, int (*destroy)(void *object));
