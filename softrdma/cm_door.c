/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doors: where the two ends of a connection find each other in another life, when a restart has brought them to different hosts (cm_join.c). Who was asked listens at an abstract
 * name, which is his host's; his process opens a TCP port as well, and whoever has asked dials the doors of the other hosts, one after the other, first that of the process that he knows, with a JOIN
 * instead of a request. The thread behind a door takes it to the name (cm_hello.c), if that is its own process's: the connection goes through that thread from then on, and ends with it.
 *
 * Owns the list of others' doors. Who brings processes back says them between load and join (softrdma_cm_door_at), when nothing is being dialled by them.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/cm_net.h"
#include "softrdma/cm_saved.h"
#include "softrdma/device.h"

#define BACKLOG 1024

static struct door {
	uint8_t address[16];
	uint32_t pid;
	uint16_t port;
} *doors; /* of the process's arena */
static uint32_t count, room;

EXPORT int softrdma_cm_door_at(const void *address, uint16_t port, uint32_t pid)
{
	struct door *more = doors;

	if (!cm_process)
		return 0;
	if (count == room) {
		more = arena_realloc(&cm_process->arena, doors, (room * 2 + 16) * sizeof(*doors));
		if (!more)
			return -ENOMEM;
		doors = more;
		room = room * 2 + 16;
	}
	memcpy(doors[count].address, address, sizeof(doors[count].address));
	doors[count].port = port;
	doors[count++].pid = pid;
	return 0;
}

/* The @nth of those that are process @pid's, or are not. */
static const struct door *door_find(uint32_t pid, int is_its, uint32_t *nth)
{
	for (uint32_t i = 0; i < count; i++)
		if ((doors[i].pid == pid) == is_its && !(*nth)--)
			return &doors[i];
	return NULL;
}

socklen_t cm_door_address(uint32_t nth, uint32_t pid, union cm_addr *ret)
{
	const struct door *d = door_find(pid, 1, &nth);

	if (!d)
		d = door_find(pid, 0, &nth);
	if (!d)
		return 0;
	cm_address_of_ip(d->address, d->port, ret);
	return (socklen_t)cm_address_len(ret);
}

int cm_door_knock(const uint8_t name[CM_NAME], int own)
{
	struct sockaddr_un sa;
	struct ucred c = { 0 };
	unsigned int n = sizeof(c);
	int len = cm_meeting_address(name, &sa), fd = sr_socket(AF_UNIX, SOCK_SEQPACKET), err;

	if (fd < 0)
		return fd;
	err = (int)RAW3(SYS_connect, fd, &sa, len);
	if (!err && RAW5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
		err = -ECONNREFUSED;
	if (!err && (c.uid != (uid_t)RAW0(SYS_geteuid) || (own && c.pid != raw_getpid())))
		err = -ECONNREFUSED;
	if (!err)
		return fd;
	sr_close(fd);
	return err;
}

/* IPv4's guests come to IPv6's socket, too, where there is IPv6. */
static int door_socket(int family, union cm_addr *at)
{
	int fd = sr_socket(family, SOCK_STREAM), no = 0, err;
	socklen_t len;

	if (fd < 0)
		return fd;
	memset(at, 0, sizeof(*at));
	at->family = (uint16_t)family;
	len = (socklen_t)cm_address_len(at);
	if (family == AF_INET6)
		RAW5(SYS_setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	err = (int)RAW3(SYS_bind, fd, at, len);
	if (!err)
		err = (int)RAW2(SYS_listen, fd, BACKLOG);
	if (!err)
		err = (int)RAW3(SYS_getsockname, fd, at, &len);
	if (!err)
		return fd;
	sr_close(fd);
	return err;
}

static int is_awaited(void)
{
	struct cm_channel *ch;
	struct cm_id *id;

	list_each(ch, &cm_process->channels, link)
		list_each(id, &ch->ids, link)
			if (id->rejoin == REJOIN_ACCEPT)
				return 1;
	return 0;
}

EXPORT int softrdma_cm_door(void)
{
	union cm_addr at;
	int fd, err;

	count = room = 0; /* a life before */
	doors = NULL;
	if (!cm_process || !is_awaited() || !cm_net_here())
		return 0;
	fd = door_socket(AF_INET6, &at);
	if (fd < 0)
		fd = door_socket(AF_INET, &at);
	if (fd < 0)
		return fd;
	err = cm_net_listener_add(NULL, fd, CM_DOOR, 0);
	return err ? err : cm_address_port(&at);
}
