/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names that outlast a restart: for programs that are begun in the job afterwards (exec, posix_spawn, a launch that joins it), which were not there
 * when everybody learnt them. They lie in RUNDIR/JOB/names, as in a MSG_NAMES_REPLY (doc/protocol.md); the coordinator of the next restart begins without that
 * file. Owns it.
 *
 * They are names of the whole job: whatever stands in one directory may be of several hosts. All processes of a restart have the same ones, so the first one to make the file fills it. It is whole before anybody can read it: it is written in RECONNECT,
 * and until all have done that and REFILL no program runs; who cannot write it ends the restart.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

struct keeping {
	int fd;
	uint64_t at;
	uint32_t count;
};

static void kept_path(char *to, size_t size)
{
	fm_format(to, size, "%s/names", agent.jobdir);
}

static int count_one(const void *key, size_t keylen, const void *value, size_t len, void *arg)
{
	(*(uint32_t *)arg)++;
	return 0;
}

static int keep_one(const void *key, size_t keylen, const void *value, size_t len, void *arg)
{
	struct msg_name e = { .kind = MSG_NAME_JOB_PUBLISH, .key_length = (uint16_t)keylen, .value_length = (uint16_t)len };
	struct keeping *k = arg;
	uint8_t bytes[sizeof(e) + 64 + 1024 + 8] = { 0 }; /* as names.c limits them */
	size_t n = ALIGN_UP(sizeof(e) + keylen + len, (size_t)8);
	int r;

	if (n > sizeof(bytes))
		return -EMSGSIZE;
	memcpy(bytes, &e, sizeof(e));
	memcpy(bytes + sizeof(e), key, keylen);
	memcpy(bytes + sizeof(e) + keylen, value, len);
	r = raw_pwrite_all(k->fd, bytes, n, k->at);
	k->at += n;
	k->count++;
	return r;
}

static int keep_all(int fd, const char *prefix)
{
	struct keeping k = { .fd = fd, .at = sizeof(struct msg_names) };
	int r = names_each_job(prefix, keep_one, &k);
	struct msg_names head = { .count = k.count };

	return r ? r : raw_pwrite_all(fd, &head, sizeof(head), 0);
}

int fermata_names_keep(const char *prefix)
{
	char path[sizeof(agent.jobdir) + 8];
	uint32_t count = 0;
	int fd, r;

	names_each_job(prefix, count_one, &count);
	if (!count)
		return 0;
	kept_path(path, sizeof(path));
	fd = raw_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd == -EEXIST)
		return 0;
	r = fd < 0 ? fd : keep_all(fd, prefix);
	if (fd >= 0)
		raw_close(fd);
	return r < 0 ? fermata_fail(r, "%s cannot be written (errno %d): make room there, or set FERMATA_RUNDIR to another place", path, -r) : 0;
}

static int take_file(int fd)
{
	struct link_message m = { .type = MSG_NAMES_REPLY };
	struct stat st;
	void *p;
	int r = (int)RAW2(SYS_fstat, fd, &st);

	if (r < 0)
		return r;
	if (st.st_size < (off_t)sizeof(struct msg_names) || st.st_size > UINT32_MAX)
		return -EPROTO;
	m.length = (uint32_t)st.st_size;
	p = raw_mmap(NULL, m.length, PROT_READ, MAP_PRIVATE, fd, 0);
	if (raw_is_error(p))
		return (int)(intptr_t)p;
	m.data = p;
	r = names_take(&m);
	raw_munmap(p, m.length);
	return r;
}

int fermata_names_kept(void)
{
	char path[sizeof(agent.jobdir) + 8];
	int fd, r;

	if (!agent.active)
		return 0;
	kept_path(path, sizeof(path));
	fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd == -ENOENT)
		return 0;
	r = fd < 0 ? fd : take_file(fd);
	if (fd >= 0)
		raw_close(fd);
	if (r < 0)
		log_error("%s, which has the names that the job's processes were told before its restart, cannot be read (errno %d)", path, -r);
	return r < 0 ? r : 1;
}

void fermata_names_done(void)
{
	names_clear();
}
