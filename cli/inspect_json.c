/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An image as JSON, for fermata inspect --json. Addresses and masks are strings of hexadecimal digits: JSON's
 * numbers are too narrow.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

static json_t *hex(uint64_t v)
{
	char text[20];

	snprintf(text, sizeof(text), "0x%" PRIx64, v);
	return json_string(text);
}

/* Text from an image need not be UTF-8: paths are bytes. Others are shown as '?'. */
static json_t *text(const char *s)
{
	json_t *o = json_string(s);
	char copy[4096];

	if (o)
		return o;
	snprintf(copy, sizeof(copy), "%s", s);
	for (char *p = copy; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(copy);
}

static json_t *json_process(const struct image *i)
{
	const struct image_process *p = image_get_process(i);

	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:o, s:o, s:o, s:i, s:o, s:I, s:I, s:I}", "pid", p->pid, "ppid",
			 p->ppid, "pgid", p->pgid, "sid", p->sid, "stopped_by", p->stopped, "uid", (json_int_t)p->uid, "gid", (json_int_t)p->gid, "umask", p->umask, "comm",
			 text(p->comm), "exe", text(p->exe), "cwd", text(p->cwd), "generation", p->generation, "pending",
			 hex(p->pending), "monotonic_ns", (json_int_t)p->monotonic_ns, "boottime_ns",
			 (json_int_t)p->boottime_ns, "realtime_ns", (json_int_t)p->realtime_ns);
}

static json_t *json_threads(const struct image *i)
{
	size_t count;
	const struct image_thread *t = image_get_threads(i, &count);
	json_t *list = json_array();
	char where[128];

	for (size_t n = 0; n < count; n++) {
		inspect_where(i, t[n].user_regs[16], where, sizeof(where));
		json_array_append_new(list, json_pack("{s:i, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o}", "tid", t[n].tid, "comm",
						      text(t[n].comm), "leader", t[n].flags & IMAGE_THREAD_LEADER,
						      "checkpoint_thread", t[n].flags & IMAGE_THREAD_AGENT, "rip",
						      hex(t[n].user_regs[16]), "where", text(where), "rsp",
						      hex(t[n].user_regs[19]), "sigmask", hex(t[n].sigmask), "pending",
						      hex(t[n].pending | t[n].queued)));
	}
	return list;
}

static json_t *json_mappings(const struct image *i)
{
	size_t count;
	const struct image_mapping *m = image_get_mappings(i, &count);
	json_t *list = json_array();

	for (size_t n = 0; n < count; n++)
		json_array_append_new(
			list, json_pack("{s:o, s:o, s:s, s:s, s:o, s:I, s:I}", "start", hex(m[n].start), "end", hex(m[n].end), "rights",
					inspect_rights(m[n].prot), "kind",
					inspect_kind_names[m[n].kind < INSPECT_KINDS ? m[n].kind : 0], "path",
					text(image_mapping_path(i, &m[n])), "offset", (json_int_t)m[n].offset, "saved",
					(json_int_t)inspect_saved(i, m[n].start, m[n].end)));
	return list;
}

static json_t *json_memory(const struct image *i)
{
	struct inspect_kind kinds[INSPECT_KINDS];
	json_t *o = json_object();

	inspect_sum(i, kinds);
	for (size_t k = 0; k < INSPECT_KINDS; k++)
		if (kinds[k].mappings)
			json_object_set_new(o, inspect_kind_names[k],
					    json_pack("{s:I, s:I, s:I}", "mappings", (json_int_t)kinds[k].mappings, "bytes",
						      (json_int_t)kinds[k].bytes, "saved", (json_int_t)kinds[k].saved));
	return o;
}

static json_t *json_zombies(const struct image *i)
{
	size_t count;
	const struct image_zombie *z = image_get_zombies(i, &count, NULL);
	json_t *list = json_array();

	for (size_t n = 0; n < count; n++)
		json_array_append_new(list, json_pack("{s:i, s:i}", "pid", z[n].pid, "status", z[n].status));
	return list;
}

static json_t *json_sysv(const struct image *i)
{
	size_t count;
	const struct image_sysv *s = image_get_sysv(i, &count);
	json_t *list = json_array();

	for (size_t n = 0; n < count; n++)
		json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:I, s:i, s:i, s:i, s:i, s:i}", "id", s[n].id, "key", s[n].key, "size",
						      (json_int_t)s[n].size, "page_size", (json_int_t)(s[n].page_shift ? 1ull << s[n].page_shift : FM_PAGE_SIZE), "mode", s[n].mode, "uid", s[n].uid, "gid", s[n].gid,
						      "cpid", s[n].cpid, "lpid", s[n].lpid));
	return list;
}

static json_t *json_contents(const struct image *i)
{
	json_t *list = json_array();

	for (size_t n = 0; n < image_count_contents(i); n++) {
		const struct image_content *c = image_get_content(i, n);

		json_array_append_new(list, json_pack("{s:o, s:s, s:I, s:I, s:i, s:o, s:o, s:I}", "path", text(image_content_path(i, c)),
						      "content", inspect_content_names[c->kind], "size", (json_int_t)c->size,
						      "mtime", (json_int_t)c->mtime_sec, "mode", (int)c->mode, "file",
						      text(image_content_name(i, c)), "sum",
						      c->flags & IMAGE_CONTENT_HAS_SUM ? hex(c->sum) : json_null(), "bytes",
						      (json_int_t)c->bytes));
	}
	return list;
}

static json_t *json_signals(const struct image *i)
{
	const struct image_sigaction *s = image_get_signals(i);
	json_t *list = json_array();

	for (int n = 0; n < 64; n++)
		if (s[n].handler)
			json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o}", "signal", n + 1, "handler",
							      hex(s[n].handler), "flags", hex(s[n].flags), "mask",
							      hex(s[n].mask)));
	return list;
}

static json_t *json_host(const struct image *i)
{
	const struct image_host *h = image_get_host(i);

	return json_pack("{s:o, s:o, s:o, s:i}", "hostname", text(h->hostname), "kernel", text(h->kernel), "glibc",
			 text(h->glibc), "page_size", h->page_size);
}

static json_t *json_cpu(const struct image *i)
{
	const struct image_cpu *c = image_get_cpu(i);
	struct image_cpu none = { 0 };
	char names[2000];

	image_cpu_missing(c, &none, names, sizeof(names));
	return json_pack("{s:o, s:o, s:o, s:i, s:s}", "vendor", text(c->vendor), "model", text(c->model), "xcr0", hex(c->xcr0),
			 "xsave_size", c->xsave_size, "features", names);
}

static json_t *json_resource(const struct image_resource *r)
{
	const struct image_fd *fds = inspect_fds(r);
	json_t *list = json_array(), *o;
	struct image_foreign foreign;

	for (uint32_t n = 0; n < r->fd_count; n++)
		json_array_append_new(list, json_pack("{s:i, s:b}", "fd", fds[n].fd, "cloexec", fds[n].flags));
	o = json_pack("{s:o, s:s, s:i, s:i, s:o}", "plugin", text(r->plugin), "kind", inspect_resource_names[r->kind & 3],
		      "length", r->length, "id", r->desc_id, "fds", list);
	if (inspect_is_verbs(r))
		json_object_set_new(o, "objects", inspect_verbs_json(r));
	if (r->kind == IMAGE_RESOURCE_FOREIGN) {
		memcpy(&foreign, r + 1, sizeof(foreign));
		json_object_set_new(o, "leader_pid", json_integer(foreign.leader_pid));
		json_object_set_new(o, "leader_fd", json_integer(foreign.leader_fd));
	}
	return o;
}

static json_t *json_resources(const struct image *i)
{
	json_t *list = json_array();
	struct image_note_view note;
	size_t cursor = 0;

	while (image_next_note(i, &cursor, &note))
		if (note.type == IMAGE_NOTE_RESOURCE)
			json_array_append_new(list, json_resource(note.data));
	return list;
}

json_t *inspect_json(const struct image *i)
{
	const struct image_version *v = image_get_version(i);
	const struct image_blocks *b = image_get_blocks(i);
	char digest[33];

	inspect_digest(i, digest);
	return json_pack("{s:i, s:i, s:o, s:I, s:I, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version", v->version,
			 "minor", v->minor, "writer", text(v->writer), "file_size", (json_int_t)image_file_size(i), "blocks",
			 (json_int_t)b->count, "block_size", b->block_size, "digest", digest, "process", json_process(i),
			 "threads", json_threads(i), "ended_children", json_zombies(i), "memory", json_memory(i), "mappings", json_mappings(i), "signals",
			 json_signals(i), "system_v_memory", json_sysv(i), "cpu", json_cpu(i), "host", json_host(i), "resources", json_resources(i), "files",
			 json_contents(i));
}
