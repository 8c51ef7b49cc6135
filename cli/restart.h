/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of `fermata restart` share.
 *
 *   restart.c          the command
 *   restart_session.c  coordinator, capsule, waiting for the job
 *   restart_find.c     which checkpoint, and what it consists of
 *   restart_choose.c   which of its hosts, and processes by host and pid
 *   restart_hosts.c    several hosts of a job: a restart for each, in step
 *   restart_where.c    machines on which hosts come back (--hosts)
 *   restart_check.c    opens the images and says whether they can run here, before anything is touched
 *   restart_part.c     some of the processes only, the others being brought back elsewhere
 *   restart_plan.c     an image becomes a plan for the restorer
 *   restart_load.c     the part of the plan that says what is read and checked
 *   restart_sysv.c     System V shared memory
 *   restart_ipc.c      System V semaphores and message queues
 *   restart_ptys.c     pseudo-terminals that have to be there before the processes
 *   restart_files.c    contents of files, _put.c puts them back, _outside.c: who else writes to them
 *   restart_trees.c    directories of launch --with, _put.c puts them back
 *   restart_gate.c     hears the restorers, and holds all until every image is found whole
 *   restart_capsule.c  the namespaces, if there are any
 *   restart_init.c     their process 1
 *   restart_walk.c     without namespaces: can it be done, and what has to be out of the way
 *   restart_wanted.c   numbers that other restarts wait for
 *   restart_turns.c    old pids then, one after the other
 *   restart_ids.c      numbers of the job, and others
 *   restart_family.c   parents, sessions and groups: who has to be made, and by whom
 *   restart_tree.c     the process tree is made
 *   restart_debug.c    processes that stand still at first, and the debugger
 *
 *   fermata restart ---socket--- capsule's init (pid 1) ---fork, with the old pid--- process -exec-> restorer
 *    (waits, forwards signals)                              \--- ...
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "image/manifest.h"
#include "image/plan.h"
#include "image/reader.h"

struct restart_process {
	char path[PATH_MAX]; /* of its image */
	const struct manifest_image *named; /* in the manifest */
	struct image *image;
	const struct image_process *info;
	char program[512];   /* its file; of one that had been deleted, that which has its name now */
	struct restart_process *parent; /* NULL: a child of the capsule's init */
	uint32_t helper_tid;		/* first of its PLAN_EAGER_MAX spare thread ids */
	bool ended;			/* a root, as init sees it: the number may be somebody else's by now */
	bool stop_said;			/* a root, to the user: that it has come back stopped */
};

/* The controlling terminal of a session. */
struct restart_pty {
	uint32_t leader, maker_pid;
	int32_t maker_fd;
	int master, slave; /* slave: the leader's; -1 in others */
};

enum restart_node_kind { NODE_PROCESS, NODE_ENDED, NODE_LEADER }; /* ENDED: not waited for yet; LEADER: gone, and there for as long as others come into its session or group */

struct restart_node {
	enum restart_node_kind kind;
	const struct restart_process *process; /* PROCESS; else NULL */
	const struct restart_process *owner;   /* whose image tells of it */
	uint32_t pid, pgid, sid;	       /* sid, pgid 0: of `fermata restart` */
	uint32_t status;		       /* ENDED: as wait(2) gives it */
	uint32_t spare_pid;		       /* of its carrier, or of who keeps its group (restart_tree.c) */
	struct restart_node *parent, *maker;   /* NULL: init; the maker forks it */
	uint32_t birth;			       /* the session that it is born into */
	bool birth_known;
	bool before;  /* its maker leads its own session yet */
	bool carried; /* a carrier forks it, and ends */
	bool leads;   /* there is a group of its number; */
	bool moves;   /* and it is in another one */
	bool strays;  /* its session cannot be had */
	bool in_order;
};

/* Shared memory, mapped by one or several processes: made once, inherited by all. */
struct restart_shared {
	uint64_t dev, ino, size;
	const char *path; /* of a file in memory, which it becomes; NULL: it has no name */
	mode_t mode;
	uint32_t page_shift; /* of huge pages */
	int fd;
};

/* A System V segment of some images. */
struct restart_sysv {
	struct image_sysv segment;
	uint32_t keeper; /* the lowest pid that has it in its image */
};

struct restart {
	char checkpoint[PATH_MAX]; /* directory of the checkpoint, absolute */
	char dir[PATH_MAX];	   /* the job's: where the next ones go */
	char job[64];
	char rundir[108];	   /* of the new coordinator */
	char restorer[PATH_MAX];
	bool verify, pause_all;
	bool capsule; /* namespaces of its own; else restart_walk.c */
	pid_t init;   /* in init and its children: its pid there */
	const char *capsule_wanted; /* --capsule: auto, yes or no; NULL: auto */
	const char *pause_text, *debug_text; /* [HOST:]PID as it was given, or NULL */
	const struct manifest_image *paused, *debugged; /* whom they mean */
	uint32_t pause_pid, debug_pid; /* 0: none of the processes here */
	const char *host_text, *hosts_file; /* --host, --hosts, or NULL */
	const char *listen, *coordinator; /* ADDR:PORT, or NULL: for those who bring back other hosts; where who has begun listens */
	bool *chosen; /* by index of the manifest's hosts: it is brought back */
	size_t host; /* whose processes these are: index in the manifest */
	bool several; /* the job has more hosts: this is a part of it */
	bool conducted; /* by a restart of several hosts (restart_hosts.c), who says what concerns them all */
	int orders_fd;	 /* conducted: signals to be passed on, a byte each; its end is the restart's, and the job's. -1: none */
	bool background; /* conducted, and the terminal is another's */
	bool sets_terminal; /* its settings are the job's from now on */
	const char *part; /* --part, or NULL: all processes */
	size_t parts, part_rank; /* there can be so many parts; which one of them this is. 0: it is the whole job */
	const char *files; /* --files, or NULL */
	struct restart_files *contents;
	struct restart_trees *trees;
	const char **taken; /* files that are not what the processes mapped, whose pages come from the checkpoint: paths in the images */
	size_t taken_count;
	struct options_with with; /* the job's, where they are now */
	struct options_map map; /* --map */
	struct path_map moved;	/* the same, to be applied: every path of the checkpoint goes through it, once */
	struct manifest *manifest;
	struct restart_process *processes;
	size_t count;
	struct restart_node *nodes; /* restart_family.c */
	size_t node_count;
	struct restart_node **carried; /* in the order in which they are made */
	size_t carried_count;
	bool moves; /* any of the nodes */
	struct restart_pty *ptys; /* restart_ptys.c */
	size_t pty_count;
	struct restart_shared *shared;
	size_t shared_count;
	struct restart_sysv *sysv;
	size_t sysv_count;
	char compress[16], rdma[16];
	char on_signal[JOB_SIGNAL_MAX]; /* of options_signal(): not for the programs */
	bool on_failure; /* the first program that fails is the job's end: it will come back */
	unsigned int restarts;
	int ready_fd; /* gets a byte when the job runs again; -1: nobody waits */
	bool rdma_given; /* else each process keeps what it has */
	unsigned int interval_s, keep, timeout_ms;
	uint64_t memory; /* bytes to be read */
	int log_fd;	 /* pipe to `fermata restart`: lines to be shown and marks (enum plan_mark); its end: all restored */
	int gate_fd;	 /* pipe from there: a byte lets a process through */
	int gate_key_fd; /* its other end: of `fermata restart` alone */
	struct plan_turns *turns; /* shared by all; without a capsule only */
	int turns_fd;
	int walk_lock; /* file; negative: none */
	struct restart_wanted *wanted; /* NULL: in a capsule */
};

/* Between `fermata restart` and the capsule's init: datagrams of a socket pair. */
enum capsule_word {
	CAPSULE_READY = 1, /* init: every process is handed to the restorer */
	CAPSULE_FAILED,	   /* init: it was not; the cause has been said */
	CAPSULE_EXITED,	   /* init: @pid ended with @value, a wait status; one of the tree's roots */
	CAPSULE_STOPPED,   /* init: @pid was stopped from the terminal by signal @value */
	CAPSULE_SIGNAL,	   /* restart: pass signal @value on; @pid 1: it came from the terminal */
	CAPSULE_FOREGROUND, /* restart: the terminal is yours */
};

struct capsule_message {
	uint32_t word;
	int32_t pid, value;
};

/* ---- restart_session.c ---- */
int restart_run(struct restart *r); /* the exit status, ours or the job's, or dies of the job's signal */

/* ---- restart.c ---- all steps for one host, chosen: the exit status, ours or the job's */
int restart_one(struct restart *r);
/* of a job of @roots whose first wait status but 0 is @worst: the exit status, or dies of the signal */
int restart_exit_status(int worst, size_t roots);

/* ---- restart_find.c ---- 0 or an exit code, the reason said ---- */
int restart_find(struct restart *r, const char *argument);
int restart_find_images(struct restart *r); /* of the one host */

/* ---- restart_choose.c ---- */
bool restart_is_pid(const char *text); /* [HOST:]PID; else it has been said */
/* The image in the manifest that @text ([HOST:]PID) means, or NULL, said. @option: who asks. */
const struct manifest_image *restart_choose_process(const struct restart *r, const char *option, const char *text);
int restart_choose(struct restart *r); /* 0 or an exit code, the reason said */
size_t restart_chosen(const struct restart *r); /* how many hosts */
/* The one host from now on: its processes alone are meant, and messages tell of which host they are. */
void restart_choose_host(struct restart *r, size_t host);

/* ---- restart_hosts.c ---- several hosts: as restart_run() */
int restart_hosts_run(struct restart *r);

/* ---- restart_where.c ---- */
struct restart_where { /* of each host of the manifest */
	char *machine; /* NULL: here */
};
int restart_where_read(struct restart *r, struct restart_where **ret); /* 0 or an exit code, the reasons said */
struct restart_where *restart_where_free(struct restart_where *w, size_t count);
/* The address, as a number, that this machine has on its way to @machine: 0, or -errno. */
int restart_where_address(const char *machine, char *ret, size_t size);
/* Becomes the command that brings host @host back on @machine, with the coordinator at @address. Returns only on failure, said. */
void restart_where_exec(const struct restart *r, size_t host, const char *machine, const char *address);

/* ---- restart_check.c ---- all answer 0 or an exit code, the reasons said ---- */
int restart_open(struct restart *r);  /* opens the images and checks all but the memory in them */
int restart_check(struct restart *r); /* can they run here? */
/* restart_build_id.c: the file at @path has the build id of what @p mapped from there. */
bool restart_same_build(const struct restart_process *p, const char *path);
void restart_close(struct restart *r);

/* ---- restart_part.c ---- leaves what is of --part; 0 or an exit code, the reason said */
int restart_part_take(struct restart *r);

/* ---- restart_files*.c ---- 0 or an exit code, the reasons said ---- */
int restart_files_collect(struct restart *r);
bool restart_files_covers(const struct restart *r, const char *path); /* its content will be as it was, or the restart refused */
bool restart_files_restores(const struct restart *r);
/* Holds them against the checkpoint, and puts back what differs; @keep_alive is called while that takes its time. */
int restart_files_settle(struct restart *r, void (*keep_alive)(void *arg), void *arg);
void restart_files_undo(struct restart *r); /* the restart has failed */
void restart_files_free(struct restart *r);

/* ---- restart_trees*.c ---- as restart_files*.c, and before these ---- */
int restart_trees_collect(struct restart *r);
bool restart_trees_covers(const struct restart *r, const char *path);
int restart_trees_settle(struct restart *r, void (*keep_alive)(void *arg), void *arg);
void restart_trees_undo(struct restart *r);
void restart_trees_free(struct restart *r);

/* ---- restart_vdso.c ---- */
struct restart_vdso { /* this kernel's */
	uint64_t start, end; /* the code */
	struct {
		uint64_t start, end;
	} areas[8]; /* all VMAs, those of the data too */
	size_t count;
	uint8_t digest[16];
};
int restart_vdso_probe(struct restart_vdso *ret);
bool restart_vdso_same(const struct restart_vdso *h, const struct restart_process *p);
/* Jumps out of the image's code into this kernel's at @vdso_at. 0 or -errno: the image's code is damaged, or no function is in both. */
int restart_vdso_patches(const struct restart_vdso *h, const struct restart_process *p, uint64_t vdso_at,
			 struct plan_patch *patches, size_t room, size_t *ret_count);

/* ---- restart_shared.c ---- */
int restart_shared_create(struct restart *r); /* 0 or an exit code */
struct restart_shared *restart_shared_find(const struct restart *r, const struct image_mapping *m); /* of one that is of such */

/* ---- restart_mapped.c ---- */
#define RESTART_MAPPED_LISTS 4096

struct restart_mapped {
	const struct restart *restart;
	const struct restart_process *process;
	struct restart_mapped_object {
		const struct image_mapping *mapping; /* the first one of it */
		int fd;
		uint32_t next; /* in @list, 0: none */
	} *list; /* from 1 */
	uint32_t count, first[RESTART_MAPPED_LISTS]; /* by objects' numbers */
};
/* For @mappings of them. 0 or -ENOMEM. */
int restart_mapped_begin(struct restart_mapped *l, const struct restart *r, const struct restart_process *p, size_t mappings);
/* @ret: the descriptor that @m is mapped from, -1 if from none. 0, or -errno after it has said why. */
int restart_mapped_get(struct restart_mapped *l, const struct image_mapping *m, int *ret);

/* ---- restart_plan.c ---- */
/* In the process itself: opens its files, writes its plan, becomes the restorer. Returns only on failure, which it has said. */
void restart_exec(const struct restart *r, const struct restart_process *p);

/* ---- restart_load.c ---- */
struct restart_loads {
	int fd; /* the image's */
	const struct image_blocks *described;
	bool vdso;
	struct plan_block *blocks;
	struct plan_load *loads;
	size_t block_count, load_count, load_room;
	size_t dense_count; /* blocks that come first: image/plan.h */
};
/* @vdso: its code is loaded, too. 0 or -errno. */
int restart_loads_build(const struct image *image, bool vdso, struct restart_loads *ret);

/* ---- restart_dense.c ---- */
int restart_loads_sort(struct restart_loads *l, const struct image *image); /* dense blocks first. 0 or -ENOMEM */

/* ---- restart_gate.c ---- */
struct restart_gate {
	struct restart *restart;
	int log_fd;    /* to be heard when it can be read */
	size_t loaded; /* processes that wait at the gate, or are through */
	bool open;
	bool failed;   /* a restorer cannot do its work; it has said why */
	bool damaged;  /* since an image is damaged */
};
int restart_gate_create(struct restart *r, struct restart_gate *ret); /* 0 or an exit code */
void restart_gate_inherited(struct restart_gate *g); /* closes the processes' ends, when they have been forked */
bool restart_gate_hear(struct restart_gate *g);	     /* false: that was the end */
bool restart_gate_is_due(const struct restart_gate *g); /* all are there, and it is to be opened */
void restart_gate_open(struct restart_gate *g);
int restart_gate_failure(const struct restart_gate *g); /* the exit code of a restart that failed; names what is damaged */

/* ---- restart_capsule.c ---- */
int restart_capsule_probe(void); /* 0, or -errno: there cannot be one here */
/* The pid of the job's init and the socket to it, or a negative exit code. */
int restart_capsule_start(struct restart *r, int *ret_socket);
void restart_capsule_end(const struct restart *r, pid_t init, int socket); /* and all in it; to be waited for */
bool restart_raise_ambient(void);
int restart_write_text(const char *path, const char *text); /* 0 or -errno */

/* ---- restart_directory.c ---- */
int restart_enter_directory(const struct image_process *p); /* its working directory: 0, or -1 and errno */

/* ---- restart_ended.c ---- */
_Noreturn void restart_end_as(const struct restart *r, uint32_t pid, uint32_t status); /* as wait(2) tells it; in that process, while the coordinator's folder is there */
/* In its parent, which has seen that it is a zombie; @dumped: with a core. */
void restart_ended_seen(const struct restart *r, uint32_t pid, uint32_t status, bool dumped);

/* ---- restart_sysv.c ---- */
int restart_sysv_collect(struct restart *r);	  /* 0 or an exit code, the reason said */
int restart_sysv_create(const struct restart *r); /* in the capsule's init, before the tree: 0 or -errno, said */
int restart_sysv_plan(const struct restart *r, const struct restart_process *p, struct plan_segment **ret, size_t *ret_count);

/* ---- restart_ipc.c ---- */
int restart_ipc_check(const struct restart *r);	 /* 0 or an exit code, the reason said */
int restart_ipc_create(const struct restart *r); /* in the capsule's init, before the tree: 0 or -errno, said */

/* ---- restart_ptys.c ---- */
bool restart_ptys_leads(const struct restart_process *p); /* a session whose terminal is a pseudo-terminal of the job */
void restart_ptys_mount(const struct restart *r); /* in the capsule's init, before the tree: a /dev/pts of its own, if it needs one */
int restart_ptys_create(struct restart *r);	  /* the same: terminals of sessions. 0 or -ENOMEM */
void restart_ptys_take(const struct restart *r, uint32_t leader); /* in the process that leads this session from now on, before it forks */
void restart_ptys_give_up(const struct restart *r, uint32_t session); /* in a process of it that had given up its terminal */
/* In process @pid: those that its agent gets, no longer close-on-exec; 2 * pty_count at most. How many. */
size_t restart_ptys_hand_over(const struct restart *r, uint32_t pid, struct image_terminal *ret);
void restart_ptys_forked(struct restart *r); /* in init: it lets them go */

/* ---- restart_debug.c ---- */
int restart_debug_check(const struct restart *r); /* 0 or an exit code, the reason said */
bool restart_is_paused(const struct restart *r, uint32_t pid);
/* When the restart is complete; @init: the capsule's, as we see pids. */
void restart_debug_tell(const struct restart *r, pid_t init);
pid_t restart_debug_start(const struct restart *r, pid_t init); /* gdb in the foreground: its pid, or -1 */
void restart_debug_over(const struct restart *r, pid_t init);	/* it has ended */

/* ---- restart_family.c ---- */
int restart_family_create(struct restart *r); /* 0 or an exit code, the reason said */
struct restart_node *restart_family_find(const struct restart *r, uint32_t pid); /* NULL: none has it */

/* ---- restart_ids.c ---- */
struct restart_process *restart_find_process(const struct restart *r, uint32_t pid); /* NULL: none has it */
int restart_link(struct restart *r); /* who is whose child; 0 or an exit code */
/* In the capsule's init: new processes of the program get numbers behind all old ones, each part of a job in a range of its own. */
void restart_set_last_pid(const struct restart *r);

/* ---- restart_tree.c ---- */
/* In the capsule's init: forks all. 0 when each is about to become the restorer; -errno, said. */
int restart_tree_fork(const struct restart *r);
pid_t restart_fork_as(uint32_t pid); /* fork, with that pid */

/* ---- restart_init.c ---- */
int restart_init_main(struct restart *r, int socket); /* the whole life of the job's first process: its exit status */

/* ---- restart_walk.c ---- */
int restart_walk_choose(struct restart *r); /* is there a capsule? And so which restorer; 0 or an exit code */
int restart_walk_prepare(struct restart *r); /* without one: before any process of the restart is forked; takes the lock. 0 or an exit code, the reasons said */
/* Nobody else walks until _unlock(), if it can be had; @keep_alive, if there is one, is called while that takes its time. */
void restart_walk_lock(struct restart *r, void (*keep_alive)(void *arg), void *arg);
void restart_walk_unlock(struct restart *r);
/* The next processes get numbers that neither the job has nor one that waits to come back: 0 or -errno. */
int restart_walk_aside(const struct restart *r);
int restart_walk_past(const struct restart *r); /* the same of the next one alone, which so may come before the job's next */
bool restart_walk_is_ours(const struct restart *r, uint32_t id);
void restart_walk_free(struct restart *r);

/* ---- restart_wanted.c ---- without a capsule, all of it as well as it can */
void restart_wanted_publish(struct restart *r);	 /* the numbers of the job: others keep off them */
void restart_wanted_withdraw(struct restart *r); /* it has got them, or does without */
void restart_wanted_look(const struct restart *r);
bool restart_wanted_by_others(const struct restart *r, uint32_t id); /* when we looked last */

/* ---- restart_turns.c ---- */
int restart_turns_create(struct restart *r); /* 0 or -errno */
bool restart_turns_await(const struct restart *r, uint32_t pid); /* until it may be forked; false: the restart has failed */
/* fork, with that pid, when it is its turn; -1 with errno. */
pid_t restart_turns_fork(const struct restart *r, uint32_t pid);
void restart_turns_give_up(const struct restart *r); /* nobody waits for his turn any more */
