/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softrdma-run: runs a program with the software RDMA device. It puts libsoftrdma.so, found beside itself in
 * ../lib (or in $SOFTRDMA_LIBDIR), in front of LD_PRELOAD and becomes the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
	"usage: softrdma-run [--] PROGRAM [ARGUMENT...]\n"
	"\n"
	"Runs PROGRAM with soft0, an RDMA device in software, in place of the host's devices.\n"
	"Programs of the same user on this host reach each other through it, and those on\n"
	"other hosts that have the same key.\n"
	"\n"
	"  --help      this text\n"
	"  --version   the version\n"
	"  --make-key  makes a key for the network, if there is none\n"
	"\n"
	"SOFTRDMA_KEY      file with the key; default ~/.config/softrdma/key\n"
	"SOFTRDMA_ADDRESS  interface or address of this host on the network, IPv4 or IPv6\n"
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

/* Where the library looks (net_address.c); folders on the way are made. */
static int key_path(char *path, size_t size)
{
	const char *file = getenv("SOFTRDMA_KEY"), *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *slash;
	int n;

	if (file && *file)
		n = snprintf(path, size, "%s", file);
	else if (config && *config)
		n = snprintf(path, size, "%s/softrdma/key", config);
	else if (home && *home)
		n = snprintf(path, size, "%s/.config/softrdma/key", home);
	else
		return -ENOENT;
	if (n >= (int)size)
		return -ENAMETOOLONG;
	for (slash = strchr(path + 1, '/'); slash && !(file && *file); slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0700) && errno != EEXIST)
			n = -errno;
		*slash = '/';
		if (n < 0)
			return n;
	}
	return 0;
}

static int key_make(void)
{
	unsigned char bytes[32];
	char path[PATH_MAX], text[2 * sizeof(bytes) + 2];
	size_t i;
	int fd, err = key_path(path, sizeof(path));

	if (err) {
		fprintf(stderr, "softrdma-run: no place for a key: %s\n", strerror(-err));
		return 1;
	}
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
		perror("softrdma-run: getrandom");
		return 1;
	}
	for (i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * sizeof(bytes)] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, 2 * sizeof(bytes) + 1) != 2 * sizeof(bytes) + 1 || close(fd)) {
		fprintf(stderr, "softrdma-run: %s: %s\n", path, strerror(errno));
		return 1;
	}
	printf("%s\n", path);
	return 0;
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
	if (argc > 1 && !strcmp(argv[1], "--make-key"))
		return key_make();
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
