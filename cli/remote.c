/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata remote: begun in ssh's place by a process of a job (agent/exec_remote.c), and by fermata itself on the other host. Not for users.
 *
 *   remote SSH ARGV..                         in ssh's place; outside of control until it becomes one of:
 *     SSH ARGV..  itself, under control as ever: for what cannot come under the job, and where the other host has no fermata or cannot join
 *     remote --stand-in CONNECTION TOKEN ..   a member
 *   remote --serve                            by ssh on the other host
 *   remote --command CONNECTION TOKEN TEXT    there, a member
 *
 * While it is none of these no SUSPEND of the job ends: the process is a member that says nothing (its connection came by exec) or a connection that has not
 * said what it is (made here, for the child of a vfork). So a checkpoint finds either nothing of it or all.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/remote.h"

#define REMOTE_FD_MIN 500 /* out of the way of the program's own */
#define REMOTE_PATH_MAX 4096

int remote_token_hand_on(const uint8_t token[REMOTE_TOKEN_SIZE])
{
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = raw_write_all(ends[1], token, REMOTE_TOKEN_SIZE);
	close(ends[1]);
	if (r < 0)
		close(ends[0]);
	return r < 0 ? r : ends[0];
}

int remote_token_take(int fd, uint8_t ret[REMOTE_TOKEN_SIZE])
{
	int r = raw_read_all(fd, ret, REMOTE_TOKEN_SIZE);

	close(fd);
	return r;
}

/* What the next program gets as its standard streams is never something of ours. */
static void remote_have_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

/* ssh as it was begun, under control. */
static int remote_plain(char **argv)
{
	unsetenv("FERMATA_APART");
	execvp(argv[0], argv + 1);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

/* Nobody can join a job that was restarted. */
static bool remote_may_join(struct job *job)
{
	json_t *status = NULL;
	char *text = NULL;
	bool may = false;

	if (job_status(job, &text) == 0)
		status = json_loads(text, 0, NULL);
	may = status && !json_is_true(json_object_get(status, "restarted"));
	json_decref(status);
	free(text);
	return may;
}

/* Where the job's coordinator, or this host's relay, is for the other host: "ADDR:PORT" at the address that we are reached by; "": nowhere. */
static void remote_listen(const char *job_name, const struct remote_order *o, char *ret, size_t size)
{
	char address[sizeof(o->address) + 8];
	struct job job;

	ret[0] = 0;
	snprintf(address, sizeof(address), strchr(o->address, ':') ? "[%s]:0" : "%s:0", o->address);
	if (job_connect(job_name, &job) < 0)
		return;
	if (job_listen(&job, address, ret, size) < 0)
		ret[0] = 0;
	job_close(&job);
}

/* True: the job can be joined, and no checkpoint of it passes before we are what we become. */
static bool remote_hold(char *job_name, size_t size)
{
	const char *jobdir = getenv("FERMATA_JOBDIR"), *slash = jobdir ? strrchr(jobdir, '/') : NULL;
	char number[16];
	struct job job;
	bool may;
	int fd;

	if (!slash || snprintf(job_name, size, "%s", slash + 1) >= (int)size || job_connect(job_name, &job) < 0)
		return false;
	may = remote_may_join(&job);
	job_close(&job);
	if (!may || getenv("FERMATA_FD"))
		return may;
	if (job_connect(job_name, &job) < 0)
		return false;
	fd = fcntl(job.link.fd, F_DUPFD, REMOTE_FD_MIN);
	job_close(&job);
	snprintf(number, sizeof(number), "%d", fd);
	return fd >= 0 && setenv("FERMATA_FD", number, 1) == 0;
}

static int remote_become_stand_in(int connection, const uint8_t token[REMOTE_TOKEN_SIZE], const struct remote_options *p, char **argv)
{
	char exe[REMOTE_PATH_MAX], numbers[2][16], **words;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int token_fd = remote_token_hand_on(token), count = 0;

	while (argv[count])
		count++;
	words = calloc((size_t)count + 8, sizeof(*words));
	if (n < 0 || token_fd < 0 || !words)
		return REMOTE_FAILED;
	exe[n] = 0;
	fcntl(connection, F_SETFD, 0);
	fcntl(token_fd, F_SETFD, 0);
	snprintf(numbers[0], sizeof(numbers[0]), "%d", connection);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", token_fd);
	words[0] = "fermata";
	words[1] = "remote";
	words[2] = "--stand-in";
	words[3] = numbers[0];
	words[4] = numbers[1];
	words[5] = p->no_input ? "no-input" : "input";
	words[6] = (char *)p->host;
	memcpy(words + 7, argv + 1, (size_t)count * sizeof(*words));
	unsetenv("FERMATA_APART");
	execv(exe, words);
	fprintf(stderr, "%s: %s\n", exe, strerror(errno));
	return REMOTE_FAILED;
}

/* Of what was said on ssh's error output the lines that are fermata's. */
static void remote_say_reasons(struct remote_start *s)
{
	char *at = NULL;

	s->said[s->said_length < sizeof(s->said) ? s->said_length : sizeof(s->said) - 1] = 0;
	for (char *line = strtok_r(s->said, "\n", &at); line; line = strtok_r(NULL, "\n", &at))
		if (!strncmp(line, "fermata", 7))
			fprintf(stderr, "%s\n", line);
}

/* An exit status, when it does not become another program. */
static int remote_begin(const char *job_name, const struct remote_options *p, char **argv)
{
	struct remote_order o = { .job = job_name, .command = remote_options_command(argv + 1, p),
				  .environment = remote_order_environment() };
	struct remote_start s = { 0 };
	char coordinator[128];
	int r;

	if (!o.command || !o.environment || sodium_init() < 0)
		return remote_plain(argv);
	randombytes_buf(o.token, sizeof(o.token));
	s.listener = remote_address_listen(argv[0], argv + 1, p, &o);
	if (s.listener < 0)
		return remote_plain(argv);
	remote_listen(job_name, &o, coordinator, sizeof(coordinator));
	o.coordinator = coordinator;
	r = remote_start(argv[0], argv + 1, p, &o, &s);
	close(s.listener);
	if (r > 0 || s.status == REMOTE_FAILED)
		raw_write_all(2, s.said, s.said_length);
	if (r > 0)
		return remote_become_stand_in(s.connection, o.token, p, argv);
	if (r == 0 && s.status == REMOTE_FAILED)
		return REMOTE_FAILED;
	remote_say_reasons(&s);
	log_warn("%s: what is started there is not under checkpoint control: %s", p->host,
		 r < 0 ? strerror(-r) : "fermata has to be at the same path there, and the job to be reached");
	return remote_plain(argv);
}

static int remote_in_place_of_ssh(char **argv)
{
	struct remote_options p;
	char job[64];

	remote_have_streams();
	if (!remote_options_parse(argv + 1, &p) || !remote_hold(job, sizeof(job)))
		return remote_plain(argv);
	return remote_begin(job, &p, argv);
}

/* A descriptor that was handed on to us, and is to go no further. */
static int remote_taken(const char *number)
{
	int fd = atoi(number);

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

int cmd_remote(int argc, char **argv)
{
	if (sodium_init() < 0)
		return CLI_FAILED;
	if (argc == 2 && !strcmp(argv[1], "--serve"))
		return remote_serve();
	if (argc == 5 && !strcmp(argv[1], "--command"))
		return remote_command(remote_taken(argv[2]), remote_taken(argv[3]), argv[4]);
	if (argc > 5 && !strcmp(argv[1], "--stand-in"))
		return remote_stand_in(remote_taken(argv[2]), remote_taken(argv[3]), !strcmp(argv[4], "no-input"), argv[5]);
	if (argc > 2 && argv[1][0] != '-')
		return remote_in_place_of_ssh(argv + 1);
	log_error("remote: for fermata's own use of ssh: see fermata-launch(1)");
	return CLI_USAGE;
}
