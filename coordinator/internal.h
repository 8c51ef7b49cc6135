/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the coordinator's files share: connections, members, the conductor's state. One thread, one event loop: no locks.
 *
 *   run.c        starts, leaves             conduct.c  the state machine of checkpoints and restarts
 *   connection.c bytes in and out, proof    member.c   who belongs to the job
 *   command.c    requests of commands       names.c    the name service
 *   store.c      the checkpoint directory   manifest.c manifest.json, written and read
 *   conduct_suspend.c  the end of SUSPEND   conduct_late.c  time-outs
 *   conduct_member.c   what members do   conduct_silent.c  members without an agent
 *   conduct_again.c    requests; an attempt that is refused for a moment only is followed by another
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include <jansson.h>

#include "base/list.h"
#include "coordinator/coordinator.h"
#include "coordinator/rundir.h"
#include "protocol/decode.h"
#include "protocol/message.h"

/* Who moves where and why: the table in conduct.c. */
enum state {
	STATE_IDLE, /* the job runs */
	STATE_AGAIN, /* the job runs; an attempt of a checkpoint was refused, another is to come */
	STATE_SUSPEND,
	STATE_QUIESCE,
	STATE_DRAIN,
	STATE_WRITE,
	STATE_COMMIT,
	STATE_RESTORE, /* a restart: not every process has registered */
	STATE_RECREATE,
	STATE_PUBLISH,
	STATE_RECONNECT,
	STATE_REFILL,
	STATE_ENDING, /* the members are killed or told to end; the coordinator leaves when they have left */
	STATE_COUNT
};

enum conn_state {
	CONN_HELLO, /* connected; nothing proved */
	CONN_PROOF, /* challenge sent */
	CONN_OPEN,  /* key proved; neither a process nor a command yet */
	CONN_MEMBER,
	CONN_COMMAND,
	CONN_CLOSED, /* waits for the loop to let go */
};

enum wait { WAIT_NONE, WAIT_NEXT, WAIT_CURRENT, WAIT_RESTART };

#define ATTEMPTS_MAX 7u /* a request is given up after so many that were refused for a moment */

struct coordinator;
struct member;

struct conn {
	struct list node; /* of coordinator.conns */
	uv_poll_t poll;
	struct coordinator *c;
	int fd;
	enum conn_state state;
	uint8_t *in, *out;
	size_t in_len, in_size;
	size_t out_at, out_len, out_size;
	uint8_t proof[PROTOCOL_MAC_SIZE]; /* what the client has to send */
	pid_t dialer; /* who called connect(2), as we see pids: SO_PEERCRED */
	pid_t sender; /* who sent the last bytes, as we see pids: SCM_CREDENTIALS */
	struct member *member;
	enum wait wait; /* a command that waits for a result */
	uint32_t wait_flags, wait_files;
	uint32_t attempts; /* that its request has had part in */
	bool watches, keeps; /* a command that hears MSG_ENDING; and brings the job back */
};

struct member {
	struct list node; /* of coordinator.members */
	struct member *next; /* in its bucket */
	struct conn *conn;
	uint32_t number, pid, ppid, generation, host;
	pid_t kill_pid; /* as we see pids */
	char comm[16], exe[256];
	bool waiting;  /* registered too late for the checkpoint under way: WELCOME comes after it */
	bool suspended; /* got SUSPEND (or is being restarted): RESUME is owed */
	bool reported; /* has done the phase under way */
	bool more; /* in the last round of DRAIN that it has answered */
	char waits[160]; /* for this, if it said so */
	bool exiting;
	bool newborn; /* forked, and in no phase of any checkpoint yet */
	uint32_t phase, round; /* that its report must carry */
	uint32_t *children, children_count;
	uint64_t bytes, file_size, bytes_done, bytes_total;
	uint64_t contents_bytes; /* of files, and their number */
	uint32_t contents;
	uint8_t digest[16];
	char image[64];
	struct name_ask *asks;
};

struct names {
	struct name_key **buckets;
	size_t bucket_count, key_count;
	struct name_chunk *chunks;
};

struct expected {
	uint32_t pid;
	bool come;
	char comm[16], exe[256];
};

struct store {
	char dir[RUNDIR_PATH_MAX];
	int lock_fd;
	uint32_t next; /* number of the next checkpoint */
	char partial[RUNDIR_PATH_MAX + 32], final[RUNDIR_PATH_MAX + 32];
	bool open; /* partial exists */
	bool created; /* dir was not there before */
};

struct outcome { /* of the last checkpoint that was tried */
	bool any;
	int error;
	uint32_t number, processes, attempts;
	uint64_t bytes, pause_ns, phase_ns[STATE_COUNT];
	uint64_t contents_bytes;
	uint32_t contents;
	char path[RUNDIR_PATH_MAX + 32];
	char text[768];
};

struct coordinator {
	const struct coordinator_options *options;
	uv_loop_t loop;
	uv_poll_t listener;
	uv_timer_t phase_timer, retry_timer, interval_timer, leave_timer, progress_timer;
	uv_signal_t term, interrupt;
	bool pruning, prune_again, interval_due;
	int listen_fd, job_lock_fd, start_lock_fd;
	char jobdir[RUNDIR_PATH_MAX];
	uint8_t key[PROTOCOL_KEY_SIZE];

	struct list conns, members;
	bool accept_blocked;
	size_t half_open; /* connections that are neither member nor command yet */
	size_t conn_count, member_count;
	struct member **buckets;
	size_t bucket_count;
	char **hosts;
	uint32_t host_count;
	uint32_t next_member;
	bool had_member;

	enum state state;
	size_t missing; /* members that have not done the phase */
	uint32_t round, suspend_round, retries;
	uint32_t attempts, interval_attempts;
	uint64_t state_since_ns, started_ns, foreign_since_ns;
	uint64_t phase_ns[STATE_COUNT]; /* of the checkpoint under way, or of the restart: what each state took */
	uint32_t flags; /* of msg_checkpoint, of the checkpoint under way */
	uint32_t files; /* enum msg_files, of the checkpoint under way */
	struct names names;
	struct store store;
	struct outcome last;

	struct expected *expected;
	size_t expected_count, expected_missing;
	bool restart_over;
	int restart_error;
	uint64_t restart_ns, restart_phase_ns[STATE_COUNT];
	char restart_text[768];
	int exit_error;
	bool committed;	 /* there is something to come back from */
	uint32_t ending; /* enum msg_ending_reason; 0: not so far */
	char failed[256]; /* MSG_ENDING_FAILED: what */
};

/* connection.c */
int connection_listen(struct coordinator *c);
/* False: some could not be accepted, for want of descriptors. */
bool connection_accept_all(struct coordinator *c);
void connection_send(struct conn *k, uint16_t type, const void *a, size_t alen, const void *b, size_t blen);
void connection_send_error(struct conn *k, int error, const char *text);
void connection_close(struct conn *k);
void connection_become(struct conn *k, enum conn_state state);

/* member.c */
void member_register(struct conn *k, const struct msg_register *m);
void member_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length);
void member_remove(struct member *m);
struct member *member_find(struct coordinator *c, uint32_t host, uint32_t pid);
void member_welcome(struct member *m);
void member_welcome_waiting(struct coordinator *c);
void member_kill_all(struct coordinator *c);
void member_name(const struct member *m, char *buf, size_t size);

/* conduct.c */
void conduct_check(struct coordinator *c);
void conduct_suspend_member(struct member *m);
void conduct_enter(struct coordinator *c, enum state to, uint32_t round);
void conduct_move(struct coordinator *c, enum state to);
void conduct_resume_all(struct coordinator *c, int reason);
void conduct_fail(struct coordinator *c, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void conduct_end(struct coordinator *c, uint32_t reason);
void conduct_retry(uv_timer_t *timer);
bool conduct_is_checkpoint(enum state s);
uint32_t conduct_phase(enum state s);
const char *conduct_state_name(enum state s);

/* conduct_member.c */
void conduct_joined(struct member *m, bool restarted);
void conduct_report(struct member *m, const struct decode_done *done);
void conduct_progress(struct member *m, const struct msg_progress *p);
void conduct_restoring(struct coordinator *c);
void conduct_left(struct member *m);
bool conduct_any_more(struct coordinator *c); /* somebody's DRAIN was not the last */
void conduct_sum(struct coordinator *c);

bool conduct_takes_names(const struct member *m);

/* conduct_again.c */
void conduct_request(struct coordinator *c);
/* From IDLE and from AGAIN. False: nobody wants one. */
bool conduct_attempt(struct coordinator *c);
void conduct_outcome(struct coordinator *c, int error);
void conduct_take_back(struct coordinator *c, enum state to, int error, const char *text);
/* False: it is to fail; the error is not one of a moment, or everybody's attempts are used up. */
bool conduct_again(struct coordinator *c, int error, const char *text);
void conduct_check_again(struct coordinator *c);

/* conduct_silent.c */
void conduct_look_at_silent(struct coordinator *c);

/* conduct_suspend.c */
void conduct_ask_children(struct coordinator *c);
bool conduct_suspend_closed(struct coordinator *c);

/* conduct_late.c */
void conduct_timeout(uv_timer_t *timer);

/* names.c */
int names_add(struct coordinator *c, struct member *m, const uint8_t *data, size_t length);
int names_answer(struct coordinator *c);
void names_clear(struct coordinator *c);
void names_forget(struct member *m);

/* store.c */
int store_open(struct store *s, const char *dir);
int store_acquire(struct store *s);
void store_release(struct store *s);
void store_close(struct store *s);
int store_begin(struct store *s);
int store_commit(struct coordinator *c);
void store_abandon(struct store *s);
void store_prune(struct coordinator *c);

/* manifest.c */
int manifest_write(struct coordinator *c, int dirfd);
int manifest_expect(struct coordinator *c, const char *checkpoint);
struct expected *manifest_expected(struct coordinator *c, uint32_t pid);

/* command.c */
void command_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length);
void command_results(struct coordinator *c);
void command_restart_result(struct coordinator *c);
void command_tell_ending(struct coordinator *c);
void command_progress(uv_timer_t *timer);
json_t *command_status(struct coordinator *c);
bool command_wanted(struct coordinator *c, uint32_t *ret_flags, uint32_t *ret_files);
/* Does somebody wait whose request has had fewer attempts than that? */
bool command_waits(const struct coordinator *c, uint32_t attempts);

/* run.c */
void run_check_leave(struct coordinator *c);
