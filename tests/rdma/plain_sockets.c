/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that knows TCP alone: PORT waits, sends back what comes, and ends with the connection; PORT HOST [ROUNDS] sends and checks what
 * comes back. For librspreload, which makes RDMA connections of it.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS 200
#define SIZE 60000

static char out[SIZE], in[SIZE];

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void serve(struct sockaddr_in *a)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), c;
	ssize_t n, done, r;

	need(s >= 0 && !bind(s, (struct sockaddr *)a, sizeof(*a)) && !listen(s, 4), "listen");
	c = accept(s, NULL, NULL);
	need(c >= 0, "accept");
	while ((n = recv(c, in, sizeof(in), 0)) > 0)
		for (done = 0; done < n; done += r) {
			r = send(c, in + done, (size_t)(n - done), 0);
			need(r > 0, "send");
		}
	need(n == 0, "recv");
	close(c);
	close(s);
}

static void ask(struct sockaddr_in *a, int rounds)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), round;
	ssize_t sent, got, r;
	size_t i;

	need(s >= 0 && !connect(s, (struct sockaddr *)a, sizeof(*a)), "connect");
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < SIZE; i++)
			out[i] = (char)(i * 7 + (size_t)round);
		for (sent = 0; sent < SIZE; sent += r) {
			r = write(s, out + sent, (size_t)(SIZE - sent));
			need(r > 0, "write");
		}
		for (got = 0; got < SIZE; got += r) {
			r = read(s, in + got, (size_t)(SIZE - got));
			need(r > 0, "read");
		}
		need(!memcmp(in, out, SIZE), "what came back is wrong");
	}
	need(!shutdown(s, SHUT_RDWR), "shutdown");
	close(s);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	if (argc < 2)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[1]));
	a.sin_addr.s_addr = inet_addr(argc > 2 ? argv[2] : "0.0.0.0");
	if (argc > 2)
		ask(&a, argc > 3 ? atoi(argv[3]) : ROUNDS);
	else
		serve(&a);
	return 0;
}
