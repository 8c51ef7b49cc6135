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

int let_run_file_make(struct let_run_file *f, const char *jobdir, pid_t outer, int sig)
{
	const uint32_t pid = raw_process_inner(outer);
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
