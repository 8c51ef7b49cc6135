/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports, and the listeners on them.
 *
 * A port in use is a lock on a stretch of the file DIR/cm-ports, so it goes with its process, and nothing has to be
 * cleaned up. The file has no contents; an offset in it is
 *
 *   port space << 48 | port << 32 | slot      slot: the address, hashed; one half each for IPv4 and IPv6
 *
 * One address locks its slot, "any" locks its half, and IPv6's "any" that takes IPv4 too locks both. Ids that may
 * share an address (SO_REUSEADDR's like) lock for reading, until one listens. Locks of one open file do not shut each
 * other out, so the ids of this process are compared one by one (cm_process->bound).
 *
 * A listener is a SOCK_SEQPACKET socket named DIR/cm-P-PORT-ADDRESS. Only who holds the port's lock makes or
 * removes that name, so a name left by a dead process is in nobody's way. All under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

#define EPHEMERAL_FIRST 32768u
#define EPHEMERAL_COUNT 28232u
#define HALF (1ull << 31)

/* What a listener's name says instead of an address. */
#define ANY4 1ull
#define ANY6 2ull
#define ANY_BOTH 3ull
#define ANY_IB 4ull

uint32_t cm_port_space(uint16_t ps, const union cm_addr *a)
{
	uint32_t i = ps == RDMA_PS_TCP ? 0 : ps == RDMA_PS_UDP ? 1 : ps == RDMA_PS_IPOIB ? 2 : 3;

	return a->family == AF_IB ? i + 4 : i;
}

static int takes_both(const struct cm_id *id, const union cm_addr *a)
{
	return a->family == AF_INET6 && cm_address_any(a) && !id->afonly;
}

/* The stretch of the file that @id has when it is at @a. */
static struct flock stretch(const struct cm_id *id, const union cm_addr *a, short type)
{
	uint64_t at = (uint64_t)cm_port_space(id->ps, a) << 48 | (uint64_t)cm_address_port(a) << 32, len = 1;

	if (takes_both(id, a))
		len = 2 * HALF;
	else if (a->family != AF_INET)
		at += HALF;
	if (!takes_both(id, a) && cm_address_any(a))
		len = HALF;
	else if (!takes_both(id, a))
		at += cm_address_hash(a) & (HALF - 1);
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = (off_t)len };
}

static int lock_set(struct flock fl)
{
	return raw_fcntl(cm_process->ports_fd, F_OFD_SETLK, (long)&fl);
}

static int overlap(const struct flock *a, const struct flock *b)
{
	return a->l_start < b->l_start + b->l_len && b->l_start < a->l_start + a->l_len;
}

/* An id of this process that has it already and would not share it. */
static int taken_here(struct cm_id *id, const union cm_addr *a, int share)
{
	struct flock want = stretch(id, a, F_WRLCK), has;
	struct cm_id *other;

	list_each(other, &cm_process->bound, bound_link) {
		if (other == id)
			continue;
		has = stretch(other, &other->claim, F_WRLCK);
		if (overlap(&want, &has) && !(share && other->claim_shared))
			return 1;
	}
	return 0;
}

static int claim(struct cm_id *id, const union cm_addr *a)
{
	int err;

	if (taken_here(id, a, id->reuse))
		return -EADDRINUSE;
	err = lock_set(stretch(id, a, id->reuse ? F_RDLCK : F_WRLCK));
	if (err)
		return err == -EAGAIN || err == -EACCES ? -EADDRINUSE : err;
	id->src = id->claim = *a;
	id->claim_shared = id->reuse;
	list_add_tail(&cm_process->bound, &id->bound_link);
	return 0;
}

static int claim_any_port(struct cm_id *id, union cm_addr *a)
{
	uint32_t first = cm_random(), i;
	int err;

	for (i = 0; i < EPHEMERAL_COUNT; i++) {
		cm_address_set_port(a, (uint16_t)(EPHEMERAL_FIRST + (first + i) % EPHEMERAL_COUNT));
		err = claim(id, a);
		if (err != -EADDRINUSE)
			return err;
	}
	return -EADDRNOTAVAIL;
}

int cm_port_bind(struct cm_id *id, const union cm_addr *from)
{
	union cm_addr a = *from;
	struct cm_place place;
	int err;

	if (id->state != CM_IDLE || !cm_address_len(&a))
		return -EINVAL;
	if (a.family == AF_IB && !cm_address_service_ps(id, &a))
		return -EPROTONOSUPPORT;
	if (!cm_address_any(&a) && !cm_address_bindable(&a))
		return -EADDRNOTAVAIL;
	if (!cm_address_any(&a) && cm_place_find(&a, &place))
		return -ENODEV;
	err = cm_address_port(&a) ? claim(id, &a) : claim_any_port(id, &a);
	if (err)
		return err;
	id->has_device = !cm_address_any(&a);
	cm_move(id, CM_BOUND);
	return 0;
}

static uint64_t listener_tag(const struct cm_id *id, const union cm_addr *a)
{
	if (!cm_address_any(a))
		return cm_address_hash(a) & 0xffffffffffffull;
	if (a->family == AF_IB)
		return ANY_IB;
	return a->family == AF_INET ? ANY4 : takes_both(id, a) ? ANY_BOTH : ANY6;
}

static int listener_path(const char *dir, uint16_t ps, const union cm_addr *a, uint64_t tag, struct sockaddr_un *sa)
{
	size_t n = fm_format(sa->sun_path, sizeof(sa->sun_path), "%s/cm-%u-%04x-%012lx", dir, cm_port_space(ps, a),
			     cm_address_port(a), (unsigned long)tag);

	sa->sun_family = AF_UNIX;
	return n < sizeof(sa->sun_path) ? (int)(offsetof(struct sockaddr_un, sun_path) + n + 1) : -ENAMETOOLONG;
}

static int seqpacket(void)
{
	return sr_socket(AF_UNIX, SOCK_SEQPACKET);
}

static int listener_open(struct cm_id *id, uint32_t backlog)
{
	struct sockaddr_un sa = { 0 };
	int len = listener_path(cm_process->dir, id->ps, &id->src, listener_tag(id, &id->src), &sa), err;

	if (len < 0)
		return len;
	id->sock = seqpacket();
	if (id->sock < 0)
		return id->sock;
	unlink(sa.sun_path);
	err = (int)RAW3(SYS_bind, id->sock, &sa, len);
	/* The kernel lets one more wait than it is told. */
	if (!err)
		err = (int)RAW2(SYS_listen, id->sock, backlog - 1);
	if (!err)
		err = cm_watch(id->channel, id->sock, id->handle);
	if (err) {
		cm_id_hang_up(id);
		return err;
	}
	id->watched = 1;
	memcpy(id->path, sa.sun_path, sizeof(id->path));
	return 0;
}

int cm_port_listen(struct cm_id *id, uint32_t backlog)
{
	union cm_addr any = { .in = { .sin_family = AF_INET } };
	int err = 0;

	if (id->state == CM_IDLE)
		err = cm_port_bind(id, &any);
	if (err || id->state != CM_BOUND)
		return err ? err : -EINVAL;
	if (!backlog || backlog > CM_MAX_BACKLOG)
		backlog = CM_MAX_BACKLOG;
	if (taken_here(id, &id->claim, 0))
		return -EADDRINUSE;
	/* Who listens shares no longer. */
	if (id->claim_shared && lock_set(stretch(id, &id->claim, F_WRLCK)))
		return -EADDRINUSE;
	id->claim_shared = 0;
	id->backlog = backlog;
	err = listener_open(id, backlog);
	if (err)
		return err;
	cm_net_listen(id);
	cm_move(id, CM_LISTENING);
	return 0;
}

int cm_port_again(struct cm_id *id)
{
	int err = id->claim.family ? lock_set(stretch(id, &id->claim, id->claim_shared ? F_RDLCK : F_WRLCK)) : 0;

	if (err)
		return err == -EAGAIN || err == -EACCES ? -EADDRINUSE : err;
	if (id->claim.family)
		list_add_tail(&cm_process->bound, &id->bound_link);
	if (id->state != CM_LISTENING)
		return 0;
	err = listener_open(id, id->backlog);
	if (!err)
		cm_net_listen(id);
	return err;
}

void cm_port_release(struct cm_id *id)
{
	struct flock mine, other;
	struct cm_id *o;

	if (id->path[0]) {
		cm_net_unlisten(id);
		unlink(id->path);
	}
	if (!id->claim.family)
		return;
	list_del(&id->bound_link);
	mine = stretch(id, &id->claim, F_UNLCK);
	lock_set(mine);
	/* Others of this process may have had a part of it: one open file has one lock on a byte. */
	list_each(o, &cm_process->bound, bound_link) {
		other = stretch(o, &o->claim, o->claim_shared ? F_RDLCK : F_WRLCK);
		if (overlap(&mine, &other))
			lock_set(other);
	}
	id->claim.family = 0;
}

static uint64_t parse_hex(const char *s, int digits)
{
	uint64_t v = 0;

	for (; digits--; s++)
		v = v << 4 | (uint64_t)((*s <= '9' ? *s - '0' : *s - 'a' + 10) & 15);
	return v;
}

/* A name "cm-P-PORT-ADDRESS" on a port that nobody has at all. */
static int sweep_entry(const char *name, void *arg)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 2 * HALF };
	char path[CM_DIR_MAX + 32];

	if (strncmp(name, "cm-", 3) || strlen(name) != strlen("cm-P-PORT-") + 12)
		return 0;
	fl.l_start = (off_t)(parse_hex(name + 3, 1) << 48 | parse_hex(name + 5, 4) << 32);
	if (lock_set(fl))
		return 0;
	fm_format(path, sizeof(path), "%s/%s", cm_process->dir, name);
	unlink(path);
	fl.l_type = F_UNLCK;
	lock_set(fl);
	return 0;
}

void cm_port_sweep(void)
{
	raw_dir_each(cm_process->dir, sweep_entry, NULL);
}

/* Somebody of another user: he could not have made the name, but look. */
int cm_same_user(int sock)
{
	struct ucred c;
	unsigned int len = sizeof(c);

	return !RAW5(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &c, &len) && c.uid == (uid_t)RAW0(SYS_geteuid);
}

static int try_listener(const char *dir, uint16_t ps, const union cm_addr *dst, uint64_t tag)
{
	struct sockaddr_un sa = { 0 };
	int len = listener_path(dir, ps, dst, tag, &sa), fd, err;

	if (len < 0)
		return len;
	fd = seqpacket();
	if (fd < 0)
		return fd;
	err = (int)RAW3(SYS_connect, fd, &sa, len);
	if (!err && !cm_same_user(fd))
		err = -ECONNREFUSED;
	if (!err)
		return fd;
	close(fd);
	return err == -ENOENT ? -ECONNREFUSED : err;
}

/* Who listens at the very address comes before who listens at any. */
int cm_port_knock(const char *dir, uint16_t ps, const union cm_addr *dst)
{
	int fd = try_listener(dir, ps, dst, cm_address_hash(dst) & 0xffffffffffffull);

	if (dst->family == AF_IB)
		return fd == -ECONNREFUSED ? try_listener(dir, ps, dst, ANY_IB) : fd;
	if (fd == -ECONNREFUSED)
		fd = try_listener(dir, ps, dst, dst->family == AF_INET ? ANY4 : ANY6);
	return fd == -ECONNREFUSED ? try_listener(dir, ps, dst, ANY_BOTH) : fd;
}
