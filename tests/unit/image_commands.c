/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The manifest's reader, and what `fermata inspect | verify | core` say and return: FERMATA names the command.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "image/manifest.h"
#include "image_sample.h"

#define MIB (1ul << 20)

static char job[300]; /* the job's directory: 1 and 3 are complete, 4 is not */
static const char *tool;
static struct sample s;
static struct image_written written[2];

static void in_job(char *ret, size_t size, const char *name)
{
	snprintf(ret, size, "%.300s%s%s", job, *name ? "/" : "", name);
}

static void write_text(const char *name, const char *text)
{
	char path[400];
	FILE *f;

	in_job(path, sizeof(path), name);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void write_manifest(const char *name, int version, const char *first)
{
	char text[1000], digest[2][33];

	for (int n = 0; n < 2; n++)
		for (int b = 0; b < 16; b++)
			snprintf(digest[n] + 2 * b, 3, "%02x", written[n].digest[b]);
	snprintf(text, sizeof(text),
		 "{\"format\": \"fermata-checkpoint\", \"version\": %d, \"job\": \"sample\", \"checkpoint\": 3, \"time\": \"now\","
		 " \"options\": {\"compress\": \"none\", \"rdma\": \"soft\", \"interval\": 60, \"keep\": 2, \"timeout_ms\": 9000},"
		 " \"hosts\": [\"alpha\", \"gone\", \"beta\"],"
		 " \"images\": [{\"name\": \"%s\", \"pid\": 4711, \"ppid\": 1, \"comm\": \"sample\", \"exe\": \"/bin/sample\","
		 " \"bytes\": %llu, \"file_size\": %llu, \"digest\": \"%s\"},"
		 " {\"name\": \"b.core\", \"pid\": 4711, \"host\": 2, \"file_size\": %llu, \"digest\": \"%s\"}]}",
		 version, first, (unsigned long long)written[0].bytes, (unsigned long long)written[0].file_size, digest[0],
		 (unsigned long long)written[1].file_size, digest[1]);
	write_text(name, text);
}

static void write_images(void)
{
	char *memory = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[400], text[300];
	int dir;

	in_job(path, sizeof(path), "3");
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memset(memory, 1, MIB);
	memset(memory + 2 * MIB, 3, MIB);
	sample_init(&s);
	sample_add(&s, memory, 3 * MIB, IMAGE_MAPPING_ANON, IMAGE_RUN_DATA);
	assert_int_equal(image_write(dir, "a.core", &s.dump, &written[0], text, sizeof(text)), 0);
	memory[0] = 2;
	assert_int_equal(image_write(dir, "b.core", &s.dump, &written[1], text, sizeof(text)), 0);
	close(dir);
	munmap(memory, 3 * MIB);
}

static int setup(void **state)
{
	static const char *const directories[] = { "", "1", "3", "4", "05x" };
	char path[400];

	snprintf(job, sizeof(job), "%s/job", sample_directory());
	for (size_t n = 0; n < 5; n++) {
		in_job(path, sizeof(path), directories[n]);
		if (mkdir(path, 0700))
			return -1;
	}
	write_images();
	write_manifest("1/manifest.json", 1, "a.core");
	write_manifest("3/manifest.json", 1, "a.core");
	return 0;
}

static int teardown(void **state)
{
	char command[400];

	snprintf(command, sizeof(command), "rm -r '%s'", job);
	return system(command);
}

/* Runs the tool; its exit status, what it said on both outputs. */
static int run(char *said, size_t size, const char *arguments, const char *name)
{
	char path[400], command[1200];
	FILE *f;
	int status;

	in_job(path, sizeof(path), name);
	snprintf(command, sizeof(command), "%s %s %s 2>&1", tool, arguments, path);
	f = popen(command, "re");
	said[fread(said, 1, size - 1, f)] = 0;
	status = pclose(f);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void flip(const char *name, off_t at)
{
	char path[400], byte;
	int fd;

	in_job(path, sizeof(path), name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void test_manifest(void **state)
{
	struct manifest *m = NULL;
	struct image_error e;
	char path[400];

	assert_int_equal(manifest_open(job, &m, &e), 0);
	in_job(path, sizeof(path), "3");
	assert_string_equal(m->path, path);
	assert_string_equal(m->dir, job);
	assert_string_equal(m->job, "sample");
	assert_string_equal(m->rdma, "soft");
	assert_int_equal(m->interval_s, 60);
	assert_int_equal(m->keep, 2);
	assert_int_equal(m->timeout_ms, 9000);
	assert_int_equal(m->count, 2);
	assert_int_equal(m->images[0].pid, 4711);
	assert_int_equal(m->images[0].bytes, written[0].bytes);
	assert_memory_equal(m->images[1].digest, written[1].digest, 16);
	assert_int_equal(m->host_count, 2);
	assert_string_equal(m->hosts[m->images[1].host].name, "beta");
	assert_int_equal(manifest_host_find(m, "alpha"), 0);
	assert_int_equal(manifest_host_find(m, "gone"), -1);
	manifest_free(m);
	in_job(path, sizeof(path), "1");
	assert_int_equal(manifest_open(path, &m, &e), 0);
	assert_string_equal(m->path, path);
	manifest_free(m);
}

static void test_no_manifest(void **state)
{
	struct manifest *m;
	struct image_error e;
	char path[400];

	in_job(path, sizeof(path), "4");
	assert_int_equal(manifest_open(path, &m, &e), -ENOENT);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(manifest_open("/nonexistent", &m, &e), -ENOENT);
	assert_int_equal(e.fault, IMAGE_MISSING);
}

static void test_bad_manifest(void **state)
{
	static const char *const bad[] = { "", "{", "[1, 2]", "{}", "{\"format\": \"other\"}",
					   "{\"format\": \"fermata-checkpoint\", \"version\": 1, \"job\": \"j\", \"images\": []}" };
	struct manifest *m;
	struct image_error e;

	for (size_t n = 0; n < sizeof(bad) / sizeof(*bad); n++) {
		write_text("3/manifest.json", bad[n]);
		assert_int_equal(manifest_open(job, &m, &e), -EBADMSG);
		assert_non_null(strstr(e.text, "manifest.json"));
	}
	write_manifest("3/manifest.json", 1, "../1/a.core");
	assert_int_equal(manifest_open(job, &m, &e), -EBADMSG);
	write_manifest("3/manifest.json", 2, "a.core");
	assert_int_equal(manifest_open(job, &m, &e), -EPROTONOSUPPORT);
	write_manifest("3/manifest.json", 1, "a.core");
}

static void test_verify(void **state)
{
	char said[4000], path[400], moved[400];

	assert_int_equal(run(said, sizeof(said), "verify", ""), 0);
	assert_non_null(strstr(said, "/3: whole: 2 images"));
	flip("3/b.core", 2 * (off_t)MIB + 100000);
	assert_int_equal(run(said, sizeof(said), "verify", "3"), 6);
	assert_non_null(strstr(said, "b.core: is damaged: block 2 of 3"));
	assert_non_null(strstr(said, "1 of 2 images are not whole"));
	assert_int_equal(run(said, sizeof(said), "verify", "3/a.core"), 0);
	assert_int_equal(run(said, sizeof(said), "core", "3/b.core /dev/null"), 6);
	flip("3/b.core", 2 * (off_t)MIB + 100000);
	write_manifest("3/manifest.json", 1, "b.core"); /* another image than the one it names */
	assert_int_equal(run(said, sizeof(said), "verify", ""), 6);
	assert_non_null(strstr(said, "b.core: is not the image that the manifest names"));
	write_manifest("3/manifest.json", 1, "a.core");
	in_job(path, sizeof(path), "3/a.core");
	in_job(moved, sizeof(moved), "moved");
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(run(said, sizeof(said), "verify", ""), 6);
	assert_non_null(strstr(said, "3/a.core: No such file"));
	assert_int_equal(rename(moved, path), 0);
	assert_int_equal(run(said, sizeof(said), "verify", "4"), 3);
	assert_int_equal(run(said, sizeof(said), "verify", "nowhere"), 3);
	assert_int_equal(run(said, sizeof(said), "verify", "3/manifest.json"), 6);
	assert_int_equal(run(said, sizeof(said), "verify --nonsense", ""), 2);
}

static json_t *run_json(const char *arguments, const char *name)
{
	static char said[1 << 18];
	json_error_t error;
	json_t *o;

	assert_int_equal(run(said, sizeof(said), arguments, name), 0);
	o = json_loads(said, 0, &error);
	assert_non_null(o);
	return o;
}

static void test_json(void **state)
{
	json_t *o = run_json("verify --json", ""), *process;

	assert_true(json_is_true(json_object_get(o, "whole")));
	assert_int_equal(json_array_size(json_object_get(o, "images")), 2);
	json_decref(o);
	o = run_json("inspect --json", "3/a.core");
	process = json_object_get(o, "process");
	assert_int_equal(json_integer_value(json_object_get(process, "pid")), 4711);
	assert_string_equal(json_string_value(json_object_get(process, "exe")), "/usr/bin/sample");
	assert_int_equal(json_array_size(json_object_get(o, "threads")), 2);
	assert_int_equal(json_array_size(json_object_get(o, "mappings")), 1);
	assert_int_equal(json_array_size(json_object_get(o, "resources")), 1);
	json_decref(o);
	o = run_json("inspect --json", "");
	assert_int_equal(json_array_size(json_object_get(o, "images")), 2);
	json_decref(o);
}

static void test_inspect(void **state)
{
	char said[8000];

	assert_int_equal(run(said, sizeof(said), "inspect -v", "3/a.core"), 0);
	assert_non_null(strstr(said, "4711 (sample), parent 4710"));
	assert_non_null(strstr(said, "anonymous          1, 3.0 MiB, saved 3.0 MiB"));
	assert_non_null(strstr(said, "descriptors 3, 7"));
	assert_int_equal(run(said, sizeof(said), "inspect", "nowhere"), 3);
	assert_int_equal(run(said, sizeof(said), "inspect", "3/manifest.json"), 6);
}

static void test_core(void **state)
{
	char said[1000], arguments[500], out[400], command[900];
	struct stat st;

	in_job(out, sizeof(out), "out");
	snprintf(arguments, sizeof(arguments), "core %s/3/a.core", job);
	assert_int_equal(run(said, sizeof(said), arguments, "out"), 0);
	assert_int_equal(run(said, sizeof(said), arguments, "out"), 1);
	assert_non_null(strstr(said, "-f"));
	snprintf(arguments, sizeof(arguments), "core -f %s/3/a.core", job);
	assert_int_equal(run(said, sizeof(said), arguments, "out"), 0);
	snprintf(command, sizeof(command), "cmp %s %s/3/a.core", out, job);
	assert_int_equal(system(command), 0);
	assert_int_equal(stat(out, &st), 0);
	assert_true(st.st_blocks * 512 < (off_t)(2 * MIB + MIB / 2)); /* the hole is one */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manifest), cmocka_unit_test(test_no_manifest), cmocka_unit_test(test_bad_manifest),
		cmocka_unit_test(test_verify),	 cmocka_unit_test(test_json),	     cmocka_unit_test(test_inspect),
		cmocka_unit_test(test_core),
	};

	tool = getenv("FERMATA");
	if (!tool) {
		fprintf(stderr, "FERMATA names no command\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
