/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Empty messages in the queue of a unix socket have no bytes for SO_PEEK_OFF to count, so the kernel marks each as it is seen and passes it over from then on. The first of
 * a queue a plain peek shows always; further ones nobody sees a second time. Where one has been, the next checkpoint of that queue is
 * refused unless the queue has been empty meanwhile. Each process knows what it has seen itself: where several hold the socket and another leads it by
 * then, the message is lost at a restart, and nobody notices. Owns the list of the sockets in which one has been seen.
 */
#include <errno.h>

#include "plugins/socket/socket.h"

struct seen {
	struct seen *next;
	uint64_t ino;
};
static struct seen *seen;

static struct seen **seen_at(uint64_t ino)
{
	struct seen **at = &seen;

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	return at;
}

int socket_seen_add(uint64_t ino)
{
	struct seen **at = seen_at(ino);

	if (!*at)
		*at = fermata_alloc(sizeof(**at));
	if (!*at)
		return -ENOMEM;
	(*at)->ino = ino;
	return 0;
}

void socket_seen_remove(uint64_t ino)
{
	struct seen **at = seen_at(ino), *old = *at;

	if (!old)
		return;
	*at = old->next;
	fermata_free(old);
}

void socket_seen_forget(void)
{
	while (seen)
		socket_seen_remove(seen->ino);
}

bool socket_seen(uint64_t ino)
{
	return *seen_at(ino) != NULL;
}
