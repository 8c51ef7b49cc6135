/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pseudo-terminals whose master a process of the job holds. No state here.
 *
 * A pseudo-terminal has one description of its master, shared by whoever inherited it, and any number of its slave. Every holder publishes
 * what it has under the terminal's number in QUIESCE. A slave whose master nobody published leads out of the job: it is a
 * terminal like any other, which `fermata restart` re-attaches (fd_is_outside). The leader of the master is the maker:
 *
 *   DRAIN      the maker looks at what has not been read, both ways, and at all settings (pty_content.c)
 *   RECREATE   the maker makes the terminal, under its old number if that is free, or has it from `fermata restart`; settings, window size
 *   RECONNECT  each slave is opened of the maker's master; session leaders take their controlling terminal (pty_session.c)
 *   REFILL     the maker puts back contents, and what would have been in the way: packet and exclusive mode, the lock
 *
 * The terminals are those of the host's /dev/pts, or, where somebody has taken a number meanwhile, of the capsule's own (cli/restart_ptys.c), so that two
 * terminals that the job knows may have one number: the file system and the session tell them apart. Without a capsule a number that is taken
 * is replaced by another, and ttyname(3) tells the new one. What was opened as /dev/tty comes back as the terminal itself.
 *
 * A slave whose master was closed has hung up: it gives end of file for ever (PTY_DEAD).
 */
#include "plugins/pty/pty.h"

#include <errno.h>

#include "base/log.h"

#define TTY 0x500  /* /dev/tty */
#define PTMX 0x502 /* /dev/ptmx */

struct pty_key {
	char tag[4]; /* "pty/" */
	uint32_t number;
} PACKED;

static struct pty_key key_of(uint32_t number)
{
	return (struct pty_key){ { 'p', 't', 'y', '/' }, number };
}

int pty_publish(uint32_t number, const struct pty_end *end)
{
	struct pty_key key = key_of(number);
	int r = end->kind == PTY_NONE ? 0 : fermata_publish(&key, sizeof(key), end, sizeof(*end));

	return r ? r : fermata_ask(&key, sizeof(key));
}

/* Of one number, but two terminals: a file system has a number once, and a session one terminal. */
static bool is_another(const struct pty_end *a, const struct pty_end *b)
{
	if (a->devpts && b->devpts)
		return a->devpts != b->devpts;
	return a->session && b->session && a->session != b->session;
}

bool pty_find(uint32_t number, const struct pty_end *of, uint32_t kind, struct pty_end *ret)
{
	struct pty_key key = key_of(number);
	struct pty_end end;
	const void *value;
	bool found = false;
	size_t len;

	for (unsigned int i = 0; (value = fermata_resolve(&key, sizeof(key), i, &len)); i++) {
		if (len < offsetof(struct pty_end, session))
			continue;
		memset(&end, 0, sizeof(end));
		memcpy(&end, value, len < sizeof(end) ? len : sizeof(end)); /* an agent of before has no session */
		if (end.kind != kind || is_another(of, &end))
			continue;
		if (found && (ret->pid < end.pid || (ret->pid == end.pid && ret->fd < end.fd)))
			continue;
		*ret = end;
		found = true;
	}
	return found;
}

/* What /dev/pts/N is beside the /dev/ptmx that was opened: the device, 0 if it cannot be found; and its permissions. */
static uint64_t find_devpts(const struct fermata_desc *d, uint32_t number, uint32_t *ret_mode)
{
	const char *slash = strrchr(d->link, '/');
	size_t dir = slash ? (size_t)(slash - d->link) : 0;
	bool inside = dir >= 4 && memcmp(slash - 4, "/pts", 4) == 0;
	char path[sizeof(d->link) + 24];
	struct stat st;

	memcpy(path, d->link, dir);
	fm_format(path + dir, sizeof(path) - dir, inside ? "/%u" : "/pts/%u", number);
	*ret_mode = 0;
	if (RAW4(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISCHR(st.st_mode) ||
	    !pty_is_slave_device(st.st_rdev) || pty_number_of(st.st_rdev) != number)
		return 0;
	*ret_mode = st.st_mode & 07777;
	return st.st_dev;
}

/* The master tells it to everybody, the terminal to its own session; one that is not of our pid namespace has no number. */
static uint32_t session_of(int fd)
{
	uint32_t session;

	if (raw_ioctl(fd, TIOCGSID, &session) < 0)
		return 0;
	return session ? session : PTY_SESSION_OUTSIDE;
}

/* What @d is, in @s->self and @s->number. */
static enum pty_kind examine(const struct fermata_desc *d, struct pty_state *s)
{
	bool named = pty_is_slave_device(d->st.st_rdev);
	uint32_t value, mode;

	if (!S_ISCHR(d->st.st_mode) || d->status & O_PATH || (!named && d->st.st_rdev != PTMX && d->st.st_rdev != TTY))
		return PTY_NONE; /* and no ioctl to strangers */
	if (raw_ioctl(d->fd, TIOCGPTN, &s->number) == 0) {
		s->self.devpts = find_devpts(d, s->number, &mode);
		s->self.session = session_of(d->fd);
		return PTY_MASTER;
	}
	switch (raw_ioctl(d->fd, TIOCGDEV, &value)) {
	case 0:
		break;
	case -EIO:
		return PTY_DEAD;
	default:
		return PTY_NONE;
	}
	if (!pty_is_slave_device(value))
		return PTY_NONE;
	s->number = pty_number_of(value);
	s->self.devpts = named ? d->st.st_dev : 0;
	s->self.session = session_of(d->fd);
	raw_ioctl(d->fd, TIOCGEXCL, &s->self.exclusive);
	return PTY_SLAVE;
}

static int pty_fd_claim(struct fermata_desc *d)
{
	struct pty_state s = { 0 };

	s.self.kind = examine(d, &s);
	s.self.pid = fermata_pid();
	s.self.fd = d->fd;
	if (s.self.kind == PTY_NONE)
		return 0;
	d->priv = fermata_alloc(sizeof(s));
	if (!d->priv)
		return fermata_fail(-ENOMEM, "no memory for fd %d", d->fd);
	memcpy(d->priv, &s, sizeof(s));
	if (s.self.kind != PTY_DEAD) {
		int r = pty_publish(s.number, &s.self);

		if (r)
			return r;
	}
	return 1;
}

static int pty_fd_is_outside(struct fermata_desc *d)
{
	struct pty_state *s = d->priv;

	return s->self.kind == PTY_SLAVE && !pty_find(s->number, &s->self, PTY_MASTER, &s->master);
}

static int pty_fd_drain(struct fermata_desc *d, unsigned int round)
{
	struct pty_state *s = d->priv;

	if (round || s->self.kind != PTY_MASTER)
		return FERMATA_DRAINED;
	pty_find(s->number, &s->self, PTY_SLAVE, &s->slave);
	return pty_content_take(d, s);
}

static int dump_master(struct fermata_desc *d, struct pty_state *s, struct fermata_sink *sink)
{
	struct pty_record *r = s->record;
	uint32_t mode;
	int err;

	find_devpts(d, s->number, &mode);
	r->mode = mode;
	err = fermata_sink_write(sink, r, sizeof(*r) + r->output_length + r->input_length);
	fermata_free(r);
	s->record = NULL;
	return err;
}

static int pty_fd_dump(struct fermata_desc *d, struct fermata_sink *sink)
{
	struct pty_state *s = d->priv;
	struct pty_record record = {
		.version = PTY_RECORD_VERSION, .kind = s->self.kind, .number = s->number,
		.maker_pid = s->master.pid, .maker_fd = s->master.fd,
	};

	if (s->self.kind == PTY_MASTER)
		return dump_master(d, s, sink);
	return fermata_sink_write(sink, &record, sizeof(record));
}

static int pty_fd_resume(struct fermata_desc *d)
{
	struct pty_state *s = d->priv;

	fermata_free(s ? s->record : NULL);
	if (s)
		s->record = NULL;
	return 0;
}

extern const struct fermata_plugin plugin_pty;
const struct fermata_plugin plugin_pty = {
	.api = FERMATA_PLUGIN_API,
	.name = "pty",
	.fd_claim = pty_fd_claim,
	.fd_is_outside = pty_fd_is_outside,
	.fd_drain = pty_fd_drain,
	.fd_dump = pty_fd_dump,
	.fd_resume = pty_fd_resume,
	.fd_restore = pty_fd_restore,
	.fd_reconnect = pty_fd_reconnect,
	.fd_refill = pty_fd_refill,
	.quiesce = pty_session_quiesce,
	.drain = pty_session_drain,
	.dump = pty_session_dump,
	.recreate = pty_session_recreate,
	.reconnect = pty_session_reconnect,
	.refill = pty_session_refill,
};
