/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where unix sockets are bound by relative names: the kernel keeps the name alone, and whoever has gone to another directory since (a daemon) would have his socket there after a restart. Owns the
 * directory of the last such name, and whether there were several; written by threads of the program, as whole words, and for a restart while all of them stand.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/agent.h"
#include "agent/wrap.h"

static struct {
	uint64_t dev, ino;
	bool any, several;
} relative;
static bool at_home; /* in QUIESCE: the present directory is that one */

static bool is_here(void)
{
	struct stat st;

	return !RAW4(SYS_newfstatat, AT_FDCWD, ".", &st, 0) && st.st_dev == relative.dev && st.st_ino == relative.ino;
}

static void note_here(void)
{
	struct stat st;

	if (RAW4(SYS_newfstatat, AT_FDCWD, ".", &st, 0))
		return;
	relative.dev = st.st_dev;
	relative.ino = st.st_ino;
}

EXPORT int bind(int fd, const struct sockaddr *a, socklen_t length)
{
	const char *path = ((const struct sockaddr_un *)(const void *)a)->sun_path;
	int r;

	WRAP_READY(bind);
	r = real.bind(fd, a, length);
	if (likely(r || length <= offsetof(struct sockaddr_un, sun_path) || a->sa_family != AF_UNIX || !*path || *path == '/'))
		return r;
	if (relative.any && !is_here())
		relative.several = true;
	note_here();
	relative.any = true;
	return r;
}

void bound_note(void)
{
	at_home = relative.any && is_here();
}

void bound_restarted(void)
{
	if (at_home)
		note_here();
}

int fermata_bound_elsewhere(void)
{
	return relative.any && (relative.several || !is_here());
}
