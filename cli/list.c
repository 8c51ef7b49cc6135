/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata list: the checkpoints in a job's directory. Says what is there; whether it is whole says fermata verify. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static const char list_help[] =
	"Usage: fermata list [DIR] [--json]\n"
	"Lists the checkpoints in DIR (default: the current directory), oldest first.\n"
	"One that is not complete cannot be restarted: it is under way, or was cut off.\n"
	"Exit status: 0; 3 if there is none.\n";

static const struct option list_long[] = {
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct entry {
	unsigned long number;
	bool complete;
	size_t processes;
	long long bytes;
	char time[32], path[JOB_PATH_MAX + 32];
	json_t *hosts; /* names of those that it has processes of, or NULL */
};

/* "12": complete; ".12.partial": not. */
static bool list_parse(const char *name, struct entry *e)
{
	const char *digits = name + (name[0] == '.');
	char *end;

	if (digits[0] < '1' || digits[0] > '9')
		return false;
	e->number = strtoul(digits, &end, 10);
	e->complete = name[0] != '.' && !*end;
	return e->complete || (name[0] == '.' && !strcmp(end, ".partial"));
}

/* And of a directory in it (launch --with). */
static long long list_size_below(int above, const char *name)
{
	int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	long long bytes = 0;
	struct dirent *f;
	struct stat st;

	while (d && (f = readdir(d)))
		if (!fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
			bytes += st.st_blocks * 512ll;
	if (d)
		closedir(d);
	return bytes;
}

static long long list_size(const char *path, size_t *ret_images)
{
	DIR *d = opendir(path);
	long long bytes = 0;
	struct dirent *f;

	*ret_images = 0;
	while (d && (f = readdir(d))) {
		size_t len = strlen(f->d_name);
		struct stat st;

		if (!strncmp(f->d_name, "with-", 5))
			bytes += list_size_below(dirfd(d), f->d_name);
		if (fstatat(dirfd(d), f->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode))
			continue;
		bytes += st.st_blocks * 512ll;
		*ret_images += len > 5 && !strcmp(f->d_name + len - 5, ".core");
	}
	if (d)
		closedir(d);
	return bytes;
}

/* The manifest may name one whose processes had all ended. */
static json_t *list_hosts(json_t *m)
{
	json_t *images = json_object_get(m, "images"), *list = json_array(), *name;
	size_t host, i;

	json_array_foreach(json_object_get(m, "hosts"), host, name)
		for (i = 0; i < json_array_size(images); i++)
			if (json_integer_value(json_object_get(json_array_get(images, i), "host")) == (json_int_t)host) {
				json_array_append(list, name);
				break;
			}
	return list;
}

static void list_describe(struct entry *e)
{
	char manifest[sizeof(e->path) + 16];
	const char *when;
	json_t *m;

	e->bytes = list_size(e->path, &e->processes);
	snprintf(manifest, sizeof(manifest), "%s/manifest.json", e->path);
	m = json_load_file(manifest, 0, NULL);
	when = json_string_value(json_object_get(m, "time"));
	snprintf(e->time, sizeof(e->time), "%s", when ? when : "-");
	if (m)
		e->processes = json_array_size(json_object_get(m, "images"));
	else
		e->complete = false;
	e->hosts = list_hosts(m);
	json_decref(m);
}

static int list_compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int list_read(const char *dir, struct entry **ret, size_t *ret_count)
{
	DIR *d = opendir(dir);
	struct dirent *f;
	size_t room = 0;

	if (!d)
		return -errno;
	while ((f = readdir(d))) {
		struct entry e = { 0 }, *more;

		if (!list_parse(f->d_name, &e))
			continue;
		if (*ret_count == room) {
			more = realloc(*ret, (room = room * 2 + 16) * sizeof(*more));
			if (!more)
				break;
			*ret = more;
		}
		snprintf(e.path, sizeof(e.path), "%.500s/%.20s", dir, f->d_name);
		list_describe(&e);
		(*ret)[(*ret_count)++] = e;
	}
	closedir(d);
	if (*ret_count)
		qsort(*ret, *ret_count, sizeof(**ret), list_compare);
	return 0;
}

/* Where there are several. */
static void list_print_hosts(const struct entry *e)
{
	size_t several = json_array_size(e->hosts);

	for (size_t i = 0; several > 1 && i < several; i++)
		printf("%s%s", i ? ", " : ", on ", json_string_value(json_array_get(e->hosts, i)));
	putchar('\n');
}

static void list_print(const struct entry *e, size_t count)
{
	char size[32];

	if (count)
		printf("%10s  %-20s  %9s  %10s  %s\n", "CHECKPOINT", "TIME", "PROCESSES", "ON DISK", "STATE");
	for (size_t i = 0; i < count; i++) {
		size_format((double)e[i].bytes, size, sizeof(size));
		printf("%10lu  %-20s  %9zu  %10s  %s", e[i].number, e[i].time, e[i].processes, size,
		       e[i].complete ? "complete" : "not complete");
		list_print_hosts(&e[i]);
	}
}

static void list_print_json(const struct entry *e, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{s:I, s:s, s:I, s:I, s:b, s:s, s:O}", "checkpoint",
						      (json_int_t)e[i].number, "time", e[i].time, "processes",
						      (json_int_t)e[i].processes, "disk_bytes", (json_int_t)e[i].bytes,
						      "complete", e[i].complete, "path", e[i].path, "hosts", e[i].hosts));
	json_dumpf(list, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(list);
}

int cmd_list(int argc, char **argv)
{
	struct entry *entries = NULL;
	bool json = false;
	size_t count = 0;
	const char *dir;
	int o, r;

	while ((o = getopt_long(argc, argv, "h", list_long, NULL)) != -1) {
		switch (o) {
		case 'j': json = true; break;
		case 'h': fputs(list_help, stdout); return CLI_OK;
		default: fputs(list_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs(list_help, stderr);
		return CLI_USAGE;
	}
	dir = argv[optind] ? argv[optind] : ".";
	r = list_read(dir, &entries, &count);
	if (r < 0) {
		log_error("%s: %s", dir, strerror(-r));
		return r == -ENOENT ? CLI_NOTHING : CLI_FAILED;
	}
	if (json)
		list_print_json(entries, count);
	else
		list_print(entries, count);
	for (size_t i = 0; i < count; i++)
		json_decref(entries[i].hosts);
	free(entries);
	if (!count)
		log_error("%s: no checkpoint there; a job's directory is needed (fermata status names it)", dir);
	return count ? CLI_OK : CLI_NOTHING;
}
