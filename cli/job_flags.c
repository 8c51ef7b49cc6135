/* SPDX-License-Identifier: BSD-2-Clause */
/* How a job runs: from the command line, else from the environment. Owns nothing. */
#include "cli/job_flags.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fault.h"
#include "base/log.h"

bool job_flags_take(struct job_flags *f, int option, const char *value)
{
	if (option < JOB_FLAG_FIRST || option >= JOB_FLAG_FIRST + JOB_FLAG_COUNT)
		return false;
	f->given[option - JOB_FLAG_FIRST] = value;
	return true;
}

const char *job_flags_text(const struct job_flags *f, enum job_flag flag)
{
#define JOB_FLAG_VARIABLE(NAME, name) "FERMATA_" #NAME,
	static const char *const variables[] = { JOB_FLAGS(JOB_FLAG_VARIABLE) };

	return options_text(f->given[flag], variables[flag]);
}

static unsigned int number(const struct job_flags *f, const char *name, enum job_flag flag, bool *ret_given)
{
	return options_number(name, job_flags_text(f, flag), ret_given);
}

int job_flags_options(struct job_flags *f, struct job_options *o)
{
	const char *on_signal = job_flags_text(f, JOB_FLAG_ON_SIGNAL);

	o->listen = job_flags_text(f, JOB_FLAG_LISTEN);
	o->compress = job_flags_text(f, JOB_FLAG_COMPRESS);
	o->rdma = job_flags_text(f, JOB_FLAG_RDMA);
	o->files = job_flags_text(f, JOB_FLAG_FILES);
	o->external = job_flags_text(f, JOB_FLAG_EXTERNAL);
	o->text = job_flags_text(f, JOB_FLAG_TEXT);
	o->on_failure = job_flags_text(f, JOB_FLAG_ON_FAILURE);
	o->on_signal = on_signal ? f->on_signal : NULL;
	o->restarts = number(f, "--restarts", JOB_FLAG_RESTARTS, &o->restarts_given);
	o->interval = number(f, "--interval", JOB_FLAG_INTERVAL, &o->interval_given);
	o->keep = number(f, "--keep", JOB_FLAG_KEEP, &o->keep_given);
	o->timeout = number(f, "--timeout", JOB_FLAG_TIMEOUT, &o->timeout_given);
	if (fault_init(getenv("FERMATA_FAULT")) < 0) {
		log_error("FERMATA_FAULT=%s: no such point", getenv("FERMATA_FAULT"));
		return -EINVAL;
	}
	if (options_failure(o->on_failure) < 0 || options_external(o->external) < 0 || options_program_text(o->text) < 0 || options_check(o->compress, o->rdma, o->files) < 0)
		return -EINVAL;
	return options_signal(on_signal, f->on_signal);
}
