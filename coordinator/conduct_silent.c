/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members that say nothing to SUSPEND. An exec hands the connection on, also to a program that the loader does not let the agent into: statically
 * linked, setuid, of another CPU. Such a process is a member that never answers; what it runs is looked at from outside, and the
 * checkpoint is refused by its name long before the time-out. So is one of a process that a debugger from outside of the job holds. One that is stopped by a signal, in whatever phase, is let run for
 * the checkpoint (let_run.c), or refused where that cannot be done.
 * What is on its way to another host (cli/remote.c) may wait for a process that stands still here, an sshd of the job: that attempt is given up, and another one made when the job has
 * run for a moment. Owns nothing.
 *
 * What runs under the loader's own name (`ld.so PROGRAM`) has no loader either, hence the look for the agent in its mappings; that
 * a program is only just starting is what SILENT_NS is for.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/agent_seen.h"
#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"
#include "coordinator/tunnel.h"

#define SILENT_NS 1000000000u
#define SILENT_REMOTE_NS 3000000000u /* no login that nothing keeps takes as long */
#define SILENT_CLOSED_NS 5000000000u /* a process that may not be looked at may still have an agent */

static bool program_has_loader(int fd, const Elf64_Ehdr *e)
{
	Elf64_Phdr p;

	for (int i = 0; i < e->e_phnum; i++)
		if (pread(fd, &p, sizeof(p), (off_t)(e->e_phoff + (uint64_t)i * sizeof(p))) == sizeof(p) &&
		    p.p_type == PT_INTERP)
			return true;
	return false;
}

/* Its own thread tells of one whose pages are a checkpoint's (--text=save). */
static bool program_has_agent_thread(pid_t pid)
{
	char path[300], name[16];
	bool found = false;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && !found && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid, e->d_name);
		found = raw_read_file(path, name, sizeof(name)) > 0 && !strncmp(name, AGENT_THREAD_NAME, sizeof(AGENT_THREAD_NAME) - 1);
	}
	if (d)
		closedir(d);
	return found;
}

static bool program_has_agent(pid_t pid)
{
	char path[64], line[4352];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/libfermata.so") != NULL;
	if (f)
		fclose(f);
	return found || program_has_agent_thread(pid);
}

/* Its real and its effective ids differ: anybody may see that. */
static bool program_is_privileged(pid_t pid)
{
	unsigned int real, effective;
	char path[64], line[256];
	bool differ = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && !differ && fgets(line, sizeof(line), f))
		differ = (sscanf(line, "Uid: %u %u", &real, &effective) == 2 || sscanf(line, "Gid: %u %u", &real, &effective) == 2) &&
			 real != effective;
	if (f)
		fclose(f);
	return differ;
}

static const char *program_closed_fault(pid_t pid, uint64_t silent_ns)
{
	if (program_is_privileged(pid))
		return "is setuid or setgid";
	return silent_ns >= SILENT_CLOSED_NS ? "does not answer, and may not be looked at (has its file capabilities?)," : NULL;
}

/* Its tools map the program's libraries, ours too, but run none of it themselves. */
static bool program_is_valgrind(pid_t pid)
{
	char path[64], exe[512];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = 0;
	return strstr(exe, "/valgrind/") != NULL;
}

/* Why no agent can be in what @pid runs; NULL: it can, or that is not to be seen yet. */
static const char *program_fault(pid_t pid, uint64_t silent_ns)
{
	const char *fault = NULL;
	char path[64];
	Elf64_Ehdr e;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? program_closed_fault(pid, silent_ns) : NULL;
	if (pread(fd, &e, sizeof(e), 0) != sizeof(e) || e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != EM_X86_64)
		fault = "is not a program for x86-64";
	else if (!program_has_loader(fd, &e))
		fault = "is statically linked";
	close(fd);
	if (fault && program_is_valgrind(pid))
		return "runs under valgrind";
	return fault && !program_has_agent(pid) ? fault : NULL;
}

/* The name that it has now: what was noted is that of before. */
static void program_name(pid_t pid, const char *noted, char *ret, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(ret, size, "%s", noted);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, size - 1);
	if (fd >= 0)
		close(fd);
	if (n > 0)
		ret[n - (ret[n - 1] == '\n')] = 0;
	for (char *p = ret; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

/* A command of ours, and a member: it has become nothing that has an agent so far. */
static bool program_is_remote(pid_t pid)
{
	struct stat its, ours;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return !stat(path, &its) && !stat("/proc/self/exe", &ours) && its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

static int thread_is_stopped(const char *tid, void *arg)
{
	(void)arg;
	return raw_process_state(atoi(tid)) == 'T';
}

/* Where its first thread has ended the others tell. */
static bool program_is_stopped(pid_t pid, char state)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return state == 'T' || (state == 'Z' && raw_dir_each(path, thread_is_stopped, NULL) > 0);
}

static int silent_refuse_stopped(pid_t pid, const char *noted, int error, char *ret, size_t size)
{
	char name[16];

	program_name(pid, noted, name, sizeof(name));
	snprintf(ret, size, "(%s) is stopped and cannot take part (%s): kill -CONT %d lets it go on", name,
		 error == -EPERM ? "nobody may trace it here" : error == -EPROTO ? "its agent is of an older version" : strerror(-error), (int)pid);
	return -EAGAIN;
}

static int silent_let_run(struct coordinator *c, pid_t pid, bool let_run, const char *noted, char *ret, size_t size)
{
	int r = let_run ? let_run_begin(c, pid) : -EPROTO;

	return r < 0 ? silent_refuse_stopped(pid, noted, r, ret, size) : 0;
}

int silent_look(struct coordinator *c, pid_t pid, bool let_run, const char *noted, uint64_t silent_ns, char *ret, size_t size)
{
	char name[16], state = raw_process_state(pid);
	const char *fault;

	if (program_is_stopped(pid, state) && !program_fault(pid, silent_ns))
		return silent_let_run(c, pid, let_run, noted, ret, size);
	if (silent_ns < SILENT_NS || let_run_has(c, pid))
		return 0;
	program_name(pid, noted, name, sizeof(name));
	if (state == 't' && silent_ns >= SILENT_CLOSED_NS) {
		snprintf(ret, size, "(%s) is held by a debugger and cannot take part: let it go on there", name);
		return -EAGAIN;
	}
	if (silent_ns >= SILENT_REMOTE_NS && program_is_remote(pid)) {
		snprintf(ret, size, "(%s) is on its way to another host by ssh: take the checkpoint when it is there", name);
		return -EINPROGRESS;
	}
	fault = program_fault(pid, silent_ns);
	if (fault)
		snprintf(ret, size, "(%s) %s: it cannot be checkpointed, and no checkpoint of the job as long as it runs", name, fault);
	return fault ? -ENOTSUP : 0;
}

void conduct_silent_looked(struct member *m, int error, const char *text)
{
	struct coordinator *c = m->conn->c;
	char all[sizeof(c->last.text)];

	if (!conduct_is_checkpoint(c->state) || m->waiting || m->reported)
		return;
	snprintf(all, sizeof(all), "process %u %s", m->pid, text);
	if (error != -EINPROGRESS || !conduct_again(c, error, all)) /* who is stopped stays so */
		conduct_fail(c, error, "%s", all);
}

void silent_stopped(struct coordinator *c, pid_t pid, int error)
{
	struct conn *k = let_run_connection(c, pid);
	char text[256];

	silent_refuse_stopped(pid, "?", error, text, sizeof(text));
	if (k && c->upstream)
		tunnel_send(c->upstream, TUNNEL_LOOKED, k->channel, (uint32_t)-EAGAIN, text, strlen(text));
	else if (k && k->member)
		conduct_silent_looked(k->member, -EAGAIN, text);
}

/* True: it is known by now what keeps it. */
static bool conduct_look_at(struct member *m, uint64_t silent_ns)
{
	char text[256];
	int r;

	if (m->conn->relay) { /* the answer comes, if there is one */
		tunnel_send(m->conn->relay, TUNNEL_LOOK, m->conn->channel, (uint32_t)(silent_ns / 1000000) | (m->let_run ? TUNNEL_LOOK_LET_RUN : 0), NULL, 0);
		return false;
	}
	r = silent_look(m->conn->c, m->kill_pid, m->let_run, m->comm, silent_ns, text, sizeof(text));
	if (r)
		conduct_silent_looked(m, r, text);
	return r != 0;
}

/* Its agent is of the version that its parent's is. */
static bool conduct_newborn_can(const struct conn *k)
{
	struct conn *parent;

	list_each(parent, &k->c->conns, node)
		if (parent->member && parent->relay == k->relay && parent->member->kill_pid == k->dialer)
			return parent->member->let_run;
	return false;
}

/* One that has connected, and not said what it is: the child of a vfork may be on its way, too. */
static bool conduct_look_at_half_open(struct conn *k, uint64_t silent_ns)
{
	char text[128];

	if (k->c->state != STATE_SUSPEND)
		return false;
	if (k->relay) {
		if (conduct_newborn_can(k))
			tunnel_send(k->relay, TUNNEL_LOOK, k->channel, TUNNEL_LOOK_LET_RUN, NULL, 0);
		return false;
	}
	if (conduct_newborn_can(k))
		let_run_newborn(k->c, k->sender);
	if (silent_ns < SILENT_REMOTE_NS || !program_is_remote(k->sender))
		return false;
	snprintf(text, sizeof(text), "a process that was being created (pid %d) is on its way to another host by ssh: take the checkpoint when it is there", (int)k->sender);
	if (!conduct_again(k->c, -EINPROGRESS, text))
		conduct_fail(k->c, -EINPROGRESS, "%s", text);
	return true;
}

/* In later phases who is silent has an agent, but may have been stopped meanwhile. */
void conduct_look_at_silent(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, look_timer);
	uint64_t silent_ns = c->state == STATE_SUSPEND ? raw_now_ns() - c->state_since_ns : 0;
	struct member *m;
	struct conn *k;

	if (c->state < STATE_SUSPEND || c->state > STATE_WRITE)
		return;
	list_each(m, &c->members, node)
		if (!m->waiting && !m->reported && m->kill_pid > 0 && conduct_look_at(m, silent_ns))
			return;
	list_each(k, &c->conns, node)
		if (k->state <= CONN_OPEN && k->sender > 0 && conduct_look_at_half_open(k, silent_ns))
			return;
}
