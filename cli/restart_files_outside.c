/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Of the files that are to be put back, those that a process which is not of the job has open for writing: whoever writes there would go on
 * writing into a file that is not in its place any more. So the restart is refused, with one exception: a file that is a standard output of the
 * job, and ours, or that of whoever started us: that is a log of several, which is left as it is, and the job goes on at its end. What is in a directory of --with (restart_trees.c) is looked at in the same way.
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

static const char *judge(struct restart *r, const struct stat *st, bool ours, bool last)
{
	struct restart_file *f = find(r, st);

	if (f && f->content->flags & IMAGE_CONTENT_STANDARD && (last || ours)) {
		f->state = RESTART_FILE_LEFT;
		return NULL;
	}
	return f ? f->path : NULL;
}

static void say(const char *file, const char *pid)
{
	char path[64], comm[64] = "?";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	f = fopen(path, "re");
	if (f && fgets(comm, sizeof(comm), f))
		comm[strcspn(comm, "\n")] = 0;
	if (f)
		fclose(f);
	warnx("%s has changed since the checkpoint, and process %s (%s) has it open for writing: end that, or take the file as it is: "
	      "--files=ignore", file, pid, comm);
}

/* True: refused; said if it is the @last time. */
static bool look_at(struct restart *r, restart_outside_judge *judge, const char *pid, bool last)
{
	char path[64];
	bool bad = false;
	struct dirent *e;
	struct stat st;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		const char *file;

		if (fstatat(dirfd(d), e->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode) || !is_for_writing(pid, e->d_name) ||
		    !(file = judge(r, &st, atoi(pid) == getpid(), last)))
			continue;
		bad = true;
		if (last)
			say(file, pid);
	}
	if (d)
		closedir(d);
	return bad;
}

bool restart_outside_writes(struct restart *r, restart_outside_judge *judge)
{
	const struct timespec moment = { .tv_nsec = 20000000 };
	bool bad = true;

	for (int i = 0; bad && i <= PATIENCE; i++) {
		DIR *d = opendir("/proc");
		struct dirent *e;

		bad = false;
		while (d && (e = readdir(d)))
			if (isdigit((unsigned char)e->d_name[0]))
				bad |= look_at(r, judge, e->d_name, i == PATIENCE);
		if (d)
			closedir(d);
		if (bad && i < PATIENCE)
			nanosleep(&moment, NULL);
	}
	return bad;
}

int restart_files_check_outside(struct restart *r)
{
	bool any = false, bad;

	for (size_t n = 0; n < r->contents->count; n++)
		any |= r->contents->all[n].state == RESTART_FILE_DIFFERS;
	bad = any && restart_outside_writes(r, judge);
	for (size_t n = 0; n < r->contents->count; n++)
		if (r->contents->all[n].state == RESTART_FILE_LEFT)
			warnx("%s is left as it is, since others write to it: the job's output goes on at its end", r->contents->all[n].path);
	return bad ? CLI_CANNOT : 0;
}
