/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens an image: finds its parts and checks them in the order that doc/image-format.md gives. Hosted. Owns
 * struct image.
 *
 * Nothing in the file is trusted: each number is checked against the file's size before it is used, and sums
 * of two are checked for overflow. The head is mapped, the tail and the blocks are read. A file that is cut
 * while it is open can end the reader with SIGBUS; checkpoints are never changed once they have their name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image/hash.h"
#include "image/view.h"

#define NAME_SHOWN 300u
#define BLOCK_SIZE_MIN 4096u
#define BLOCK_SIZE_MAX (64u << 20)
#define TAIL_NOTE_HEAD (sizeof(Elf64_Nhdr) + sizeof(IMAGE_NOTE_OWNER))

static int fault_errno(enum image_fault fault)
{
	switch (fault) {
	case IMAGE_OK:
		return 0;
	case IMAGE_MISSING:
		return -ENOENT;
	case IMAGE_FOREIGN:
		return -ENOEXEC;
	case IMAGE_NEWER:
		return -EPROTONOSUPPORT;
	case IMAGE_TRUNCATED:
		return -ENODATA;
	case IMAGE_DAMAGED:
		break;
	}
	return -EBADMSG;
}

const char *image_fault_name(enum image_fault fault)
{
	static const char *const names[] = { "ok", "missing", "foreign", "newer", "truncated", "damaged" };

	return (size_t)fault < ARRAY_SIZE(names) ? names[fault] : "damaged";
}

int image_say(const struct image *i, struct image_error *e, enum image_fault fault, const char *fmt, ...)
{
	size_t length = strlen(i->name);
	va_list ap;
	int n;

	e->fault = fault;
	e->block = UINT64_MAX;
	/* Of a long path its end: the name of the file. */
	n = snprintf(e->text, sizeof(e->text), "%s: ", i->name + (length > NAME_SHOWN ? length - NAME_SHOWN : 0));
	va_start(ap, fmt);
	vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, fmt, ap);
	va_end(ap);
	return fault_errno(fault);
}

/* Maps the file's first @size bytes; the caller knows that they exist. */
static int map_head(struct image *i, uint64_t size, struct image_error *e)
{
	void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, i->fd, 0);

	if (p == MAP_FAILED)
		return image_say(i, e, IMAGE_MISSING, "cannot be mapped: %s", strerror(errno));
	if (i->head)
		munmap((void *)i->head, i->head_size);
	i->head = p;
	i->head_size = size;
	return 0;
}

static int read_at(const struct image *i, void *to, uint64_t length, uint64_t offset, struct image_error *e)
{
	char *at = to;

	while (length) {
		ssize_t r = pread(i->fd, at, length, (off_t)offset);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return image_say(i, e, IMAGE_MISSING, "cannot be read: %s", strerror(errno));
		if (r == 0)
			return image_say(i, e, IMAGE_TRUNCATED, "ends at byte %llu", (unsigned long long)offset);
		at += r;
		offset += (uint64_t)r;
		length -= (uint64_t)r;
	}
	return 0;
}

static int short_of(const struct image *i, struct image_error *e, uint64_t wants)
{
	return image_say(i, e, IMAGE_TRUNCATED, "is truncated: it has %llu bytes, its headers speak of %llu",
			 (unsigned long long)i->size, (unsigned long long)wants);
}

/* The ELF header, and how many program headers there are. */
static int open_header(struct image *i, struct image_error *e)
{
	static const uint8_t ident[] = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT };
	uint64_t have = i->size < sizeof(Elf64_Ehdr) ? i->size : sizeof(Elf64_Ehdr);
	Elf64_Ehdr h;
	Elf64_Shdr s;
	int r = read_at(i, &h, have, 0, e);

	if (r)
		return r;
	if (memcmp(&h, ident, have < sizeof(ident) ? have : sizeof(ident)))
		return image_say(i, e, IMAGE_FOREIGN, "is not a checkpoint image");
	if (have < sizeof(h))
		return image_say(i, e, IMAGE_TRUNCATED, "is truncated: it has %llu bytes", (unsigned long long)have);
	if (h.e_type != ET_CORE || h.e_machine != EM_X86_64 || h.e_phentsize != sizeof(Elf64_Phdr) ||
	    h.e_phoff != sizeof(h) || h.e_phnum < 2)
		return image_say(i, e, IMAGE_FOREIGN, "is an ELF file, but not a checkpoint image");
	i->phdr_count = h.e_phnum;
	if (h.e_phnum == PN_XNUM) {
		if (h.e_shoff > i->size || i->size - h.e_shoff < sizeof(s))
			return short_of(i, e, h.e_shoff);
		r = read_at(i, &s, sizeof(s), h.e_shoff, e);
		if (r)
			return r;
		i->phdr_count = s.sh_info;
	}
	return 0;
}

/* Maps up to the head notes' end and looks at the first note: is it ours, of a version that we know? */
static int open_notes(struct image *i, struct image_error *e)
{
	uint64_t phdrs_end = sizeof(Elf64_Ehdr) + i->phdr_count * sizeof(Elf64_Phdr), at;
	struct image_raw_note note;
	struct image_version version = { 0 };
	Elf64_Phdr h;
	bool bad = false;
	int r;

	if (phdrs_end > i->size)
		return short_of(i, e, phdrs_end);
	r = read_at(i, &h, sizeof(h), sizeof(Elf64_Ehdr), e);
	if (r)
		return r;
	if (h.p_type != PT_NOTE || h.p_offset < phdrs_end || h.p_offset % 4)
		return image_say(i, e, IMAGE_FOREIGN, "is a core file, but not a checkpoint image");
	if (h.p_offset > i->size || h.p_filesz > i->size - h.p_offset)
		return short_of(i, e, h.p_offset + h.p_filesz);
	i->notes_offset = at = h.p_offset;
	i->notes_end = h.p_offset + h.p_filesz;
	r = map_head(i, i->notes_end, e);
	if (r)
		return r;
	i->phdrs = (const Elf64_Phdr *)(i->head + sizeof(Elf64_Ehdr));
	if (!image_raw_note_next(i->head, i->notes_end, &at, &note, &bad) || !image_raw_note_is_ours(&note) ||
	    note.type != IMAGE_NOTE_VERSION || note.length < sizeof(version.version))
		return image_say(i, e, IMAGE_FOREIGN, "is a core file, but not a checkpoint image");
	memcpy(&version, note.data, note.length < sizeof(version) ? note.length : sizeof(version));
	if (version.version > IMAGE_VERSION)
		return image_say(i, e, IMAGE_NEWER, "is of format version %u; this program reads up to version %u: "
				 "use the fermata that wrote it, or a newer one", version.version, IMAGE_VERSION);
	return 0;
}

/* The fields of the tail note against the headers and each other. */
static bool tail_agrees(const struct image *i, const Elf64_Phdr *h, const Elf64_Nhdr *n)
{
	const struct image_blocks *b = &i->blocks;
	uint64_t count;

	if (n->n_type != IMAGE_NOTE_BLOCKS || n->n_descsz != h->p_filesz - TAIL_NOTE_HEAD)
		return false;
	if (b->block_size < BLOCK_SIZE_MIN || b->block_size > BLOCK_SIZE_MAX || b->block_size & (b->block_size - 1))
		return false;
	if (b->data_end != h->p_offset || b->data_start > b->data_end || (b->data_start | b->data_end) % FM_PAGE_SIZE ||
	    b->data_start < i->notes_end)
		return false;
	count = (b->data_end - b->data_start + b->block_size - 1) / b->block_size;
	return b->count == count && n->n_descsz == sizeof(*b) + count * sizeof(uint64_t);
}

static int open_tail(struct image *i, struct image_error *e)
{
	const Elf64_Phdr h = i->phdrs[1];
	struct {
		Elf64_Nhdr note;
		char owner[sizeof(IMAGE_NOTE_OWNER)];
	} head;
	uint64_t at;
	int r;

	if (h.p_type != PT_NOTE || h.p_filesz < TAIL_NOTE_HEAD + sizeof(i->blocks) || h.p_filesz > UINT32_MAX)
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: its second header is not that of the checksums");
	if (h.p_offset > i->size || h.p_filesz > i->size - h.p_offset)
		return short_of(i, e, h.p_offset + h.p_filesz);
	if (h.p_offset + h.p_filesz < i->size)
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: %llu bytes stand behind its end",
				 (unsigned long long)(i->size - h.p_offset - h.p_filesz));
	r = read_at(i, &head, TAIL_NOTE_HEAD, h.p_offset, e);
	if (!r)
		r = read_at(i, &i->blocks, sizeof(i->blocks), h.p_offset + TAIL_NOTE_HEAD, e);
	if (r)
		return r;
	if (head.note.n_namesz == 0 && i->blocks.block_size == 0)
		return image_say(i, e, IMAGE_TRUNCATED, "was not written to its end");
	if (head.note.n_namesz != sizeof(IMAGE_NOTE_OWNER) || memcmp(head.owner, IMAGE_NOTE_OWNER, sizeof(head.owner)) ||
	    !tail_agrees(i, &h, &head.note))
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: the note of its checksums is not in order");
	at = h.p_offset + TAIL_NOTE_HEAD + sizeof(i->blocks);
	i->sums = calloc(i->blocks.count + 1, sizeof(*i->sums));
	if (!i->sums)
		return image_say(i, e, IMAGE_MISSING, "no memory for its checksums");
	return read_at(i, i->sums, i->blocks.count * sizeof(*i->sums), at, e);
}

static int check_head(struct image *i, struct image_error *e)
{
	struct image_blocks zeroed = i->blocks;
	const struct image_piece sealed[] = {
		{ NULL, i->blocks.data_start },
		{ &zeroed, sizeof(zeroed) },
		{ i->sums, i->blocks.count * sizeof(*i->sums) },
	}, table[] = { { &i->blocks, sizeof(i->blocks) }, sealed[2] };
	struct image_piece pieces[3];
	uint8_t digest[16];
	int r = map_head(i, i->blocks.data_start, e);

	if (r)
		return r;
	i->phdrs = (const Elf64_Phdr *)(i->head + sizeof(Elf64_Ehdr));
	memset(zeroed.head_digest, 0, sizeof(zeroed.head_digest));
	memcpy(pieces, sealed, sizeof(pieces));
	pieces[0].data = i->head;
	image_hash128(pieces, 3, digest);
	if (memcmp(digest, i->blocks.head_digest, sizeof(digest)))
		return image_say(i, e, IMAGE_DAMAGED, "is damaged: its headers do not match their checksum");
	image_hash128(table, 2, i->digest);
	return 0;
}

static bool segment_is_sane(const struct image *i, const Elf64_Phdr *p, uint64_t *offset, uint64_t *address)
{
	const struct image_blocks *b = &i->blocks;

	if (p->p_type != PT_LOAD || p->p_memsz == 0 || (p->p_vaddr | p->p_memsz | p->p_offset) % FM_PAGE_SIZE)
		return false;
	if (p->p_filesz != 0 && p->p_filesz != p->p_memsz)
		return false;
	if (p->p_vaddr < *address || p->p_memsz > UINT64_MAX - p->p_vaddr)
		return false;
	if (p->p_offset < *offset || p->p_offset > b->data_end || p->p_filesz > b->data_end - p->p_offset)
		return false;
	*offset = p->p_offset + p->p_filesz;
	*address = p->p_vaddr + p->p_memsz;
	return true;
}

/* Both lists ascend: one pass over the two. */
static int check_segments(const struct image *i, struct image_error *e)
{
	uint64_t offset = i->blocks.data_start, address = 0;
	size_t m = 0;

	for (uint64_t n = 2; n < i->phdr_count; n++) {
		const Elf64_Phdr *p = &i->phdrs[n];

		if (!segment_is_sane(i, p, &offset, &address))
			return image_say(i, e, IMAGE_DAMAGED, "is damaged: its program header %llu is not in order",
					 (unsigned long long)n);
		while (m < i->mapping_count && i->mappings[m].end <= p->p_vaddr)
			m++;
		if (m == i->mapping_count || p->p_vaddr < i->mappings[m].start || address > i->mappings[m].end)
			return image_say(i, e, IMAGE_DAMAGED, "is damaged: its program header %llu lies in no mapping",
					 (unsigned long long)n);
	}
	return 0;
}

static int open_parts(struct image *i, struct image_error *e)
{
	struct stat st;
	int r;

	if (fstat(i->fd, &st) < 0)
		return image_say(i, e, IMAGE_MISSING, "cannot be read: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return image_say(i, e, IMAGE_FOREIGN, "is not a regular file");
	i->size = (uint64_t)st.st_size;
	r = open_header(i, e);
	if (!r)
		r = open_notes(i, e);
	if (!r)
		r = open_tail(i, e);
	if (!r)
		r = check_head(i, e);
	if (!r)
		r = image_read_notes(i, e);
	return r ? r : check_segments(i, e);
}

int image_open_fd(int fd, const char *name, struct image **ret, struct image_error *ret_error)
{
	struct image *i = calloc(1, sizeof(*i));
	char *copy = strdup(name);
	int r;

	if (!i || !copy) {
		*ret_error = (struct image_error){ .fault = IMAGE_MISSING, .block = UINT64_MAX, .text = "no memory left" };
		free(i);
		free(copy);
		close(fd);
		return -ENOMEM;
	}
	i->fd = fd;
	i->name = copy;
	r = open_parts(i, ret_error);
	if (r) {
		image_free(i);
		return r;
	}
	*ret_error = (struct image_error){ .block = UINT64_MAX };
	*ret = i;
	return 0;
}

int image_open(const char *path, struct image **ret, struct image_error *ret_error)
{
	const struct image unopened = { .name = (char *)path };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int r = -errno;

	if (fd >= 0)
		return image_open_fd(fd, path, ret, ret_error);
	image_say(&unopened, ret_error, IMAGE_MISSING, "%s", strerror(-r));
	return r;
}

struct image *image_free(struct image *i)
{
	if (!i)
		return NULL;
	if (i->head)
		munmap((void *)i->head, i->head_size);
	close(i->fd);
	free(i->sums);
	free(i->note_data);
	free(i->notes);
	free(i->threads);
	free(i->mappings);
	free(i->moved_paths);
	free(i->moved_texts);
	free(i->name);
	free(i);
	return NULL;
}

int image_fd(const struct image *i)
{
	return i->fd;
}

uint64_t image_file_size(const struct image *i)
{
	return i->size;
}

void image_digest(const struct image *i, uint8_t ret[16])
{
	memcpy(ret, i->digest, 16);
}

const struct image_blocks *image_get_blocks(const struct image *i)
{
	return &i->blocks;
}

const uint64_t *image_get_sums(const struct image *i)
{
	return i->sums;
}

const Elf64_Phdr *image_get_segments(const struct image *i, size_t *ret_count)
{
	*ret_count = i->phdr_count - 2;
	return i->phdrs + 2;
}
