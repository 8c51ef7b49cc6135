/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages between agents, commands and the coordinator, as doc/protocol.md describes them: a 16-byte header, then
 * @length bytes. Little-endian, fixed width, no padding that is not named. Fields are only ever added at the end; a
 * receiver takes a longer message than it knows and refuses a shorter one. A type is never used again.
 */
#pragma once

#include <stdint.h>

#define PROTOCOL_VERSION 1u
#define PROTOCOL_MAGIC 0x46524d54u /* "TMRF" */
#define PROTOCOL_LENGTH_MAX (64u << 20)
#define PROTOCOL_KEY_SIZE 32u
#define PROTOCOL_NONCE_SIZE 32u
#define PROTOCOL_MAC_SIZE 32u

struct msg_header {
	uint32_t magic;
	uint16_t type;	  /* enum msg_type */
	uint16_t version; /* PROTOCOL_VERSION of the sender */
	uint32_t length;  /* bytes that follow */
	uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct msg_header) == 16, "wire format");

enum msg_type {
	/* handshake: client AUTH_HELLO, server AUTH_CHALLENGE, client AUTH_PROOF, then WELCOME answers REGISTER */
	MSG_AUTH_HELLO = 1,
	MSG_AUTH_CHALLENGE = 2,
	MSG_AUTH_PROOF = 3,
	MSG_ERROR = 4, /* struct msg_error; the sender closes after it */
	/* agent */
	MSG_REGISTER = 16, /* agent -> coordinator: struct msg_register */
	MSG_WELCOME = 17,  /* coordinator -> agent: struct msg_welcome */
	MSG_PHASE = 18,	   /* coordinator -> agent: struct msg_phase */
	MSG_PHASE_DONE = 19, /* agent -> coordinator: struct msg_phase_done */
	MSG_NAMES = 20,	   /* agent -> coordinator before its PHASE_DONE: struct msg_names, then entries */
	MSG_NAMES_REPLY = 21, /* coordinator -> agent before its next PHASE: the same layout, publish entries only */
	MSG_PROGRESS = 22, /* agent -> coordinator during WRITE, and RECREATE: struct msg_progress */
	MSG_EXITING = 23,  /* agent -> coordinator: the process is about to end normally, or will without a word: struct msg_exiting; of agents in images perhaps nothing */
	MSG_ENDED = 24,	   /* agent -> coordinator before its PHASE_DONE of SUSPEND, and before EXITING: struct msg_ended, one after the other */
	/* commands */
	MSG_CHECKPOINT = 48, /* command -> coordinator: struct msg_checkpoint */
	MSG_CHECKPOINT_RESULT = 49, /* coordinator -> command: struct msg_checkpoint_result */
	MSG_CHECKPOINT_PROGRESS = 50, /* coordinator -> waiting command: struct msg_checkpoint_progress */
	MSG_STATUS = 51,
	MSG_STATUS_REPLY = 52, /* JSON text */
	MSG_QUIT = 53,	   /* command -> coordinator: end the job's processes and leave */
	MSG_WAIT_RESTART = 54, /* `fermata restart` -> coordinator; no payload */
	MSG_RESTART_RESULT = 55, /* coordinator -> `fermata restart`, when it is complete or has failed */
	MSG_WATCH = 56,	   /* command -> coordinator: wants to hear MSG_ENDING; struct msg_watch */
	MSG_ENDING = 57,   /* coordinator -> who watches, before it ends the processes: struct msg_ending */
	MSG_FAILED = 58,   /* command -> coordinator: the job is to be ended, to be brought back; text: what has failed */
	MSG_LISTEN = 59,   /* command -> coordinator: be there for other hosts, too; text: ADDRESS:PORT, port 0: any */
	MSG_LISTENING = 60, /* coordinator -> command; text: the ADDRESS:PORT that they are to use */
};

/* Phases of a checkpoint, then of a restart. Their meaning: doc/protocol.md. The numbers are on the wire. */
enum phase {
	PHASE_NONE = 0,
	PHASE_SUSPEND = 1, /* its round is a number never used before by this coordinator; repeated: children anew */
	PHASE_QUIESCE = 2,
	PHASE_DRAIN = 3, /* repeated with round 0, 1, .. until nobody says PHASE_STATUS_MORE */
	PHASE_WRITE = 4,
	PHASE_COMMIT = 5, /* coordinator only: never sent to agents */
	PHASE_RESUME = 6, /* the job goes on, after a checkpoint, committed or failed, or after a restart */
	PHASE_RESTORE = 16, /* an agent is in it when it registers with MSG_REGISTER_RESTARTED */
	PHASE_RECREATE = 17,
	PHASE_PUBLISH = 18, /* carries the names of RECREATE: no hook of its own */
	PHASE_RECONNECT = 19,
	PHASE_REFILL = 20,
};

enum phase_status { PHASE_STATUS_OK = 0, PHASE_STATUS_MORE = 1 }; /* or a negative errno; -EALREADY: as -EAGAIN, where another process has to act first */

struct msg_auth_hello {
	uint8_t nonce[PROTOCOL_NONCE_SIZE];
};

struct msg_auth_challenge {
	uint8_t nonce[PROTOCOL_NONCE_SIZE];
	uint8_t mac[PROTOCOL_MAC_SIZE]; /* HMAC-SHA-512-256(key, "S" client nonce server nonce) */
};

struct msg_auth_proof {
	uint8_t mac[PROTOCOL_MAC_SIZE]; /* HMAC-SHA-512-256(key, "C" client nonce server nonce) */
};

struct msg_error {
	int32_t error; /* negative errno */
	uint32_t reserved;
	char text[]; /* rest of the message; no NUL needed */
};

struct msg_exiting {
	uint32_t childless; /* 1: it leaves no child, so none that has yet to connect */
	uint32_t stays;	    /* 1: it has said that it ends, and does not after all */
};

/* A child that has ended. */
struct msg_ended {
	uint32_t pid;
	uint16_t signal; /* 0: by itself */
	uint16_t expected; /* 1: by itself, or its parent has sent the signal, or it is SIGPIPE; 0: it may have crashed */
};

enum { MSG_REGISTER_RESTARTED = 1, MSG_REGISTER_FORKED = 2, MSG_REGISTER_EXECED = 4, MSG_REGISTER_LET_RUN = 8 /* it can be let run though it is stopped (base/let_run.h); of agents in images perhaps not */ };

struct msg_register {
	uint32_t pid;	 /* as the process sees itself: the virtual identity of the job */
	uint32_t ppid;
	uint32_t flags;
	uint32_t generation; /* restarts so far */
	char comm[16];
	char host[64]; /* the name of its host when it first came into the job */
	char exe[256];
	uint64_t part; /* of its host, after a restart in parts: in which; else 0 */
	uint64_t boot; /* of the kernel that it runs on */
};

struct msg_welcome {
	uint32_t member; /* number of this process in the job, never used again in it */
	uint32_t timeout_ms; /* the longest a phase may last */
	char compress[16];
	char rdma[16]; /* auto, system, soft */
	char job[64];
	uint32_t host; /* number of its host, or its part of one, in this life of the job: who has the same shares names of the host */
	uint32_t flags; /* enum msg_welcome_flag */
};

/* WITH_RELAY: there is a relay between us, and the job is brought back when that is lost: its end, without an MSG_ERROR before, is the process's. */
enum msg_welcome_flag { MSG_WELCOME_WITH_RELAY = 1 };

/* What becomes of the contents of files: the policy of `launch --files`. */
enum msg_files { MSG_FILES_UNSAID = 0, MSG_FILES_RESTORE = 1, MSG_FILES_CHECK = 2, MSG_FILES_IGNORE = 3 };

/* What becomes of connections that lead out of the job: the policy of `launch --external`. UNSAID: of an older coordinator, FAIL. */
enum msg_external { MSG_EXTERNAL_UNSAID = 0, MSG_EXTERNAL_FAIL = 1, MSG_EXTERNAL_ERROR = 2, MSG_EXTERNAL_RECONNECT = 3 };

/* Where unchanged pages of private mappings of files are: the policy of `launch --text`. UNSAID: of an older coordinator, REF. */
enum msg_text { MSG_TEXT_UNSAID = 0, MSG_TEXT_REF = 1, MSG_TEXT_SAVE = 2 };

/* RESUME's round. STAND: the program's threads stay stopped, until the next SUSPEND or RESUME. */
enum { RESUME_GO = 0, RESUME_STAND = 1 };

struct msg_phase {
	uint32_t phase;
	uint32_t round;
	uint32_t checkpoint; /* its number */
	int32_t reason;	     /* RESUME: 0 committed (or restart complete), else the -errno that failed it */
	char directory[512]; /* WRITE: absolute, exists; image goes there under the next name */
	char name[64];	     /* WRITE: file name of this process's image */
	uint32_t files;	     /* enum msg_files: of this checkpoint */
	uint32_t external;   /* enum msg_external: likewise */
	uint32_t text;	     /* enum msg_text: likewise; an older coordinator's ends in front of it */
	uint32_t attempt;    /* the same for all members from SUSPEND to RESUME, never used before by this coordinator; 0: an older one's */
};

struct msg_phase_done {
	uint32_t phase;
	uint32_t round;
	int32_t status; /* enum phase_status or -errno */
	uint32_t children; /* SUSPEND: that many uint32_t pids of living children follow the text */
	uint64_t bytes;	   /* WRITE: bytes of memory written (holes left out) */
	uint64_t file_size; /* WRITE: st_size of the image */
	uint8_t digest[16]; /* WRITE: XXH3-128 over the image's block table: what verify compares */
	uint32_t text_length; /* the failure's text follows this struct */
	uint32_t contents; /* WRITE: files whose content it has saved */
	uint64_t contents_bytes; /* and the data in them */
};

/* Entries follow, each: struct msg_name, then key, then value; the next one begins at the next multiple of 8. */
struct msg_names {
	uint32_t count;
	uint32_t flags; /* MSG_NAMES_*; others are 0 */
};

#define MSG_NAMES_IN_PIECES 1u /* agent: a reply may come in several frames; agents in old images do not say so */
#define MSG_NAMES_MORE 2u      /* coordinator: this reply goes on in the next frame */

/* Names of the host, and of the whole job. */
enum { MSG_NAME_PUBLISH = 1, MSG_NAME_ASK = 2, MSG_NAME_JOB_PUBLISH = 3, MSG_NAME_JOB_ASK = 4 };

struct msg_name {
	uint16_t kind;
	uint16_t key_length;
	uint16_t value_length;
	uint16_t reserved;
};

struct msg_progress {
	uint64_t bytes_done;
	uint64_t bytes_total;
};

enum {
	MSG_CHECKPOINT_STOP = 1,    /* end the job when the checkpoint is committed */
	MSG_CHECKPOINT_REQUEUE = 2, /* with STOP: for a batch system, which starts it again */
	MSG_CHECKPOINT_EXTERNAL_FAIL = 4, /* enum msg_external is so; none of the three: as the job has it */
	MSG_CHECKPOINT_EXTERNAL_ERROR = 8,
	MSG_CHECKPOINT_EXTERNAL_RECONNECT = 16,
	MSG_CHECKPOINT_TEXT_REF = 32, /* enum msg_text is so; neither: as the job has it */
	MSG_CHECKPOINT_TEXT_SAVE = 64,
};

struct msg_checkpoint {
	uint32_t flags;
	uint32_t files; /* enum msg_files; UNSAID: as the job has it */
};

struct msg_checkpoint_result {
	int32_t error; /* 0: committed */
	uint32_t checkpoint;
	uint64_t bytes;
	uint64_t pause_ns; /* SUSPEND sent to RESUME sent */
	uint32_t processes;
	uint32_t path_length; /* path of the checkpoint, then the text of the failure follow */
	uint32_t text_length;
	uint32_t contents; /* files whose content was saved, and the data in them */
	uint64_t contents_bytes;
	uint32_t attempts; /* that this request had part in; pause_ns is of the last one */
	uint32_t reserved;
};

struct msg_checkpoint_progress {
	uint32_t phase; /* PHASE_NONE: another attempt is to come, .. */
	uint32_t round; /* .. after so many */
	uint32_t processes;
	uint32_t reported; /* of them have done the phase */
	uint64_t bytes_done;
	uint64_t bytes_total;
};

struct msg_restart_result {
	int32_t error; /* 0: every process runs */
	uint32_t processes;
	uint64_t duration_ns; /* last registration to RESUME sent */
	uint32_t text_length; /* text of the failure follows */
	uint32_t reserved;
};

enum { MSG_WATCH_KEEPER = 1 }; /* brings the job back when it is ended with MSG_ENDING_FAILED */

struct msg_watch {
	uint32_t flags;
	uint32_t reserved;
};

enum msg_ending_reason {
	MSG_ENDING_QUIT = 1, /* MSG_QUIT */
	MSG_ENDING_STOPPED = 2, /* by a checkpoint with STOP; REQUEUED: and REQUEUE */
	MSG_ENDING_REQUEUED = 3,
	MSG_ENDING_FAILED = 4, /* by MSG_FAILED */
};

struct msg_ending {
	uint32_t reason; /* enum msg_ending_reason */
	uint32_t checkpoint; /* STOPPED, REQUEUED: its number */
	uint32_t text_length; /* its path follows; FAILED: what has failed */
	uint32_t reserved;
};

_Static_assert(sizeof(struct msg_auth_challenge) == 64, "wire format");
_Static_assert(sizeof(struct msg_error) == 8, "wire format");
_Static_assert(sizeof(struct msg_register) == 368, "wire format");
_Static_assert(sizeof(struct msg_welcome) == 112, "wire format");
_Static_assert(sizeof(struct msg_phase) == 608, "wire format");
_Static_assert(sizeof(struct msg_phase_done) == 64, "wire format");
_Static_assert(sizeof(struct msg_names) == 8, "wire format");
_Static_assert(sizeof(struct msg_name) == 8, "wire format");
_Static_assert(sizeof(struct msg_progress) == 16, "wire format");
_Static_assert(sizeof(struct msg_checkpoint) == 8, "wire format");
_Static_assert(sizeof(struct msg_checkpoint_result) == 56, "wire format");
_Static_assert(sizeof(struct msg_checkpoint_progress) == 32, "wire format");
_Static_assert(sizeof(struct msg_restart_result) == 24, "wire format");
_Static_assert(sizeof(struct msg_watch) == 8, "wire format");
_Static_assert(sizeof(struct msg_ending) == 16, "wire format");
