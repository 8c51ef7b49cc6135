/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata inspect: what an image or a checkpoint holds, in words (here) or as JSON (inspect_json.c). Reads
 * structure only; whether the memory is whole is `fermata verify`'s matter.
 */
#include "cli/inspect.h"

#include <err.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macro.h"
#include "cli/cli.h"

static const char inspect_help[] =
	"Usage: fermata inspect [-v] [--json] IMAGE|CHECKPOINT\n"
	"Shows what an image holds, or the images of a checkpoint (a job's directory: its newest).\n"
	"  -v, --verbose  every mapping, signal action and object of the verbs\n"
	"      --json     all of it as JSON\n"
	"Exit status: 0; 3 there is none; 5 it is of a newer version; 6 it is damaged.\n";

static const struct option inspect_long[] = {
	{ "verbose", no_argument, NULL, 'v' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

const char *const inspect_kind_names[INSPECT_KINDS] = { "?", "anonymous", "file", "shared file", "shared memory", "vdso",
							 "System V" };
const char *const inspect_content_names[5] = { "?", "read", "summed", "saved", "deleted" };
const char *const inspect_resource_names[4] = { "?", "plain", "description", "foreign" };

uint64_t inspect_saved(const struct image *i, uint64_t start, uint64_t end)
{
	size_t count;
	const Elf64_Phdr *p = image_get_segments(i, &count);
	size_t low = 0, high = count; /* the first segment at or above @start lies in between */
	uint64_t sum = 0;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (p[mid].p_vaddr < start)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < count && p[low].p_vaddr < end; low++)
		sum += p[low].p_filesz;
	return sum;
}

/* Both lists ascend, and each segment lies within one mapping. */
void inspect_sum(const struct image *i, struct inspect_kind ret[INSPECT_KINDS])
{
	size_t mappings, segments, s = 0;
	const struct image_mapping *m = image_get_mappings(i, &mappings);
	const Elf64_Phdr *p = image_get_segments(i, &segments);

	memset(ret, 0, INSPECT_KINDS * sizeof(*ret));
	for (size_t n = 0; n < mappings; n++) {
		struct inspect_kind *k = &ret[m[n].kind < INSPECT_KINDS ? m[n].kind : 0];

		k->mappings++;
		k->bytes += m[n].end - m[n].start;
		for (; s < segments && p[s].p_vaddr < m[n].end; s++)
			k->saved += p[s].p_filesz;
	}
}

void inspect_where(const struct image *i, uint64_t address, char *ret, size_t size)
{
	size_t count;
	const struct image_mapping *m = image_get_mappings(i, &count);

	for (size_t n = 0; n < count; n++) {
		const char *path = image_mapping_path(i, &m[n]), *slash = strrchr(path, '/');

		if (address < m[n].start || address >= m[n].end)
			continue;
		if (slash) {
			snprintf(ret, size, "%s+0x%" PRIx64, slash + 1, address - m[n].start + m[n].offset);
			return;
		}
		if (m[n].kind == IMAGE_MAPPING_VDSO) {
			snprintf(ret, size, "[vdso]+0x%" PRIx64, address - m[n].start);
			return;
		}
	}
	snprintf(ret, size, "0x%" PRIx64, address);
}

const char *inspect_rights(uint32_t prot)
{
	static const char *const names[] = { "---", "r--", "-w-", "rw-", "--x", "r-x", "-wx", "rwx" };

	return names[prot & 7];
}

const struct image_fd *inspect_fds(const struct image_resource *r)
{
	return r->fd_count ? (const struct image_fd *)((const char *)r + ALIGN_UP(sizeof(*r) + r->length, 8)) : NULL;
}

void inspect_digest(const struct image *i, char ret[33])
{
	uint8_t digest[16];

	image_digest(i, digest);
	for (size_t n = 0; n < sizeof(digest); n++)
		snprintf(ret + 2 * n, 3, "%02x", digest[n]);
}

static void print_size(const char *before, uint64_t bytes, const char *after)
{
	char size[32];

	size_format((double)bytes, size, sizeof(size));
	printf("%s%s%s", before, size, after);
}

static void print_process(const struct image *i, const char *path)
{
	const struct image_process *p = image_get_process(i);
	const struct image_version *v = image_get_version(i);
	char digest[33];

	inspect_digest(i, digest);
	printf("%s\n", path);
	printf("  format     version %u.%u, written by %s\n", v->version, v->minor, v->writer);
	print_size("  file       ", image_file_size(i), "");
	printf(", %" PRIu64 " blocks, digest %s\n", image_get_blocks(i)->count, digest);
	printf("  process    %u (%s), parent %u, group %u, session %u, user %u:%u\n", p->pid, p->comm, p->ppid, p->pgid, p->sid,
	       p->uid, p->gid);
	if (p->stopped)
		printf("  stopped    by signal %u (%s)\n", p->stopped, strsignal((int)p->stopped));
	printf("  program    %s in %s, umask %03o, %u restart%s so far\n", p->exe, p->cwd, p->umask, p->generation,
	       p->generation == 1 ? "" : "s");
	printf("  clocks     monotonic %.3f s, boottime %.3f s, realtime %.3f s\n", (double)p->monotonic_ns / 1e9,
	       (double)p->boottime_ns / 1e9, (double)p->realtime_ns / 1e9);
}

static void print_host(const struct image *i)
{
	const struct image_host *h = image_get_host(i);
	const struct image_cpu *c = image_get_cpu(i);
	struct image_cpu none = { 0 };
	char names[2000];

	printf("  host       %s, kernel %s, glibc %s, pages of %u\n", h->hostname, h->kernel, h->glibc, h->page_size);
	printf("  cpu        %s, xsave area of %u bytes\n", c->model[0] ? c->model : c->vendor, c->xsave_size);
	image_cpu_missing(c, &none, names, sizeof(names));
	printf("  features   %s\n", names);
}

static void print_threads(const struct image *i)
{
	size_t count;
	const struct image_thread *t = image_get_threads(i, &count);
	char where[128];

	printf("  threads    %zu\n", count);
	for (size_t n = 0; n < count; n++) {
		inspect_where(i, t[n].user_regs[16], where, sizeof(where));
		printf("    %-8u %-16s %s%s%s\n", t[n].tid, t[n].comm, where, t[n].flags & IMAGE_THREAD_LEADER ? " (leader)" : "",
		       t[n].flags & IMAGE_THREAD_AGENT ? " (checkpoint thread)" : "");
	}
}

static void print_zombies(const struct image *i)
{
	size_t count;
	const struct image_zombie *z = image_get_zombies(i, &count, NULL);

	for (size_t n = 0; n < count; n++)
		printf("%s%u (status %04x)%s", n ? ", " : "  ended      ", z[n].pid, z[n].status, n + 1 == count ? "\n" : "");
}

static void print_mapping(const struct image *i, const struct image_mapping *m)
{
	char saved[32];

	size_format((double)inspect_saved(i, m->start, m->end), saved, sizeof(saved));
	printf("    %012" PRIx64 "-%012" PRIx64 " %s %-13s %10s  %s\n", m->start, m->end, inspect_rights(m->prot),
	       inspect_kind_names[m->kind < INSPECT_KINDS ? m->kind : 0], saved, image_mapping_path(i, m));
}

static void print_memory(const struct image *i, bool verbose)
{
	struct inspect_kind kinds[INSPECT_KINDS];
	size_t count;
	const struct image_mapping *m = image_get_mappings(i, &count);

	inspect_sum(i, kinds);
	printf("  mappings   %zu\n", count);
	for (size_t k = 0; k < INSPECT_KINDS; k++) {
		if (!kinds[k].mappings)
			continue;
		printf("    %-13s %6zu", inspect_kind_names[k], kinds[k].mappings);
		print_size(", ", kinds[k].bytes, "");
		print_size(", saved ", kinds[k].saved, "\n");
	}
	for (size_t n = 0; verbose && n < count; n++)
		print_mapping(i, &m[n]);
}

static void print_signals(const struct image *i, bool verbose)
{
	const struct image_process *p = image_get_process(i);
	const struct image_sigaction *s = image_get_signals(i);
	int handled = 0, ignored = 0;
	char where[128];

	for (int n = 0; n < 64; n++) {
		handled += s[n].handler > 1;
		ignored += s[n].handler == 1;
	}
	printf("  signals    %d handled, %d ignored, pending for the process: %016" PRIx64 "\n", handled, ignored, p->pending);
	for (int n = 0; verbose && n < 64; n++) {
		if (!s[n].handler)
			continue;
		inspect_where(i, s[n].handler, where, sizeof(where));
		printf("    %-2d %-32s flags %08" PRIx64 ", mask %016" PRIx64 "\n", n + 1, s[n].handler == 1 ? "ignored" : where,
		       s[n].flags, s[n].mask);
	}
}

void inspect_text(const struct image *i, const char *path, bool verbose)
{
	print_process(i, path);
	print_host(i);
	print_threads(i);
	print_zombies(i);
	print_memory(i, verbose);
	inspect_print_sysv(i);
	inspect_print_contents(i);
	print_signals(i, verbose);
	inspect_print_resources(i);
	inspect_verbs_text(i, verbose);
}

static int fault_code(const struct image_error *e, bool named_by_user)
{
	warnx("%s", e->text);
	if (e->fault == IMAGE_NEWER)
		return CLI_CANNOT;
	return e->fault == IMAGE_MISSING && named_by_user ? CLI_NOTHING : CLI_DAMAGED;
}

static int inspect_image(const char *path, bool verbose, bool json)
{
	struct image_error e;
	struct image *i;
	json_t *o;

	if (image_open(path, &i, &e))
		return fault_code(&e, true);
	if (json) {
		o = inspect_json(i);
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
	} else {
		inspect_text(i, path, verbose);
	}
	image_free(i);
	return CLI_OK;
}

static int inspect_checkpoint(const char *path, bool verbose, bool json)
{
	json_t *list = json_array(), *trees = json_array(), *o;
	struct image_error e;
	struct manifest *m;
	int code = CLI_OK, one;

	if (manifest_open(path, &m, &e)) {
		json_decref(list);
		json_decref(trees);
		return fault_code(&e, true);
	}
	if (!json)
		printf("%s: checkpoint %" PRIu64 " of job %s, %s, %zu image%s\n", m->path, m->checkpoint, m->job, m->time, m->count,
		       m->count == 1 ? "" : "s");
	for (size_t n = 0; n < m->count; n++) {
		struct image *i;

		if (manifest_image_open(m, &m->images[n], &i, &e)) {
			code = fault_code(&e, false);
			continue;
		}
		if (json)
			json_array_append_new(list, inspect_json(i));
		else
			inspect_text(i, m->images[n].name, verbose);
		image_free(i);
	}
	one = inspect_trees(m, verbose, json ? trees : NULL);
	code = one ? one : code;
	if (json) {
		o = json_pack("{s:s, s:I, s:s, s:s, s:O, s:O}", "job", m->job, "checkpoint", (json_int_t)m->checkpoint, "path", m->path,
			      "time", m->time, "images", list, "directories", trees);
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
	}
	json_decref(list);
	json_decref(trees);
	manifest_free(m);
	return code;
}

int cmd_inspect(int argc, char **argv)
{
	bool verbose = false, json = false;
	struct stat st;
	int o;

	while ((o = getopt_long(argc, argv, "hv", inspect_long, NULL)) != -1) {
		switch (o) {
		case 'v': verbose = true; break;
		case 'j': json = true; break;
		case 'h': fputs(inspect_help, stdout); return CLI_OK;
		default: fputs(inspect_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind != 1) {
		fputs(inspect_help, stderr);
		return CLI_USAGE;
	}
	if (!stat(argv[optind], &st) && S_ISDIR(st.st_mode))
		return inspect_checkpoint(argv[optind], verbose, json);
	return inspect_image(argv[optind], verbose, json);
}
