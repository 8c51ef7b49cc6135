/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of options that several commands have: flag beats environment. Owns nothing. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "protocol/files.h"

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
