/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that has not set SO_REUSEADDR, and ends its connections first: they leave its port in TIME_WAIT for a minute, from before the checkpoint on, and it listens there all the same
 * after it was killed and restarted.
 */
#include "feature.h"

#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in server = { .sin_family = AF_INET };

static void serve_one(int listener)
{
	int client = socket(AF_INET, SOCK_STREAM, 0), accepted;
	char c;

	CHECK(client >= 0 && connect(client, (struct sockaddr *)&server, sizeof(server)) == 0);
	CHECK((accepted = accept(listener, NULL, NULL)) >= 0 && close(accepted) == 0);
	CHECK(read(client, &c, 1) == 0 && close(client) == 0);
}

int main(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(server);

	server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&server, sizeof(server)) == 0 && listen(listener, 5) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&server, &length) == 0);
	serve_one(listener);
	feature_ready();
	do {
		serve_one(listener);
		feature_work();
	} while (feature_step());
	return 0;
}
