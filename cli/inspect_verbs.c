/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata inspect: the objects of the verbs that a process holds, from the record of the verbs plugin (plugins/verbs/verbs_record.h). One table
 * a kind says what its fields are called; words and JSON come from it. What an entry has not, because an older plugin wrote it, is left
 * out, and so are kinds that are not known.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "cli/inspect.h"
#include "plugins/verbs/verbs_record.h"

enum form { FORM_NUMBER, FORM_HEX, FORM_TEXT, FORM_GID, FORM_STATE };

struct field {
	const char *name;
	uint16_t offset, size;
	enum form form;
};

#define FIELD(kind, member, form) { #member, offsetof(struct verbs_record_##kind, member), sizeof(((struct verbs_record_##kind *)0)->member), form }
#define FIELDS_MAX 14

static const struct kind {
	const char *name, *names;
	struct field fields[FIELDS_MAX];
} kinds[] = {
	[VERBS_RECORD_CONTEXT] = { "context", "contexts", { FIELD(context, device, FORM_TEXT), FIELD(context, async_fd, FORM_NUMBER),
		FIELD(context, cmd_fd, FORM_NUMBER), FIELD(context, lid, FORM_HEX), FIELD(context, gid, FORM_GID) } },
	[VERBS_RECORD_PD] = { "domain", "domains", { FIELD(pd, handle, FORM_NUMBER) } },
	[VERBS_RECORD_MR] = { "region", "regions", { FIELD(mr, address, FORM_HEX), FIELD(mr, length, FORM_NUMBER),
		FIELD(mr, iova, FORM_HEX), FIELD(mr, access, FORM_HEX), FIELD(mr, lkey, FORM_HEX), FIELD(mr, rkey, FORM_HEX),
		FIELD(mr, pd, FORM_NUMBER) } },
	[VERBS_RECORD_MW] = { "window", "windows", { FIELD(mw, type, FORM_NUMBER), FIELD(mw, rkey, FORM_HEX), FIELD(mw, pd, FORM_NUMBER),
		FIELD(mw, bound, FORM_NUMBER), FIELD(mw, address, FORM_HEX), FIELD(mw, length, FORM_NUMBER),
		FIELD(mw, access, FORM_HEX), FIELD(mw, region_lkey, FORM_HEX), FIELD(mw, qp, FORM_HEX) } },
	[VERBS_RECORD_CHANNEL] = { "channel", "channels", { FIELD(channel, fd, FORM_NUMBER) } },
	[VERBS_RECORD_CQ] = { "completion queue", "completion queues", { FIELD(cq, cqe, FORM_NUMBER), FIELD(cq, channel_fd, FORM_NUMBER),
		FIELD(cq, kept, FORM_NUMBER), FIELD(cq, armed, FORM_NUMBER), FIELD(cq, fired, FORM_NUMBER) } },
	[VERBS_RECORD_QP] = { "queue pair", "queue pairs", { FIELD(qp, number, FORM_HEX), FIELD(qp, state, FORM_STATE),
		FIELD(qp, dest_number, FORM_HEX), FIELD(qp, dest_lid, FORM_HEX), FIELD(qp, port, FORM_NUMBER),
		FIELD(qp, max_send_wr, FORM_NUMBER), FIELD(qp, max_recv_wr, FORM_NUMBER), FIELD(qp, sends_pending, FORM_NUMBER),
		FIELD(qp, receives_pending, FORM_NUMBER), FIELD(qp, dest_gid, FORM_GID), FIELD(qp, two_sided_sent, FORM_NUMBER),
		FIELD(qp, received, FORM_NUMBER) } },
	[VERBS_RECORD_SRQ] = { "shared receive queue", "shared receive queues", { FIELD(srq, max_wr, FORM_NUMBER), FIELD(srq, max_sge, FORM_NUMBER),
		FIELD(srq, limit, FORM_NUMBER), FIELD(srq, posted, FORM_NUMBER) } },
	[VERBS_RECORD_CM] = { "rdma_cm channel", "rdma_cm channels", { FIELD(cm, fd, FORM_NUMBER) } },
};
#define KINDS ARRAY_SIZE(kinds)

static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

/* The next entry of a known kind at *@at; NULL: there is none. */
static const struct kind *next_entry(const struct image_resource *r, size_t *at, const char **ret_data, uint32_t *ret_length)
{
	const char *record = (const char *)(r + 1);
	struct verbs_record_entry e;

	while (r->length >= *at + sizeof(e)) {
		memcpy(&e, record + *at, sizeof(e));
		*at += sizeof(e);
		if (e.length > r->length - *at)
			return NULL;
		*ret_data = record + *at;
		*ret_length = e.length;
		*at += e.length;
		if (e.kind < KINDS && kinds[e.kind].name)
			return &kinds[e.kind];
	}
	return NULL;
}

/* A field's value in words. */
static void show(const struct field *f, const char *data, char *ret, size_t size)
{
	const uint8_t *g = (const uint8_t *)data + f->offset;
	int64_t number = 0;
	size_t len = 0;

	if (f->form == FORM_TEXT) {
		snprintf(ret, size, "%.*s", f->size, data + f->offset);
		return;
	}
	if (f->form == FORM_GID) {
		for (int i = 0; i < 16; i++)
			len += (size_t)snprintf(ret + len, size - len, "%s%02x", i && i % 2 == 0 ? ":" : "", g[i]);
		return;
	}
	memcpy(&number, data + f->offset, f->size);
	if (f->size == 4 && f->form == FORM_NUMBER)
		number = (int32_t)number;
	if (f->form == FORM_STATE && (uint64_t)number < ARRAY_SIZE(states))
		snprintf(ret, size, "%s", states[number]);
	else
		snprintf(ret, size, f->form == FORM_HEX ? "0x%" PRIx64 : "%" PRId64, number);
}

static const struct field *next_field(const struct kind *k, unsigned int *i, uint32_t length)
{
	for (; *i < FIELDS_MAX && k->fields[*i].name; ++*i)
		if (k->fields[*i].offset + k->fields[*i].size <= length)
			return &k->fields[(*i)++];
	return NULL;
}

static void print_object(const struct kind *k, const char *data, uint32_t length)
{
	const char *before = "";
	const struct field *f;
	char value[80];

	printf("    %-20s ", k->name);
	for (unsigned int i = 0; (f = next_field(k, &i, length)); before = ", ") {
		show(f, data, value, sizeof(value));
		printf("%s%s %s", before, f->name, value);
	}
	putchar('\n');
}

static void print_counts(const struct image_resource *r)
{
	size_t at = sizeof(struct verbs_record), count[KINDS] = { 0 };
	const char *data, *before = "  verbs      ";
	const struct kind *k;
	uint32_t length;

	while ((k = next_entry(r, &at, &data, &length)))
		count[k - kinds]++;
	for (size_t i = 0; i < KINDS; i++) {
		if (!count[i])
			continue;
		printf("%s%zu %s", before, count[i], count[i] == 1 ? kinds[i].name : kinds[i].names);
		before = ", ";
	}
	putchar('\n');
}

bool inspect_is_verbs(const struct image_resource *r)
{
	return r->kind == IMAGE_RESOURCE_PLAIN && r->length > sizeof(struct verbs_record) && !strncmp(r->plugin, "verbs", sizeof(r->plugin));
}

void inspect_verbs_text(const struct image *i, bool verbose)
{
	struct image_note_view note;
	size_t cursor = 0, at;
	const struct kind *k;
	const char *data;
	uint32_t length;

	while (image_next_note(i, &cursor, &note)) {
		if (note.type != IMAGE_NOTE_RESOURCE || !inspect_is_verbs(note.data))
			continue;
		print_counts(note.data);
		at = sizeof(struct verbs_record);
		while (verbose && (k = next_entry(note.data, &at, &data, &length)))
			print_object(k, data, length);
	}
}

json_t *inspect_verbs_json(const struct image_resource *r)
{
	size_t at = sizeof(struct verbs_record);
	json_t *list = json_array(), *o;
	const struct kind *k;
	const struct field *f;
	const char *data;
	uint32_t length;
	char value[80];

	while ((k = next_entry(r, &at, &data, &length))) {
		o = json_pack("{s:s}", "object", k->name);
		for (unsigned int i = 0; (f = next_field(k, &i, length));) {
			show(f, data, value, sizeof(value));
			json_object_set_new(o, f->name, f->form == FORM_NUMBER ? json_integer(strtoll(value, NULL, 10)) : json_string(value));
		}
		json_array_append_new(list, o);
	}
	return list;
}
