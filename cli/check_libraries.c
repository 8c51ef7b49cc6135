/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata check PROG: the libraries, asked of the loader itself, which alone knows where it looks; it maps them and runs nothing of them. And what the
 * program and they import that a checkpoint may be refused for. Calls by number (syscall), and libraries that are loaded later, cannot be seen. No state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/check.h"
#include "cli/program_elf.h"

#define LOADER "/lib64/ld-linux-x86-64.so.2"

/* A name ending in * stands for all that begin so. */
static const struct use {
	const char *import, *name, *what, *remedy;
	bool program_alone; /* a library that has it may have it for others */
} uses[] = {
	{ "fanotify_init", "fanotify", "a checkpoint is refused, and names it, while one is open", "close it before the checkpoint", false },
	{ "io_uring_*", "io_uring", "it is refused to programs of a job, as by a kernel without it: most have another way", "let the program do without, if it can", false },
	{ "io_setup", "libaio", "it is refused to programs of a job, as by a kernel without it: most have another way", "let the program do without, if it can", false },
	{ "pfm_*", "perf events", "a checkpoint is refused, and names it, while one is open", "close it before the checkpoint", false },
	{ "seccomp_load", "seccomp filter", "a checkpoint is refused, and names it, once the program has made one", "switch its sandbox off, if it can", false },
	{ "unshare", "namespace", "a checkpoint is refused, and names it, once the program has one of its own", "begin the job in it", true },
	{ "setns", "namespace", "a checkpoint is refused, and names it, once the program has one of its own", "begin the job in it", true },
	{ "keyctl_*", "keyring", "a checkpoint is refused, and names it, once the program has keys of its own, or another session keyring, or has put keys into its session's", "keep keys elsewhere", true },
	{ "add_key", "keyring", "a checkpoint is refused, and names it, once the program has keys of its own, or has put keys into its session's", "keep keys elsewhere", true },
	{ "dlmopen", "dlmopen", "fermata does not see the calls of what is loaded so: its RDMA devices and threads are not held", NULL, false },
	{ "__asan_init", "AddressSanitizer", "a checkpoint is refused, and names it", "build it without, or with -fsanitize=undefined alone", false },
	{ "__tsan_init", "ThreadSanitizer", "a checkpoint is refused, and names it", "build it without", false },
	{ "mlx5dv_*", "direct verbs of mlx5", "they are told that the device is not theirs: plain verbs have to do", NULL, false },
	{ "mlx4dv_*", "direct verbs of mlx4", "they are told that the device is not theirs: plain verbs have to do", NULL, false },
	{ "efadv_*", "direct verbs of EFA", "they are told that the device is not theirs: plain verbs have to do", NULL, false },
};

struct scan {
	const char *file;
	struct check_report *report;
	bool program;
	bool seen[ARRAY_SIZE(uses)]; /* in this file */
};

static void check_import(void *arg, const char *name)
{
	struct scan *s = arg;

	if (!strncmp(name, "ibv_", 4))
		s->report->rdma = true;
	for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
		size_t len = strcspn(uses[i].import, "*");

		if (s->seen[i] || (uses[i].program_alone && !s->program) || strncmp(name, uses[i].import, len) || (!uses[i].import[len] && name[len]))
			continue;
		s->seen[i] = true;
		check_point(s->report, CHECK_NOTE, uses[i].name, uses[i].remedy, "%s calls %s: %s", s->file, name, uses[i].what);
	}
}

static void check_imports(const char *file, bool program, struct check_report *report)
{
	struct scan s = { .file = file, .report = report, .program = program };
	const char *other;
	struct elf_file f;
	int r = elf_file_open(file, &f, &other);

	if (!r)
		r = elf_file_imports(&f, check_import, &s);
	if (r == -ENODATA)
		check_point(report, CHECK_NOTE, "imports", NULL, "%s has no section headers: what it imports cannot be seen", file);
	else if (r == -EBADMSG)
		check_point(report, CHECK_NOTE, "imports", NULL, "%s: what it imports cannot be seen: %s", file, f.damage);
	else if (r)
		check_point(report, CHECK_NOTE, "imports", NULL, "%s cannot be read: %s", file, strerror(-r));
	elf_file_close(&f);
}

/* The loader's list as a stream; @ret: who writes it. */
static FILE *check_list(const char *file, pid_t *ret)
{
	int ends[2];

	if (pipe(ends) < 0)
		return NULL;
	fflush(stdout);
	*ret = fork();
	if (*ret == 0) {
		unsetenv("LD_PRELOAD");
		setenv("LD_TRACE_LOADED_OBJECTS", "1", 1); /* lists them, those that are missing, too, and runs nothing */
		if (dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0)
			_exit(127);
		close(ends[0]);
		execl(LOADER, LOADER, file, NULL);
		_exit(127);
	}
	close(ends[1]);
	if (*ret > 0)
		return fdopen(ends[0], "r");
	close(ends[0]);
	return NULL;
}

/* One line: "NAME => PATH (ADDRESS)", "NAME => not found", a complaint, or something of no matter. */
static void check_line(char *line, unsigned int *count, struct check_report *report)
{
	char *path = strstr(line, " => "), *end;

	line[strcspn(line, "\n")] = 0;
	line += strspn(line, " \t");
	if (strstr(line, "not found")) {
		check_point(report, CHECK_NO, "library", "install it, or name its directory in LD_LIBRARY_PATH", "%s", line);
		return;
	}
	path = path && path[4] == '/' ? path + 4 : NULL;
	end = path ? strstr(path, " (0x") : NULL;
	if (!end)
		return;
	*end = 0;
	++*count;
	check_imports(path, false, report);
}

void check_libraries(const char *file, struct check_report *report)
{
	unsigned int count = 0;
	char *line = NULL;
	size_t size = 0;
	int status = 0;
	bool before = report->refused;
	pid_t pid = 0;
	FILE *list = check_list(file, &pid);

	check_imports(file, true, report);
	while (list && getline(&line, &size, list) > 0)
		check_line(line, &count, report);
	free(line);
	if (list)
		fclose(list);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!list || status)
		check_point(report, report->refused ? CHECK_NOTE : CHECK_NO, "libraries", NULL, "the loader does not load %s", file);
	else if (report->refused == before)
		check_point(report, CHECK_YES, "libraries", NULL, "%u, all there", count);
}
