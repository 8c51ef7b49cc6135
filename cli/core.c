/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata core: an image as a plain core file. An image is one as it lies, so this is a copy that keeps the
 * holes; it expands what a debugger could not read otherwise. The copy has its name only when it is
 * complete.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "image/reader.h"

#define COPY_MAX (16u << 20)

static const char core_help[] =
	"Usage: fermata core [-f] [--json] IMAGE OUT\n"
	"Writes an image as a core file for debuggers, after checking it: gdb PROG OUT.\n"
	"  -f, --force  overwrite OUT\n"
	"      --json   the result as JSON\n"
	"Exit status: 0 written; 3 there is no such image; 5 it is of a newer version; 6 it is damaged;\n"
	"1 OUT cannot be written.\n";

static const struct option core_long[] = {
	{ "force", no_argument, NULL, 'f' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* By the kernel where both file systems agree (reflinks are used), else through a buffer. */
static int copy_bytes(int in, int out, off_t at, off_t end)
{
	static char buffer[1 << 16];
	off_t to = at;

	while (at < end) {
		size_t left = (size_t)(end - at) < COPY_MAX ? (size_t)(end - at) : COPY_MAX;
		ssize_t n = copy_file_range(in, &at, out, &to, left, 0);

		if (n > 0)
			continue;
		n = pread(in, buffer, left < sizeof(buffer) ? left : sizeof(buffer), at);
		if (n <= 0)
			return n ? -errno : -ENODATA;
		n = pwrite(out, buffer, (size_t)n, to);
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		to += n;
	}
	return 0;
}

static int copy_sparse(int in, int out, off_t size)
{
	off_t data, hole = 0;
	int r = 0;

	while (!r && hole < size) {
		data = lseek(in, hole, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0) { /* the file system does not tell */
			data = hole;
			hole = size;
		} else {
			hole = lseek(in, data, SEEK_HOLE);
		}
		r = hole < 0 ? -errno : copy_bytes(in, out, data, hole);
	}
	if (!r && ftruncate(out, size))
		r = -errno;
	return r;
}

static int write_core(const struct image *i, const char *path, bool force)
{
	char partial[PATH_MAX];
	int out, r;

	if (!force && !access(path, F_OK))
		return -EEXIST;
	if (snprintf(partial, sizeof(partial), "%s.XXXXXX", path) >= (int)sizeof(partial))
		return -ENAMETOOLONG;
	out = mkostemp(partial, O_CLOEXEC);
	if (out < 0)
		return -errno;
	r = copy_sparse(image_fd(i), out, (off_t)image_file_size(i));
	if (close(out) && !r)
		r = -errno;
	if (!r && renameat2(AT_FDCWD, partial, AT_FDCWD, path, force ? 0 : RENAME_NOREPLACE))
		r = -errno;
	if (r)
		unlink(partial);
	return r;
}

static int core(const char *path, const char *to, bool force, bool json)
{
	struct image_error e;
	struct image *i;
	int r = image_open(path, &i, &e);

	if (!r) {
		r = image_verify(i, (unsigned int)sysconf(_SC_NPROCESSORS_ONLN), &e);
		if (r)
			image_free(i);
	}
	if (r) {
		warnx("%s", e.text);
		return e.fault == IMAGE_MISSING ? CLI_NOTHING : e.fault == IMAGE_NEWER ? CLI_CANNOT : CLI_DAMAGED;
	}
	r = write_core(i, to, force);
	if (r == -EEXIST)
		warnx("%s exists; -f overwrites it", to);
	else if (r)
		warnx("%s: %s", to, strerror(-r));
	else if (json)
		printf("{ \"core\": true, \"pid\": %u, \"bytes\": %llu }\n", image_get_process(i)->pid,
		       (unsigned long long)image_file_size(i));
	image_free(i);
	return r ? CLI_FAILED : CLI_OK;
}

int cmd_core(int argc, char **argv)
{
	bool force = false, json = false;
	int o;

	while ((o = getopt_long(argc, argv, "hf", core_long, NULL)) != -1) {
		switch (o) {
		case 'f': force = true; break;
		case 'j': json = true; break;
		case 'h': fputs(core_help, stdout); return CLI_OK;
		default: fputs(core_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind != 2) {
		fputs(core_help, stderr);
		return CLI_USAGE;
	}
	return core(argv[optind], argv[optind + 1], force, json);
}
