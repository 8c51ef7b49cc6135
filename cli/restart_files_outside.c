/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of the files that are to be put back, those that a process which is not of the job has open for writing: whoever writes there would go on
 * writing into a file that is not in its place any more. So the restart is refused, with one exception: a file that is a standard output of the
 * job, and ours, or that of whoever started us: that is a log of several, which is left as it is, and the job goes on at its end.
 *
 * Processes that were killed a moment ago may still be on their way out: they get a second. Owns nothing.
 */
#include <ctype.h>
#include <dirent.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/restart_files.h"

#define PATIENCE 50 /* times 20 ms */

static bool is_for_writing(const char *pid, const char *fd)
{
	char path[300], line[128];
	unsigned int flags = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/fdinfo/%.20s", pid, fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "flags: %o", &flags) == 1)
			break;
	if (f)
		fclose(f);
	return (flags & 3) == 1 || (flags & 3) == 2;
}

/* A file that is to be put back. */
static struct restart_file *find(struct restart *r, const struct stat *st)
{
	for (size_t n = 0; n < r->contents->count; n++) {
		struct restart_file *f = &r->contents->all[n];

		if (f->state == RESTART_FILE_DIFFERS && f->dev == st->st_dev && f->ino == st->st_ino)
			return f;
	}
	return NULL;
}

static void say(const struct restart_file *f, const char *pid)
{
	char path[64], comm[64] = "?";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	file = fopen(path, "re");
	if (file && fgets(comm, sizeof(comm), file))
		comm[strcspn(comm, "\n")] = 0;
	if (file)
		fclose(file);
	warnx("%s has changed since the checkpoint, and process %s (%s) has it open for writing: end that, or take the file as it is: "
	      "--files=ignore", f->path, pid, comm);
}

/* 1: refused; @quiet: not said. */
static int look_at(struct restart *r, const char *pid, bool quiet)
{
	char path[64];
	struct dirent *e;
	struct stat st;
	int bad = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		struct restart_file *f;

		if (fstatat(dirfd(d), e->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode) || !(f = find(r, &st)) ||
		    !is_for_writing(pid, e->d_name))
			continue;
		if (f->content->flags & IMAGE_CONTENT_STANDARD && (!quiet || atoi(pid) == getpid())) {
			f->state = RESTART_FILE_LEFT;
			continue;
		}
		bad = 1;
		if (!quiet)
			say(f, pid);
	}
	if (d)
		closedir(d);
	return bad;
}

static int look_at_all(struct restart *r, bool quiet)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int bad = 0;

	while (d && (e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]))
			bad |= look_at(r, e->d_name, quiet);
	if (d)
		closedir(d);
	return bad;
}

int restart_files_check_outside(struct restart *r)
{
	const struct timespec moment = { .tv_nsec = 20000000 };
	bool any = false;
	int bad = 1;

	for (size_t n = 0; n < r->contents->count; n++)
		any |= r->contents->all[n].state == RESTART_FILE_DIFFERS;
	for (int i = 0; any && bad && i <= PATIENCE; i++) {
		bad = look_at_all(r, i < PATIENCE);
		if (bad && i < PATIENCE)
			nanosleep(&moment, NULL);
	}
	for (size_t n = 0; n < r->contents->count; n++)
		if (r->contents->all[n].state == RESTART_FILE_LEFT)
			warnx("%s is left as it is, since others write to it: the job's output goes on at its end", r->contents->all[n].path);
	return any && bad ? CLI_CANNOT : 0;
}
