/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the other side is told: where the stand-in listens and what proves it, the job, the command, and of our environment what holds there, too. It goes
 * through ssh's standard input, because anybody may read a command line.
 *
 *     struct order_head, then `length` bytes of texts, each with its NUL: job, coordinator, command, NAME=VALUE..
 *
 * Owns the memory of an order that was read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/remote.h"

#define ORDER_MAGIC 0x524d4d46u /* "FMMR" */
#define ORDER_VERSION 1
#define ORDER_LENGTH_MAX (4u << 20)

struct order_head {
	uint32_t magic, version, count, length; /* texts; their bytes */
	uint8_t token[REMOTE_TOKEN_SIZE];
	char address[64];
	uint32_t port, reserved;
};
_Static_assert(sizeof(struct order_head) == 120, "order_head");

static const char *const order_never[] = { "FERMATA_APART=", "FERMATA_FD=", "FERMATA_UNDO=", "FERMATA_JOBDIR=", "FERMATA_JOB=", "FERMATA_HOST=", "FERMATA_BEGUN=", "FERMATA_LIBDIR=",
					   "FERMATA_COORDINATOR=", "FERMATA_LISTEN=", "FERMATA_FAULT=" };

static bool order_takes(const char *entry)
{
	if (strncmp(entry, "FERMATA_", 8) && strncmp(entry, "SOFTRDMA_", 9))
		return false;
	for (size_t i = 0; i < sizeof(order_never) / sizeof(order_never[0]); i++)
		if (!strncmp(entry, order_never[i], strlen(order_never[i])))
			return false;
	return true;
}

char **remote_order_environment(void)
{
	size_t n = 0;
	char **list;

	for (char **e = environ; *e; e++)
		n++;
	list = calloc(n + 1, sizeof(*list));
	n = 0;
	for (char **e = environ; list && *e; e++)
		if (order_takes(*e))
			list[n++] = *e;
	return list;
}

static int order_text(FILE *f, const char *text, struct order_head *h)
{
	size_t len = strlen(text) + 1;

	h->count++;
	h->length += (uint32_t)len;
	return fwrite(text, 1, len, f) == len ? 0 : -ENOMEM;
}

int remote_order_write(int fd, const struct remote_order *o)
{
	struct order_head h = { .magic = ORDER_MAGIC, .version = ORDER_VERSION, .port = o->port };
	char *texts = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&texts, &size);
	int r;

	if (!f)
		return -ENOMEM;
	memcpy(h.token, o->token, sizeof(h.token));
	memcpy(h.address, o->address, sizeof(h.address));
	r = order_text(f, o->job, &h) | order_text(f, o->coordinator, &h) | order_text(f, o->command, &h);
	for (char **e = o->environment; !r && *e; e++)
		r = order_text(f, *e, &h);
	if (fclose(f) || r)
		r = -ENOMEM;
	if (!r)
		r = (int)raw_write_all(fd, &h, sizeof(h));
	if (!r)
		r = (int)raw_write_all(fd, texts, h.length);
	free(texts);
	return r;
}

/* The @h->count texts of @o->memory. */
static int order_take_apart(const struct order_head *h, struct remote_order *o)
{
	const char **first[] = { &o->job, &o->coordinator, &o->command };
	char *at = o->memory, *end = at + h->length;

	o->environment = calloc(h->count + 1, sizeof(*o->environment));
	if (!o->environment)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->count; i++) {
		char *nul = memchr(at, 0, (size_t)(end - at));

		if (!nul)
			return -EPROTO;
		if (i < 3)
			*first[i] = at;
		else
			o->environment[i - 3] = at;
		at = nul + 1;
	}
	return 0;
}

int remote_order_read(int fd, struct remote_order *ret)
{
	struct remote_order o = { 0 };
	struct order_head h;
	int r = raw_read_all(fd, &h, sizeof(h)) < 0 ? -EPROTO : 0;

	if (r || h.magic != ORDER_MAGIC || h.count < 3 || h.count > h.length || h.length > ORDER_LENGTH_MAX || h.port > 65535)
		return -EPROTO;
	if (h.version != ORDER_VERSION)
		return -EPROTONOSUPPORT;
	memcpy(o.token, h.token, sizeof(o.token));
	memcpy(o.address, h.address, sizeof(o.address));
	o.address[sizeof(o.address) - 1] = 0;
	o.port = (uint16_t)h.port;
	o.memory = malloc(h.length);
	if (!o.memory)
		return -ENOMEM;
	r = raw_read_all(fd, o.memory, h.length) < 0 ? -EPROTO : order_take_apart(&h, &o);
	*ret = o;
	return r;
}
