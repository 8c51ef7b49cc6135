/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files without a name: a scratch file that is rewritten all the time, a second description of it with an offset of its own, a log that
 * grows and that a child appends to as well, one whose directory is gone, too, a large one with holes, and one that is to get its name when it is whole (O_TMPFILE).
 */
#include "feature.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE 100000
#define FAR (700l << 20)

static int scratch, reader, journal, homeless, large, draft;

static int deleted(const char *path, int flags)
{
	int fd = open(path, flags | O_CREAT | O_EXCL, 0600);

	CHECK(fd >= 0);
	return fd;
}

static void child(void)
{
	while (!feature_finished()) {
		CHECK(write(journal, "c", 1) == 1);
		feature_work();
	}
	_exit(0);
}

static void check(uint64_t step)
{
	static char page[SIZE];
	struct stat st;

	CHECK(pread(scratch, page, SIZE, 0) == SIZE && pattern_holds(page, SIZE, step));
	CHECK(lseek(scratch, 0, SEEK_CUR) == 77 && lseek(reader, 0, SEEK_CUR) == 99);
	CHECK(pread(reader, page, 8, SIZE - 8) == 8);
	pattern_fill(page, SIZE, step + 1);
	CHECK(pwrite(scratch, page, SIZE, 0) == SIZE);
	CHECK(pread(reader, page, SIZE, 0) == SIZE && pattern_holds(page, SIZE, step + 1));
	CHECK(write(journal, "p", 1) == 1);
	CHECK(fstat(homeless, &st) == 0 && st.st_nlink == 0 && st.st_size == 4 && (st.st_mode & 0777) == 0640);
}

/* Its last step's number stands at both ends. */
static void check_large(uint64_t step)
{
	uint64_t at[2] = { 0 };
	struct stat st;

	CHECK(pread(large, &at[0], 8, 0) == 8 && pread(large, &at[1], 8, FAR) == 8 && at[0] == step && at[1] == step);
	CHECK(fstat(large, &st) == 0 && st.st_size == FAR + SIZE && st.st_blocks * 512 < 1 << 20);
	step++;
	CHECK(pwrite(large, &step, 8, 0) == 8 && pwrite(large, &step, 8, FAR) == 8);
}

/* Where the file system has such files. */
static void check_draft(uint64_t steps)
{
	char path[64];
	struct stat st;

	if (draft < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", draft);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "draft", AT_SYMLINK_FOLLOW) == 0 && stat("draft", &st) == 0 && st.st_nlink == 1);
	CHECK((uint64_t)st.st_size == steps && (st.st_mode & 0777) == 0604 && (fcntl(draft, F_GETFL) & O_TMPFILE) == O_TMPFILE && unlink("draft") == 0);
}

/* As many bytes as there are steps, and whatever the child wrote: none lost. */
static void check_journal(uint64_t steps)
{
	uint64_t mine = 0;
	char c;

	CHECK(lseek(journal, 0, SEEK_SET) == 0);
	while (read(journal, &c, 1) == 1) {
		CHECK(c == 'p' || c == 'c');
		mine += c == 'p';
	}
	CHECK(mine == steps);
}

int main(void)
{
	static char page[SIZE];
	uint64_t step = 0;
	int status;
	pid_t pid;

	scratch = deleted("scratch", O_RDWR);
	pattern_fill(page, SIZE, 0);
	CHECK(write(scratch, page, SIZE) == SIZE && lseek(scratch, 77, SEEK_SET) == 77);
	CHECK((reader = open("scratch", O_RDONLY)) >= 0 && lseek(reader, 99, SEEK_SET) == 99 && unlink("scratch") == 0);
	journal = deleted("journal", O_RDWR | O_APPEND);
	CHECK(unlink("journal") == 0 && mkdir("gone", 0700) == 0);
	homeless = deleted("gone/file", O_WRONLY);
	CHECK(write(homeless, "text", 4) == 4 && fchmod(homeless, 0640) == 0 && unlink("gone/file") == 0 && rmdir("gone") == 0);
	large = deleted("large", O_RDWR);
	CHECK(unlink("large") == 0 && ftruncate(large, FAR + SIZE) == 0 && pwrite(large, &step, 8, 0) == 8 && pwrite(large, &step, 8, FAR) == 8);
	draft = open(".", O_TMPFILE | O_WRONLY, 0604);
	CHECK(draft >= 0 || errno == EOPNOTSUPP);
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	feature_ready();
	do {
		feature_work();
		check_large(step);
		check(step++);
		CHECK(draft < 0 || write(draft, "d", 1) == 1);
	} while (feature_step());
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	check_journal(step);
	check_draft(step);
	return 0;
}
