/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the agent share. The agent is libfermata.so in a program's process: wrappers that run in the program's
 * threads, a watch thread that waits for a checkpoint and stops the others, and a checkpoint thread that does the rest of it (thread.c).
 *
 *   watch: idle --SUSPEND--> stopped; makes                                                            idle
 *   checkpoint:                      born --QUIESCE, DRAIN.., WRITE--> written --RESUME--> ends, wakes _/|
 *                                                    image: agent_restarted() --RECREATE .. RESUME--> makes watch, ends
 */
#pragma once

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "agent/spent.h"
#include "base/agent_seen.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "fermata/plugin.h"
#include "image/record.h"
#include "protocol/link.h"
#include "protocol/message.h"

#define AGENT_PATH_MAX 512

struct sembuf;

/* State of the whole agent: one a process, made by the constructor, inherited by fork, restored with the memory. */
struct agent {
	bool active;	      /* under a coordinator */
	int signal;	      /* ours; AGENT_SIGNAL */
	uint32_t pid;	      /* of this process; keeps its value over a restart */
	bool forked;	      /* it has executed no program since it was forked */
	uint32_t generation;  /* restarts so far */
	uint32_t member;
	char host[64];	      /* its name in the job */
	uint64_t part;	      /* of the host: in which; 0: it is in one */
	uint64_t boot, where; /* host_id.h: of this life; one that has confined itself could not ask again */
	uint32_t place;	      /* the host's number, or the part's, in this life of the job */
	char jobdir[108];     /* RUNDIR/JOB of the coordinator */
	char libdir[AGENT_PATH_MAX];
	char rdma[16];
	uint8_t key[PROTOCOL_KEY_SIZE];
	struct link link;
	struct lock link_lock; /* held while a frame is on its way; exec takes it for good */
	uint32_t checkpoint;  /* number of the one under way */
	uint32_t attempt;     /* struct msg_phase, of the last SUSPEND */
	uint32_t files, external, text; /* enum msg_files, enum msg_external, enum msg_text: of that one */
	char fail_text[408];  /* the first cause named in this phase */
	struct image_context context; /* where the checkpoint thread goes on after a restart */
	int watch_tid;
	uint32_t timeout_ms;  /* the longest that a phase may last, once registered */
	bool registered;      /* the coordinator knows us */
	bool with_relay;      /* we end with our host's relay, which has not said that it goes */
	struct image_restart restart; /* written by the restorer; size 0 but during a restart */
	bool capsule;	      /* restarted in namespaces of its own */
	bool rearranges;      /* memory that it shares, by remap_file_pages: wrap_map.c */
	bool own_credentials; /* of each thread, or some, since they have given up rights in this life: rights.c */
};
extern struct agent agent;
extern struct arena agent_arena;

/* ---- thread.c: the watch thread and the checkpoint thread ---- */
/* Makes the watch thread, and waits until none of the program's descriptors but the link is in its table. @body runs in it. */
int thread_watch_start(void (*body)(void));
/* In the watch thread, all others stopped: makes the checkpoint thread and waits until it has ended. */
int thread_checkpoint_run(void (*body)(void));
void thread_checkpoint_begins(void); /* the caller is it: also after a restart */
unsigned int thread_foreign_count(void); /* how many of the process' threads are none of the program's; 0: nor is there an agent (a child that nobody has told us of) */
void thread_fail(int err); /* says by which limit it cannot be made */
void thread_checkpoint_record(struct image_thread *ret); /* what the image has to say of it */
void thread_program_name(char ret[16]); /* that of the calling thread; in the watch thread, of who has made it */
void thread_tcb_fill(char *tcb); /* the little that the page at a thread pointer has to hold */
void thread_checkpoint_await(void); /* until none is left: in the watch thread that it made after a restart */

/* ---- phase.c, register.c ---- */
void agent_watch(void);	   /* body of the watch thread; returns when the link is gone */
void agent_serve(void);	   /* body of the checkpoint thread; returns after RESUME */
int agent_connect(int fd); /* proves the key over @fd: it is our link, under a number that the program does not see */
int agent_register(uint32_t flags); /* REGISTER, then WELCOME is taken in */
void agent_link_lost(void); /* the link is gone; may end the process */

/* ---- stop.c, stop_table.c: the program's threads ---- */
struct rights { /* capabilities, bit N the one of number N */
	uint64_t effective, permitted, inheritable;
	uint64_t bounding; /* of root; else 0 */
};

struct stop_thread {
	int tid;
	_Atomic uint64_t state; /* epoch << 32 | enum stop_state */
	struct image_thread record;
	const void *fxsave; /* in its signal frame */
	_Atomic bool put_off; /* it was in a region */
	bool by_setxid; /* asked by SIGSETXID, too */
	uint64_t long_ns; /* of its own clock: has it run on that long, it is asked by that; 0: not looked yet */
	bool tiles;	/* it has used AMX */
	/* the system call that the thread was in when it was asked to stop; number -1: none */
	long call, args[6];
	uint64_t call_sp, call_pc;
	bool before_call; /* it was to begin again, and had not: call_woken.c */
	uint64_t came_ns; /* CLOCK_MONOTONIC when it came to stand; 0: it has not stood */
	struct spent spent;
	struct rights rights;
};
enum stop_state { STOP_FREE, STOP_ASKED, STOP_ENTERED, STOP_STOPPED, STOP_AGAIN, STOP_GONE };

/* What a thread that stood has to know when it goes on. */
struct stop_stay {
	struct stop_thread note;
	bool restarted;
};

int stop_init(void); /* installs our handler */
void stop_on_signal_stack(bool on); /* it runs on a thread's signal stack, where that has one (SA_ONSTACK), or not */
/* In our handler, for one that takes our signal by itself (traced.c): stands as @info asks it to. False: that is of an attempt that is over. */
bool stop_stay(const siginfo_t *info, ucontext_t *frame, struct stop_stay *stay);
void stop_forked(void);
/* In the child of a fork: the parent may have been asked to stop already, the child has not. */
void phase_forked(void);
bool phase_had_child(uint32_t pid); /* alive at the last checkpoint: this process' in a restart */
/* In WRITE: -ECANCELED if the coordinator has said something, which nobody may who waits for the pages: they are not wanted any more. Else 0. */
int phase_called_off(void);
int stop_all(uint32_t timeout_ms); /* 0: every thread but the watch thread, the caller, stands in our handler */
int stop_lend(int tid, int (*fn)(void *), void *arg); /* has stopped thread @tid (0: any) call @fn; what that answered: 0 or -errno */
void stop_await_asleep(void);	   /* until the stopped threads and the watch thread sleep in the kernel */
void stop_release(void);	   /* lets them go */
struct stop_thread *stop_thread_at(uint32_t index); /* while stopped; NULL past the last; mind its state */
enum stop_state stop_slot_state(const struct stop_thread *t);
uint32_t stop_count(void);	   /* threads that stand in our handler */
void stop_await_restarted(void);   /* after a restart: all threads have left the restorer */

/* ---- lazy.c ---- */
void lazy_init(void);
void lazy_restarted(void);

/* ---- vdso.c ---- */
void vdso_init(void);
void vdso_restarted(uint64_t at); /* where it is now */
bool vdso_holds(uint64_t pc);

bool stop_is_zombie(int tid);	 /* or gone */
bool stop_sleeps(int tid);	 /* until a signal or what it waits for wakes it */
void stop_await_one(int tid);	 /* until it sleeps in the kernel */
void stop_record(struct stop_thread *t, ucontext_t *frame); /* by the thread itself, but for its context */

/* ---- rights.c ---- */
void rights_note(struct rights *ret); /* of the calling thread */
void rights_drop(void); /* all, of the calling thread */
void rights_restarted(const struct rights *had); /* of the calling thread: gives up what it had not */

/* ---- standing.c: nobody goes on while another process is still at a checkpoint that has failed ---- */
void standing_begin(void); /* SUSPEND */
int standing_enter(void);  /* QUIESCE: this process begins. 0, or -ECANCELED: others run already */
void standing_end(int reason); /* RESUME, or the loss of the link, before anything else: may wait */
void standing_forget(void);    /* in a restart */

/* ---- children.c ---- */
struct children {
	uint32_t *living, living_room, living_count; /* there may be more than there is room for */
	struct image_zombie *dead;		     /* not waited for yet */
	uint32_t dead_room, dead_count;
};

int children_list(struct children *ret); /* the rooms are the caller's. 0 or -errno */
/* Children that have ended and were not waited for, in scratch memory: the number of them, or -errno. */
int children_zombies(struct image_zombie **ret);

/* ---- wrap_child.c ---- */
/* To the coordinator: children that have ended, waited for before, or among the @count of @dead. With the link's lock. 0 or -errno. */
int child_ended_send(const struct image_zombie *dead, uint32_t count);
void child_forked(void); /* in a fork's child */

/* ---- call.c: interrupted system calls go on ---- */
/* True: it goes on before a call, which any handler of the program's would have ended but those whose flags have any of *@ret_without. */
bool call_continue(ucontext_t *frame, const struct stop_thread *t, bool restarted, uint64_t *ret_without);

/* ---- call_number.c ---- */
void call_note(struct stop_thread *t); /* reads what the thread is blocked in; before it is asked to stop */

/* ---- dump.c ---- */
int dump_write(const struct msg_phase *where, struct msg_phase_done *ret); /* WRITE */

/* ---- records.c: the plugins' records of this checkpoint ---- */
int records_dump(void);
struct image_note_data;
const struct image_note_data *records_notes(uint32_t *ret_count);
void records_free(void);
const void *records_plain(const char *plugin, size_t *ret_len);

/* ---- restart.c ---- */
void agent_restarted(void); /* the checkpoint thread comes back to life; never fails silently */

/* ---- moved.c ---- fermata_path_now() in a restart */
int moved_restarted(void); /* while the restorer's pages are there: 0 or -ENOMEM */
void moved_end(void);
int moved_in_place(char *path, size_t size); /* of what is kept: once a restart. 0 or -ENAMETOOLONG */

/* ---- host.c ---- */
void host_init(void);	   /* in the constructor, in front of environment_init */
void host_restarted(void); /* before the coordinator is met */

/* ---- begun.c ---- */
void begun_init(void); /* in the constructor, in front of environment_init */
void begun_forked(void); /* in the child */
void begun_restarted(void); /* while the threads have what they have from `fermata restart`; before environment_restarted */
bool begun_filter_begin(void); /* before a call that adds a filter; behind one that did not: failed, with the answer */
void begun_filter_failed(bool noted);
bool begun_filtered(void); /* it has one: what the program does not call itself may end it */
void begun_mark(uint32_t unseen); /* enum begun_unseen: by any thread, which has just done so */
int begun_refuse(void); /* before the threads are stopped: 0, or -errno: it has confined itself */

/* ---- traced.c: a process that another one of the job traces ---- */
int traced_await(uint64_t limit_ns); /* before the threads are stopped: its tracer has let go of them. 0 or -errno, with fermata_fail */
/* In our handler: the thread stands here until its tracer has it again. False: it is no hold. */
bool traced_hold(siginfo_t *info, ucontext_t *frame);
int traced_deep(void);	  /* a thread that is held where it cannot be stopped; 0: none is */
void traced_forked(void);

/* ---- tracer.c: a process that traces others of the job ---- */
int tracer_let_go(const uint32_t *children, uint32_t count); /* SUSPEND, stopped: 0 or -errno, with fermata_fail. @children: the living */
bool tracer_has(int tid); /* one that we have let go of */
void tracer_take_again(void); /* RESUME, before the threads are released */

/* ---- let_run.c: a process that is stopped ---- */
void let_run_allow(void);   /* the coordinator lets it run for a checkpoint */
void let_run_note(void);    /* QUIESCE: whether this one is */
int let_run_stopped(void);  /* by which signal; 0: it is not */
void let_run_note_children(const uint32_t *living, uint32_t count); /* DRAIN: which of them are */
void let_run_asked(bool asked); /* all threads of the program are asked to stand */
void let_run_through(void); /* RESUME, and before threads are released: stops again, if it is stopped */
int let_run_restart(void);   /* RECREATE: 0 or -errno, said */
void let_run_children_restarted(const uint32_t *living, uint32_t count); /* until those have stopped again that were */
void let_run_stop_again(void); /* in a restart, before the threads are released */

/* continued.c: a child that goes on after a stop, which its parent has not waited for */
int continued_ask(uint32_t pid);     /* restart, in its parent: it is to stop. 0 or -errno, said */
bool continued_await(uint32_t pid);  /* continues it. True: there is no other news of it */
void continued_again(bool pause);    /* in itself, before the threads are released */

/* ---- wrap_exit.c ---- */
void exit_foretold(bool ends); /* the process will end without a word, or does not after all */
void exit_forked(void);    /* in a fork's child: what its parent has said is not true of it */
void exit_restarted(void); /* says again what was said before the checkpoint */

/* ---- environment.c ---- */
void environment_init(void); /* in the constructor, before the program could change its environment */
void environment_restarted(void);
char *environment_entry(char *entry); /* as a program that is begun now has to get it */
/* The same of LD_PRELOAD, in @buf, if our library has to be put in front, or in another place. */
char *environment_preload(char *entry, char *buf, size_t size);
/* What a child of the job must have, whatever environment it is given; each with its =. */
#define ENVIRONMENT_KEPT 6
extern const char *const environment_kept[ENVIRONMENT_KEPT];
const char *environment_find(size_t kept); /* the program's entry, or, if it has removed that, the one that it began with; NULL */
const char *environment_host(void);   /* the entries that every such program has to have */
const char *environment_begun(void);
void environment_begun_again(void); /* any thread: another one may be reading it, and finds what was or what is */

/* ---- limits.c ---- */
/* wrap_parent.c: whose child the program is, for all that it knows. QUIESCE; before the threads go on; in the child of a fork */
void parent_note(void);
void parent_restarted(void);
void parent_forked(void);
void bound_note(void); /* wrap_bind.c: QUIESCE, and before the threads go on */
void bound_restarted(void);
void limits_make_room(void); /* for descriptors and large files, beyond what the program may have, while its threads stand */
void limits_end_room(void);
void limits_note(void);	     /* QUIESCE */
void limits_restarted(void); /* what wants those of `fermata restart` is done */

/* ---- pending.c: signals that wait for the process or a thread of it ---- */
/* The signals of line @name ("ShdPnd", "SigPnd", "SigBlk") of thread @tid's status (0: the caller's); 0 if it is gone. One thread at a time. */
uint64_t pending_status(uint32_t tid, const char *name);
uint64_t pending_status_in(const char *path, const char *name); /* any thread's */
int pending_record(void);    /* while stopped: takes them out */
void pending_begin(void);    /* takes none, but plugins may (fermata_signals_take) */
int pending_give_back(void); /* what it has taken */
uint64_t pending_mask(void); /* bit N - 1: signal N waits for the process */
void pending_restart(uint32_t tid); /* in that thread; 0: the process, in the checkpoint thread */

/* ---- itimers.c ---- */
int itimers_record(struct image_timer t[3]); /* after pending_record */
void itimers_at(struct image_timer t[3], uint64_t monotonic_ns); /* what is left then */

/* ---- names.c ---- */
int names_send(void);	   /* what was published and asked in this phase, and is not sent yet; link_lock held */
int names_take(const struct link_message *m);
typedef int (*names_compare_fn)(const void *a, const void *b);
/* The values that a key has are in @compare's order from now on. Each is to be asked for with the same one only. */
void names_sort(const void *key, size_t keylen, names_compare_fn compare);
void names_clear(void);

/* ---- reserved.c: descriptors of the agent that the program can neither see nor close ---- */
int fd_reserve(int fd); /* moves @fd out of the program's way; the new number or -errno */
void fd_unreserve(int fd);
bool fd_is_reserved(int fd);

/* ---- wrap_inotify.c ---- */
void wrap_inotify_forked(void);
long wrap_inotify_syscall(long nr, const long *args); /* SYS_inotify_* */
int wrap_inotify_restarted(void); /* its paths are those of this life: 0 or -errno */

/* ---- wrap_timer.c ---- */
bool wrap_timer_any(void); /* the program has made one */
void wrap_timer_forked(void);
long wrap_timer_syscall(long nr, const long *args);

/* ---- wrap_prctl.c ---- */
long wrap_prctl_syscall(long nr, const long *args);   /* SYS_prctl, SYS_seccomp */
long wrap_confine_syscall(long nr, const long *args); /* SYS_unshare, SYS_setns, SYS_landlock_restrict_self */
long wrap_keys_syscall(long nr, const long *args);    /* SYS_keyctl, SYS_add_key, SYS_request_key */

/* ---- wrap_map.c ---- */
long wrap_map_syscall(long nr, const long *args); /* SYS_mmap, SYS_munmap, SYS_madvise, SYS_mbind */

/* ---- wrap_async.c ---- */
long wrap_async_syscall(long nr); /* SYS_io_uring_setup, SYS_io_setup */

/* ---- wrap_mqueue.c ---- */
void wrap_mqueue_forked(void);

/* ---- wrap_semaphore.c ---- */
void wrap_undo_init(void);
void wrap_undo_forked(void);
void wrap_undo_clear(int id, int number); /* -1: all of the set */
bool wrap_undo_note_clear(int id, int number, uint64_t now); /* false: no room */
void wrap_undo_put(char *entry, size_t size); /* for the environment of an exec; "": there are none */
int wrap_semtimedop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout);
