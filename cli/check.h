/* SPDX-License-Identifier: BSD-2-Clause */
/* What `fermata check` asks of a host and of a program. A probe changes nothing: it runs in a child, in namespaces of its own where it needs some. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* APART: where it is missing, restarts are without namespaces. RDMA: for programs that use it. Nothing depends on these and OPTIONAL. */
enum check_need { CHECK_CHECKPOINT, CHECK_RESTART, CHECK_APART, CHECK_RDMA, CHECK_OPTIONAL };

struct check {
	const char *name;
	enum check_need need;
	/* 0: yes. -errno: no. Runs in a child of its own; may say more about a yes or a no in @detail. */
	int (*probe)(char *detail, size_t size);
	const char *remedy;
};

extern const struct check check_table[];
extern const size_t check_count;

struct check_verdict {
	int error; /* 0 or -errno */
	char detail[200];
};

/* Runs the probe of @k in a child. @shared: a mapping that the child writes its verdict into. */
void check_run(const struct check *k, struct check_verdict *shared);

/* What is known of a program, point by point: yes; no: stands in the way; note: may, while the program uses it. */
enum check_word { CHECK_YES, CHECK_NO, CHECK_NOTE };

struct check_report {
	json_t *points;
	bool refused; /* a "no" was among them */
	bool rdma;    /* it uses verbs */
};

/* @remedy: or NULL. */
void check_point(struct check_report *report, enum check_word word, const char *name, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The libraries that the ELF program @file is loaded with, and what these and it import that may stand in the way. */
void check_libraries(const char *file, struct check_report *report);
/* fermata check PROG: the exit status. */
int check_program(const char *program, bool json);
