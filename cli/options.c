/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of options that several commands have: flag beats environment. Owns nothing. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "protocol/external.h"
#include "protocol/files.h"
#include "protocol/text.h"

const char *options_text(const char *flag, const char *variable)
{
	const char *value = flag ? flag : getenv(variable);

	return value && *value ? value : NULL;
}

unsigned int options_number(const char *name, const char *value, bool *ret_given)
{
	unsigned long n;
	char *end;

	*ret_given = value != NULL;
	if (!value)
		return 0;
	errno = 0;
	n = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno || n > INT_MAX / 1000) {
		log_error("%s %s: a number from 0 to %d is needed", name, value, INT_MAX / 1000);
		exit(CLI_USAGE);
	}
	return (unsigned int)n;
}

int options_check(const char *compress, const char *rdma, const char *files)
{
	if (compress && strcmp(compress, "none")) {
		log_error("--compress %s: not supported in this version; only none is", compress);
		return -EINVAL;
	}
	if (rdma && strcmp(rdma, "auto") && strcmp(rdma, "system") && strcmp(rdma, "soft")) {
		log_error("--rdma %s: auto, system or soft is needed", rdma);
		return -EINVAL;
	}
	if (files && !files_parse(files)) {
		log_error("--files %s: restore, check or ignore is needed", files);
		return -EINVAL;
	}
	return 0;
}

int options_external(const char *value)
{
	if (!value || external_parse(value))
		return 0;
	log_error("--external %s: fail, error or reconnect-listen is needed", value);
	return -EINVAL;
}

int options_program_text(const char *value)
{
	if (!value || text_parse(value))
		return 0;
	log_error("--text %s: ref or save is needed", value);
	return -EINVAL;
}

int options_capsule(const char *value)
{
	if (!value || !strcmp(value, "auto") || !strcmp(value, "yes") || !strcmp(value, "no"))
		return 0;
	log_error("--capsule %s: auto, yes or no is needed", value);
	return -EINVAL;
}

/* Those that a batch system or a user sends to ask for something. */
static const struct {
	const char *name;
	int number;
} options_signals[] = {
	{ "HUP", SIGHUP }, { "INT", SIGINT }, { "QUIT", SIGQUIT }, { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 },
	{ "ALRM", SIGALRM }, { "TERM", SIGTERM }, { "URG", SIGURG }, { "XCPU", SIGXCPU }, { "XFSZ", SIGXFSZ },
};

int options_signal_number(const char *name)
{
	for (size_t i = 0; i < sizeof(options_signals) / sizeof(options_signals[0]); i++)
		if (!strcmp(name, options_signals[i].name))
			return options_signals[i].number;
	return 0;
}

int options_signal(const char *value, char ret[JOB_SIGNAL_MAX])
{
	const char *name = value && !strncmp(value, "SIG", 3) ? value + 3 : value;

	snprintf(ret, JOB_SIGNAL_MAX, "none");
	if (!value || !strcmp(value, "none"))
		return 0;
	for (size_t i = 0; i < sizeof(options_signals) / sizeof(options_signals[0]); i++) {
		if (strcmp(name, options_signals[i].name) && atoi(name) != options_signals[i].number)
			continue;
		snprintf(ret, JOB_SIGNAL_MAX, "%s", options_signals[i].name);
		return 0;
	}
	log_error("--on-signal %s: HUP, INT, QUIT, USR1, USR2, ALRM, TERM, URG, XCPU, XFSZ or none is needed", value);
	return -EINVAL;
}

int options_failure(const char *value)
{
	if (!value || !strcmp(value, "restart") || !strcmp(value, "none"))
		return 0;
	log_error("--on-failure %s: restart or none is needed", value);
	return -EINVAL;
}
