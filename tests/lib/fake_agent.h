/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Agents that only speak the protocol: a coordinator in a child process, and any number of connections to it that this
 * process drives in the order that a test wants. Every call fails the test when something else comes than asked for.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "coordinator/coordinator.h"
#include "protocol/decode.h"
#include "protocol/link.h"

struct conductor {
	char base[128], dir[160], jobdir[192];
	pid_t pid;
	uint8_t key[PROTOCOL_KEY_SIZE];
	struct coordinator_options options;
};

/* In a fresh directory below TMPDIR, or in @again's. Fields of @options that are 0 get defaults. */
void conductor_start(struct conductor *c, const struct coordinator_options *options);
void conductor_start_in(struct conductor *c, const char *base, const struct coordinator_options *options);
/* Waits for its end; its exit status, or 128 + signal. */
int conductor_wait(struct conductor *c);
/* Removes the directories. */
void conductor_clean(struct conductor *c);

/* Whether the directory of checkpoints has this entry. */
bool conductor_has(const struct conductor *c, const char *name);

/* A coordinator, members with the pids from 10 on, and a connection for commands. */
void job_start(struct conductor *c, const struct coordinator_options *options, struct link *agents, uint32_t count,
	       struct link *command);
/* Everybody leaves; the coordinator must follow, without an error. @command may be NULL. */
void job_finish(struct conductor *c, struct link *l, size_t count, struct link *command);

int agent_dial(struct conductor *c);
void agent_open(struct conductor *c, struct link *l);
void agent_open_fd(struct conductor *c, struct link *l, int fd);
void agent_send_register(struct link *l, uint32_t pid, uint32_t flags);
void agent_send_register_of(struct link *l, const char *host, uint64_t part, uint64_t boot, uint32_t pid, uint32_t flags);
/* Waits for WELCOME; the member's number. */
uint32_t agent_welcome(struct link *l);
/* open, register, welcome */
void agent_join(struct conductor *c, struct link *l, uint32_t pid, uint32_t flags);
/* The same on a host, or a part of one (0: all of it). */
void agent_join_of(struct conductor *c, struct link *l, const char *host, uint64_t part, uint32_t pid, uint32_t flags);

/* A process that another one has made. */
void agent_join_child(struct conductor *c, struct link *l, uint32_t pid, uint32_t ppid);

/* The next message has to be this phase. */
struct msg_phase agent_phase(struct link *l, uint32_t phase);
void agent_done(struct link *l, const struct msg_phase *p, int status, const char *text, const uint32_t *children,
		uint32_t count);
/* Takes the phase and says that it went well; WRITE makes the image. */
void agent_do(struct link *l, uint32_t phase);
/* Takes the phase and says no: "fd 7 is busy". */
void agent_refuse(struct link *l, uint32_t phase, int error);
/* All of SUSPEND to WRITE. */
void agents_do_checkpoint(struct link *l, size_t count);
/* QUIESCE to WRITE. */
void agents_do_rest(struct link *l, size_t count);
void agents_do(struct link *l, size_t count, uint32_t phase);
/* SUSPEND to what comes before @phase. */
void agents_do_up_to(struct link *l, size_t count, uint32_t phase);
/* Nothing comes within @ms. */
void agent_expect_silence(struct link *l, int ms);
/* What answers its registration: it has been closed then; or WELCOME. */
bool agent_is_refused(struct link *l);
/* The connection ends, with MSG_ERROR before it or not. */
void agent_expect_end(struct link *l);

/* One entry of MSG_NAMES. */
void agent_name(struct link *l, uint16_t kind, const char *key, const char *value);
/* Counts the values that a reply has for @key. */
unsigned int agent_names_count(const struct link_message *m, const char *key);
/* It has for @key, of that kind, that value and no other. */
void agent_names_only(const struct link_message *m, uint16_t kind, const char *key, const char *value);
struct link_message agent_receive(struct link *l, uint16_t type);

void command_open(struct conductor *c, struct link *l);
void command_ask(struct link *l, uint32_t flags);
/* Asks for a checkpoint that all of them take part in. */
struct msg_checkpoint_result command_checkpoint(struct link *command, struct link *l, size_t count);
/* What has been sent on this connection has been heard. */
void command_settle(struct link *l);
/* @ret_text: of @size, path and text one behind the other; or NULL. */
struct msg_checkpoint_result command_result(struct link *l, char *ret_text, size_t size);
