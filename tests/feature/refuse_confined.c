/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As refuse.c, for what a process confines itself to: a checkpoint has to name the process. A child has done so, for its good or what it has exec'd, and in one case a thread of it. The
 * argument says how.
 */
#include "feature.h"

#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/prctl.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int name_space(void)
{
	return unshare(CLONE_NEWUTS);
}

/* Past libc: the kernel tells of it. */
static int name_space_by_number(void)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"((long)SYS_unshare), "D"((long)CLONE_NEWIPC) : "rcx", "r11", "memory");
	return (int)r;
}

static int rooted(void)
{
	return chroot(".");
}

static int restrict_files(uint64_t access)
{
	struct landlock_ruleset_attr rules = { .handled_access_fs = access };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);

	return fd < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -1 : (int)syscall(SYS_landlock_restrict_self, fd, 0);
}

/* It may read no file any more, not even of /proc. */
static int landlock(void)
{
	return restrict_files(LANDLOCK_ACCESS_FS_READ_FILE);
}

static int landlock_little(void)
{
	return restrict_files(LANDLOCK_ACCESS_FS_MAKE_SYM);
}

static int securebits(void)
{
	return prctl(PR_SET_SECUREBITS, SECBIT_NO_CAP_AMBIENT_RAISE, 0, 0, 0);
}

static int dispatch(void)
{
	static char allow; /* SYSCALL_DISPATCH_FILTER_ALLOW */

	return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &allow);
}

static int keyring(int which)
{
	return syscall(SYS_add_key, "user", "fermata", "x", 1, which) > 0 ? 0 : -1;
}

static int process_keyring(void)
{
	return keyring(KEY_SPEC_PROCESS_KEYRING);
}

static int thread_keyring(void)
{
	return keyring(KEY_SPEC_THREAD_KEYRING);
}

static int session_keyring(void)
{
	return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0 ? 0 : -1;
}

/* In whichever session this is: the key goes by itself. */
static int session_key(void)
{
	char name[32];
	long key;

	snprintf(name, sizeof(name), "fermata-%d", getpid());
	key = syscall(SYS_add_key, "user", name, "x", 1, KEY_SPEC_SESSION_KEYRING);
	return key > 0 && !syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, key, 60) ? 0 : -1;
}

static const struct way {
	const char *name, *has;
	int (*confine)(void);
	enum { GOES_ON, EXECS, IN_THREAD } then;
} ways[] = {
	{ "namespace", "a namespace or a root directory of its own", name_space, GOES_ON },
	{ "namespace_raw", "a namespace or a root directory of its own", name_space_by_number, GOES_ON },
	{ "namespace_exec", "a namespace or a root directory of its own", name_space_by_number, EXECS },
	{ "namespace_thread", "a namespace or a root directory of its own", name_space, IN_THREAD },
	{ "rooted", "a namespace or a root directory of its own", rooted, GOES_ON },
	{ "landlock", "a Landlock domain of its own", landlock, GOES_ON },
	{ "landlock_exec", "a Landlock domain of its own", landlock_little, EXECS },
	{ "securebits", "securebits of its own", securebits, GOES_ON },
	{ "securebits_exec", "securebits of its own", securebits, EXECS },
	{ "dispatch", "a dispatch of its system calls", dispatch, GOES_ON },
	{ "keys", "keys of its own", process_keyring, GOES_ON },
	{ "keys_thread", "keys of its own", thread_keyring, IN_THREAD },
	{ "session_keyring_exec", "a session keyring of its own", session_keyring, EXECS },
	{ "session_key_exec", "keys of its own in the keyring of its session", session_key, EXECS },
};

static int ready[2];

static void confine_and_stay(const struct way *w)
{
	char done = w->confine() == 0;

	if (done && w->then == EXECS) {
		char text[16];

		snprintf(text, sizeof(text), "%d", ready[1]);
		execl("/proc/self/exe", "feature_refuse_confined", "say", text, NULL);
		done = 0;
	}
	CHECK(write(ready[1], &done, 1) == 1);
	for (;;)
		pause();
}

static void *thread(void *w)
{
	confine_and_stay(w);
	return NULL;
}

static pid_t child_make(const struct way *w)
{
	pthread_t t;
	pid_t pid;
	char done = 0;

	CHECK(pipe(ready) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		if (w->then == IN_THREAD)
			CHECK(pthread_create(&t, NULL, thread, (void *)w) == 0 && pthread_join(t, NULL) == 0);
		confine_and_stay(w);
	}
	CHECK(read(ready[0], &done, 1) == 1);
	if (!done)
		feature_skip("it cannot be had here");
	return pid;
}

int main(int argc, char **argv)
{
	const struct way *w = ways;
	pid_t child;
	FILE *f;

	if (argc == 3) { /* what a child has exec'd */
		CHECK(write(atoi(argv[2]), "\1", 1) == 1);
		for (;;)
			pause();
	}
	CHECK(argc == 2);
	for (; w < ways + sizeof(ways) / sizeof(*ways) && strcmp(argv[1], w->name) != 0; w++)
		;
	CHECK(w < ways + sizeof(ways) / sizeof(*ways));
	child = child_make(w);
	f = fopen("refused", "w");
	CHECK(f && fprintf(f, "process %d has %s", child, w->has) > 0 && fclose(f) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(kill(child, 0) == 0);
	} while (feature_step());
	return 0;
}
