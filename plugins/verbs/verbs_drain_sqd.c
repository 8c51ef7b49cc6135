/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drain of a queue pair in SQD that has sends outstanding. The device is told to begin no more, and says how many are not executed:
 *
 *      | executed | not begun: L = sends left |
 *                 ^ head - L                  ^ head
 *
 * It is quiet when L was the same in the last round, nothing is on the wire, and every signalled send before the first of the L has completed. Nobody moves it to RTS before the
 * program runs, so nothing of the L is executed until then; a restart posts them again, into a queue that is in SQD again. A queue of which a send has begun, and finds no
 * receive, has not drained: the program waits to be told, which a new queue could not tell it.
 */
#include "plugins/verbs/verbs_drain.h"

int verbs_sqd_quiet(struct shadow_qp *qp, unsigned int round)
{
	int wire = verbs_backend.softrdma_on_the_wire ? VERBS_DEVICE(verbs_backend.softrdma_on_the_wire(qp->real->context)) : -1;
	uint64_t left = sends_left(qp);
	int same = round && qp->left == left;

	if (!verbs_backend.softrdma_sends_left || qp->draining)
		return 0;
	qp->left = left;
	qp->idle = same && wire <= 0 ? qp->idle + 1 : 0;
	qp->pending = atomic_load(&qp->sq.head) - left;
	for (uint64_t at = atomic_load(&qp->sq.tail); at < qp->pending; at++)
		if (ring_send(&qp->sq, at)->flags & IBV_SEND_SIGNALED)
			return 0;
	return wire < 0 ? same : qp->idle >= IDLE;
}

uint64_t verbs_sends_of(const struct shadow_qp *qp)
{
	uint64_t head = atomic_load(&qp->sq.head), sends = qp->two_sided, at;

	if (qp->real_state != IBV_QPS_SQD || !outstanding(&qp->sq) || !verbs_backend.softrdma_sends_left)
		return sends;
	for (at = head - sends_left(qp); at < head; at++)
		sends -= (uint64_t)send_two_sided(ring_send(&qp->sq, at)->opcode);
	return sends;
}
