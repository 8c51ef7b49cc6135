/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets between processes of the job. None is claimed: a checkpoint names the socket that it cannot hold. */
#include "fermata/plugin.h"

extern const struct fermata_plugin plugin_socket;
const struct fermata_plugin plugin_socket = {
	.api = FERMATA_PLUGIN_API,
	.name = "socket",
};
