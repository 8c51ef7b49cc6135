/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the coordinator's files share: connections, members, the conductor's state. One thread, one event loop: no locks.
 *
 *   run.c        starts, leaves             conduct.c  the state machine of checkpoints and restarts
 *   connection.c bytes in and out, proof    accept.c   who connects, here and over the network
 *   member.c     who belongs to the job     tunnel.c   the bytes of many connections over one
 *   relay.c      a relay's side of it       relayed.c  the coordinator's
 *   command.c    requests of commands       names.c    the name service
 *   store.c      the checkpoint directory   manifest.c manifest.json, written and read
 *   conduct_suspend.c  the end of SUSPEND   conduct_late.c  time-outs
 *   conduct_member.c   what members do   conduct_silent.c  members without an agent   conduct_lost.c  those that are lost
 *   leaving.c          who has left and not ended yet
 *   directories.c      directories that a checkpoint holds, too
 *   tell.c       what the user is told without a command
 *   conduct_again.c    requests; an attempt that is refused for a moment only is followed by another
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>
#include <jansson.h>

#include "base/let_run.h"
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
	CONN_TUNNEL, /* to another host: at the coordinator a relay, in a relay the coordinator */
	CONN_CLOSED, /* waits for the loop to let go */
};

enum wait { WAIT_NONE, WAIT_NEXT, WAIT_CURRENT, WAIT_RESTART };

#define ATTEMPTS_MAX 7u /* a request is given up after so many that were refused for a moment */

#define COORDINATOR_PORTS 4

struct coordinator;
struct member;
struct tunnel_frame;

struct port {
	uv_poll_t poll;
	struct coordinator *c;
	int fd;
	char address[128]; /* ADDR:PORT */
};

struct bytes { /* @at: what is before it is done with */
	uint8_t *data;
	size_t at, len, size;
};

/* What the two ends of a connection between hosts keep of it: tunnel.c. */
struct tunnel {
	uint8_t key_out[PROTOCOL_KEY_SIZE], key_in[PROTOCOL_KEY_SIZE];
	uint64_t sealed, opened; /* records so far */
	struct bytes out, in;	 /* frames, in clear */
	struct conn **channels;	 /* by the slot of their number */
	uint32_t channel_count, generation;
	char host[64], target[128]; /* of the relay; how it calls us */
	uint32_t synced;	 /* the number of the last TUNNEL_SYNC that was answered in full */
	bool joined, left;	 /* it was welcomed; it has said that it goes */
};

struct conn {
	struct list node; /* of coordinator.conns */
	union {
		uv_poll_t poll;
		uv_timer_t timer; /* @relay: never started; so that all are let go alike */
	} uv;
	struct coordinator *c;
	int fd; /* @relay: none */
	enum conn_state state;
	bool network; /* came over TCP: it proves the user's key, and becomes a tunnel */
	struct tunnel *tunnel;
	struct conn *relay; /* it is at that host; else NULL */
	uint32_t channel; /* of @relay; in a relay: as the coordinator knows it */
	uint8_t *in;
	size_t in_len, in_size;
	struct bytes out;
	bool shut; /* nothing follows what is in @out */
	uint8_t proof[PROTOCOL_MAC_SIZE]; /* what the client has to send */
	pid_t dialer; /* who called connect(2), as we see pids: SO_PEERCRED */
	pid_t sender; /* who sent the last bytes, as we see pids: SCM_CREDENTIALS */
	struct member *member;
	enum wait wait; /* a command that waits for a result */
	int error; /* why it has ended: -errno; 0: the other side has closed it */
	uint32_t wait_flags, wait_files;
	uint32_t attempts; /* that its request has had part in */
	bool watches, keeps; /* a command that hears MSG_ENDING; and brings the job back */
};

struct member {
	struct list node; /* of coordinator.members */
	struct member *next; /* in its bucket */
	struct conn *conn;
	uint32_t number, pid, ppid, generation, host;
	uint32_t scope; /* whose names are its host's: index of coordinator.places */
	pid_t kill_pid; /* as we see pids */
	char comm[16], exe[256];
	bool waiting;  /* registered too late for the checkpoint under way: WELCOME comes after it */
	bool suspended; /* got SUSPEND (or is being restarted): RESUME is owed */
	bool outwaits; /* has refused this attempt for what another process has to do first: it is to stand until the next one, */
	bool stands; /* as it does */
	bool reported; /* has done the phase under way */
	bool more; /* in the last round of DRAIN that it has answered */
	char waits[160]; /* for this, if it said so */
	bool exiting;
	bool childless;	    /* and leaves no child behind */
	bool let_run; /* it can be, though it is stopped: its agent knows of that */
	bool newborn; /* forked, and in no phase of any checkpoint yet */
	bool born_here; /* its parent was a member, be that gone: then another one may have it now */
	uint32_t phase, round; /* that its report must carry */
	uint32_t *children, children_count;
	uint64_t bytes, file_size, bytes_done, bytes_total;
	uint64_t contents_bytes; /* of files, and their number */
	uint32_t contents;
	uint8_t digest[16];
	char image[64];
	struct name_ask *asks;
	bool names_in_pieces; /* it takes a reply in several frames */
};

/* A host, or after a restart in parts a part of one: what has pids, inodes and a loopback of its own. */
struct place {
	uint32_t host;
	uint64_t part, boot;
};

struct names {
	struct name_key **buckets;
	size_t bucket_count, key_count;
	struct name_chunk *chunks;
};

struct expected {
	uint32_t pid;
	uint32_t host; /* index of coordinator.hosts */
	bool alone; /* no other host has this pid */
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
	struct port ports[COORDINATOR_PORTS]; /* TCP */
	uint32_t port_count;
	uv_prepare_t flush;
	uint8_t network_key[PROTOCOL_KEY_SIZE];
	struct conn *upstream; /* in a relay: the coordinator; else NULL */
	bool relay_ready, relay_protected; /* it is welcome there; the job is brought back when it fails */
	uint32_t relay_count, sync, arrivals, sync_arrivals; /* relayed_synced(); in a relay, sync: asked and not answered yet */
	char lost[128]; /* a host that is gone with processes of the job; empty: none */
	uv_timer_t phase_timer, retry_timer, interval_timer, leave_timer, progress_timer, look_timer;
	uv_signal_t term, interrupt, child;
	struct list let_run; /* let_run.c */
	struct list leaving; /* leaving.c */
	uint32_t leaving_count;
	bool pruning, prune_again, interval_due;
	struct directories *directories; /* or NULL */
	unsigned int directories_left; /* that were abandoned, and are not over */
	int listen_fd, job_lock_fd, start_lock_fd, tell_fd;
	char jobdir[RUNDIR_PATH_MAX];
	uint8_t key[PROTOCOL_KEY_SIZE];

	struct list conns, members, losses; /* losses: conduct_lost.c's */
	bool accept_blocked;
	size_t half_open; /* connections that are neither member nor command yet */
	size_t conn_count, member_count;
	struct member **buckets;
	size_t bucket_count;
	char **hosts;
	uint32_t host_count;
	struct place *places;
	uint32_t place_count;
	uint32_t next_member;
	bool had_member;
	uint64_t may_come_ns; /* when the last member left of which something may come: by an exec, or from a child. 0: none did */

	enum state state;
	size_t missing; /* members that have not done the phase */
	uint32_t round, suspend_round, attempt, retries;
	uint32_t attempts, interval_attempts, interval_failures; /* the last: of the interval's checkpoints, in a row */
	uint64_t state_since_ns, started_ns, foreign_since_ns;
	uint64_t phase_ns[STATE_COUNT]; /* of the checkpoint under way, or of the restart: what each state took */
	uint32_t flags; /* of msg_checkpoint, of the checkpoint under way */
	uint32_t files, external, text; /* enum msg_files, enum msg_external, enum msg_text: of the checkpoint under way */
	struct names names;
	struct store store;
	struct outcome last;
	char outwaited[sizeof(((struct outcome *)0)->text)]; /* why the attempt under way will be refused; "": it will not, as yet */

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

/* accept.c */
int accept_listen(struct coordinator *c);
/* False: some could not be accepted, for want of descriptors. */
bool accept_all(struct coordinator *c);
void accept_again(struct coordinator *c); /* a descriptor is free */
/* "ADDR:PORT", port 0: any. Its address as others may use it, kept in @c, or NULL: *@ret_error says why, with the words in @text. */
const char *accept_network(struct coordinator *c, const char *address, int *ret_error, char *text, size_t size);
void accept_close(struct coordinator *c);

/* network.c: addresses and the key of a job on several hosts */
int network_address(const char *text, bool passive, struct sockaddr_storage *ret, socklen_t *ret_len);
/* Also: the connection ends when the other host has not answered for so long. */
int network_options(int fd, unsigned int silence_s);
/* The user's key and the job's name make it. @create: a key is made if there is none. Logged if it fails. */
int network_key(const char *job, bool create, uint8_t ret[PROTOCOL_KEY_SIZE]);

/* bytes.c. False: no memory. */
bool bytes_add(struct bytes *b, const void *data, size_t len);
void bytes_free(struct bytes *b);

/* connection.c */
struct conn *connection_make(struct coordinator *c, int fd, enum conn_state state, bool network);
struct conn *connection_make_relayed(struct conn *relay, uint32_t channel, pid_t dialer);
/* Bytes that came for it, from a relay. */
void connection_feed(struct conn *k, const uint8_t *data, size_t len);
void connection_put(struct conn *k, const void *data, size_t len);
void connection_shutdown(struct conn *k); /* behind what is queued */
void connection_broken(struct conn *k);
void connection_send(struct conn *k, uint16_t type, const void *a, size_t alen, const void *b, size_t blen);
void connection_send_error(struct conn *k, int error, const char *text);
void connection_close(struct conn *k);
void connection_become(struct conn *k, enum conn_state state);

/* tunnel.c */
int tunnel_begin(struct conn *k, const uint8_t nonce_client[PROTOCOL_NONCE_SIZE], const uint8_t nonce_server[PROTOCOL_NONCE_SIZE], bool server);
void tunnel_send(struct conn *k, uint16_t kind, uint32_t channel, uint32_t value, const void *data, size_t len);
void tunnel_flush_all(uv_prepare_t *flush);
/* One record from the front of @at: its size, 0 when it has not come whole, -EPROTO. */
ssize_t tunnel_take(struct conn *k, const uint8_t *at, size_t have);
uint32_t tunnel_channel_new(struct conn *k, struct conn *channel); /* 0: none is left */
int tunnel_channel_set(struct conn *k, uint32_t number, struct conn *channel); /* NULL: it is free */
struct conn *tunnel_channel(const struct conn *k, uint32_t number);
void tunnel_free(struct tunnel *t);

/* relayed.c: relays, at the coordinator */
void relayed_frame(struct conn *k, const struct tunnel_frame *f, const uint8_t *data);
void relayed_closed(struct conn *k);
unsigned int relayed_silence(const struct coordinator *c); /* seconds after which a host that does not answer is lost */
/* False: something of another host may still be on its way; conduct_check() is called when it is known. */
bool relayed_synced(struct coordinator *c);

/* relay.c: the same in a relay */
int relay_open(struct coordinator *c);
void relay_frame(struct conn *k, const struct tunnel_frame *f, const uint8_t *data);
void relay_accepted(struct conn *k);
void relay_forward(struct conn *k, const uint8_t *data, size_t len);
void relay_closed(struct conn *k); /* a connection of this host, or the upstream */
void relay_leave(struct coordinator *c);

/* leaving.c */
void leaving_note(struct conn *k); /* that has ended */
pid_t leaving_one(struct coordinator *c); /* somebody who is still on the way out; 0: nobody */
void leaving_end(struct coordinator *c);

/* host.c */
/* Index of coordinator.hosts, or -errno. */
int host_number(struct coordinator *c, const char *name);
/* Index of coordinator.places; -EEXIST: another machine has that host's name. */
int host_place(struct coordinator *c, uint32_t host, const struct msg_register *reg);
void host_free(struct coordinator *c);

/* member.c */
void member_register(struct conn *k, const struct msg_register *m);
void member_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length);
void member_remove(struct member *m);
struct member *member_find(struct coordinator *c, uint32_t host, uint32_t pid);
void member_welcome(struct member *m);
bool member_comes_back(const struct coordinator *c); /* the job does, when some of it is lost */
void member_welcome_waiting(struct coordinator *c);
void member_kill_all(struct coordinator *c);
/* Ends the process behind a connection of this host; @name: for the log. */
void member_kill_behind(const struct conn *k, pid_t pid, const char *name);
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
bool conduct_outwait(struct member *m, const char *text); /* @m has refused with -EALREADY. False: as with -EAGAIN */
bool conduct_check_outwaited(struct coordinator *c);	  /* the attempt is, or is about to be, refused so */
void conduct_check_again(struct coordinator *c);

/* conduct_silent.c */
void conduct_look_at_silent(uv_timer_t *timer); /* look_timer */
void conduct_silent_looked(struct member *m, int error, const char *text);
void silent_stopped(struct coordinator *c, pid_t pid, int error); /* it could not be let run: -errno */
/* What keeps process @pid of this host from answering for so long: 0 nothing that is to be seen; -errno, and words after "process N " in @ret. One that is stopped is let run, if its agent knows of that. */
int silent_look(struct coordinator *c, pid_t pid, bool let_run, const char *name, uint64_t silent_ns, char *ret, size_t size);

/* let_run.c: processes of this host that are stopped */
struct conn *let_run_connection(struct coordinator *c, pid_t pid); /* of such a one, or NULL */
int let_run_begin(struct coordinator *c, pid_t pid); /* lets it run for the checkpoint under way, if it does not yet. 0 or -errno */
bool let_run_has(struct coordinator *c, pid_t pid);  /* it does */
void let_run_newborn(struct coordinator *c, pid_t pid); /* likewise, if it has connected and is no member yet; and a child that it may have connected for */
void let_run_end(struct coordinator *c);

/* let_run_file.c */
struct let_run_file {
	char path[LET_RUN_PATH], stopped[LET_RUN_PATH], through[LET_RUN_PATH];
};
int let_run_file_make(struct let_run_file *f, const char *jobdir, pid_t pid, int sig); /* 0 or -errno; @pid as we see it, stopped by @sig */
bool let_run_file_is(const char *path);
void let_run_file_remove(const struct let_run_file *f);

/* let_run_trace.c: in a process of its own */
int let_run_trace(pid_t pid, const char *jobdir); /* up to its end: 0, or -errno: it cannot be traced, or told so */

/* conduct_suspend.c */
void conduct_ask_children(struct coordinator *c);
bool conduct_suspend_closed(struct coordinator *c);

/* conduct_lost.c */
void conduct_lost(struct member *m); /* of a checkpoint, without having said that it ends */
void conduct_ended(struct member *parent, const uint8_t *data, size_t length); /* it sent MSG_ENDED */
bool conduct_lost_none(struct coordinator *c); /* all have reported. False: a parent is asked, or the checkpoint has failed */
void conduct_lost_clear(struct coordinator *c);

/* conduct_late.c */
void conduct_timeout(uv_timer_t *timer);

/* names.c */
int names_add(struct coordinator *c, struct member *m, const uint8_t *data, size_t length);
int names_answer(struct coordinator *c);
void names_clear(struct coordinator *c);
/* All that hosts have published, until @take gives other than 0: that. */
int names_each(struct coordinator *c, int (*take)(void *arg, const uint8_t *key, size_t length, const uint8_t *value, size_t value_length), void *arg);
void names_forget(struct member *m);

/* store.c */
int store_open(struct store *s, const char *dir);
int store_acquire(struct store *s);
void store_release(struct store *s);
void store_close(struct coordinator *c);
int store_begin(struct store *s);
int store_commit(struct coordinator *c);
void store_abandon(struct coordinator *c);
void store_remove(const char *path);
void store_prune(struct coordinator *c);

/* directories.c */
int directories_begin(struct coordinator *c); /* 0 or -errno */
bool directories_busy(const struct coordinator *c);
bool directories_moved(struct coordinator *c); /* since the last time that it was asked */
void directories_add_progress(const struct coordinator *c, uint64_t *done, uint64_t *total);
/* True: the checkpoint's directory will be removed when nobody writes there any more. */
bool directories_abandon(struct coordinator *c);
void directories_sum(const struct coordinator *c, uint32_t *files, uint64_t *bytes);
json_t *directories_manifest(const struct coordinator *c);
void directories_end(struct coordinator *c);

/* manifest.c */
int manifest_write(struct coordinator *c, int dirfd);
int manifest_expect(struct coordinator *c, const char *checkpoint);
/* The process of the manifest that registers so, and has not come. */
struct expected *manifest_expected(struct coordinator *c, const char *host, uint32_t pid);

/* tell.c */
void tell_open(struct coordinator *c);
void tell_close(struct coordinator *c);
void tell(const struct coordinator *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tell_interval(struct coordinator *c); /* one of its checkpoints is over: coordinator.last */

/* command.c */
void command_message(struct conn *k, uint16_t type, const uint8_t *data, uint32_t length);
void command_results(struct coordinator *c);
void command_restart_result(struct coordinator *c);
void command_tell_ending(struct coordinator *c);
void command_progress(uv_timer_t *timer);
json_t *command_status(struct coordinator *c);
bool command_wanted(struct coordinator *c, uint32_t *ret_flags, uint32_t *ret_files);
void command_lost(struct coordinator *c); /* a host: coordinator.lost */
/* Does somebody wait whose request has had fewer attempts than that? */
bool command_waits(const struct coordinator *c, uint32_t attempts);

/* run.c */
void run_check_leave(struct coordinator *c);
