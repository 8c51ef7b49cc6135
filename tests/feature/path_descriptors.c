/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors of places (O_PATH): of a directory, which a file is opened in; of a file, which is opened through it; of a symbolic link itself; of a device. */
#include "feature.h"

#include <sys/stat.h>

static int folder, file, symbolic, device;

static void check(void)
{
	char text[32] = "", path[40];
	struct stat st;
	int fd = openat(folder, "below", O_RDONLY);

	CHECK(fd >= 0 && read(fd, text, sizeof(text)) == 5 && strcmp(text, "below") == 0 && close(fd) == 0);
	memset(text, 0, sizeof(text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	CHECK((fd = open(path, O_RDONLY)) >= 0 && read(fd, text, sizeof(text)) == 4 && strcmp(text, "text") == 0 && close(fd) == 0);
	CHECK(read(file, text, 1) == -1 && errno == EBADF && fcntl(file, F_GETFL) & O_PATH);
	memset(text, 0, sizeof(text));
	CHECK(readlinkat(symbolic, "", text, sizeof(text)) == 4 && strcmp(text, "file") == 0);
	CHECK(fstat(symbolic, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(fstat(device, &st) == 0 && S_ISCHR(st.st_mode) && fcntl(device, F_GETFL) & O_PATH);
}

int main(void)
{
	int fd;

	CHECK(mkdir("folder", 0700) == 0 && (fd = open("file", O_WRONLY | O_CREAT, 0600)) >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
	CHECK((fd = open("folder/below", O_WRONLY | O_CREAT, 0600)) >= 0 && write(fd, "below", 5) == 5 && close(fd) == 0);
	CHECK(symlink("file", "symbolic") == 0);
	CHECK((folder = open("folder", O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0 && (file = open("file", O_PATH)) >= 0);
	CHECK((symbolic = open("symbolic", O_PATH | O_NOFOLLOW)) >= 0 && (device = open("/dev/null", O_PATH)) >= 0);
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	return 0;
}
