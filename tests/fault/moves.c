/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Works in a directory that is moved while it is away: holds files open and mapped, a directory, a FIFO, sockets with names, a watch, a deleted file, and is a program of
 * the directory above itself. It learns where it is from the kernel alone, each time when that has changed, and fails if anything it has leads to another place.
 * `moves child` is what it begins: that ends with 0 if it is of the job. With a file `fail` in its directory it ends with 3, after having removed that.
 */
#include "tests/feature/feature.h"

#include <dirent.h>
#include <limits.h>
#include <stddef.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define PAGES 4
#define PAGE 4096

static char base[PATH_MAX]; /* the directory above the one that it works in */
static int log_fd, input, fifo, listener, client, server, datagram, watch, deleted;
static char *shared, *private, **kept; /* kept: a copy of the environment */
static unsigned int steps, held = 3; /* of the input, up to there it has been read */

/* ---- names ---- */

static int is_ours(const char *path)
{
	return !strncmp(path, base, strlen(base)) && path[strlen(base)] == '/';
}

static void learn_base(void)
{
	CHECK(getcwd(base, sizeof(base)));
	*strrchr(base, '/') = 0;
}

static struct sockaddr_un name(const char *file)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char cwd[PATH_MAX];

	CHECK(getcwd(cwd, sizeof(cwd)));
	CHECK(snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/%s", cwd, file) < (int)sizeof(a.sun_path) && strlen(cwd) < 80);
	return a;
}

static void check_name(int fd, int (*get)(int, struct sockaddr *, socklen_t *), const char *file)
{
	struct sockaddr_un is = { 0 }, want = name(file);
	socklen_t size = sizeof(is);

	CHECK(get(fd, (struct sockaddr *)&is, &size) == 0);
	if (strcmp(is.sun_path, want.sun_path))
		feature_fail("a socket is called %s, not %s", is.sun_path, want.sun_path);
}

static int bound(int type, const char *file)
{
	struct sockaddr_un a = name(file);
	int fd = socket(AF_UNIX, type, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static void check_link(const char *link)
{
	char to[PATH_MAX];
	ssize_t n = readlink(link, to, sizeof(to) - 1);

	CHECK(n > 0);
	to[n] = 0;
	if (to[0] == '/' && strncmp(to, "/proc/", 6) && strncmp(to, "/dev/", 5) && !is_ours(to))
		feature_fail("%s leads to %s, which is not below %s", link, to, base);
}

static void check_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	char link[300];

	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		if (atoi(e->d_name) > STDERR_FILENO) {
			snprintf(link, sizeof(link), "/proc/self/fd/%s", e->d_name);
			check_link(link);
		}
	closedir(d);
	check_link("/proc/self/exe");
}

/* Both files are mapped, and nothing of the program's from elsewhere. */
static void check_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 128];
	int found = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		const char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = 0;
		if (!path || !(strstr(path, "/run/shared") || strstr(path, "/run/private") || strstr(path, "/bin/moves")))
			continue;
		found++;
		if (!is_ours(path))
			feature_fail("%s is mapped, which is not below %s", path, base);
	}
	fclose(f);
	CHECK(found >= 3);
}

/* ---- what is in them ---- */

static void check_files(void)
{
	char text[64] = "";
	struct stat a, b;

	CHECK(fstat(log_fd, &a) == 0 && stat("log", &b) == 0 && a.st_ino == b.st_ino && a.st_size == (off_t)steps);
	CHECK(lseek(input, 0, SEEK_CUR) == (off_t)held && pread(input, text, 10, 0) == 10 && !strcmp(text, "0123456789"));
	CHECK(pread(deleted, text, 4, 0) == 4 && !strncmp(text, "gone", 4) && fstat(deleted, &a) == 0 && a.st_nlink == 0);
	CHECK(pattern_holds(shared, PAGES * PAGE, 7) && pattern_holds(private, PAGE, 9) && pattern_holds(private + PAGE, PAGE, 8));
	CHECK(write(fifo, "x", 1) == 1 && read(fifo, text, 1) == 1);
}

static void check_sockets(void)
{
	struct sockaddr_un from = { 0 }, sender = name("sender"), to = name("listener");
	socklen_t size = sizeof(from);
	int fresh = socket(AF_UNIX, SOCK_STREAM, 0), other;
	char text[8];

	check_name(listener, getsockname, "listener");
	check_name(server, getsockname, "listener");
	check_name(server, getpeername, "client");
	check_name(client, getpeername, "listener");
	check_name(datagram, getsockname, "datagram");
	CHECK(recvfrom(datagram, text, sizeof(text), MSG_PEEK | MSG_DONTWAIT, (struct sockaddr *)&from, &size) == 2);
	CHECK(!strcmp(from.sun_path, sender.sun_path));
	CHECK(connect(fresh, (struct sockaddr *)&to, sizeof(to)) == 0);
	other = accept(listener, NULL, NULL);
	CHECK(other >= 0 && close(other) == 0 && close(fresh) == 0);
}

static void check_watch(void)
{
	char room[4096];

	CHECK(mkdir("watched/new", 0700) == 0 && read(watch, room, sizeof(room)) > 0 && rmdir("watched/new") == 0);
}

static void check_child(char **environment)
{
	char *const argv[] = { "moves", "child", NULL };
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		execve("/proc/self/exe", argv, environment);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* What is begun now is of the job, too: with the environment, with a copy that the program has kept of it, with none, by libc. */
static void check_children(void)
{
	char command[PATH_MAX], *none[] = { NULL };

	check_child(environ);
	check_child(kept);
	check_child(none);
	snprintf(command, sizeof(command), "%.4000s/bin/moves child", base);
	CHECK(system(command) == 0);
}

static int child(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 128];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "/libfermata.so"))
			return 0;
	return getenv("FERMATA_JOBDIR") ? 1 : 0; /* or in no job at all */
}

/* ---- its life ---- */

static char *map(const char *file, int flags, uint64_t seed)
{
	int fd = open(file, O_RDWR | O_CREAT, 0600);
	char *p;

	CHECK(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
	p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	for (int i = 0; i < PAGES; i++)
		pattern_fill(p + i * PAGE, PAGE, flags == MAP_SHARED ? seed + (uint64_t)i * PAGE / 8 : seed);
	if (flags == MAP_PRIVATE) {
		CHECK(munmap(p, PAGES * PAGE) == 0);
		p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		CHECK(p != MAP_FAILED);
		pattern_fill(p, PAGE, 9);
	}
	CHECK(close(fd) == 0);
	return p;
}

static void open_files(void)
{
	char text[4];

	log_fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	input = open("input", O_RDWR | O_CREAT, 0600);
	CHECK(log_fd >= 0 && input >= 0 && write(input, "0123456789", 10) == 10 && close(input) == 0);
	input = open("input", O_RDONLY);
	CHECK(input >= 0 && read(input, text, held) == (ssize_t)held);
	deleted = open("deleted", O_RDWR | O_CREAT, 0600);
	CHECK(deleted >= 0 && write(deleted, "gone", 4) == 4 && unlink("deleted") == 0);
	CHECK(open(".", O_RDONLY | O_DIRECTORY) >= 0 && open("input", O_PATH) >= 0);
	CHECK(mkfifo("fifo", 0600) == 0);
	fifo = open("fifo", O_RDWR);
	CHECK(fifo >= 0);
	shared = map("shared", MAP_SHARED, 7);
	private = map("private", MAP_PRIVATE, 8);
}

static void open_sockets(void)
{
	struct sockaddr_un to = name("listener"), at = name("datagram");
	int sender = bound(SOCK_DGRAM, "sender");

	listener = bound(SOCK_STREAM, "listener");
	CHECK(listen(listener, 4) == 0);
	client = bound(SOCK_STREAM, "client");
	CHECK(connect(client, (struct sockaddr *)&to, sizeof(to)) == 0);
	server = accept(listener, NULL, NULL);
	datagram = bound(SOCK_DGRAM, "datagram");
	CHECK(server >= 0 && sendto(sender, "hi", 2, 0, (struct sockaddr *)&at, sizeof(at)) == 2 && close(sender) == 0);
}

static void keep_environment(void)
{
	size_t n = 0;

	while (environ[n])
		n++;
	kept = calloc(n + 1, sizeof(*kept));
	CHECK(kept);
	while (n--)
		CHECK(kept[n] = strdup(environ[n]));
}

static void step(void)
{
	char before[PATH_MAX], c;

	steps++;
	CHECK(write(log_fd, "l", 1) == 1);
	CHECK(write(client, "c", 1) == 1 && read(server, &c, 1) == 1 && c == 'c');
	if (unlink("fail") == 0)
		_exit(3);
	strcpy(before, base);
	learn_base();
	if (!strcmp(before, base))
		return;
	check_descriptors();
	check_mappings();
	check_files();
	check_sockets();
	check_watch();
	check_children();
}

int main(int argc, char **argv)
{
	char cwd[PATH_MAX];

	if (argc > 1 && !strcmp(argv[1], "child"))
		return child();
	keep_environment();
	open_files();
	open_sockets();
	CHECK(mkdir("watched", 0700) == 0 && getcwd(cwd, sizeof(cwd)));
	strcat(cwd, "/watched");
	watch = inotify_init1(0);
	CHECK(watch >= 0 && inotify_add_watch(watch, cwd, IN_CREATE) >= 0);
	step(); /* all of it holds before anything has moved */
	feature_ready();
	do
		step();
	while (feature_step());
	base[0] = 0;
	step();
	return 0;
}
