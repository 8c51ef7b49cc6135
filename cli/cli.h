/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subcommands share. Each has one file and one entry point, listed in main.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/path_map.h"
#include "protocol/link.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* none of the reasons below */
	CLI_USAGE = 2,
	CLI_NOTHING = 3, /* nothing to restart */
	CLI_CHECKPOINT_FAILED = 4, /* the job is unharmed */
	CLI_CANNOT = 5, /* cannot restart here */
	CLI_DAMAGED = 6, /* image */
	CLI_REQUEUE = 99,
};

int cmd_launch(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_restart(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_core(int argc, char **argv);
int cmd_coordinator(int argc, char **argv);
int cmd_remote(int argc, char **argv);

/* job.c: the running job that a command talks to. */

#define JOB_PATH_MAX 512
#define JOB_RDMA_MAX 16
#define JOB_SIGNAL_MAX 16

struct job {
	char name[64];
	char jobdir[JOB_PATH_MAX];
	/* The job's, once job_start() has joined or started it: */
	char rdma[JOB_RDMA_MAX];
	char on_signal[JOB_SIGNAL_MAX]; /* empty: none */
	char dir[JOB_PATH_MAX];
	bool on_failure; /* it is to be restarted, so often: */
	unsigned int restarts;
	bool joined; /* it was there */
	struct link link; /* open; proved */
};

/*
 * Connects to job @name, or to the only one that runs if it is NULL. 0, or -errno after it has said why, with the
 * running jobs' names where that helps.
 */
int job_connect(const char *name, struct job *ret);
int job_try(const char *name, struct job *ret); /* the same, of a job that may be about to go: nothing is said */
void job_close(struct job *job);
/*
 * Makes the job's coordinator listen at @address ("ADDR:PORT", port 0: any) for other hosts. @ret: the address that they are to use, as --coordinator; at a host that
 * has a relay that is the one that it uses itself. 0, or -errno after it has said why not.
 */
int job_listen(struct job *job, const char *address, char *ret, size_t size);
/* The coordinator's status as JSON text, to be freed. */
int job_status(struct job *job, char **ret_text);

#define OPTIONS_WITH_MAX 16

struct options_with { /* absolute, of directories that are there; none is in another */
	char *paths[OPTIONS_WITH_MAX];
	unsigned int count;
};

#define OPTIONS_MAP_MAX 64

struct options_map { /* absolute, without a slash at the end; OLDs are different ones */
	char *old[OPTIONS_MAP_MAX], *new[OPTIONS_MAP_MAX];
	unsigned int count;
};

struct job_options {
	const char *name; /* checked by rundir_job_check() */
	const char *dir;  /* absolute, or NULL: ./fermata-NAME, or that of the job that is joined */
	const char *compress, *rdma, *files, *external, *text, *on_failure, *on_signal; /* NULL: not given */
	unsigned int interval, keep, timeout, restarts; /* seconds, number, seconds, number */
	bool interval_given, keep_given, timeout_given, restarts_given;
	const struct options_with *with; /* NULL: not given */
	const char *listen; /* ADDR:PORT for other hosts, or NULL */
	const char *coordinator; /* ADDR:PORT: the job is at another host, or NULL */
	const char *restart; /* checkpoint whose processes are expected, or NULL */
	bool part; /* some of them are: a restart of that checkpoint which is under way is joined */
	bool linger; /* the coordinator waits for a first process without limit */
};

/*
 * Joins the job if it runs, else starts a coordinator for it. The connection in @ret keeps the coordinator from leaving. -EEXIST:
 * it runs with other options, or (@restart) it runs at all. Says why it failed.
 */
int job_start(const struct job_options *options, struct job *ret);

/* start_coordinator.c: 0 when it listens. What went wrong it has said itself. */
int start_coordinator(const struct job_options *o);

/* options.c: an option's value: the flag's, else the environment's. Numbers: exits 2 naming the option if it is none. */
const char *options_text(const char *flag, const char *variable);
unsigned int options_number(const char *name, const char *value, bool *ret_given);
/* "USR1", "SIGUSR1", "10", "none" or NULL becomes "USR1", "none": 0, or -EINVAL after it has said why not. */
int options_signal(const char *value, char ret[JOB_SIGNAL_MAX]);
int options_signal_number(const char *name); /* of what options_signal() has made; 0: none */
#define OPTIONS_RESTARTS 5 /* when --restarts is not given */
/* restart, none or NULL: 0, or -EINVAL after it has said so. */
int options_failure(const char *value);
/* 0, or -EINVAL after it has said what is not supported. */
int options_check(const char *compress, const char *rdma, const char *files);
/* options_with.c: 0, or -errno after it has said why not. */
int options_with_add(struct options_with *w, const char *given);
int options_with_take(struct options_with *w, const char *path); /* which need not be there: the job has it already */
int options_with_environment(struct options_with *w); /* where the option was not given */
int options_with_move(struct options_with *w, const char *path); /* the same, where it is now: --map may have brought it in another's place */
int options_with_apart(const struct options_with *w, const char *dir); /* none is in @dir, the job's checkpoints */
/* options_map.c: 0, or -errno after it has said why not. */
int options_map_add(struct options_map *m, const char *given);
int options_map_make(const struct options_map *m, struct path_map *ret); /* the texts are to be freed. 0 or -ENOMEM */
int options_external(const char *value);
int options_program_text(const char *value);
int options_capsule(const char *value); /* of --capsule: 0, or -EINVAL, said */

/* paths.c: where the parts of fermata lie. */

/* DIR/@file in FERMATA_LIBDIR or ../lib beside the executable. 0, or -errno after it has said what is missing. */
int paths_lib(const char *file, char *ret, size_t size);
/* An absolute path of @path, which need not exist. */
int paths_absolute(const char *path, char *ret, size_t size);

/* Figures for people: "12.3 MiB". */
void size_format(double bytes, char *buf, size_t size);
/* "12.3 MiB + 1.0 GiB of 3 files" */
void size_format_contents(double bytes, double contents, unsigned int files, char *buf, size_t size);
