/* SPDX-License-Identifier: BSD-2-Clause */
/* Dumps for tests of the image. Owns one directory, which it removes at exit. */
#include "image_sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char sample_paths[] = "\0/usr/bin/sample\0/dev/shm/sample";

static void add_note(struct sample *s, uint32_t type, const void *data, size_t length)
{
	s->notes[s->dump.note_count++] = (struct image_note_data){ type, (uint32_t)length, data };
}

static void init_threads(struct sample *s)
{
	for (unsigned int i = 0; i < 2; i++) {
		s->threads[i] = (struct image_thread){ .tid = s->process.pid + i, .comm = "sample" };
		s->threads[i].user_regs[16] = 0x401000 + i; /* rip */
	}
	s->threads[0].flags = IMAGE_THREAD_LEADER;
	s->threads[1].flags = IMAGE_THREAD_AGENT;
}

void sample_init(struct sample *s)
{
	memset(s, 0, sizeof(*s));
	s->process = (struct image_process){
		.pid = 4711, .ppid = 4710, .pgid = 4711, .sid = 4000, .uid = 1000, .gid = 1000, .thread_count = 2,
		.comm = "sample", .exe = "/usr/bin/sample", .cwd = "/tmp", .auxv_length = 16,
	};
	init_threads(s);
	image_cpu_probe(&s->cpu);
	s->host = (struct image_host){ .hostname = "here", .kernel = "6.1", .glibc = "2.36", .page_size = 4096 };
	s->resource.head = (struct image_resource){ .plugin = "file", .kind = IMAGE_RESOURCE_DESC, .length = 8, .desc_id = 1,
						    .fd_count = 2 };
	s->resource.fds[0].fd = 3;
	s->resource.fds[1].fd = 7;
	add_note(s, IMAGE_NOTE_SIGNALS, s->signals, sizeof(s->signals));
	add_note(s, IMAGE_NOTE_CPU, &s->cpu, sizeof(s->cpu));
	add_note(s, IMAGE_NOTE_HOST, &s->host, sizeof(s->host));
	add_note(s, IMAGE_NOTE_RESOURCE, &s->resource, sizeof(s->resource));
	s->dump.process = &s->process;
	s->dump.threads = s->threads;
	s->dump.mappings = s->mappings;
	s->dump.paths = sample_paths;
	s->dump.paths_length = sizeof(sample_paths);
	s->dump.runs = s->runs;
	s->dump.notes = s->notes;
	s->dump.writers = 2;
}

struct image_run *sample_add(struct sample *s, void *at, uint64_t length, uint32_t kind, uint32_t flags)
{
	uint64_t start = (uint64_t)(uintptr_t)at;
	uint32_t prot = flags & IMAGE_RUN_UNREADABLE ? PROT_NONE : PROT_READ | PROT_WRITE;

	s->mappings[s->dump.mapping_count++] = (struct image_mapping){
		.start = start, .end = start + length, .kind = kind, .prot = prot,
		.path = kind == IMAGE_MAPPING_FILE || kind == IMAGE_MAPPING_SHARED_FILE ? 1 : 0,
	};
	s->runs[s->dump.run_count] = (struct image_run){ start, start + length, prot, flags };
	return &s->runs[s->dump.run_count++];
}

static char directory[256];

static void remove_directory(void)
{
	DIR *d = opendir(directory);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(directory);
}

const char *sample_directory(void)
{
	const char *tmp = getenv("TMPDIR");

	if (directory[0])
		return directory;
	snprintf(directory, sizeof(directory), "%s/fermata-image-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(directory)) {
		perror(directory);
		exit(1);
	}
	atexit(remove_directory);
	return directory;
}
