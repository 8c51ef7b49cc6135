/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_directory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[] = "/dev/shm/softrdma-test-XXXXXX";

int directory_make(void **state)
{
	return !mkdtemp(dir) || setenv("SOFTRDMA_DIR", dir, 1);
}

int directory_remove(void **state)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int directory_entries(const char *path)
{
	DIR *in = opendir(path);
	struct dirent *d;
	int n = 0;

	if (!in)
		abort();
	while ((d = readdir(in)))
		n += !strncmp(d->d_name, "ctx-", 4) || !strncmp(d->d_name, "wk-", 3) || !strncmp(d->d_name, "new-", 4);
	closedir(in);
	return n;
}
