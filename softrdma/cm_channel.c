/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the table of rdma_cm channels, which is state of the process (cm.h says why; cm_process.c makes it). A channel is an epoll descriptor over the sockets of its ids and over an eventfd that is readable while
 * events are queued: so it polls readable when there may be something to get.
 *
 * Invariants: cm_process is NULL exactly when this process has no channel. A descriptor's bit in @fds is set exactly
 * while cm_process->channel has it, except where a program has closed it by other ways than close(2)'s name
 * (close_range, dup2 onto it): each command first makes sure that the descriptor is still the epoll descriptor that was made.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

#define TAKING_OVER -1

static _Atomic int owner; /* the process that cm_process and @fds are of; 0: nobody's yet */
static _Atomic uint64_t fds[CM_MAX_FD / 64];
static uint64_t last_serial; /* under cm_lock */

EXPORT int softrdma_cm_is_channel(int fd)
{
	return fd >= 0 && fd < (int)CM_MAX_FD &&
	       (atomic_load_explicit(&fds[fd / 64], memory_order_relaxed) >> (fd % 64) & 1);
}

static void fd_mark(int fd, int is_channel)
{
	uint64_t bit = 1ull << (fd % 64);

	if (is_channel)
		atomic_fetch_or(&fds[fd / 64], bit);
	else
		atomic_fetch_and(&fds[fd / 64], ~bit);
}

/* ---- whose they are ---- */

static int is_owner(void)
{
	return atomic_load(&owner) == raw_getpid();
}

/* What a fork has brought from the parent is the parent's, its lock too, whoever held that. */
static void process_take_over(void)
{
	int me = raw_getpid(), before = atomic_load(&owner);

	while (before != me) {
		if (before == TAKING_OVER) {
			RAW0(SYS_sched_yield);
			before = atomic_load(&owner);
		} else if (atomic_compare_exchange_strong(&owner, &before, TAKING_OVER)) {
			cm_process = NULL;
			for (size_t i = 0; i < CM_MAX_FD / 64; i++)
				atomic_store(&fds[i], 0);
			atomic_store(&cm_lock.word, 0);
			atomic_store(&owner, me);
			return;
		}
	}
}

/* ---- channels ---- */

/* Is the descriptor still the one that was made? Only that one has our eventfd in its set. */
static int still_there(struct cm_channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return RAW4(SYS_epoll_ctl, ch->fd, EPOLL_CTL_ADD, ch->event_fd, &ev) == -EEXIST;
}

static void channel_free(struct cm_channel *ch)
{
	struct cm_process *p = cm_process;

	fd_mark(ch->fd, 0);
	if (p->channel[ch->fd] == ch)
		p->channel[ch->fd] = NULL;
	while (!list_empty(&ch->ids))
		cm_id_destroy(container_of(ch->ids.next, struct cm_id, link));
	if (ch->timer_fd >= 0)
		close(ch->timer_fd);
	close(ch->event_fd);
	list_del(&ch->link);
	arena_free(&p->arena, ch);
	if (!list_empty(&p->channels))
		return;
	cm_process = NULL;
	cm_process_free(p);
}

struct cm_channel *cm_channel_find(int fd)
{
	struct cm_channel *ch;

	if (!softrdma_cm_is_channel(fd) || !cm_process)
		return NULL;
	ch = cm_process->channel[fd];
	if (!ch || still_there(ch))
		return ch;
	channel_free(ch);
	return NULL;
}

static int watch(struct cm_channel *ch, int sock, uint32_t events, uint32_t handle)
{
	struct epoll_event ev = { .events = events, .data.u32 = handle };

	return (int)RAW4(SYS_epoll_ctl, ch->fd, EPOLL_CTL_ADD, sock, &ev);
}

int cm_watch(struct cm_channel *ch, int sock, uint32_t handle)
{
	return watch(ch, sock, EPOLLIN, handle);
}

int cm_watch_dial(struct cm_channel *ch, int sock, uint32_t handle)
{
	return watch(ch, sock, EPOLLOUT, handle);
}

void cm_unwatch(struct cm_channel *ch, int sock)
{
	struct epoll_event ev = { 0 };

	RAW4(SYS_epoll_ctl, ch->fd, EPOLL_CTL_DEL, sock, &ev);
}

static int channel_fds(struct cm_channel *ch, int flags)
{
	int err;

	ch->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->event_fd < 0)
		return -errno;
	ch->fd = epoll_create1(EPOLL_CLOEXEC);
	if (ch->fd < 0)
		return -errno;
	err = ch->fd < (int)CM_MAX_FD ? cm_watch(ch, ch->event_fd, CM_EVENT_HANDLE) : -EMFILE;
	if (!err && (flags & O_NONBLOCK))
		err = raw_fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	if (!err && !(flags & O_CLOEXEC))
		err = raw_fcntl(ch->fd, F_SETFD, 0);
	if (err)
		close(ch->fd);
	return err;
}

static int channel_make(int flags)
{
	struct cm_channel *ch = arena_alloc(&cm_process->arena, sizeof(*ch));
	int err;

	if (!ch)
		return -ENOMEM;
	list_init(&ch->ids);
	list_init(&ch->pending);
	list_init(&ch->events);
	list_init(&ch->waiting);
	ch->event_fd = ch->timer_fd = -1;
	ch->serial = ++last_serial;
	err = channel_fds(ch, flags);
	if (err) {
		if (ch->event_fd >= 0)
			close(ch->event_fd);
		arena_free(&cm_process->arena, ch);
		return err;
	}
	/* One that was closed behind our back had this number. */
	if (cm_process->channel[ch->fd])
		channel_free(cm_process->channel[ch->fd]);
	list_add_tail(&cm_process->channels, &ch->link);
	cm_process->channel[ch->fd] = ch;
	fd_mark(ch->fd, 1);
	return ch->fd;
}

int cm_process_anew(void)
{
	cm_process = NULL;
	for (size_t i = 0; i < CM_MAX_FD / 64; i++)
		atomic_store(&fds[i], 0);
	atomic_store(&cm_lock.word, 0);
	atomic_store(&owner, raw_getpid());
	last_serial = 0;
	return cm_process_make();
}

int cm_channel_again(int fd, uint32_t status, uint32_t fd_flags, uint64_t serial, struct cm_channel **ret)
{
	int made = channel_make((int)((status & O_NONBLOCK) | O_CLOEXEC)), r = made;
	struct cm_channel *ch;

	if (made < 0)
		return made;
	ch = cm_process->channel[made];
	if (made != fd) {
		r = dup3(made, fd, O_CLOEXEC) < 0 ? -errno : 0;
		cm_process->channel[made] = NULL;
		fd_mark(made, 0);
		close(made);
	}
	if (r < 0)
		return r;
	r = raw_fcntl(fd, F_SETFD, (long)fd_flags);
	ch->fd = fd;
	ch->serial = serial;
	last_serial = serial > last_serial ? serial : last_serial;
	cm_process->channel[fd] = ch;
	fd_mark(fd, 1);
	*ret = ch;
	return r;
}

int cm_channel_is_own(int fd)
{
	return softrdma_cm_is_channel(fd) && is_owner();
}

EXPORT int softrdma_cm_open(const char *path, int flags)
{
	int r;

	if (!path || strcmp(path, CM_PATH))
		return -ENOTTY;
	process_take_over();
	lock_acquire(&cm_lock);
	r = cm_process ? 0 : cm_process_make();
	if (!r) {
		r = channel_make(flags);
		if (r < 0 && list_empty(&cm_process->channels)) {
			cm_process_free(cm_process);
			cm_process = NULL;
		}
	}
	lock_release(&cm_lock);
	return r;
}

EXPORT int softrdma_cm_close(int fd)
{
	struct cm_channel *ch;

	if (!cm_channel_is_own(fd))
		return -ENOTTY;
	lock_acquire(&cm_lock);
	ch = cm_channel_find(fd);
	if (ch) {
		channel_free(ch);
		close(fd);
	}
	lock_release(&cm_lock);
	return ch ? 0 : -ENOTTY;
}

EXPORT long softrdma_cm_command(int fd, const void *buf, size_t n, uint64_t *channel)
{
	struct cm_channel *ch;
	long r = *channel ? -ESTALE : -ENOTTY;

	if (!cm_channel_is_own(fd))
		return r;
	lock_acquire(&cm_lock);
	ch = cm_channel_find(fd);
	if (ch && (!*channel || *channel == ch->serial)) {
		*channel = ch->serial;
		r = cm_command(ch, buf, n);
	}
	lock_release(&cm_lock);
	return r;
}

/* For who has to know what a process holds. Takes no lock: nobody may be in a call. */
EXPORT int softrdma_cm_next(int fd)
{
	while (++fd < (int)CM_MAX_FD) {
		if (!fds[fd / 64] && !(fd % 64))
			fd += 63;
		else if (softrdma_cm_is_channel(fd) && is_owner() && cm_process && cm_process->channel[fd] &&
			 still_there(cm_process->channel[fd]))
			return fd;
	}
	return -1;
}
