/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who carries what is said between ids and other hosts: the thread; and, for who brings processes back, whoever settles (cm_save.c), in its place.
 *
 * The thread sleeps with no lock held. What has come it looks at, and carries, under cm_net.carrying, so that another can do the same meanwhile. A
 * line may be gone between an epoll_wait and the lock: so what it has been woken for it asks again, with the lock.
 *
 * The drain. Between two ids of different hosts a message is in one of these places:
 *
 *      id a -- socket -- near a | thread of a | far a == TCP == far b | thread of b | near b -- socket -- id b
 *
 * All programs of the job stand, so nobody says anything of himself. Whoever settles carries what has come until nothing is readable, takes it in
 * as the ids would, and does both again until neither finds anything. Then at his end the sockets to his ids are empty, in both directions, and so is
 * what his kernel has got. Only TCP is left, and it is counted, not timed. At each end let
 *
 *      said    messages that it has given to TCP, of this line, the request among them
 *      heard   messages that have come out of it, and gone to an id's socket
 *
 * Each end tells both, as they are when nothing is left to do there (softrdma_cm_lines), and is told the other's. The line is quiet if each has heard what the
 * other has said. That holds from then on, though the two have looked at different times. Let a have looked at t, b at u, t before u, and said and heard be what
 * they told:
 *
 *      heard a (t) = said b (u) >= said b (t) >= heard a (t)      so b has said nothing between t and u, and nothing was on its way to a
 *      a says something only for what it hears (settling may refuse a request), hence nothing since t
 *      heard b (u) = said a (t) = said a (u)                      so nothing is on its way to b at u
 *
 * and whoever hears nothing says nothing.
 *
 * What changes while they look:
 *
 *   a's request is on its way            a (ASKED) has said 1, b tells nothing of such a line: a waits. Then b has it; or answers "not here" or "no room", which
 *                                        a hears; or its process is none of the job's: the checkpoint is refused, after some patience
 *   an id ends, or its process           its line is closed: CLOSING, no end of a connection any more. b's line is told as it was, a's is told no more (or as gone,
 *                                        if it has been told in this checkpoint): b waits for the end that is on its way in TCP; then its id hears it
 *   the line breaks (reset, time-out)    as that, for both
 *   the cable is cut                     whoever waits goes on waiting until the checkpoint's time is over; who has nothing on its way does not care
 *   a host is dead                       so are its processes, without which there is no checkpoint
 *
 * A line that has not found its listener yet (NEW, PAUSE, DIALLING, GREETING) has said nothing that counts, and stays so: while programs are *held* no request is
 * said; the line pauses before it, and its request lies here, to be saved with its id. So what a has not said cannot have been heard by b, whenever b is saved. When they
 * go on it is dialled from where it was.
 *
 * While the image is written the thread runs: it takes guests of strangers, and carries nothing that is the job's, for nothing is said.
 */
#include "softrdma/cm_net.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "softrdma/device.h"

#define AT_ONCE 16
#define BATCHES 65536u /* nobody has so much to say */

static void serve(struct cm_net *net, uint64_t tag)
{
	uint64_t rung;

	if (tag == CM_TAG_BELL) {
		raw_read(net->event_fd, &rung, sizeof(rung));
		cm_net_nears_take(net);
	} else if (tag & CM_TAG_LISTENER) {
		cm_net_guest_accept(net, (uint32_t)(tag >> CM_TAG_NUMBER));
	} else {
		cm_line_event((struct cm_line *)(uintptr_t)(tag & ~CM_TAG_BITS), (int)(tag & 1));
	}
}

/* What is there, without waiting; how much it was. */
static long carry(struct cm_net *net)
{
	struct epoll_event ev[AT_ONCE];
	long i, n = RAW4(SYS_epoll_wait, net->wait_fd, ev, AT_ONCE, 0);

	for (i = 0; i < n; i++)
		serve(net, ev[i].data.u64);
	if (net->due && net->due <= net_now())
		cm_line_clocks(net);
	cm_lines_reap(net);
	cm_net_doors(net);
	return n;
}

static int wait_ms(const struct cm_net *net)
{
	uint64_t now = net_now();

	if (!net->due)
		return -1;
	return net->due <= now ? 0 : (int)((net->due - now) / NET_MS + 1);
}

void cm_carry_main(void *arg)
{
	struct cm_net *net = arg;
	struct epoll_event ev;
	int wait = -1;

	RAW2(SYS_prctl, 15 /* PR_SET_NAME */, "softrdma-cm");
	while (!atomic_load(&net->stopping)) {
		RAW4(SYS_epoll_wait, net->wait_fd, &ev, 1, wait);
		lock_acquire(&net->carrying);
		carry(net);
		wait = wait_ms(net);
		lock_release(&net->carrying);
	}
	cm_net_nears_take(net);
	cm_lines_end(net);
	cm_lines_reap(net);
}

/* ---- for who brings processes back ---- */

static struct cm_net *net_lock(void)
{
	struct cm_net *net = softrdma_cm_next(-1) < 0 ? NULL : cm_process->net;

	if (net)
		lock_acquire(&net->carrying);
	return net;
}

int cm_carry_settle(void)
{
	struct cm_net *net = net_lock();
	uint32_t moved, batches = 0;

	if (!net)
		return 0;
	moved = net->moved;
	while (carry(net) > 0 && ++batches < BATCHES)
		;
	moved = net->moved - moved;
	lock_release(&net->carrying);
	cm_net_ring(net); /* the thread's clock may be another now */
	return batches < BATCHES ? (int)moved : -EAGAIN;
}

/* Nobody could begin to listen meanwhile. */
static void go_on(struct cm_line *l)
{
	l->since = net_now();
	cm_dial_on(l);
}

EXPORT void softrdma_cm_hold(int held)
{
	struct cm_net *net = net_lock();
	struct cm_line *l;

	if (!net)
		return;
	net->held = held;
	list_each(l, &net->lines, link) {
		if (held && (l->state == LINE_PAUSE || l->state == LINE_DIALLING || l->state == LINE_GREETING))
			cm_line_park(l);
		else if (!held && l->state == LINE_PAUSE && !l->due)
			go_on(l);
	}
	cm_lines_reap(net);
	lock_release(&net->carrying);
	cm_net_ring(net);
}

EXPORT int softrdma_cm_lines(int (*fn)(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg), void *arg)
{
	struct cm_net *net = net_lock();
	uint8_t other[CM_NAME];
	struct cm_line *l;
	char where[96];
	int r = 0;

	if (!net)
		return 0;
	list_each(l, &net->lines, link) {
		if (r || (l->state != LINE_ASKED && l->state != LINE_UP))
			continue;
		memcpy(other, l->name, sizeof(other));
		other[0] = l->name[0] == 'a' ? 'b' : 'a';
		cm_line_show(l, where, sizeof(where));
		r = fn(l->name, other, l->said, l->heard, where, arg);
	}
	lock_release(&net->carrying);
	return r;
}

static int is_unsaid(const struct cm_line *l)
{
	return l->request_len && (l->state == LINE_PAUSE || l->state == LINE_DIALLING || l->state == LINE_GREETING);
}

uint32_t cm_carry_unsaid(const struct cm_id *id, void *packet)
{
	struct cm_net *net = id->is_far && (id->state == CM_REQ_SENT || id->state == CM_SIDR_SENT) ? net_lock() : NULL;
	uint8_t name[CM_NAME];
	struct cm_line *l;
	uint32_t len = 0;

	if (!net)
		return 0;
	cm_name(id, 0, name);
	list_each(l, &net->lines, link) {
		if (!is_unsaid(l) || memcmp(l->name, name, sizeof(name)))
			continue;
		len = l->request_len;
		memcpy(packet, l->request, len);
	}
	lock_release(&net->carrying);
	return len;
}
