/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file below /proc/self/net that is being read, and one that has been looked up again since it was opened: the kernel calls that deleted although it is
 * there. Programs that look for a route to somebody (UCX) have one open as they begin.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "feature.h"

int main(void)
{
	int once = open("/proc/self/net/route", O_RDONLY), again = open("/proc/self/net/dev", O_RDONLY);
	char word[6] = "";

	CHECK(once >= 0 && again >= 0 && !access("/proc/self/net/dev", R_OK));
	CHECK(read(once, word, 5) == 5 && !strcmp(word, "Iface"));
	feature_ready();
	while (feature_step())
		CHECK(pread(again, word, 5, 0) == 5 && !strcmp(word, "Inter"));
	CHECK(lseek(once, 0, SEEK_CUR) == 5 && pread(once, word, 5, 0) == 5 && !strcmp(word, "Iface"));
	return 0;
}
