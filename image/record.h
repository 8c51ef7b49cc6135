/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the vendor notes of an image hold (doc/image-format.md): plain, fixed-width, little-endian. All addresses are those of
 * the saved process. Fields are only added at the end of a struct; a reader takes more bytes than it knows.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"

#define IMAGE_NOTE_OWNER "FERMATA"
#define IMAGE_VERSION 2u

enum image_note {
	IMAGE_NOTE_VERSION = 0x46524d01, /* struct image_version; always the first note */
	IMAGE_NOTE_PROCESS = 0x46524d02, /* struct image_process */
	IMAGE_NOTE_THREAD = 0x46524d03,	 /* struct image_thread, one a thread */
	IMAGE_NOTE_MAPPINGS = 0x46524d04, /* struct image_mappings, the entries, then the paths, NUL-ended */
	IMAGE_NOTE_SIGNALS = 0x46524d05, /* struct image_sigaction[64]: signals 1 to 64 */
	IMAGE_NOTE_CPU = 0x46524d06,	 /* struct image_cpu */
	IMAGE_NOTE_HOST = 0x46524d07,	 /* struct image_host */
	IMAGE_NOTE_RESOURCE = 0x46524d08, /* struct image_resource, then a plugin's record */
	IMAGE_NOTE_BLOCKS = 0x46524d09,	 /* struct image_blocks, then the checksums */
	IMAGE_NOTE_ZOMBIES = 0x46524d0a, /* struct image_zombie array: children that have ended and are not waited for */
	IMAGE_NOTE_SYSV = 0x46524d0b, /* struct image_sysv array, by ascending id: the System V segments of its mappings, and those it leads */
	IMAGE_NOTE_CONTENTS = 0x46524d0c, /* struct image_contents, the entries, then the texts, NUL-ended */
	IMAGE_NOTE_ZOMBIE_GROUPS = 0x46524d0d, /* struct image_group array: those of ZOMBIES, one each, in the same order */
};

struct image_version {
	uint32_t version; /* IMAGE_VERSION; a reader refuses a greater one */
	uint32_t minor;	  /* greater: unknown notes and fields may be skipped */
	char writer[32];  /* "fermata 0.1" */
};

/* The mm's fields as PR_SET_MM_MAP takes them (kernel commit f606b77f1a9e). */
struct image_mm {
	uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack;
	uint64_t arg_start, arg_end, env_start, env_end;
};

struct image_timer { /* an itimer, microseconds */
	uint64_t interval_us, value_us;
};

struct image_process {
	uint32_t pid, ppid, pgid, sid;
	uint32_t uid, gid, umask, thread_count;
	uint64_t monotonic_ns, boottime_ns, realtime_ns; /* clocks at the moment of the checkpoint */
	uint64_t vdso_start, vdso_end; /* [vdso] */
	uint64_t vvar_start, vvar_end; /* [vvar] to the end of [vvar_vclock], directly below the vdso */
	uint64_t restart_info; /* address of struct agent's struct image_restart: filled in by the restorer */
	struct image_mm mm;
	struct image_timer timers[3]; /* ITIMER_REAL, VIRTUAL, PROF */
	uint64_t pending; /* signals pending for the process: bit N-1 for signal N; the agent has their values and queues them */
	char comm[16];
	char exe[512];
	char cwd[512];
	uint32_t auxv_length; /* bytes used in auxv */
	uint32_t generation;
	uint8_t auxv[512];
	uint8_t boot_id[40];
	uint32_t dumpable, no_new_privs;
	uint32_t restart_info_size; /* bytes at restart_info; 0: those in front of image_restart.capsule */
	uint32_t foreground; /* 1: its group was the foreground of a terminal that leads out of the job */
	uint32_t execute_only_key; /* the protection key that the kernel has taken for memory which can only be executed; 0: none */
	uint32_t huge_at_end; /* 1: its agent lets it have huge pages again (PR_SET_THP_DISABLE), when advice for memory is given */
	uint32_t outer_known;	       /* 1: the two that follow are */
	uint32_t outer_pgid, outer_sid; /* group and session of whoever began or restarted the job here, as the job sees them */
	uint32_t terminal; /* the controlling one's device, as /proc/PID/stat has it; UINT32_MAX: none; 0: not known */
	uint32_t stopped;  /* the signal that has stopped it; 0: it runs */
	uint32_t cwd_deleted; /* 1: it had been deleted, which cwd says at its end; 0: it had not, or not known */
};

/* Where a thread goes on: a setjmp within the agent; its full state is in the signal frame on its stack. */
struct image_context {
	uint64_t rbx, rbp, r12, r13, r14, r15, rsp, rip;
};

enum { IMAGE_THREAD_LEADER = 1, IMAGE_THREAD_AGENT = 2 /* the checkpoint thread: goes on first */ };

struct image_thread {
	uint32_t tid, flags;
	struct image_context context; /* entered with rax = 1 */
	uint64_t fs_base, gs_base;
	uint64_t robust_list, robust_length;
	uint64_t clear_child_tid;
	uint64_t rseq;
	uint32_t rseq_length, rseq_signature; /* length 0: not registered */
	uint64_t sigmask; /* while it stands in the agent; the program's own mask is in its signal frame */
	uint64_t pending; /* signals pending for this thread, which the restorer sends it */
	uint64_t altstack_sp, altstack_size;
	uint32_t altstack_flags;
	uint32_t speculation; /* speculation_note() */
	char comm[16];
	uint64_t user_regs[27]; /* struct user_regs_struct of the program's interrupted code, for debuggers */
	uint64_t queued; /* signals pending for this thread, which it queues itself: the agent has their values */
	uint64_t timer_slack_ns; /* 0: not known */
	uint32_t death_signal; /* when its parent ends (PR_SET_PDEATHSIG); 0: none */
	uint32_t personality;
	uint32_t memory_policy; /* MPOL_* and its flags: where its new pages come from */
	uint32_t machine_check; /* 1 + PR_MCE_KILL_*: whether it is told of broken memory early; 0: not known */
	uint8_t memory_nodes[128]; /* of that: bit N of byte N / 8 */
};

enum image_mapping_kind {
	IMAGE_MAPPING_ANON = 1,	  /* private anonymous (also heap and stacks) */
	IMAGE_MAPPING_FILE = 2,	  /* private, of a file: unsaved pages come from the file, and so may those that are saved and unchanged (IMAGE_SEGMENT_CLEAN) */
	IMAGE_MAPPING_SHARED_FILE = 3, /* shared, of a named file on disk: the file is the content */
	IMAGE_MAPPING_SHARED_ANON = 4, /* shared memory without a name that lasts, of the object (dev, ino); its pages are
					* saved once in the whole checkpoint, in the image of the process that led */
	IMAGE_MAPPING_VDSO = 5,	  /* [vvar], [vvar_vclock], [vdso]: moved, never written */
	IMAGE_MAPPING_SYSV = 6,	  /* of the System V segment whose id is ino, attached at start - offset; its pages are saved once */
};

struct image_mappings {
	uint32_t count;
	uint32_t entry_size; /* bytes of an entry: sizeof(struct image_mapping) of the writer */
	uint64_t paths_length;
};

/* NAMED: a SHARED_ANON object that has a path (a file in memory, of /dev/shm, say): made anew there, with file_size bytes. */
enum {
	IMAGE_MAPPING_GROWSDOWN = 1,
	IMAGE_MAPPING_NORESERVE = 2,
	IMAGE_MAPPING_NAMED = 4,
	IMAGE_MAPPING_READONLY = 8,   /* SYSV: attached with SHM_RDONLY */
	IMAGE_MAPPING_TRANSIENT = 16, /* SYSV: attached for its pages' sake only; not the program's, and gone when they are read */
	IMAGE_MAPPING_WHOLE = 32,     /* of a file, which may be deleted: all pages that it has are saved; those behind its end none can read */
};
/* A program header's flag, of those left to an operating system: these pages are as the file has them. */
#define IMAGE_SEGMENT_CLEAN 0x00100000u
#define IMAGE_MAPPING_PAGE_SHIFT 8  /* ANON, SHARED_ANON, SYSV: log2 of the size of its huge pages, in the flags; 0: ordinary ones */
#define IMAGE_MAPPING_MODE_SHIFT 16 /* NAMED: its permissions, in the flags */

struct image_mapping {
	uint64_t start, end;
	uint32_t kind, prot, flags; /* PROT_*, IMAGE_MAPPING_* flags */
	uint32_t path; /* offset into the paths; 0: none (the paths begin with a NUL) */
	uint64_t offset; /* into the file or object, bytes */
	uint64_t dev, ino;
	uint64_t file_size, file_mtime_ns; /* FILE kinds: what restart compares; NAMED: the size */
};

static inline uint32_t image_mapping_page_shift(const struct image_mapping *m)
{
	return m->flags >> IMAGE_MAPPING_PAGE_SHIFT & 63;
}

struct image_sigaction { /* the kernel's struct sigaction on x86-64 */
	uint64_t handler, flags, restorer, mask;
};

struct image_zombie {
	uint32_t pid;
	uint32_t status; /* as wait(2) gives it */
};

struct image_group {
	uint32_t pgid, sid;
};

struct image_sysv { /* as IPC_STAT tells of it */
	int32_t id, key;
	uint64_t size;
	uint32_t mode; /* permissions, SHM_DEST, SHM_LOCKED */
	uint32_t uid, gid, cuid, cgid;
	int32_t cpid, lpid;
	uint32_t page_shift; /* log2 of the size of its huge pages; 0: ordinary ones */
};

/* As far as an attachment of it reaches, in bytes. */
static inline uint64_t image_sysv_room(const struct image_sysv *s)
{
	return ALIGN_UP(s->size, s->page_shift ? 1ull << s->page_shift : (uint64_t)FM_PAGE_SIZE);
}

struct image_cpu {
	char vendor[16];
	char model[48];
	uint64_t xcr0;	    /* XSAVE features that the kernel has enabled */
	uint32_t xsave_size; /* bytes of a standard-format XSAVE area */
	uint32_t leaf1_ecx, leaf1_edx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, leaf81_ecx, leaf81_edx;
	uint32_t reserved;
	uint32_t xsave_offset[32]; /* of component N in a standard-format XSAVE area; 0: the CPU has none */
};

struct image_host {
	char hostname[64]; /* that the process came into the job on; the other fields are the machine's at the checkpoint */
	char kernel[64];  /* uname release */
	char glibc[16];
	uint32_t page_size, reserved;
	uint8_t vdso_digest[16]; /* XXH3-128 over the bytes of [vdso]: equal or the kernels differ */
};

struct image_resource {
	char plugin[16];
	uint32_t kind;	/* IMAGE_RESOURCE_* */
	uint32_t length; /* bytes of the record that follow */
	uint32_t desc_id, fd_count; /* DESC: fd_count struct image_fd follow the record, 8-aligned */
};
enum {
	IMAGE_RESOURCE_PLAIN = 1, /* a plugin's dump() */
	IMAGE_RESOURCE_DESC = 2,  /* one open file description that this process leads */
	IMAGE_RESOURCE_FOREIGN = 3, /* descriptors whose description another process leads: struct image_foreign */
};

struct image_fd {
	int32_t fd;
	uint32_t flags; /* FD_CLOEXEC */
};

struct image_foreign {
	uint32_t leader_pid;
	int32_t leader_fd;
};

struct image_blocks {
	uint32_t block_size; /* bytes; 1 MiB */
	uint32_t reserved;
	uint64_t count;	     /* block N covers file bytes [N * size, (N+1) * size) of the data area; XXH3-64 each */
	uint64_t data_start; /* file offset of block 0; page-aligned */
	uint64_t data_end;   /* file offset where the last block ends */
	uint8_t head_digest[16]; /* XXH3-128 over file bytes [0, data_start), this struct with zeros here, the checksums */
};

struct image_contents {
	uint32_t count;
	uint32_t entry_size; /* bytes of an entry: sizeof(struct image_content) of the writer */
	uint64_t texts_length;
};

enum image_content_kind {
	IMAGE_CONTENT_STATED = 1, /* only read here: size and time of change are known */
	IMAGE_CONTENT_SUMMED = 2, /* written here: its sum is known, too */
	IMAGE_CONTENT_SAVED = 3,  /* written here: a file of the checkpoint holds its content */
	IMAGE_CONTENT_DELETED = 4, /* as SAVED, of a file without a name: who makes it again takes the content, whatever --files says */
};
enum {
	IMAGE_CONTENT_HAS_SUM = 1,
	IMAGE_CONTENT_STANDARD = 2, /* it is some process' standard output or error */
};

struct image_content { /* of a regular file that the process has open or mapped shared */
	uint64_t dev, ino;
	uint64_t size;
	int64_t mtime_sec;
	uint32_t mtime_nsec, mode;
	uint32_t uid, gid;
	uint32_t kind, flags;
	uint64_t sum;
	uint64_t bytes; /* SAVED, DELETED: of data, holes left out */
	uint32_t path, name; /* offsets into the texts, which begin with a NUL: where it is; SAVED, DELETED: the file of the checkpoint */
};

/* A file of the checkpoint holds its content. */
static inline bool image_content_is_saved(const struct image_content *c)
{
	return c->kind == IMAGE_CONTENT_SAVED || c->kind == IMAGE_CONTENT_DELETED;
}

/*
 * Left by `fermata restart` for the agent, at image_process.restart_info in the new process, before its first thread
 * goes on. A new agent takes any size.
 */
enum { IMAGE_TERMINAL_SETTINGS = 1, IMAGE_TERMINAL_FOREGROUND = 2 /* and whose group had it takes it */ };

struct image_restart {
	uint32_t size;
	uint32_t image_fd;     /* to be closed by the agent */
	uint64_t hole_start, hole_end; /* where the restorer lives: to be unmapped once every thread has left it */
	uint32_t threads_left; /* 0: only the agent can tell that a thread has left the hole, by its arrival in the agent */
	uint32_t stdio[3];     /* descriptors that stand for the old terminal or outside pipe: 0, 1, 2 of restart */
	uint32_t exe_fd;       /* in the plan: the program, for /proc/self/exe; UINT32_MAX once the restorer has set it */
	uint32_t caps;	       /* 1: the checkpoint thread holds the capsule's capabilities until it drops them; others do not */
	char rundir[108];      /* the new coordinator's directory: sock, key */
	uint32_t pause;	       /* 1: SIGSTOP before the threads go on */
	uint32_t outputs_at_end; /* 1: a standard output whose file is longer than it was goes on at its end */
	char rdma[16];	       /* auto, system or soft, from now on; empty: as before */
	uint64_t vdso_start;   /* where the kernel's is in this life */
	uint32_t capsule;      /* 1: the job has namespaces of its own, IPC among them */
	uint32_t init;	       /* the pid, as the job sees it, of the process that has its shared memory open */
	uint32_t part;	       /* 1: other processes of its host may be brought back elsewhere (--part) */
	uint32_t terminal;     /* IMAGE_TERMINAL_*, of the one among stdio; not 0: its settings are the job's to set */
	uint64_t path_map;     /* texts of base/path_map.h, in the hole */
	uint32_t path_map_length, terminal_count;
	uint64_t terminals;    /* struct image_terminal array, in the hole */
};

/* A descriptor of this process: of a terminal that was made before it, as a session has to begin with its terminal. */
struct image_terminal {
	uint32_t maker_pid; /* master: that was descriptor maker_fd of process maker_pid. 0: a slave, which keeps the session's terminal until all are open */
	int32_t maker_fd;
	uint32_t fd, reserved;
};

/* Widths are the format: a change here is a new field at an end, or a new version. */
_Static_assert(sizeof(struct image_version) == 40, "image format");
_Static_assert(sizeof(struct image_process) == 1888, "image format");
_Static_assert(sizeof(struct image_thread) == 560, "image format");
_Static_assert(sizeof(struct image_mappings) == 16, "image format");
_Static_assert(sizeof(struct image_mapping) == 72, "image format");
_Static_assert(sizeof(struct image_sigaction) == 32, "image format");
_Static_assert(sizeof(struct image_sysv) == 48, "image format");
_Static_assert(sizeof(struct image_cpu) == 240, "image format");
_Static_assert(sizeof(struct image_terminal) == 16, "image format");
_Static_assert(sizeof(struct image_host) == 168, "image format");
_Static_assert(sizeof(struct image_resource) == 32, "image format");
_Static_assert(sizeof(struct image_blocks) == 48, "image format");
_Static_assert(sizeof(struct image_contents) == 16, "image format");
_Static_assert(sizeof(struct image_content) == 80, "image format");
