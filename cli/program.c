/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that cannot be held are known by name before they run, since the loader would leave libfermata.so out without a word:
 * statically linked (no loader at all), setuid or with capabilities (secure mode), of another CPU. Says why, and logs nothing: `launch` refuses
 * them, `check` tells of them. No state.
 */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/program_elf.h"

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

int program_find(const char *program, char *ret, size_t size)
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

__attribute__((format(printf, 4, 5))) static int program_refuse(struct program_refusal *ret, int err, const char *remedy, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ret->why, sizeof(ret->why), fmt, ap);
	va_end(ap);
	ret->remedy = remedy;
	return err;
}

/* Says who loads it, if it is the loader that libfermata.so can be told to. */
static int program_check_loader(struct elf_file *f, char *loader, size_t size, struct program_refusal *ret)
{
	const char *base;

	if (elf_file_loader(f, loader, size) < 0)
		return program_refuse(ret, -ENOEXEC, NULL, "damaged: %s", f->damage);
	if (!loader[0])
		return program_refuse(ret, -ENOEXEC, "link it without -static; of Go: with cgo (CGO_ENABLED=1 and import \"C\")",
				      "statically linked: fermata holds only programs that are linked dynamically");
	base = strrchr(loader, '/');
	if (strcmp(base ? base + 1 : loader, "ld-linux-x86-64.so.2"))
		return program_refuse(ret, -ENOEXEC, NULL, "linked with another C library than glibc (its loader is %s); fermata cannot hold it",
				      loader);
	if (access(loader, X_OK) < 0)
		return program_refuse(ret, -ENOEXEC, "install libc6", "its loader %s: %s", loader, strerror(errno));
	return 0;
}

static int program_check_elf(const char *path, struct program_refusal *ret)
{
	char loader[256];
	const char *other;
	struct elf_file f;
	int r = elf_file_open(path, &f, &other);

	if (r == -ENOEXEC && *other)
		r = program_refuse(ret, r, NULL, "not a program for x86-64 (%s); fermata cannot hold it", other);
	else if (r == -EBADMSG)
		r = program_refuse(ret, -ENOEXEC, NULL, "damaged: %s", f.damage);
	else if (r < 0)
		r = program_refuse(ret, r, NULL, "%s", strerror(-r));
	else
		r = program_check_loader(&f, loader, sizeof(loader), ret);
	elf_file_close(&f);
	return r;
}

/* Whether the kernel would start it with rights that its user has not, and so the loader in secure mode. */
static int program_check_rights(int fd, struct program_refusal *ret)
{
	struct statvfs fs;
	struct stat st;

	if (fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0)
		return program_refuse(ret, -errno, NULL, "%s", strerror(errno));
	if (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
	    ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getegid()))
		return program_refuse(ret, -EPERM, NULL, "setuid or setgid: the loader does not let fermata into such programs");
	if (geteuid() && !(fs.f_flag & ST_NOSUID) && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return program_refuse(ret, -EPERM, "run a copy of it, which has none",
				      "it has file capabilities: the loader does not let fermata into such programs");
	return 0;
}

/* The interpreter of a script's first line; where that is env, which looks in PATH, what env would run. */
static int program_interpreter(const char *line, char *ret, size_t size, struct program_refusal *refusal)
{
	const char *at = line + 2 + strspn(line + 2, " \t"), *base;
	char name[256];
	size_t len = strcspn(at, " \t\n");

	if (!len || len >= size)
		return program_refuse(refusal, -ENOEXEC, NULL, "its first line names no interpreter");
	snprintf(ret, size, "%.*s", (int)len, at);
	if (access(ret, F_OK) < 0)
		return program_refuse(refusal, -ENOENT, "install it", "its interpreter %s: %s", ret, strerror(errno));
	base = strrchr(ret, '/');
	at += len + strspn(at + len, " \t");
	len = strcspn(at, " \t\n");
	if (strcmp(base ? base + 1 : ret, "env") || !len || len >= sizeof(name) || *at == '-' || memchr(at, '=', len))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)len, at);
	if (program_find(name, ret, size) < 0)
		return program_refuse(refusal, -ENOENT, "install it", "its interpreter %s is not in PATH", name);
	return 0;
}

static int program_check_file(char *file, size_t size, int depth, struct program_refusal *ret)
{
	char head[256] = "", interpreter[PROGRAM_PATH_MAX];
	int fd = open(file, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return program_refuse(ret, -errno, NULL, "it cannot be read, so it cannot be said whether fermata can hold it: %s", strerror(errno));
	r = program_check_rights(fd, ret);
	if (!r && pread(fd, head, sizeof(head) - 1, 0) < 2)
		head[0] = 0;
	close(fd);
	if (r < 0)
		return r;
	if (!memcmp(head, "\177ELF", 4))
		return program_check_elf(file, ret);
	if (head[0] != '#' || head[1] != '!' || depth >= PROGRAM_SCRIPT_DEPTH)
		return program_refuse(ret, -ENOEXEC, NULL, "neither a program nor a script with #!");
	r = program_interpreter(head, interpreter, sizeof(interpreter), ret);
	if (r < 0)
		return r;
	snprintf(file, size, "%s", interpreter);
	return program_check_file(file, size, depth + 1, ret);
}

int program_check(const char *path, char *ret_file, size_t size, struct program_refusal *ret)
{
	*ret = (struct program_refusal){ 0 };
	snprintf(ret_file, size, "%s", path);
	return program_check_file(ret_file, size, 0, ret);
}
