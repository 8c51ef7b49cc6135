/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds an object that is not supported: a checkpoint has to refuse and name its descriptor, or its name, which this program writes to the file
 * "refused", and the program has to go on unharmed. The argument says which.
 */
#include "feature.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static int leased_file(void)
{
	int fd = open("leased", O_RDONLY | O_CREAT, 0600);

	CHECK(fd >= 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0);
	return fd;
}

static int notified_directory(void)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY);

	CHECK(fd >= 0);
	if (fcntl(fd, F_NOTIFY, DN_RENAME | DN_MULTISHOT))
		feature_skip("this kernel has no notes by signal");
	return fd;
}

static int unread_inotify(void)
{
	int fd = inotify_init();

	CHECK(fd >= 0 && inotify_add_watch(fd, ".", IN_CREATE) == 1);
	CHECK(close(open("event", O_WRONLY | O_CREAT, 0600)) == 0);
	return fd;
}

/* Watches a file under a number that is closed, kept open by a duplicate. */
static int stale_epoll(void)
{
	int set = epoll_create1(0), ends[2];
	struct epoll_event e = { .events = EPOLLIN };

	CHECK(set >= 0 && pipe(ends) == 0 && dup(ends[0]) >= 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &e) == 0 && close(ends[0]) == 0);
	return set;
}

/* The other end is open, too. */
static int urgent_tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0), to;
	socklen_t length = sizeof(a);
	struct pollfd p;

	CHECK(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&a, &length) == 0);
	CHECK(connect(from, (struct sockaddr *)&a, sizeof(a)) == 0);
	to = accept(listener, NULL, NULL);
	CHECK(to >= 0 && write(from, "ab", 2) == 2 && send(from, "!", 1, MSG_OOB) == 1 && write(from, "cd", 2) == 2);
	p = (struct pollfd){ .fd = to, .events = POLLPRI };
	CHECK(poll(&p, 1, -1) == 1);
	return to;
}

static int urgent_unix(void)
{
	int ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[0], "ab", 2) == 2);
	if (send(ends[0], "!", 1, MSG_OOB) < 0)
		feature_skip("no urgent data in unix sockets here (before Linux 5.15)");
	return ends[1];
}

/* Nobody can look at what a client has sent that waits for accept. */
static int unaccepted(int family)
{
	struct sockaddr_storage a = { .ss_family = (sa_family_t)family };
	int listener = socket(family, SOCK_STREAM, 0), fd = socket(family, SOCK_STREAM, 0);
	socklen_t length = sizeof(a);

	if (family == AF_INET)
		((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&a, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa_family_t)) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&a, &length) == 0 && connect(fd, (struct sockaddr *)&a, length) == 0);
	CHECK(write(fd, "a", 1) == 1 && shutdown(fd, SHUT_WR) == 0);
	return fd;
}

/* The other end has gone elsewhere, with something unread: an error comes first, then an empty datagram, which nobody may take. */
static int reset_datagrams(void)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	int ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && send(ends[0], "", 0, 0) == 0 && send(ends[1], "unread", 6, 0) == 6);
	CHECK(connect(ends[0], &none, sizeof(none)) == 0);
	return ends[1];
}

/* The kernel does not tell from where. */
static int relative_socket(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "relative" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(mkdir("sub", 0700) == 0 && chdir("sub") == 0 && fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0 && chdir("..") == 0);
	return fd;
}

/* The bounds of which cannot be told: packets, and bytes of a writer that has gone over to those; or the other way round. */
static int mixed_pipe(int bytes_first)
{
	static char page[4096]; /* the kernel puts nothing behind it */
	int ends[2];

	CHECK(pipe2(ends, bytes_first ? 0 : O_DIRECT) == 0 && write(ends[1], page, sizeof(page)) == sizeof(page));
	CHECK(fcntl(ends[1], F_SETFL, bytes_first ? O_DIRECT : 0) == 0 && write(ends[1], "01234", 5) == 5);
	return ends[0];
}

static int set = -1;
static pid_t helper;
static char what[128]; /* what: that the refusal has to say, where it is not "fd N" */

/* Another process has set the value of a semaphore that this one has an adjustment of: nobody knows which was first. */
static int struck_semaphore(void)
{
	struct sembuf give = { 0, 1, SEM_UNDO };
	FILE *f = fopen("semaphores", "w");
	int status;

	set = semget(IPC_PRIVATE, 1, 0600);
	CHECK(set >= 0 && f && fprintf(f, "%d\n", set) > 0 && fclose(f) == 0 && semop(set, &give, 1) == 0);
	helper = fork();
	CHECK(helper >= 0);
	if (helper == 0) {
		CHECK(semctl(set, 0, SETVAL, 5) == 0);
		for (;;)
			pause();
	}
	while ((status = semctl(set, 0, GETVAL)) != 5)
		CHECK(status == 1);
	snprintf(what, sizeof(what), "semaphore set %d was set by semctl while process %d had", set, getpid());
	return 0;
}

/* A question to the kernel whose answer is not read. */
static int unread_netlink(void)
{
	struct {
		struct nlmsghdr head;
		struct rtgenmsg all;
	} q = { { sizeof(q), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { AF_UNSPEC } };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	CHECK(fd >= 0 && send(fd, &q, sizeof(q), 0) == sizeof(q));
	return fd;
}

/* One that allows everything: what is in it nobody can tell. Past the wrappers where @raw. */
static void make_filter(int raw)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	long r;

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (!raw) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
		return;
	}
	__asm__ volatile("syscall" : "=a"(r) : "a"(317L /* seccomp */), "D"((long)SECCOMP_SET_MODE_FILTER), "S"(0L), "d"(&program) : "rcx", "r11", "memory");
	CHECK(r == 0);
}

static void name_filter(pid_t pid)
{
	snprintf(what, sizeof(what), "process %d has a seccomp filter of its own", pid);
}

/* In a thread that is not the first. */
static void *filtered(void *ready)
{
	make_filter(0);
	pthread_barrier_wait(ready);
	for (;;)
		pause();
	return NULL;
}

static int filtered_thread(void)
{
	pthread_barrier_t ready;
	pthread_t t;

	CHECK(pthread_barrier_init(&ready, NULL, 2) == 0 && pthread_create(&t, NULL, filtered, &ready) == 0);
	pthread_barrier_wait(&ready);
	name_filter(getpid());
	return 0;
}

/* Made behind everybody's back, and carried over an exec. */
static int filtered_child(void)
{
	int ends[2];
	char c;

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	helper = fork();
	CHECK(helper >= 0);
	if (helper == 0) {
		make_filter(1);
		execlp("sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	CHECK(close(ends[1]) == 0 && read(ends[0], &c, 1) == 0 && close(ends[0]) == 0);
	name_filter(helper);
	return 0;
}

/* A child that we trace as strace would. */
static int traced_child(void)
{
	helper = fork();
	CHECK(helper >= 0);
	if (helper == 0)
		for (;;)
			pause();
	CHECK(ptrace(PTRACE_SEIZE, helper, NULL, NULL) == 0);
	snprintf(what, sizeof(what), "process %d traces process %d", getpid(), helper);
	return 0;
}

/* One that we attach to by its numbers in /proc, as gdb -p does: one of its threads is not the program's. */
static int attached_child(void)
{
	struct dirent *entry;
	char path[64];
	int tasks = 0;
	DIR *dir;

	helper = fork();
	CHECK(helper >= 0);
	if (helper == 0)
		for (;;)
			pause();
	snprintf(path, sizeof(path), "/proc/%d/task", helper);
	while (tasks < 2) {
		CHECK((dir = opendir(path)) != NULL);
		while ((entry = readdir(dir)) != NULL) {
			int tid = atoi(entry->d_name);

			if (tid && ptrace(PTRACE_ATTACH, tid, NULL, NULL) == 0) {
				CHECK(waitpid(tid, NULL, __WALL) == tid && ptrace(PTRACE_CONT, tid, NULL, NULL) == 0);
				tasks++;
			}
		}
		CHECK(closedir(dir) == 0);
	}
	snprintf(what, sizeof(what), "process %d has attached to process %d", getpid(), helper);
	return 0;
}

static void *attach(void *child)
{
	pid_t pid = *(pid_t *)child;

	CHECK(ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0 && waitpid(pid, NULL, __WALL) == pid);
	CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL) == 0 && ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	for (;;)
		pause();
	return NULL;
}

/* Two children, each traced by a thread of its own; they end with it. */
static int traced_by_two(void)
{
	static pid_t children[2];
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0)
			for (;;)
				pause();
		CHECK(pthread_create(&thread, NULL, attach, &children[i]) == 0);
	}
	snprintf(what, sizeof(what), "process %d traces others from several threads", getpid());
	return 0;
}

/* Whose memory we have open, and who has forbidden since that it be opened. */
static int hidden_child(void)
{
	int told[2], asked[2], fd;
	char path[32], c;

	CHECK(pipe(told) == 0 && pipe(asked) == 0);
	helper = fork();
	CHECK(helper >= 0);
	if (helper == 0) {
		CHECK(read(asked[0], &c, 1) == 1 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && write(told[1], "", 1) == 1);
		for (;;)
			pause();
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", helper);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && write(asked[1], "", 1) == 1 && read(told[0], &c, 1) == 1);
	return fd;
}

static void remove_all(void)
{
	if (helper)
		CHECK(kill(helper, SIGKILL) == 0);
	while (helper && waitpid(-1, NULL, __WALL) != helper) /* that of a thread which is traced comes first */
		;
	if (set >= 0)
		CHECK(semctl(set, 0, IPC_RMID) == 0);
}

static int make(const char *kind)
{
	if (strcmp(kind, "stale_epoll") == 0)
		return stale_epoll();
	if (strcmp(kind, "inotify_unread") == 0)
		return unread_inotify();
	if (strcmp(kind, "notes") == 0)
		return notified_directory();
	if (strcmp(kind, "lease") == 0)
		return leased_file();
	if (strcmp(kind, "netlink") == 0)
		return unread_netlink();
	if (strcmp(kind, "struck_semaphore") == 0)
		return struck_semaphore();
	if (strcmp(kind, "filter_thread") == 0)
		return filtered_thread();
	if (strcmp(kind, "filter_child") == 0)
		return filtered_child();
	if (strcmp(kind, "traced_by_two") == 0)
		return traced_by_two();
	if (strcmp(kind, "attached") == 0)
		return attached_child();
	if (strcmp(kind, "urgent_tcp") == 0)
		return urgent_tcp();
	if (strcmp(kind, "urgent_unix") == 0)
		return urgent_unix();
	if (strcmp(kind, "unaccepted") == 0)
		return unaccepted(AF_INET);
	if (strcmp(kind, "unaccepted_unix") == 0)
		return unaccepted(AF_UNIX);
	if (strcmp(kind, "reset_datagrams") == 0)
		return reset_datagrams();
	if (strcmp(kind, "relative_socket") == 0)
		return relative_socket();
	if (strcmp(kind, "mixed_pipe") == 0 || strcmp(kind, "mixed_pipe_2") == 0)
		return mixed_pipe(kind[10]);
	if (strcmp(kind, "hidden") == 0)
		return hidden_child();
	if (strcmp(kind, "traced") == 0)
		return traced_child();
	feature_fail("unknown kind %s", kind);
}

int main(int argc, char **argv)
{
	FILE *f = fopen("refused", "w");
	int fd;

	CHECK(argc == 2 && f);
	fd = make(argv[1]);
	CHECK(fd >= 0);
	CHECK((*what ? fprintf(f, "%s\n", what) : fprintf(f, "fd %d\n", fd)) > 0 && fclose(f) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(fcntl(fd, F_GETFD) >= 0);
	} while (feature_step());
	remove_all();
	return 0;
}
