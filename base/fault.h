/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places where a test makes the product fail, compiled in always: FERMATA_FAULT="name[:count][=kill|error|stop|hang]". At the
 * count-th pass (1 when not given) of the named point, once: the process kills itself, the point answers -EIO, the process stops
 * (SIGSTOP), or, in a thread of ours, hangs there; from both it goes on when somebody sends SIGCONT.
 * No libc state; one point is armed a process.
 */
#pragma once

/* Order and names: fault.c holds the same list as text. */
#define FAULT_PHASES(X, who, WHO)                                                               \
	X(WHO##_BEFORE_SUSPEND, who "-before-suspend") X(WHO##_AFTER_SUSPEND, who "-after-suspend") \
	X(WHO##_BEFORE_QUIESCE, who "-before-quiesce") X(WHO##_AFTER_QUIESCE, who "-after-quiesce") \
	X(WHO##_BEFORE_DRAIN, who "-before-drain") X(WHO##_AFTER_DRAIN, who "-after-drain")     \
	X(WHO##_BEFORE_WRITE, who "-before-write") X(WHO##_AFTER_WRITE, who "-after-write")     \
	X(WHO##_BEFORE_RESUME, who "-before-resume") X(WHO##_AFTER_RESUME, who "-after-resume") \
	X(WHO##_BEFORE_RECREATE, who "-before-recreate") X(WHO##_AFTER_RECREATE, who "-after-recreate") \
	X(WHO##_BEFORE_PUBLISH, who "-before-publish") X(WHO##_AFTER_PUBLISH, who "-after-publish") \
	X(WHO##_BEFORE_RECONNECT, who "-before-reconnect")                                      \
	X(WHO##_AFTER_RECONNECT, who "-after-reconnect")                                        \
	X(WHO##_BEFORE_REFILL, who "-before-refill") X(WHO##_AFTER_REFILL, who "-after-refill")

/* coordinator-: before and after the phase is sent. agent-: before the phase's hooks, and before its answer. */
#define FAULT_POINTS(X)                                       \
	FAULT_PHASES(X, "coordinator", COORDINATOR)           \
	FAULT_PHASES(X, "agent", AGENT)                       \
	X(COORDINATOR_BEFORE_MANIFEST, "coordinator-before-manifest") \
	X(COORDINATOR_AFTER_MANIFEST, "coordinator-after-manifest")   \
	X(COORDINATOR_BEFORE_RENAME, "coordinator-before-rename")     \
	X(COORDINATOR_AFTER_RENAME, "coordinator-after-rename")       \
	X(COORDINATOR_BEFORE_PRUNE, "coordinator-before-prune")       \
	X(COORDINATOR_IN_PRUNE, "coordinator-in-prune")               \
	X(AGENT_IN_HANDLER, "agent-in-handler")                       \
	X(AGENT_LENT, "agent-lent")                                   \
	X(IMAGE_IN_WRITE, "image-in-write")                           \
	X(IMAGE_BEFORE_SYNC, "image-before-sync")                     \
	X(TIMER_IDS_ASKED, "timer-ids-asked")                         \
	X(SOCKET_IN_PUT_BACK, "socket-in-put-back")                   \
	X(MQUEUE_TAKEN_OUT, "mqueue-taken-out")                       \
	X(CONTENT_IN_COPY, "content-in-copy")                         \
	X(RESTART_FILES_STAGED, "restart-files-staged")               \
	X(RESTART_FILES_IN_COMMIT, "restart-files-in-commit")         \
	X(RESTART_FILES_IN_PLACE, "restart-files-in-place")           \
	X(TREE_IN_COPY, "tree-in-copy")                               \
	X(RESTART_TREES_STAGED, "restart-trees-staged")               \
	X(RESTART_TREES_IN_COMMIT, "restart-trees-in-commit")

#define FAULT_ENUM(name, text) FAULT_##name,
enum fault {
	FAULT_NONE,
	FAULT_POINTS(FAULT_ENUM)
	FAULT_COUNT
};

/* @spec: the value of FERMATA_FAULT, or NULL. 0; -EINVAL: no such point or action. */
int fault_init(const char *spec);
/* 0, or -EIO where the test wants the step to fail. */
int fault_point(enum fault at);
/* The point's name, for a test that lists them. */
const char *fault_name(enum fault at);
