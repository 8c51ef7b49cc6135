/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runtime directory. Invariants: RUNDIR and RUNDIR/JOB belong to this user and are closed to others (0700); a job lives
 * exactly while some process holds an OFD lock on RUNDIR/JOB/lock (that kind can be asked for without being taken); jobs are made and removed only under flock on RUNDIR/.lock, so two
 * launches of one job at once start one coordinator, and a coordinator never leaves between being found and being joined. A number in RUNDIR/JOB is the
 * socket of a process that hands out or asks for descriptors (base/fdpass.c); one that was killed leaves it.
 * let-run-.. is a file of a stopped process that is let run (base/let_run.h), peer-.. a link that says whose a socket's other end is (base/peer_link.h),
 * standing-.. is a directory of processes that may be at a checkpoint (agent/standing.c).
 */
#include "coordinator/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/let_run.h"
#include "base/log.h"
#include "base/peer_link.h"
#include "base/streams.h"

static const char *const rundir_files[] = { "sock", "key", "pid", "info.json", "names", "begun", STREAMS_FILE, "log", "lock" };

int rundir_job_check(const char *job)
{
	size_t len = strlen(job);

	if (!len || len > RUNDIR_JOB_MAX || job[0] == '.')
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		char c = job[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
		    !strchr("._-", c))
			return -EINVAL;
	}
	return 0;
}

/* The @index-th place to look for jobs in; the first one takes the new ones. 0 behind the last. */
static int rundir_candidate(int index, char ret[RUNDIR_PATH_MAX])
{
	const char *own = getenv("FERMATA_RUNDIR"), *xdg = getenv("XDG_RUNTIME_DIR");
	int n;

	if (own && *own) {
		if (index > 0)
			return 0;
		n = snprintf(ret, RUNDIR_PATH_MAX, "%s", own);
	} else if (xdg && *xdg && index == 0) {
		n = snprintf(ret, RUNDIR_PATH_MAX, "%s/fermata", xdg);
	} else if (index == (xdg && *xdg ? 1 : 0)) {
		n = snprintf(ret, RUNDIR_PATH_MAX, "/tmp/fermata-%u", (unsigned int)geteuid());
	} else {
		return 0;
	}
	return n < RUNDIR_PATH_MAX ? 1 : -ENAMETOOLONG;
}

/* Ours and closed to others? Not followed if it is a link: /tmp is everybody's. */
static int rundir_verify(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return -EPERM;
	return 0;
}

int rundir_create(char ret[RUNDIR_PATH_MAX])
{
	int r = rundir_candidate(0, ret);

	if (r < 0)
		return r;
	if (ret[0] != '/') {
		log_error("runtime directory %s: not an absolute path; check FERMATA_RUNDIR", ret);
		return -EINVAL;
	}
	if (mkdir(ret, 0700) < 0 && errno != EEXIST) {
		r = -errno;
		log_error("runtime directory %s: %s; set FERMATA_RUNDIR to a directory that you can write to", ret,
			  strerror(-r));
		return r;
	}
	r = rundir_verify(ret);
	if (r < 0)
		log_error("runtime directory %s: it must be a directory of your own with mode 0700; set FERMATA_RUNDIR "
			  "to another one", ret);
	return r;
}

int rundir_lock(int wait)
{
	char path[RUNDIR_PATH_MAX + 8], dir[RUNDIR_PATH_MAX];
	int r = rundir_create(dir), fd;

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/.lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0) {
		if (errno == EINTR)
			continue;
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int rundir_job_lives(const char *jobdir)
{
	char path[RUNDIR_PATH_MAX + 8];
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd, lives;

	snprintf(path, sizeof(path), "%s/lock", jobdir);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	lives = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	return lives;
}

int rundir_find(const char *job, char ret[RUNDIR_PATH_MAX])
{
	char dir[RUNDIR_PATH_MAX];

	for (int i = 0; rundir_candidate(i, dir) > 0; i++) {
		int n = snprintf(ret, RUNDIR_PATH_MAX, "%s/%s", dir, job);

		if (n < RUNDIR_PATH_MAX && rundir_verify(dir) == 0 && rundir_job_lives(ret))
			return 0;
	}
	return -ENOENT;
}

int rundir_each(int (*fn)(const char *job, const char *jobdir, void *arg), void *arg)
{
	char dir[RUNDIR_PATH_MAX], path[RUNDIR_PATH_MAX];
	int r = 0;

	for (int i = 0; !r && rundir_candidate(i, dir) > 0; i++) {
		DIR *d = rundir_verify(dir) == 0 ? opendir(dir) : NULL;
		struct dirent *e;

		while (d && !r && (e = readdir(d))) {
			int n = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);

			if (rundir_job_check(e->d_name) == 0 && n < (int)sizeof(path) && rundir_job_lives(path))
				r = fn(e->d_name, path, arg);
		}
		if (d)
			closedir(d);
	}
	return r;
}

static void rundir_standing_remove(const char *path, bool living)
{
	DIR *d = living ? NULL : opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(path);
}

/* What processes have left that were killed: sockets, and what they stood by in a checkpoint (agent/standing.c), unless @living ones may. */
static void rundir_leftovers_remove(const char *jobdir, bool living)
{
	char path[RUNDIR_PATH_MAX + 256];
	DIR *d = opendir(jobdir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", jobdir, e->d_name);
		if (e->d_name[strspn(e->d_name, "0123456789")] == 0)
			unlink(path);
		if (!living && (strncmp(e->d_name, LET_RUN_PREFIX, sizeof(LET_RUN_PREFIX) - 1) == 0 || strncmp(e->d_name, PEER_LINK_PREFIX, sizeof(PEER_LINK_PREFIX) - 1) == 0))
			unlink(path);
		if (strncmp(e->d_name, "standing-", 9) == 0)
			rundir_standing_remove(path, living);
	}
	if (d)
		closedir(d);
}

static int rundir_write_key(const char *jobdir, uint8_t ret_key[PROTOCOL_KEY_SIZE])
{
	char path[RUNDIR_PATH_MAX + 8];
	int fd, r = 0;

	randombytes_buf(ret_key, PROTOCOL_KEY_SIZE);
	snprintf(path, sizeof(path), "%s/key", jobdir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, ret_key, PROTOCOL_KEY_SIZE) != PROTOCOL_KEY_SIZE)
		r = -EIO;
	close(fd);
	return r;
}

int rundir_job_create(const char *job, char ret_jobdir[RUNDIR_PATH_MAX], uint8_t ret_key[PROTOCOL_KEY_SIZE])
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char dir[RUNDIR_PATH_MAX], path[RUNDIR_PATH_MAX + 16];
	struct sockaddr_un address;
	int r = rundir_create(dir), fd;

	if (r < 0)
		return r;
	r = snprintf(ret_jobdir, RUNDIR_PATH_MAX, "%s/%s", dir, job);
	if (r >= RUNDIR_PATH_MAX || (size_t)r + sizeof("/04194304") > sizeof(address.sun_path)) {
		log_error("job directory %s/%s: too long for a socket's address; choose a shorter job name, or set "
			  "FERMATA_RUNDIR to a shorter path", dir, job);
		return -ENAMETOOLONG;
	}
	if (mkdir(ret_jobdir, 0700) < 0 && errno != EEXIST)
		return -errno;
	r = rundir_verify(ret_jobdir);
	if (r < 0) {
		log_error("%s: it must be a directory of your own with mode 0700; remove it", ret_jobdir);
		return r;
	}
	snprintf(path, sizeof(path), "%s/lock", ret_jobdir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		close(fd);
		return -EBUSY;
	}
	for (size_t i = 0; i + 2 < sizeof(rundir_files) / sizeof(rundir_files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", ret_jobdir, rundir_files[i]);
		unlink(path);
	}
	rundir_leftovers_remove(ret_jobdir, false);
	r = rundir_write_key(ret_jobdir, ret_key);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

void rundir_job_remove(const char *jobdir, bool living)
{
	char path[RUNDIR_PATH_MAX + 16];

	rundir_leftovers_remove(jobdir, living);
	for (size_t i = 0; i < sizeof(rundir_files) / sizeof(rundir_files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", jobdir, rundir_files[i]);
		unlink(path);
	}
	rmdir(jobdir);
}
