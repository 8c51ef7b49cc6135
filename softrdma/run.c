/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softrdma-run: runs a program with the software RDMA device. It puts libsoftrdma.so, found beside itself in
 * ../lib (or in $SOFTRDMA_LIBDIR), in front of LD_PRELOAD and becomes the program.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: softrdma-run [--] PROGRAM [ARGUMENT...]\n"
	"\n"
	"Runs PROGRAM with soft0, an RDMA device in software, in place of the host's devices.\n"
	"Programs of the same user on this host reach each other through it.\n"
	"\n"
	"  --help     this text\n"
	"  --version  the version\n"
	"\n"
	"SOFTRDMA_DIR      directory of the shared memory; default /dev/shm/softrdma-UID\n"
	"SOFTRDMA_DEVICES  how many devices, SOFTRDMA_PORTS  of how many ports: softrdma-run(1) has more\n"
	"SOFTRDMA_LIBDIR   where libsoftrdma.so is; default ../lib beside this program\n";

static int library_find(char *path, size_t size)
{
	const char *env = getenv("SOFTRDMA_LIBDIR");
	char self[PATH_MAX];
	ssize_t n;
	char *slash;

	if (env && *env)
		return snprintf(path, size, "%s/libsoftrdma.so", env) < (int)size ? 0 : -ENAMETOOLONG;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -errno;
	self[n] = 0;
	slash = strrchr(self, '/');
	*slash = 0;
	if (snprintf(path, size, "%s/../lib/libsoftrdma.so", self) < (int)size && !access(path, R_OK))
		return 0;
	/* In a build tree the two lie side by side. */
	return snprintf(path, size, "%s/libsoftrdma.so", self) < (int)size ? 0 : -ENAMETOOLONG;
}

int main(int argc, char **argv)
{
	const char *before = getenv("LD_PRELOAD");
	char path[2 * PATH_MAX];
	char *preload;
	int first = 1;

	if (argc > 1 && !strcmp(argv[1], "--help"))
		return fputs(help, stdout) < 0;
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return puts("softrdma-run " FERMATA_VERSION) < 0;
	if (argc > 1 && !strcmp(argv[1], "--"))
		first = 2;
	if (first >= argc || (first == 1 && argv[1][0] == '-')) {
		fputs(help, stderr);
		return 2;
	}
	if (library_find(path, sizeof(path)) || access(path, R_OK)) {
		fprintf(stderr, "softrdma-run: %s: %s\n", path, strerror(errno));
		return 1;
	}
	if (asprintf(&preload, "%s%s%s", path, before && *before ? ":" : "", before ? before : "") < 0 ||
	    setenv("LD_PRELOAD", preload, 1)) {
		perror("softrdma-run");
		return 1;
	}
	execvp(argv[first], argv + first);
	fprintf(stderr, "softrdma-run: %s: %s\n", argv[first], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
