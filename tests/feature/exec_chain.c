/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that replaces itself again and again, with its state in arguments, environment and an inherited descriptor; the
 * pid stays. A child does the same beside it.
 */
#include "feature.h"

#include <sys/wait.h>

/* argv: count, chain value, chain length, pid, fd, child pid (0: this is the child) */
static void next_exec(unsigned long count, struct chain *c, int fd, pid_t child)
{
	char text[6][32];
	char *argv[8] = { "exec_chain" };

	chain_step(c, 100000);
	snprintf(text[0], 32, "%lu", count + 1);
	snprintf(text[1], 32, "%llu", (unsigned long long)c->value);
	snprintf(text[2], 32, "%llu", (unsigned long long)c->length);
	snprintf(text[3], 32, "%d", getpid());
	snprintf(text[4], 32, "%d", fd);
	snprintf(text[5], 32, "%d", child);
	for (int i = 0; i < 6; i++)
		argv[i + 1] = text[i];
	CHECK(setenv("FEATURE_COUNT", text[0], 1) == 0);
	execv("/proc/self/exe", argv);
	feature_fail("execv: %s", strerror(errno));
}

static void begin(void)
{
	struct chain c = { 0 };
	int fd = open("inherited", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t child;

	CHECK(fd >= 0);
	CHECK(write(fd, "0123456789", 10) == 10);
	child = fork();
	CHECK(child >= 0);
	if (child != 0)
		feature_ready();
	next_exec(0, &c, fd, child);
}

int main(int argc, char **argv)
{
	struct chain c;
	unsigned long count;
	int fd, status;
	pid_t child;

	if (argc == 1)
		begin();
	CHECK(argc == 7);
	count = strtoul(argv[1], NULL, 10);
	c.value = strtoull(argv[2], NULL, 10);
	c.length = strtoull(argv[3], NULL, 10);
	fd = atoi(argv[5]);
	child = atoi(argv[6]);
	CHECK(atoi(argv[4]) == getpid());
	CHECK(strcmp(getenv("FEATURE_COUNT"), argv[1]) == 0);
	CHECK(c.length == count * 100000);
	chain_check(&c);
	CHECK(lseek(fd, 0, SEEK_CUR) == 10);
	if (child == 0 && feature_finished())
		return 7;
	if (child != 0 && !feature_step()) {
		CHECK(waitpid(child, &status, 0) == child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
			feature_fail("the child ended with status %x", (unsigned int)status);
		return 0;
	}
	next_exec(count, &c, fd, child);
}
