/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The coordinator's side of relays. A process or command of another host is a connection here like any other, made by TUNNEL_OPEN; what comes on it has been
 * proved there. Owns which host is whose, what is lost with one, and when SUSPEND knows of every connection that is being made elsewhere.
 *
 * Nobody slips away at another host: a process is created by one that is a member, stopped when it has reported, and its connection to the relay
 * was made before it. So when all have reported, TUNNEL_SYNC is sent to each relay, which looks into its accept queue and answers behind what it has told of
 * that; streams are in order, so with the last answer every such connection is here. If meanwhile one has come, it is half-open or has to be suspended,
 * and when that is over all are asked again (sync_arrivals).
 *
 * A host that is lost (its relay ends, or does not answer any more) takes processes of the job with it, which may still run. A checkpoint without them would be
 * one of half a job: from then on none is taken. Where somebody brings the job back, it is ended for that. Then nothing of it may go on behind a broken
 * network: the relay hears the silence in half the time, and ends the processes of its host (relay.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "coordinator/internal.h"
#include "coordinator/tunnel.h"

unsigned int relayed_silence(const struct coordinator *c)
{
	unsigned int s = c->options->timeout_ms / 2000;

	return s < 10 ? 10 : s;
}

static void relayed_refuse(struct conn *k, const char *text)
{
	log_warn("a relay was refused: %s", text);
	tunnel_send(k, TUNNEL_REFUSED, 0, 0, text, strlen(text));
	tunnel_flush_all(&k->c->flush);
	connection_close(k);
}

static const struct conn *relayed_of(const struct coordinator *c, const char *host)
{
	struct conn *k;

	list_each(k, &c->conns, node)
		if (k->tunnel && k->tunnel->joined && !strcmp(k->tunnel->host, host))
			return k;
	return NULL;
}

/* What only this directory has in the file: the relay looks whether it is the same there. */
static int relayed_mark(struct coordinator *c, char *ret, size_t size)
{
	ssize_t n;
	int r = store_acquire(&c->store);

	if (r < 0)
		return r;
	n = pread(c->store.lock_fd, ret, size - 1, 0);
	if (n <= 0)
		return -EIO;
	ret[n] = 0;
	ret[strcspn(ret, "\n")] = 0;
	return 0;
}

static void relayed_hello(struct conn *k, const uint8_t *data, uint32_t length)
{
	struct coordinator *c = k->c;
	struct tunnel_welcome w = { 0 };
	struct tunnel_hello hello;
	char own[64] = "", text[256];

	if (length < sizeof(hello) || k->tunnel->joined) {
		connection_broken(k);
		return;
	}
	memcpy(&hello, data, sizeof(hello));
	hello.host[sizeof(hello.host) - 1] = hello.target[sizeof(hello.target) - 1] = 0;
	gethostname(own, sizeof(own) - 1);
	if (!strcmp(hello.host, own) || relayed_of(c, hello.host)) {
		snprintf(text, sizeof(text), "another host of the job is called %s, too: processes are told apart by host name and pid", hello.host);
		relayed_refuse(k, text);
		return;
	}
	if (c->state == STATE_ENDING || relayed_mark(c, w.mark, sizeof(w.mark)) < 0) {
		relayed_refuse(k, c->state == STATE_ENDING ? "the job is being ended" : "the checkpoint directory is in use by another job");
		return;
	}
	snprintf(k->tunnel->host, sizeof(k->tunnel->host), "%s", hello.host);
	snprintf(k->tunnel->target, sizeof(k->tunnel->target), "%s", hello.target);
	w.silence_s = relayed_silence(c);
	w.flags = member_comes_back(c) ? TUNNEL_WELCOME_PROTECTED : 0;
	snprintf(w.directory, sizeof(w.directory), "%s", c->store.dir);
	k->tunnel->joined = true;
	c->relay_count++;
	log_info("host %s joins", hello.host);
	tunnel_send(k, TUNNEL_WELCOME, 0, 0, &w, sizeof(w));
}

static void relayed_open(struct conn *k, const struct tunnel_frame *f)
{
	struct conn *channel = connection_make_relayed(k, f->channel, (pid_t)f->value);

	if (channel && tunnel_channel_set(k, f->channel, channel) == 0)
		return;
	if (channel)
		connection_close(channel);
	connection_broken(k);
}

static void relayed_looked(struct conn *channel, const struct tunnel_frame *f, const uint8_t *data)
{
	char text[256];

	snprintf(text, sizeof(text), "%.*s", (int)(f->length < sizeof(text) ? f->length : sizeof(text) - 1), (const char *)data);
	if (channel->member)
		conduct_silent_looked(channel->member, (int)f->value, text);
}

static void relayed_channel(struct conn *k, const struct tunnel_frame *f, const uint8_t *data)
{
	struct conn *channel = tunnel_channel(k, f->channel);

	if (!channel)
		return; /* closed here while that was on its way */
	if (f->kind == TUNNEL_DATA) {
		channel->sender = (pid_t)f->value;
		connection_feed(channel, data, f->length);
	} else if (f->kind == TUNNEL_CLOSE) {
		tunnel_channel_set(k, f->channel, NULL); /* closed there: nothing more to be said */
		connection_close(channel);
	} else {
		relayed_looked(channel, f, data);
	}
}

void relayed_frame(struct conn *k, const struct tunnel_frame *f, const uint8_t *data)
{
	if (f->kind == TUNNEL_HELLO) {
		relayed_hello(k, data, f->length);
		return;
	}
	if (!k->tunnel->joined) {
		connection_broken(k);
		return;
	}
	switch (f->kind) {
	case TUNNEL_OPEN:
		relayed_open(k, f);
		break;
	case TUNNEL_DATA:
	case TUNNEL_CLOSE:
	case TUNNEL_LOOKED:
		relayed_channel(k, f, data);
		break;
	case TUNNEL_SYNCED:
		k->tunnel->synced = f->value;
		conduct_check(k->c);
		break;
	case TUNNEL_LEAVING:
		k->tunnel->left = true;
		break;
	default:
		log_warn("host %s: frame %u is not one of a relay", k->tunnel->host, f->kind);
	}
}

static uint32_t relayed_end_channels(struct conn *k)
{
	uint32_t members = 0;

	for (uint32_t i = 0; i < k->tunnel->channel_count; i++) {
		struct conn *channel = k->tunnel->channels[i];

		if (!channel)
			continue;
		members += channel->member != NULL;
		connection_close(channel);
	}
	return members;
}

void relayed_closed(struct conn *k)
{
	struct coordinator *c = k->c;
	uint32_t members;

	if (!k->tunnel->joined)
		return;
	k->tunnel->joined = false;
	c->relay_count--;
	members = relayed_end_channels(k);
	log_info("host %s has left%s", k->tunnel->host, k->tunnel->left ? "" : " without a word");
	if (!members || c->state == STATE_ENDING)
		return;
	snprintf(c->lost, sizeof(c->lost), "host %s with %u processes of the job", k->tunnel->host, members);
	command_lost(c);
}

bool relayed_synced(struct coordinator *c)
{
	bool all = true;
	struct conn *k;

	if (!c->relay_count)
		return true;
	if (c->sync_arrivals != c->arrivals || !c->sync) {
		c->sync_arrivals = c->arrivals;
		c->sync++;
		list_each(k, &c->conns, node)
			if (k->tunnel && k->tunnel->joined)
				tunnel_send(k, TUNNEL_SYNC, 0, c->sync, NULL, 0);
	}
	list_each(k, &c->conns, node)
		if (k->tunnel && k->tunnel->joined)
			all &= k->tunnel->synced == c->sync;
	return all;
}
