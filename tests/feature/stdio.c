/* SPDX-License-Identifier: BSD-2-Clause */
/* stdio in mid-buffer: a file that is written and read back, standard output in full lines, input that stays open. */
#include "feature.h"

static void file_check(FILE *f, unsigned long lines)
{
	char line[64], want[64];

	CHECK(fflush(f) == 0);
	rewind(f);
	for (unsigned long i = 0; i < lines; i++) {
		snprintf(want, sizeof(want), "line %lu\n", i);
		CHECK(fgets(line, sizeof(line), f) && strcmp(line, want) == 0);
	}
	CHECK(fseek(f, 0, SEEK_END) == 0);
}

int main(void)
{
	static char buffer[512];
	FILE *f = fopen("lines", "w+");
	unsigned long lines = 0;
	int terminal = isatty(1);

	CHECK(f && setvbuf(f, buffer, _IOFBF, sizeof(buffer)) == 0);
	CHECK(setvbuf(stdout, NULL, _IOLBF, 0) == 0);
	feature_ready();
	do {
		for (int i = 0; i < 7; i++)
			CHECK(fprintf(f, "line %lu\n", lines++) > 0);
		CHECK(printf("step %lu of %d\n", lines, getpid()) > 0);
		feature_work();
		CHECK(isatty(1) == terminal);
		if (lines % 70 == 0 && ftruncate(fileno(f), ftell(f)) == 0)
			file_check(f, lines);
	} while (feature_step());
	CHECK(fflush(f) == 0 && ftruncate(fileno(f), ftell(f)) == 0);
	file_check(f, lines);
	CHECK(fclose(f) == 0);
	return 0;
}
