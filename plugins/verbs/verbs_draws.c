/* SPDX-License-Identifier: BSD-2-Clause */
#include "plugins/verbs/verbs_draws.h"

#include <errno.h>

#include "base/log.h"
#include "plugins/verbs/verbs_backend.h"

/* Devices that count meet the old names one after another: as many as a process had, or all of a host. */
#define MOST 16384u

int verbs_draws_hold(struct verbs_draws *d, enum name_known known, void *object)
{
	if (!verbs_name_is_bad(known, d->count))
		return 0;
	if (!d->held)
		d->held = fermata_alloc(MOST * sizeof(*d->held));
	if (!d->held || d->count == MOST) {
		d->last = object;
		return 0;
	}
	d->held[d->count++] = object;
	return 1;
}

void *verbs_draws_end(struct verbs_draws *d, void *object, int (*destroy)(void *object))
{
	int err = errno;

	if (object && object == d->last) {
		log_error("the device gives no name that is none of before the restart, %u times: the program is told that there is no memory for more", d->count);
		destroy(object);
		object = NULL;
		err = ENOMEM;
	}
	while (d->count)
		destroy(d->held[--d->count]);
	fermata_free(d->held);
	errno = err;
	return object;
}
