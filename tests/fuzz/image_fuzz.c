/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the image reader. An input is an image. It is opened as it is, and once more with its head digest made right, so that
 * mutations get behind that check; what was accepted is then read as the commands read it, and each promise that the reader makes
 * is held against the file.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "image/hash.h"
#include "image/reader.h"
#include "tests/fuzz/fuzz.h"

#define SIZE_MAX_INPUT (1u << 20)
#define TAIL_HEAD (sizeof(Elf64_Nhdr) + sizeof(IMAGE_NOTE_OWNER))

static void read_notes(const struct image *i)
{
	struct image_note_view note;
	size_t cursor = 0;

	while (image_next_note(i, &cursor, &note)) {
		const struct image_resource *r = note.data;
		size_t at;

		fuzz_require((uintptr_t)note.data % 8 == 0);
		fuzz_touch(note.data, note.length);
		if (note.type != IMAGE_NOTE_RESOURCE)
			continue;
		fuzz_touch(r + 1, r->length);
		at = (sizeof(*r) + (size_t)r->length + 7) / 8 * 8;
		fuzz_require(!r->fd_count || at + r->fd_count * sizeof(struct image_fd) <= note.length);
	}
}

static void read_lists(const struct image *i)
{
	size_t threads, mappings, segments, sysv, m = 0;
	const struct image_sysv *v = image_get_sysv(i, &sysv);
	const struct image_thread *t = image_get_threads(i, &threads);
	const struct image_mapping *map = image_get_mappings(i, &mappings);
	const Elf64_Phdr *p = image_get_segments(i, &segments);

	for (size_t n = 0; n < sysv; n++)
		fuzz_require(v[n].id >= 0 && v[n].size && (!n || v[n].id > v[n - 1].id));
	fuzz_require(threads == image_get_process(i)->thread_count && threads > 0);
	for (size_t n = 0; n < threads; n++)
		fuzz_require(t[n].tid && strlen(t[n].comm) < sizeof(t[n].comm));
	for (size_t n = 0; n < mappings; n++) {
		fuzz_touch(image_mapping_path(i, &map[n]), strlen(image_mapping_path(i, &map[n])));
		fuzz_require(map[n].kind != IMAGE_MAPPING_SYSV || map[n].offset <= map[n].start);
		fuzz_require(map[n].start < map[n].end && (!n || map[n].start >= map[n - 1].end));
	}
	for (size_t n = 0; n < segments; n++) {
		while (m < mappings && map[m].end <= p[n].p_vaddr)
			m++;
		fuzz_require(m < mappings && p[n].p_vaddr >= map[m].start && p[n].p_vaddr + p[n].p_memsz <= map[m].end);
		fuzz_require(p[n].p_offset + p[n].p_filesz <= image_file_size(i) && p[n].p_filesz <= p[n].p_memsz);
	}
}

static void examine(const uint8_t *data, size_t size)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct image_error e;
	struct image *i;
	char names[64];

	fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	if (image_open_fd(fd, "input", &i, &e)) {
		fuzz_require(e.fault != IMAGE_OK && e.text[0]);
		return;
	}
	read_notes(i);
	read_lists(i);
	fuzz_touch(image_get_signals(i), 64 * sizeof(struct image_sigaction));
	fuzz_require(strlen(image_get_process(i)->exe) < sizeof(image_get_process(i)->exe));
	fuzz_require(strlen(image_get_host(i)->kernel) < sizeof(image_get_host(i)->kernel));
	image_cpu_missing(image_get_cpu(i), image_get_cpu(i), names, sizeof(names));
	fuzz_require((image_verify(i, 1, &e) == 0) == (e.fault == IMAGE_OK));
	image_free(i);
}

/* As the writer seals an image; false when there is nothing to be sealed. */
static bool seal(uint8_t *data, size_t size)
{
	struct image_blocks b;
	struct image_piece pieces[3];
	Elf64_Phdr tail;

	if (size < sizeof(Elf64_Ehdr) + 2 * sizeof(tail))
		return false;
	memcpy(&tail, data + sizeof(Elf64_Ehdr) + sizeof(tail), sizeof(tail));
	if (tail.p_offset > size || size - tail.p_offset < TAIL_HEAD + sizeof(b))
		return false;
	memcpy(&b, data + tail.p_offset + TAIL_HEAD, sizeof(b));
	if (b.data_start > size)
		return false;
	memset(b.head_digest, 0, sizeof(b.head_digest));
	pieces[0] = (struct image_piece){ data, b.data_start };
	pieces[1] = (struct image_piece){ &b, sizeof(b) };
	pieces[2].data = data + tail.p_offset + TAIL_HEAD + sizeof(b);
	pieces[2].length = size - tail.p_offset - TAIL_HEAD - sizeof(b);
	image_hash128(pieces, 3, data + tail.p_offset + TAIL_HEAD + offsetof(struct image_blocks, head_digest));
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t copy[SIZE_MAX_INPUT];

	if (size > sizeof(copy))
		return 0;
	examine(data, size);
	memcpy(copy, data, size);
	if (seal(copy, size))
		examine(copy, size);
	return 0;
}
