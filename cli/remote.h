/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program of a job starts on another host by ssh comes under the same job.
 *
 *     host a                                             host b
 *   program ---exec of ssh---> fermata remote ..  <======= fermata remote --command CMD --fork--> $SHELL -c CMD
 *                              (stand-in)          one TCP     (its parent)
 *                                 |              connection       ^
 *                                 | starts, outside of the job    | fermata launch --job J, outside of the job
 *                              ssh b 'fermata remote --serve' --> fermata remote --serve
 *
 * Both ends of the connection and the command are members of the job; ssh, and what sshd has started, are not, and nothing of the job depends on them
 * once the connection is made: a checkpoint has nothing of them, and a restart does without.
 *
 *   remote.c           what ssh is asked for; how its stand-in comes to life
 *   remote_options.c   ssh's command line
 *   remote_start.c     ssh outside of the job, until the other side has connected or ssh has ended
 *   remote_address.c   where the other side finds us
 *   remote_order.c     what it is told, through ssh's standard input
 *   remote_serve.c     the other side, as ssh begins it: joins the job
 *   remote_channel.c   the connection: frames, encrypted
 *   remote_pump.c      standard input, output and error over it
 *   remote_stand_in.c, remote_command.c   its two ends
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REMOTE_TOKEN_SIZE 32 /* of which all keys of the connection are made */
#define REMOTE_PROOF_SIZE 32
#define REMOTE_FAILED 255    /* ssh's own status when it fails */

/* ---- remote_options.c ---- */

struct remote_options {
	const char *host; /* as it was given */
	int command;	  /* argv[command] is the first word of the command; what is before it is ssh's */
	bool no_input;	  /* -n */
};

/* True: a command without a terminal, which can come under the job. */
bool remote_options_parse(char *const argv[], struct remote_options *ret);
/* What is ssh's, ended by NULL, in @out, which has room for as many words as @argv; -n is left out. */
void remote_options_copy(char *const argv[], const struct remote_options *o, char **out);
/* The words of the command with blanks between them, as ssh hands it on; to be freed. */
char *remote_options_command(char *const argv[], const struct remote_options *o);

/* ---- remote_order.c ---- */

struct remote_order {
	uint8_t token[REMOTE_TOKEN_SIZE];
	char address[64]; /* where we listen */
	uint16_t port;
	const char *job, *coordinator, *command; /* @coordinator "": the job is in the same runtime directory */
	char **environment; /* ended by NULL: FERMATA_*, SOFTRDMA_* */
	void *memory; /* of all of these */
};

int remote_order_write(int fd, const struct remote_order *o);
int remote_order_read(int fd, struct remote_order *ret);
/* Those of our environment that hold on the other host, too; to be freed. */
char **remote_order_environment(void);

/* ---- remote_address.c ---- */

/* A listener at the address by which @ssh's host of @argv reaches us, which goes to @o; its descriptor, or -errno after it has said why not. */
int remote_address_listen(const char *ssh, char *const argv[], const struct remote_options *p, struct remote_order *o);

/* The address, as a number, that this machine has on its way to @ssh's host of @argv: 0, or -errno. */
int remote_address_towards(const char *ssh, char *const argv[], const struct remote_options *p, char *ret, size_t size);

/* ---- remote_start.c ---- */

struct remote_start {
	int listener;
	int connection; /* of the other side: it has joined the job */
	int status;	/* of ssh, when it ended before that: as a shell has it */
	char said[8192]; /* by ssh meanwhile */
	size_t said_length;
};

/* 1: s->connection; 0: ssh has ended; or -errno. */
int remote_start(const char *ssh, char *const argv[], const struct remote_options *p, const struct remote_order *o, struct remote_start *s);

/* ---- remote_channel.c ---- */

enum remote_frame {
	REMOTE_DATA = 1,  /* + stream: bytes of it */
	REMOTE_END = 5,	  /* + stream: no more of it */
	REMOTE_CREDIT = 9, /* + stream: so many bytes more may be sent: u32 */
	REMOTE_CLOSED = 13, /* + stream: nobody takes it any more */
	REMOTE_EXIT = 17, /* the command has ended: u32, its exit status, REMOTE_FAILED if by a signal */
};

#define REMOTE_FRAME_MAX 32768 /* bytes in one */
#define REMOTE_SOCKET_ROOM (192 << 10) /* SO_RCVBUF: also for short frames, which take more than they carry; set before the connection is made */

struct remote_channel;

/* The keys of the connection come of @token; @stand_in: ours is that end. NULL: no memory. */
struct remote_channel *remote_channel_make(int fd, const uint8_t token[REMOTE_TOKEN_SIZE], bool stand_in);
bool remote_channel_has_room(const struct remote_channel *c); /* for a frame of any size, beside some small ones */
void remote_channel_put(struct remote_channel *c, unsigned int type, const void *data, size_t len);
short remote_channel_events(const struct remote_channel *c); /* for poll */
int remote_channel_fd(const struct remote_channel *c);
/* Sends and receives what can be without waiting: 0, or -errno: the connection is gone. */
int remote_channel_move(struct remote_channel *c);
/* 1 with the next frame, valid until the next call; 0: none yet; -errno: the connection is gone, or not as it was sent. */
int remote_channel_next(struct remote_channel *c, unsigned int *ret_type, const uint8_t **ret_data, size_t *ret_len);
bool remote_channel_is_flushed(const struct remote_channel *c);
/* What the other side sends first: it knows the token, and stands ready. */
void remote_channel_proof(const uint8_t token[REMOTE_TOKEN_SIZE], uint8_t ret[REMOTE_PROOF_SIZE]);

/* ---- remote_pump.c ---- */

struct remote_pump;

/* Of @fds (standard input, output, error) the ones that are read from here are in @reads, bit N; the others are written to. */
struct remote_pump *remote_pump_make(struct remote_channel *c, const int fds[3], unsigned int reads);
/* Waits for something to happen, with the signal mask @mask, and does what can be done. 0, or -errno: the connection is gone. */
int remote_pump_turn(struct remote_pump *p, const sigset_t *mask);
bool remote_pump_has_exit(const struct remote_pump *p, int *ret_status); /* the other side has said it */
bool remote_pump_is_read(const struct remote_pump *p); /* the ends of all descriptors that are read from have been said */
void remote_pump_finish(struct remote_pump *p); /* writes what is kept, waiting as long as it takes */
void remote_pump_close(struct remote_pump *p); /* all descriptors */

/* ---- remote_stand_in.c, remote_command.c, remote_serve.c: exit statuses ---- */

int remote_stand_in(int connection, int token_fd, bool no_input, const char *host);
int remote_command(int connection, int token_fd, const char *command);
int remote_serve(void);

/* remote.c */
int remote_token_hand_on(const uint8_t token[REMOTE_TOKEN_SIZE]); /* a descriptor that the next program reads it from */
int remote_token_take(int fd, uint8_t ret[REMOTE_TOKEN_SIZE]);
