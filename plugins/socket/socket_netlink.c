/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Netlink sockets: the program's way to ask the kernel. No state of its own. Each comes back with its address (port), groups and options;
 * one with answers or reports in its queue is refused: those cannot be put back, and a dump under way would go on elsewhere.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "plugins/socket/socket.h"

#define GROUPS_MAX 160 /* what a struct socket_option has room for */

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

int socket_netlink_claim(struct fermata_desc *d, struct socket_state *s)
{
	uint32_t groups[128] = { 0 };
	int n = socket_get(d->fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, sizeof(groups));

	s->record.kind = SOCKET_FRESH;
	if (socket_poll(d->fd, 1 /* POLLIN */, 0) & 1)
		return fermata_fail(-EAGAIN, "fd %d is a netlink socket with messages in its queue: try again when they have been read", d->fd);
	for (int i = GROUPS_MAX / 32; i < n / 4 && i < 128; i++)
		if (groups[i])
			return fermata_fail(-EOPNOTSUPP, "fd %d is a netlink socket in a group above %d, which is not supported", d->fd, GROUPS_MAX);
	return 0;
}

int socket_netlink_groups(int fd, struct socket_option *option)
{
	uint32_t groups[128] = { 0 };
	int n = socket_get(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, sizeof(groups));

	*option = (struct socket_option){ .level = SOL_NETLINK, .name = NETLINK_LIST_MEMBERSHIPS, .length = sizeof(option->value) };
	memcpy(option->value, groups, sizeof(option->value));
	return n > 0;
}

int socket_netlink_join(int fd, const struct socket_option *o)
{
	uint32_t groups[sizeof(o->value) / 4];
	int r = 0;

	memcpy(groups, o->value, sizeof(groups));
	for (int i = 0; i < GROUPS_MAX && r >= 0; i++)
		if (groups[i / 32] >> (i % 32) & 1)
			r = socket_set_int(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, i + 1);
	return r < 0 ? r : 0;
}

int socket_netlink_bind(int fd, int number, const struct socket_record *r)
{
	struct socket_name n = r->local;
	struct sockaddr_nl a;
	int err;

	memcpy(&a, n.bytes, sizeof(a));
	if (n.length < sizeof(a) || !a.nl_pid)
		return 0;
	a.nl_groups = 0;
	memcpy(n.bytes, &a, sizeof(a));
	err = socket_bind(fd, &n);
	if (err != -EADDRINUSE)
		return err;
	log_warn("fd %d, a netlink socket, has another port: %u is in use", number, a.nl_pid);
	a.nl_pid = 0;
	memcpy(n.bytes, &a, sizeof(a));
	return socket_bind(fd, &n);
}
