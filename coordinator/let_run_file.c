/* SPDX-License-Identifier: BSD-2-Clause */
/* The file by which a process that is let run, and who traces it, tell each other how far they are (base/let_run.h): the tracer's side. No state. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/host_id.h"
#include "base/log.h"
#include "base/sys.h"
#include "coordinator/internal.h"

/* The process' number in its own pid namespace: the last one. */
static uint32_t inner_pid(pid_t outer)
{
	char path[64], text[4096], *p;
	uint32_t pid = 0;

	fm_format(path, sizeof(path), "/proc/%d/status", outer);
	if (raw_read_file(path, text, sizeof(text)) < 0 || !(p = strstr(text, "\nNSpid:")))
		return (uint32_t)outer; /* before Linux 4.1 */
	for (p += 7; *p == '\t' || (*p >= '0' && *p <= '9'); p++)
		pid = *p == '\t' ? 0 : pid * 10 + (uint32_t)(*p - '0');
	return pid;
}

int let_run_file_make(struct let_run_file *f, const char *jobdir, pid_t outer, int sig)
{
	const uint32_t pid = inner_pid(outer);
	uint64_t where;
	char ns[64], text[16];
	int fd, r;

	fm_format(ns, sizeof(ns), "/proc/%d/ns/pid", outer);
	where = host_id_where_of(host_id_boot(), ns);
	let_run_path(f->path, jobdir, where, pid, "");
	let_run_path(f->stopped, jobdir, where, pid, LET_RUN_STOPPED);
	let_run_path(f->through, jobdir, where, pid, LET_RUN_THROUGH);
	let_run_file_remove(f); /* of a tracer that was killed */
	fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	fm_format(text, sizeof(text), "%d\n", sig);
	r = raw_write_all(fd, text, strlen(text));
	close(fd);
	if (r < 0)
		let_run_file_remove(f);
	return r;
}

bool let_run_file_is(const char *path)
{
	return access(path, F_OK) == 0;
}

void let_run_file_remove(const struct let_run_file *f)
{
	unlink(f->path);
	unlink(f->stopped);
	unlink(f->through);
}
