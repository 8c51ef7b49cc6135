/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Becoming a program by exec, or the stand-in of ssh (remote.h). Owns the environment that the program gets:
 *
 *   LD_PRELOAD       libfermata.so in front of what was there
 *   FERMATA_JOBDIR   where the coordinator is
 *   FERMATA_FD       the connection that was made here, its key proved: the agent registers on it
 *   FERMATA_LIBDIR   where the parts of fermata are
 *   LD_LIBRARY_PATH  the shim of libibverbs in front, where there is one
 */
#include "cli/launch_become.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/begun.h"
#include "base/host_id.h"
#include "base/log.h"
#include "base/streams.h"
#include "cli/launch_shim.h"

#define LAUNCH_FD_MIN 500 /* out of the way of the program's own until the agent takes it over */
#define LAUNCH_WORDS_MAX 1024

/* @first, then what the variable had. */
static int launch_prepend(const char *variable, const char *first, char separator)
{
	const char *old = getenv(variable);
	char *both = NULL;
	int r;

	if (!old || !*old)
		return setenv(variable, first, 1);
	if (strstr(old, first))
		return 0;
	if (asprintf(&both, "%s%c%s", first, separator, old) < 0)
		return -1;
	r = setenv(variable, both, 1);
	free(both);
	return r;
}

/* As long as the machine's, which it may come to be after a restart; what a process of the job launches is of that one's host. */
static int launch_host(uint64_t where)
{
	char name[HOST_ID_NAME], entry[HOST_ID_ENTRY];
	uint64_t part = 0;

	if (host_id_take(getenv("FERMATA_HOST"), where, &part, name) < 0)
		host_id_node(name);
	host_id_entry(entry, where, part, name);
	return setenv("FERMATA_HOST", entry + sizeof(HOST_ID_VARIABLE) - 1, 1);
}

/* What a process of the job launches is begun by the job: it has what that was begun with from it. */
static int launch_begun(uint64_t where)
{
	char entry[BEGUN_ENTRY];
	struct begun b;

	if (begun_take(getenv("FERMATA_BEGUN"), where, &b) < 0)
		begun_note(&b);
	begun_entry(entry, where, &b);
	return setenv("FERMATA_BEGUN", entry + sizeof(BEGUN_VARIABLE) - 1, 1);
}

/* Who was away until a restart is not dead (agent/ucx_clock.c). UCX prints a warning of what it then does not need: the output is the program's. */
static int launch_ucx(void)
{
	if (getenv("UCX_UD_TIMEOUT"))
		return 0;
	return setenv("UCX_UD_TIMEOUT", "31536000s", 1) | setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
}

static int launch_environment(const struct job *job, const char *agent, const char *libdir, int fd)
{
	const uint64_t where = host_id_where(host_id_boot());
	char number[16], shim[JOB_PATH_MAX];
	int r = 0;

	if (launch_prepare_shim(job->jobdir, libdir, shim, sizeof(shim)) == 0)
		r |= launch_prepend("LD_LIBRARY_PATH", shim, ':');
	snprintf(number, sizeof(number), "%d", fd);
	r |= launch_prepend("LD_PRELOAD", agent, ':');
	r |= setenv("FERMATA_JOBDIR", job->jobdir, 1);
	r |= setenv("FERMATA_LIBDIR", libdir, 1);
	r |= setenv("FERMATA_FD", number, 1);
	r |= setenv("FERMATA_RDMA", job->rdma, 1);
	r |= launch_ucx();
	r |= launch_host(where);
	r |= launch_begun(where);
	return r ? -ENOMEM : 0;
}

/* The loader takes LD_PRELOAD apart at spaces and colons, and leaves out what it does not find. */
static int launch_check_agent(const char *agent)
{
	if (!strpbrk(agent, " :"))
		return 0;
	log_error("%s: the loader cannot preload a file with a space or colon in its path: install fermata elsewhere", agent);
	return -EINVAL;
}

/* The connection outlives the exec; this process holds nothing else of the job. */
static int launch_keep_connection(struct job *job)
{
	int fd = fcntl(job->link.fd, F_DUPFD, LAUNCH_FD_MIN);

	if (fd < 0)
		fd = fcntl(job->link.fd, F_DUPFD, 3);
	if (fd < 0)
		return -errno;
	job_close(job);
	return fd;
}

/* ssh, as a process of the job begins it (agent/exec_remote.c). */
static int launch_remote(struct launch *l)
{
	char command[JOB_PATH_MAX + 32], *words[LAUNCH_WORDS_MAX] = { "fermata", "remote", l->program };
	size_t n = 0;

	while (l->argv[n])
		n++;
	if (n + 4 > LAUNCH_WORDS_MAX)
		return -E2BIG;
	memcpy(words + 3, l->argv, (n + 1) * sizeof(*words));
	snprintf(command, sizeof(command), "%s/../bin/fermata", l->libdir);
	setenv("FERMATA_APART", "1", 1);
	execv(command, words);
	unsetenv("FERMATA_APART");
	return -errno;
}

static bool launch_is_ssh(const char *program)
{
	const char *base = strrchr(program, '/'), *wanted = getenv("FERMATA_REMOTE");

	base = base ? base + 1 : program;
	return (!strcmp(base, "ssh") || !strcmp(base, "rsh")) && (!wanted || strcmp(wanted, "no"));
}

int launch_become(void *arg, int ready)
{
	struct launch *l = arg;
	int fd;

	(void)ready;
	streams_note(l->job.jobdir); /* if it cannot: what is out of the job under another number is refused by name */
	fd = launch_keep_connection(&l->job);
	if (fd < 0 || launch_environment(&l->job, l->agent, l->libdir, fd) < 0) {
		log_error("%s: %s", l->program, strerror(errno));
		return CLI_FAILED;
	}
	if (launch_is_ssh(l->program))
		launch_remote(l);
	execv(l->program, l->argv);
	log_error("%s: %s", l->program, strerror(errno));
	return 126;
}

int launch_find_parts(struct launch *l)
{
	if (paths_lib("libfermata.so", l->agent, sizeof(l->agent)) < 0 || paths_lib("", l->libdir, sizeof(l->libdir)) < 0)
		return -ENOENT;
	return launch_check_agent(l->agent);
}

int launch_member(const struct job_options *o, char **argv, int (*joined)(void *arg), void *arg)
{
	struct launch l = { .argv = argv };
	ssize_t n = readlink("/proc/self/exe", l.program, sizeof(l.program) - 1);

	if (n < 0 || launch_find_parts(&l) < 0 || job_start(o, &l.job) < 0)
		return CLI_FAILED;
	l.program[n] = 0;
	return joined(arg) < 0 ? CLI_FAILED : launch_become(&l, -1);
}
