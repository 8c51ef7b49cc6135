/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of rdma_cm, step by step: commands come as lines on the standard input, events go out as lines "NAME STATUS [TEXT]" as they come, TEXT being
 * the private data of those that have some. "ok" or "error ERRNO" answers each command. One id connects, one that has asked last is accepted.
 *
 *   listen PORT BACKLOG | resolve ADDRESS PORT MS | route | connect TEXT | accept TEXT | reject TEXT | establish | disconnect | leave | destroy
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id, *server;
static enum rdma_port_space space = RDMA_PS_TCP;

static int new_id(void)
{
	return id ? 0 : rdma_create_id(channel, &id, NULL, space);
}

static int do_listen(int port, int backlog)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	if (new_id() || rdma_bind_addr(id, (struct sockaddr *)&a))
		return -1;
	return rdma_listen(id, backlog);
}

static int do_resolve(const char *address, int port, int ms)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	if (inet_pton(AF_INET, address, &a.sin_addr) != 1 || new_id())
		return -1;
	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, ms);
}

static int destroy(struct rdma_cm_id **which)
{
	int r = *which ? rdma_destroy_id(*which) : 0;

	*which = NULL;
	return r;
}

static int run(const char *command, const char *word, int a, int b)
{
	struct rdma_conn_param p = { .qp_num = 0x123, .private_data = word, .private_data_len = (uint8_t)(strlen(word) + 1),
				     .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };

	if (!strcmp(command, "listen"))
		return do_listen(atoi(word), a);
	if (!strcmp(command, "resolve"))
		return do_resolve(word, a, b);
	if (!strcmp(command, "route"))
		return rdma_resolve_route(id, 1000);
	if (!strcmp(command, "connect"))
		return rdma_connect(id, &p);
	if (!strcmp(command, "accept"))
		return rdma_accept(server, &p);
	if (!strcmp(command, "reject"))
		return rdma_reject(server, word, (uint8_t)(strlen(word) + 1));
	if (!strcmp(command, "establish"))
		return rdma_establish(id);
	if (!strcmp(command, "disconnect"))
		return rdma_disconnect(server ? server : id);
	if (!strcmp(command, "leave"))
		return destroy(&server);
	if (!strcmp(command, "destroy"))
		return destroy(&id);
	errno = ENOSYS;
	return -1;
}

static void command_read(void)
{
	char line[128], command[32] = "", word[64] = "";
	int a = 0, b = 0;

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	sscanf(line, "%31s %63s %d %d", command, word, &a, &b);
	if (run(command, word, a, b))
		printf("error %d\n", errno);
	else
		printf("ok\n");
}

static void event_tell(void)
{
	struct rdma_cm_event *ev;
	const char *text;

	if (rdma_get_cm_event(channel, &ev)) {
		printf("error %d\n", errno);
		exit(1);
	}
	text = space == RDMA_PS_UDP ? ev->param.ud.private_data : ev->param.conn.private_data;
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		server = ev->id;
	printf("%s %d %s\n", rdma_event_str(ev->event) + strlen("RDMA_CM_EVENT_"), ev->status, text ? text : "");
	rdma_ack_cm_event(ev);
}

int main(int argc, char **argv)
{
	struct pollfd p[2] = { { .fd = 0, .events = POLLIN } };

	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "udp"))
		space = RDMA_PS_UDP;
	channel = rdma_create_event_channel();
	if (!channel)
		return 1;
	p[1] = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	for (;;) {
		if (poll(p, 2, -1) < 0)
			return 1;
		if (p[1].revents)
			event_tell();
		else if (p[0].revents)
			command_read();
	}
}
