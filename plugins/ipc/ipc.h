/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the ipc plugin share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "base/sys.h"
#include "fermata/plugin.h"
#include "plugins/ipc/ipc_record.h"

struct ipc_object {
	int kind; /* FERMATA_SYSV_* */
	int32_t id;
	bool leads; /* has the lowest pid of those who know it: saves it. From the dump on */
	bool undo;  /* some process has adjustments of it. From the dump on */
};

#define IPC_CLEARS 60

/* What each process that knows it says of it. */
struct ipc_publication {
	uint32_t pid;
	uint32_t undo; /* it has adjustments */
	uint64_t cleared_ns; /* when it last set all values of the set */
	int64_t changed_s;
	uint64_t clear_count;
	struct ipc_clear {
		uint64_t ns;
		uint64_t number;
	} clears[IPC_CLEARS]; /* or one value */
};

union ipc_state {
	struct ipc_perm owner; /* the first field of both */
	struct semid_ds set;
	struct msqid_ds queue;
	char room[256];
};

/* ---- ipc_find.c: which there are ---- */
int ipc_find(void);
void ipc_forget(void);
struct ipc_object *ipc_object_at(uint32_t index); /* NULL past the last */
struct ipc_object *ipc_object(int kind, int32_t id);
const char *ipc_name(int kind);
const struct ipc_publication *ipc_published(const struct ipc_object *o, unsigned int index);
int ipc_look(const struct ipc_object *o, union ipc_state *ret); /* 0, or -errno, said */
int ipc_check_namespaces(void);
void ipc_lead(struct ipc_object *o);
int ipc_check_owner(const struct ipc_object *o, const union ipc_state *s, struct ipc_owner *ret);

/* ---- ipc_user.c: who has used one ---- */
int ipc_user_init(void); /* in each life */
bool ipc_was_last_at(int kind, int32_t id, const union ipc_state *s); /* by the kernel this process was the last user of object @id, whose state is @s */
int64_t ipc_set_used_s(const struct semid_ds *set);
/* Refuses an object that process @pid was the last to use, in second @when of the real-time clock, if that lives and is not of the job. */
int ipc_check_user(const struct ipc_object *o, int32_t pid, int64_t when);

/* ---- what a record holds of them ---- */
int ipc_set_dump(const struct ipc_object *o, struct fermata_sink *sink);
int ipc_queue_dump(const struct ipc_object *o, struct fermata_sink *sink);
int ipc_undo_dump(struct fermata_sink *sink);

/* ---- ipc_undo.c: at a restart ---- */
int ipc_undo_make(const struct ipc_adjustment *a, uint32_t count);
int ipc_undo_touch(const struct ipc_adjustment *a, uint32_t count);
