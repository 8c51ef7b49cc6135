/* SPDX-License-Identifier: BSD-2-Clause */
/* The built-in plugins, in the order in which descriptors are offered to them. NULL-ended. */
#pragma once

#include "fermata/plugin.h"

extern const struct fermata_plugin *const agent_plugins[];
