/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fermata check PROG: what is known, before it is launched, to stand in the way of a checkpoint of this program on this host. The program is not run.
 * Owns the report's text and JSON.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/check.h"
#include "cli/cli.h"
#include "cli/program.h"

#define PATH_SIZE 4096

static const char *const words[] = { "yes", "no", "note" };

void check_point(struct check_report *report, enum check_word word, const char *name, const char *remedy, const char *fmt, ...)
{
	char text[PATH_SIZE + 256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	report->refused |= word == CHECK_NO;
	json_array_append_new(report->points, json_pack("{s:s, s:s, s:s, s:s}", "name", name, "verdict", words[word], "detail", text, "remedy",
							remedy ? remedy : ""));
}

/* What the host lacks: of what only makes something faster nothing is said here. */
static void check_host(struct check_report *report)
{
	struct check_verdict *v = mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; v != MAP_FAILED && i < check_count; i++) {
		const struct check *k = &check_table[i];

		if (k->need == CHECK_OPTIONAL || (k->need == CHECK_RDMA && !report->rdma))
			continue;
		check_run(k, v);
		if (v->error)
			check_point(report, k->need <= CHECK_RESTART ? CHECK_NO : CHECK_NOTE, k->name, k->remedy, "this host: %s",
				    v->detail[0] ? v->detail : strerror(-v->error));
	}
	if (v != MAP_FAILED)
		munmap(v, sizeof(*v));
}

static void check_print(const struct check_report *report, const char *program)
{
	const char *name, *verdict, *detail, *remedy;
	json_t *point;
	size_t i;

	json_array_foreach(report->points, i, point) {
		json_unpack(point, "{s:s, s:s, s:s, s:s}", "name", &name, "verdict", &verdict, "detail", &detail, "remedy", &remedy);
		printf("%-4s  %s: %s\n", verdict, name, detail);
		if (*remedy)
			printf("      -> %s\n", remedy);
	}
	printf(report->refused ? "\n%s cannot be held here.\n" : "\nNothing is known that stands in the way of %s.\n", program);
}

int check_program(const char *program, bool json)
{
	struct check_report report = { .points = json_array() };
	char path[PATH_SIZE], file[PATH_SIZE];
	struct program_refusal no;
	int r = program_find(program, path, sizeof(path));

	if (r < 0)
		check_point(&report, CHECK_NO, "program", NULL, "%s: %s", program, strerror(-r));
	else if (program_check(path, file, sizeof(file), &no) < 0)
		check_point(&report, CHECK_NO, "program", no.remedy, "%s: %s", file, no.why);
	else
		check_point(&report, CHECK_YES, "program", NULL, "%s, linked dynamically with glibc", file);
	if (!report.refused)
		check_libraries(file, &report);
	check_host(&report);
	if (json) {
		json_t *all = json_pack("{s:s, s:b, s:O}", "program", program, "ok", !report.refused, "points", report.points);

		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(all);
	} else {
		check_print(&report, program);
	}
	json_decref(report.points);
	return report.refused ? CLI_FAILED : CLI_OK;
}
