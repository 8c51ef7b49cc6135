/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plugin interface: how one kind of resource is held over a checkpoint. Everything that a process holds besides
 * its memory and threads is the matter of a plugin; the agent knows plugins by this descriptor only.
 *
 * Where hooks run. All hooks but init and the fork ones run in the checkpoint thread, while every thread of the program stands still. A
 * stopped thread may hold any lock of the program's libc, and the checkpoint thread has no libc thread state of its
 * own: a hook may use base/, raw_* and this interface; of libc only mem*, str* and thin system call wrappers whose
 * only state is errno (mmap, open, eventfd).
 *
 * Records. A hook that dumps writes plain data (fixed-width, little-endian, documented beside the plugin) into a sink.
 * The same bytes go into the image as a note, for inspection, and are handed to the hook that re-creates.
 *
 * Errors. A hook returns 0 or -errno. Before it returns an error it says the cause once with fermata_fail(), naming the object
 * (fd 7, QP 0x11, path) and the remedy; the checkpoint fails, the job goes on, the user reads that text. -EAGAIN says that the program itself is
 * about to change it (a queue to be read, a connection to be accepted): all is tried again some moments later, a few times.
 */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fermata/region.h"

#define FERMATA_PLUGIN_API 1

struct fermata_sink; /* where a record is written to */

/* One open file description, however many descriptors name it, here or in other processes. */
struct fermata_desc {
	int fd;		    /* the lowest descriptor of this process that names it */
	uint32_t status;    /* F_GETFL */
	struct stat st;
	char link[512];	    /* what /proc/self/fd/N points to */
	uint32_t id;	    /* unique within the process, stable between its checkpoints' phases */
	int partial;	    /* set in claim: this process cannot tell all of it. It leads only if nobody can */
	void *priv;	    /* the owning plugin's, from claim to resume and from restore to refill: fermata_alloc memory
			     * or NULL; the agent frees it. Not kept over a restart */
};

enum fermata_drain { FERMATA_DRAINED = 0, FERMATA_DRAIN_MORE = 1 };

/* From fd_drain: the description leads out of the job. As a standard stream it becomes that of `fermata restart`, else the
 * checkpoint is refused. */
#define FERMATA_FD_OUTSIDE 2

struct fermata_plugin {
	uint32_t api; /* FERMATA_PLUGIN_API */
	const char *name;

	/* Once a process, before its main(); again in the child after fork, with fork_child instead. */
	int (*init)(void);
	void (*fork_prepare)(void);
	void (*fork_parent)(void);
	void (*fork_child)(void);

	/* Of each description, in QUIESCE, before the first is claimed: whether others are in it that no process holds (sent in messages).
	 * They take numbers of the process and are told by fermata_fd_found: 0 or -errno. */
	int (*fd_unpack)(struct fermata_desc *d);
	/* Descriptors. claim: 1 "mine", 0 "not mine". Each description has one owner in the job: dump, drain and restore
	 * run only in the process that leads it (the lowest pid of those for whom it is not partial), the others get it from there at restart. */
	int (*fd_claim)(struct fermata_desc *d);
	/* In each process that holds it, before who leads it is known: 1: a terminal that leads out of the job, which is re-attached by each
	 * process for itself; the plugin is asked no more. */
	int (*fd_is_outside)(struct fermata_desc *d);
	/* Called in rounds, a barrier between them, until all processes say FERMATA_DRAINED in one round. */
	int (*fd_drain)(struct fermata_desc *d, unsigned int round);
	int (*fd_dump)(struct fermata_desc *d, struct fermata_sink *sink);
	/* Of one whose drain has said FERMATA_FD_OUTSIDE, which is no standard stream, where --external lets such go: from now on it is one whose other side is gone. 0 or
	 * -errno. NULL: the checkpoint is refused. */
	int (*fd_let_go)(struct fermata_desc *d);
	/* As fd_drain, in the processes that hold the description and do not lead it. 0 or -errno. */
	int (*fd_follow)(struct fermata_desc *d, unsigned int round);
	/* The checkpoint is over (or has failed) and the job goes on: undo what drain did. */
	int (*fd_resume)(struct fermata_desc *d);
	/* RECREATE: a new descriptor (any number; the agent moves it), or -errno, or FERMATA_FD_LATER. */
	int (*fd_restore)(struct fermata_desc *d, const void *record, size_t len);
	/* RECONNECT: for descriptions whose restore said FERMATA_FD_LATER: now a descriptor, or -errno. Names published
	 * by all processes in RECREATE can be resolved. */
	int (*fd_reconnect)(struct fermata_desc *d, const void *record, size_t len);
	/* REFILL: every descriptor of the job is in its place; put back contents. */
	int (*fd_refill)(struct fermata_desc *d, const void *record, size_t len);

	/* Resources that are not descriptors. Any of these may be NULL: nothing to do. */
	int (*quiesce)(void);	      /* stop producing */
	int (*drain)(unsigned int round); /* FERMATA_DRAINED, FERMATA_DRAIN_MORE or -errno */
	/* WRITE, before dump, in it and in resume (fermata_signals_take): of each signal that has been waiting for the process or a thread: 1: mine, and it waits
	 * again after resume or recreate by my doing; 0: the agent puts it back. */
	int (*signal_claim)(const siginfo_t *info);
	int (*dump)(struct fermata_sink *sink);
	void (*resume)(void);	      /* checkpoint over or failed, the job goes on. Touch as little as can be. */
	int (*numbers)(int (*hold)(int fd)); /* restart, before all else: calls @hold for each number to which recreate moves a descriptor of a device; stops at its first -errno */
	int (*recreate)(const void *record, size_t len); /* restart; may publish names */
	int (*learn)(void);	      /* restart; names can be resolved */
	int (*reconnect)(void);	      /* restart; all have learnt */
	int (*refill)(void);	      /* restart; all peers are connected */
	void (*restarted)(void);      /* restart; every peer is through with refill */
	void (*watched)(void);	      /* restart; the watch thread has closed its copies of the program's descriptors. Last call before the program's threads go on */

	/*
	 * Files of a device that its library stands in for. Called from the wrappers of open, write, fstat and close, in the program's threads
	 * and outside of enter; -errno or the call's own answer, or FERMATA_NOT_MINE: the wrapper goes on to the kernel. The descriptor has to be
	 * made in a device call: only such ones are offered to the last three. file_write may wait, outside of enter.
	 */
	int (*file_open)(const char *path, int flags);
	long (*file_write)(int fd, const void *data, size_t n);
	int (*file_stat)(int fd, struct stat *st); /* behind the true one: corrects it */
	int (*file_close)(int fd);
	/* Below /dev and /sys/class, after the kernel has found nothing (stat, access): 0 and *ret, or FERMATA_NOT_MINE. */
	int (*path_stat)(const char *path, struct stat *ret);
	/* Of what is opened by a path below /proc, in the program's threads and outside of enter: a descriptor of the program's, -errno, or FERMATA_NOT_MINE. */
	int (*proc_open)(const char *path, int flags);
	/* write() of a device's library to a descriptor of its own, in a life in which each thread of the process has credentials of its own: in place of the
	 * kernel's. Answers as file_write. */
	long (*device_write)(int fd, const void *data, size_t n);
};

#define FERMATA_FD_LATER (-4096)
#define FERMATA_NOT_MINE (-4097)

/* ---- services of the agent ---- */

/* Appends to the record being dumped. */
int fermata_sink_write(struct fermata_sink *sink, const void *data, size_t len);

/* The text that the user will read; the first one in a phase is kept. At most 400 bytes. Returns @err. */
int fermata_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * What a drain that says FERMATA_DRAIN_MORE waits for, for the text of its time-out; the first one in a round is kept. At most 150 bytes.
 * Worth it in the later rounds only.
 */
void fermata_waits(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * From fd_unpack: @fd, which has just been made, is one of the program's for this checkpoint and its restart; the agent closes it. Drop, from
 * refill: now, as it is not needed here.
 */
int fermata_fd_found(int fd);
void fermata_fd_drop(int fd);

/* From dump and resume: takes signal @sig once more, which may have come to wait for the process (@tid 0) or that thread since. 0 or -errno. */
int fermata_signals_take(int tid, int sig);
/* Whether the last timer_settime of timer @id (the kernel's number) gave it a moment, not a span. */
int fermata_timer_is_absolute(int id);

/* The @nth path that the program has given to inotify_add_watch for a watch of number @wd, or NULL; flags: those of the call that the kernel may not tell. */
const char *fermata_inotify_path(int wd, unsigned int nth, uint32_t *ret_flags);

/* Memory that is saved and restored with the process, without malloc. Zeroed. NULL when out of memory. */
void *fermata_alloc(size_t size);
void fermata_free(void *p);

/*
 * The name service: a multimap from key to values. Publish and ask in any hook; all of a phase travel in one message,
 * and what was asked for can be resolved from the next phase (or drain round) on. Keys up to 64 bytes, values up to
 * 1024. Names live until the job resumes. A key carries its plugin's name first: "verbs/qp/..".
 *
 * These are names of the host: a job may have several, and a pid, an inode, a loopback address, an abstract name, a System V id of one is something else on
 * another. The host is the one that the process first came into the job on; so what was written down at a checkpoint means the same at a restart, wherever that is.
 */
int fermata_publish(const void *key, size_t keylen, const void *value, size_t len);
int fermata_ask(const void *key, size_t keylen);
/* The @index-th value of a key asked for before, or NULL. */
const void *fermata_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len);

/*
 * Names of the whole job, apart from those of any host: for what hosts know each other by (addresses of a fabric, of IP but for loopback). No number of one machine
 * may be in such a key, nor be compared from such a value, but by who finds that fermata_host() is the same there.
 */
int fermata_job_publish(const void *key, size_t keylen, const void *value, size_t len);
int fermata_job_ask(const void *key, size_t keylen);
const void *fermata_job_resolve(const void *key, size_t keylen, unsigned int index, size_t *ret_len);
/* The number of this process's host, and of this process (never 0; 0 in a child that has not joined yet), in this life of the job: for values. */
uint32_t fermata_host(void);
uint32_t fermata_member(void);
/* The number of this machine and pid namespace (base/host_id.h), where the process runs now. */
uint64_t fermata_where(void);

/*
 * What all processes of the job learn alike at a restart, made once for a host. lead, in RECREATE: 1: this process makes it, and asks for what that takes; 0: another
 * does. write, by that one, in learn. map, in RECONNECT, or in enter in a program that is begun after the restart: 1, and it is in memory until the next restart; 0:
 * there is none. Or -errno, said already. By @name, which coordinator/rundir.c lists.
 */
int fermata_common_lead(const char *name);
int fermata_common_write(const char *name, const void *data, size_t len);
int fermata_common_map(const char *name, const void **ret, size_t *ret_len);
long fermata_common_read(const char *name, uint64_t offset, void *buf, size_t size); /* for what is looked at seldom: bytes; 0 at its end, and if there is none. In enter */

/*
 * Whether some process of the job maps a file shared that has no name that lasts: its memory comes back as an object of its own. Asked in
 * claim, answered from the drain on: 0; 1; or 2, when every byte of it is mapped by some process. Such a file the restart makes before any process, as a
 * descriptor of the capsule's first process (base/shared_name.h).
 */
int fermata_ask_mapped(const struct stat *st);
int fermata_is_mapped(const struct stat *st);
/* Of such a file: the first bytes from *@start on that no process maps, up to *@end. 1, or 0: there are none. */
int fermata_next_unmapped(const struct stat *st, uint64_t *start, uint64_t *end);

/*
 * The content of a regular file that has no name. keep, in claim: the checkpoint takes it, but for what is mapped of it, once: of all processes that ask, the lowest pid saves it. put, in
 * RECREATE, in that one: writes it to @fd, an empty file or the mapped memory's object, and gives that its size; of a file that is mapped in whole there is nothing to write. 0 or -errno, said.
 */
int fermata_content_keep(const struct fermata_desc *d);
int fermata_content_put(const struct fermata_desc *d, uint64_t dev, uint64_t ino, int fd);

/*
 * In a restart: where @path, which is of a record, is now (fermata restart --map): @path itself, or in @buf. Whatever is opened, bound to or made by such a path is asked for; what
 * comes out is not asked for again. NULL: it does not fit, which has been said.
 */
const char *fermata_path_now(const char *path, char *buf, size_t size);
/* Where libfermata.so lies, and with it the other libraries; empty: it is not known. */
const char *fermata_libdir(void);

/* At a restart: a standard output whose file is longer than at the checkpoint goes on at its end: others write to it, and it was not put back. */
int fermata_outputs_at_end(void);

/*
 * System V semaphores and message queues. noted: the @nth one that the program has asked for by its key or made; 1, 0 past the last, -errno, said. Of a set also when the
 * program last set all its values (CLOCK_MONOTONIC; 0: never) or changed its time of change (seconds of CLOCK_REALTIME). forget: it is there no more.
 */
enum { FERMATA_SYSV_SEMAPHORES, FERMATA_SYSV_QUEUES, FERMATA_SYSV_KINDS };
struct fermata_sysv_note {
	int32_t id;
	uint64_t cleared_ns;
	int64_t changed_s;
};
int fermata_sysv_noted(int kind, unsigned int nth, struct fermata_sysv_note *ret);
void fermata_sysv_forget(int kind, int id);

/* What the kernel will add to semaphores when this process ends (SEM_UNDO), as noted. restarted: the notes are as of now. */
struct fermata_undo {
	int32_t id;
	uint16_t number;
	int16_t value;
	uint64_t since_ns; /* CLOCK_MONOTONIC: it has been other than 0 from then on */
};
int fermata_undo_noted(unsigned int nth, struct fermata_undo *ret);
int fermata_cleared_noted(int id, unsigned int nth, struct fermata_undo *ret); /* since_ns: when this process last set its value */
void fermata_undo_forget(int id);
void fermata_undo_restarted(void);

/*
 * POSIX message queues. name: the @nth name (without its slash) that the program has opened and not unlinked; 1, 0 past the last, -errno, said. forget: there is no such queue. What a
 * registration (mq_notify) for the queue of that inode carries: 1, or 0: it is not known.
 */
struct fermata_mqueue_notify {
	int32_t notify; /* SIGEV_SIGNAL, SIGEV_NONE */
	int32_t signal;
	uint64_t value;
};
int fermata_mqueue_name(unsigned int nth, const char **ret);
void fermata_mqueue_forget(const char *name);
int fermata_mqueue_notify_noted(uint64_t ino, struct fermata_mqueue_notify *ret);
void fermata_mqueue_notify_note(uint64_t ino, const struct fermata_mqueue_notify *what);

/* 1: a unix socket was bound by a relative name, for all that is known, from another directory than the present one. */
int fermata_bound_elsewhere(void);

/* The program's process id; the same before and after a restart. */
uint32_t fermata_pid(void);
/* Counts the restarts that this process has been through; 0 in its first life. */
uint32_t fermata_generation(void);
/* In a restart: who has the job's shared memory open, as /proc names it. */
uint32_t fermata_init_pid(void);
int fermata_in_capsule(void); /* 1: restarted in namespaces of its own: what its IPC namespace has is the job's */
/* 1 inside a process that runs under a coordinator; 0: loaded, but no job (wrappers then pass through). */
int fermata_active(void);
/* The pid that SO_PEERCRED of the unix socket @fd tells the program, or -errno; 0: of no process. */
int fermata_peer_pid(int fd);
/* In a restart, when it is connected: it is told @pid again. 0 or -errno. */
int fermata_peer_restore(int fd, int pid);
/* What becomes of connections that lead out of the job (--external), at this checkpoint. RECONNECT is ERROR, and more: those that nobody has accepted yet are left out. */
enum { FERMATA_EXTERNAL_FAIL, FERMATA_EXTERNAL_ERROR, FERMATA_EXTERNAL_RECONNECT };
int fermata_option_external(void);
/* What the job's programs have from whoever began it or restarts it: base/begun.h. */
struct begun;
const struct begun *fermata_begun(void);
/* From fd_restore: the master, close-on-exec, that `fermata restart` has made for number @fd of this process, the caller's from now on; -EBADF: none. */
int fermata_terminal_inherited(int fd);
/* What `launch --rdma` said: "auto", "system" or "soft". */
const char *fermata_option_rdma(void);

/*
 * Gives the device descriptor @fd (made inside a device call) the number @want, closing what is there, and keeps it
 * device-owned. At restart a program finds its completion channel under the number that it knows. 0 or -errno.
 */
int fermata_device_fd_move(int fd, int want);

/* @fd is the device's: the kernel has made it on a device's request, so no wrapper has seen it. In the device call that made it. */
void fermata_device_fd_note(int fd);

/*
 * mmap and munmap of a device's memory, for a library that lets itself be told what to call. By their libc names they may lead past the
 * agent's wrappers: UCX writes a jump over the first instructions of whatever function has those names.
 */
void *fermata_device_map(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int fermata_device_unmap(void *at, size_t len);

/*
 * For a library that needs libc: malloc, stdio, dlopen, thread-local memory (agent/libc_state.c argues it). reserve: in a thread of the program, outside of
 * enter: from now on no stopped thread holds a lock that such a library may want; @surely: a checkpoint for which that cannot be had
 * fails, else it is only noted. borrow: at a restart, in RECREATE or later, before such a library is called or loaded; 0, or -errno with its
 * cause named. return: in `restarted`; @library: of dlopen.
 */
void fermata_libc_reserve(int surely);
int fermata_libc_borrow(void);
void fermata_libc_return(void *library);
