/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The filter of a socket (SO_ATTACH_FILTER, socket(7)): its instructions are recorded as options of that name, two in each, and attached together. What lies in the queue has passed it and is
 * put back before. The kernel does not tell what is in a filter of eBPF, which is refused, nor in what chooses among sockets of a port (SO_ATTACH_REUSEPORT_*), which
 * is refused to the program (agent/wrap_async.c). No state.
 */
#include <errno.h>
#include <linux/filter.h>
#include <string.h>

#include "plugins/socket/socket.h"

#define EACH 2u /* instructions in an option */

static bool is_filter(const struct socket_option *o)
{
	return o->level == SOL_SOCKET && o->name == SO_ATTACH_FILTER;
}

int socket_filter_dump(int fd, struct socket_option *options, uint32_t room)
{
	struct sock_filter code[SOCKET_FILTER_MAX];
	int n = socket_get(fd, SOL_SOCKET, SO_GET_FILTER, code, ARRAY_SIZE(code)); /* counted in instructions, not bytes */
	uint32_t count = 0;

	if (n == -EINVAL || (n > 0 && ((uint32_t)n + EACH - 1) / EACH > room))
		return fermata_fail(-EOPNOTSUPP, "fd %d: the filter of its socket is too long to be held: take it off before the checkpoint (SO_DETACH_FILTER)", fd);
	if (n == -EACCES)
		return fermata_fail(-EOPNOTSUPP, "fd %d: its socket has a filter of eBPF, which cannot be read: take it off before the checkpoint (SO_DETACH_FILTER)", fd);
	for (int i = 0; i < n; i += (int)EACH) {
		uint32_t here = n - i < (int)EACH ? (uint32_t)(n - i) : EACH;

		options[count] = (struct socket_option){ .level = SOL_SOCKET, .name = SO_ATTACH_FILTER, .length = here * (uint32_t)sizeof(*code) };
		memcpy(options[count++].value, code + i, here * sizeof(*code));
	}
	return (int)count;
}

int socket_filter_restore(int fd, int number, const struct socket_option *o, uint32_t count)
{
	struct sock_filter code[SOCKET_FILTER_MAX];
	struct sock_fprog all = { .filter = code };
	int r;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t here = o[i].length / (uint32_t)sizeof(*code);

		if (!is_filter(&o[i]))
			continue;
		if (here > EACH || all.len + here > ARRAY_SIZE(code))
			return fermata_fail(-EBADMSG, "fd %d: the record of its socket's filter is damaged", number);
		memcpy(code + all.len, o[i].value, here * sizeof(*code));
		all.len = (uint16_t)(all.len + here);
	}
	r = all.len ? socket_set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) : 0;
	return r < 0 ? fermata_fail(r, "fd %d: the filter of its socket cannot be attached again (errno %d)", number, -r) : 0;
}
