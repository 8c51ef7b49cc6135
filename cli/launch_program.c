/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that cannot be held are refused by name before they run, since the loader would leave libfermata.so out without a word:
 * statically linked (no loader at all), setuid (secure mode), of another CPU.
 */
#include "cli/launch_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define PROGRAM_SCRIPT_DEPTH 4
#define PROGRAM_PATH_MAX 4096

static int program_is_runnable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return access(path, X_OK) < 0 ? -errno : 0;
}

static int program_find(const char *program, char *ret, size_t size)
{
	const char *path = getenv("PATH");
	int found = -ENOENT;

	if (strchr(program, '/')) {
		if (snprintf(ret, size, "%s", program) >= (int)size)
			return -ENAMETOOLONG;
		return program_is_runnable(ret);
	}
	for (const char *at = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"; at;) {
		size_t len = strcspn(at, ":");
		int r = -ENAMETOOLONG;

		if (snprintf(ret, size, "%.*s%s%s", (int)len, at, len ? "/" : "./", program) < (int)size)
			r = program_is_runnable(ret);
		if (r == 0)
			return 0;
		/* A directory of PATH that cannot be looked into counts as one that has no such file, as in a shell. */
		if (r == -EACCES && access(ret, F_OK) == 0)
			found = r;
		at = at[len] ? at + len + 1 : NULL;
	}
	return found;
}

/* The loader that the program asks for; empty: none. */
static int program_loader(int fd, const Elf64_Ehdr *e, char *ret, size_t size)
{
	ret[0] = 0;
	for (int i = 0; i < e->e_phnum; i++) {
		Elf64_Phdr p;
		size_t len;

		if (pread(fd, &p, sizeof(p), (off_t)(e->e_phoff + (uint64_t)i * e->e_phentsize)) != sizeof(p))
			return -ENOEXEC;
		if (p.p_type != PT_INTERP)
			continue;
		len = p.p_filesz < size - 1 ? p.p_filesz : size - 1;
		if (pread(fd, ret, len, (off_t)p.p_offset) != (ssize_t)len)
			return -ENOEXEC;
		ret[len] = 0;
	}
	return 0;
}

static int program_check_elf(int fd, const char *path)
{
	char loader[256];
	const char *base;
	Elf64_Ehdr e;

	if (pread(fd, &e, sizeof(e), 0) != sizeof(e) || e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != EM_X86_64 ||
	    program_loader(fd, &e, loader, sizeof(loader)) < 0) {
		log_error("%s: not a program for x86-64; fermata cannot hold it", path);
		return -ENOEXEC;
	}
	if (!loader[0]) {
		log_error("%s: statically linked: fermata holds only programs that are linked dynamically; link it without "
			  "-static", path);
		return -ENOEXEC;
	}
	base = strrchr(loader, '/');
	if (strcmp(base ? base + 1 : loader, "ld-linux-x86-64.so.2")) {
		log_error("%s: linked with another C library than glibc (its loader is %s); fermata cannot hold it", path, loader);
		return -ENOEXEC;
	}
	return 0;
}

/* The interpreter of a script's first line. */
static int program_interpreter(const char *path, char *line, char *ret, size_t size)
{
	char *at = line + 2 + strspn(line + 2, " \t");
	size_t len = strcspn(at, " \t\n");

	if (!len || len >= size) {
		log_error("%s: its first line names no interpreter", path);
		return -ENOEXEC;
	}
	memcpy(ret, at, len);
	ret[len] = 0;
	return 0;
}

static int program_check_file(const char *path, int depth)
{
	char head[256] = "", interpreter[sizeof(head)];
	struct stat st;
	int fd, r;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		log_error("%s: it cannot be read, so it cannot be said whether fermata can hold it: %s", path, strerror(-r));
		return r;
	}
	r = fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0 && (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
		       ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getegid()))) {
		log_error("%s: setuid or setgid: the loader does not let fermata into such programs", path);
		r = -EPERM;
	}
	if (r == 0 && pread(fd, head, sizeof(head) - 1, 0) < 2)
		head[0] = 0;
	if (r < 0) {
		close(fd);
		return r;
	}
	if (!memcmp(head, ELFMAG, SELFMAG)) {
		r = program_check_elf(fd, path);
	} else if (head[0] == '#' && head[1] == '!' && depth < PROGRAM_SCRIPT_DEPTH) {
		r = program_interpreter(path, head, interpreter, sizeof(interpreter));
		if (r == 0)
			r = program_check_file(interpreter, depth + 1);
	} else {
		log_error("%s: neither a program nor a script with #!", path);
		r = -ENOEXEC;
	}
	close(fd);
	return r;
}

int launch_program_check(const char *program, char *ret_path, size_t size)
{
	int r = program_find(program, ret_path, size);

	if (r == -ENOENT && !strchr(program, '/'))
		log_error("%s: command not found", program);
	else if (r < 0)
		log_error("%s: %s", program, strerror(-r));
	return r < 0 ? r : program_check_file(ret_path, 0);
}
