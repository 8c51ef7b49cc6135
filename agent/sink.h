/* SPDX-License-Identifier: BSD-2-Clause */
/* A record in the making: bytes that grow, in memory that is saved with the process. All zero is an empty sink. */
#pragma once

#include <stddef.h>

#include "fermata/plugin.h"

struct fermata_sink {
	char *data;
	size_t len, room;
};

void sink_done(struct fermata_sink *s);
