/* SPDX-License-Identifier: BSD-2-Clause */
/* A program without a loader: what launch has to refuse. With an argument it says that it is there, and stays until its input ends. */
#include <unistd.h>

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1 && write(1, "ready\n", 6) == 6)
		while (read(0, &byte, 1) > 0)
			;
	return 0;
}
