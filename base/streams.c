/* SPDX-License-Identifier: BSD-2-Clause */
/* See streams.h. One write adds all three, at the end: several who launch at once do not meet. No state. */
#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"

#define PATH 192u /* bytes: sockets there have paths of less (sun_path) */
#define AT_ONCE 32u

static int streams_open(const char *jobdir, int flags)
{
	char path[PATH];

	fm_format(path, sizeof(path), "%s/" STREAMS_FILE, jobdir);
	return raw_open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int streams_note(const char *jobdir)
{
	struct stream all[3];
	uint32_t n = 0;
	int fd, r;

	for (uint32_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct stat st;

		if (RAW2(SYS_fstat, i, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
			all[n++] = (struct stream){ st.st_dev, st.st_ino, (uint32_t)raw_fcntl((int)i, F_GETFL, 0) & O_ACCMODE, i };
	}
	if (!n)
		return 0;
	fd = streams_open(jobdir, O_WRONLY | O_CREAT | O_APPEND);
	if (fd < 0)
		return fd;
	r = raw_write_all(fd, all, n * sizeof(all[0]));
	raw_close(fd);
	return r;
}

int streams_each(const char *jobdir, void (*fn)(const struct stream *s, void *arg), void *arg)
{
	struct stream some[AT_ONCE];
	int fd = streams_open(jobdir, O_RDONLY);
	long n = 0;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	while ((n = raw_read(fd, some, sizeof(some))) > 0)
		for (uint32_t i = 0; i < (size_t)n / sizeof(some[0]); i++)
			fn(&some[i], arg);
	raw_close(fd);
	return n < 0 ? (int)n : 0;
}
