/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP under a connection: its options, and what it knows of the other host. Owns nothing; with the connection's lock held.
 *
 * After each try in vain TCP waits twice as long. A queue pair always waits as long, so behind a gap its retries may be used up before TCP says anything:
 *
 *   cable   |--- out -----------------------| back
 *   TCP     x x  x     x            x       |                    x
 *   QP      |      |      |      |      |   .  |      | used up
 *
 * From Linux 6.15 on TCP waits a second at most, the least that can be asked for. An older one may not be kept from waiting longer, and then the connection
 * is made anew: by then TCP has sent for more than a second in vain, with no answer from the other kernel, so it is no process that is slow.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/net.h"

/* Linux 6.15. A lost packet is sent again after 20 ms, not 200, which acknowledgements must not be late for. */
#define RTO_MAX_MS 44
#define RTO_MIN_US 45
#define DELACK_MAX_US 46
#define LONGEST_MS 1000
#define RTO_US 20000
#define DELACK_US 5000
#define CLOSED_NS (1500 * NET_MS) /* so often, with some time to spare, TCP asks whether a closed window is open again */

static void set(int fd, int name, int value)
{
	RAW5(SYS_setsockopt, fd, IPPROTO_TCP, name, &value, sizeof(value));
}

void net_tcp_options(int fd)
{
	set(fd, TCP_NODELAY, 1);
	set(fd, TCP_THIN_LINEAR_TIMEOUTS, 1);
	set(fd, RTO_MIN_US, RTO_US);
	set(fd, RTO_MAX_MS, LONGEST_MS);
	set(fd, DELACK_MAX_US, DELACK_US);
}

static int ask(const struct net_conn *c, struct tcp_info *ret)
{
	socklen_t len = sizeof(*ret);

	*ret = (struct tcp_info){ .tcpi_snd_wnd = UINT32_MAX }; /* Linux 5.4 */
	return c->state == NET_UP && !RAW5(SYS_getsockopt, c->fd, IPPROTO_TCP, TCP_INFO, ret, &len);
}

/* The other end takes no more, and so is asked nothing more. */
static int is_closed(const struct tcp_info *info)
{
	return info->tcpi_notsent_bytes && !info->tcpi_unacked && info->tcpi_snd_wnd < info->tcpi_snd_mss;
}

int net_host_answers(const struct net_conn *c, uint64_t within_ns)
{
	struct tcp_info info;

	if (!ask(c, &info))
		return 0;
	if (is_closed(&info) && within_ns < CLOSED_NS)
		within_ns = CLOSED_NS;
	/* In milliseconds, by the kernel's tick. */
	return (uint64_t)info.tcpi_last_ack_recv * NET_MS <= within_ns + 4 * NET_MS;
}

int net_tcp_waits(const struct net_conn *c)
{
	struct tcp_info info;

	return ask(c, &info) && info.tcpi_unacked && info.tcpi_retransmits && info.tcpi_rto > LONGEST_MS * 1000;
}
