/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is not ours: a child's copy of a context, and its own; the modes of what lies in shared memory, another user's files.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "softrdma/device.h"
#include "softrdma_directory.h"
#include "softrdma_things.h"
#include "softrdma_util.h"

#define SIG IBV_SEND_SIGNALED

/* ---- a forked child ---- */

static int echo(int sock)
{
	struct end e;
	struct ibv_wc wc;
	int i;

	end_open(&e, 1, THINGS_SIZE);
	qp_to_init(e.qp[0], ALL_ACCESS);
	for (i = 0; i < 8; i++)
		die_unless(!post_recv(&e, 0, 1, 0, 4096));
	end_connect(&e, sock);
	for (i = 0; i < 3; i++) {
		wc = good_wc(e.rcq, 1);
		/* To both sorts of memory: sent, and written. */
		die_unless(!post(&e, 0, 2, IBV_WR_RDMA_WRITE, 0, wc.byte_len, 16384, SIG));
		die_unless(!post(&e, 0, 2, IBV_WR_SEND, 0, wc.byte_len, 0, SIG));
		good_wc(e.scq, 2);
		good_wc(e.scq, 2);
	}
	meet(sock);
	end_close(&e);
	return 0;
}

static void echo_round(struct end *e, unsigned int seed)
{
	fill(e->buf, 3000, seed);
	memset(e->buf + 8192, 0, 3000);
	memset(e->buf + 16384, 0, 3000);
	die_unless(!post_recv(e, 0, 3, 8192, 4096));
	die_unless(!post(e, 0, 4, IBV_WR_SEND, 0, 3000, 0, SIG));
	good_wc(e->scq, 4);
	good_wc(e->rcq, 3);
	die_unless(filled(e->buf + 8192, 3000, seed) && filled(e->buf + 16384, 3000, seed));
}

/* What the child does with its copy; its memory is another's from the moment of the fork on. */
static _Noreturn void child_of(struct end *e, int in)
{
	char byte;

	memset(e->buf, 0x77, e->size);
	die_unless(read(in, &byte, 1) == 1); /* the parent has been written to */
	die_unless(e->buf[8192] == 0x77 && e->buf[16384] == 0x77);
	die_unless(!ibv_close_device(e->ctx));
	/* One of its own. */
	end_open(e, 1, THINGS_SIZE);
	end_connect_to(e, &e->me);
	die_unless(!post_recv(e, 0, 3, 8192, 4096));
	die_unless(!post(e, 0, 4, IBV_WR_SEND, 0, 3000, 0, SIG));
	good_wc(e->rcq, 3);
	end_close(e);
	_exit(0);
}

static void fork_in_mid_run(void)
{
	struct end e;
	int sock, pipefd[2], before;
	pid_t child, pid = spawn_end(echo, &sock);

	end_open_connected(&e, 1, THINGS_SIZE, sock);
	before = directory_entries(sr_context(e.ctx)->dir);
	echo_round(&e, 1);
	die_unless(!pipe(pipefd));
	child = end_fork();
	die_unless(child >= 0);
	if (!child)
		child_of(&e, pipefd[0]);
	echo_round(&e, 2);
	die_unless(write(pipefd[1], "", 1) == 1);
	die_unless(reap(child) == 0);
	die_unless(directory_entries(sr_context(e.ctx)->dir) == before);
	echo_round(&e, 3);
	meet(sock);
	die_unless(reap(pid) == 0);
	end_close(&e);
}

static void fork_init_first(void)
{
	die_unless(!ibv_fork_init());
	fork_in_mid_run();
}

static void test_fork(void **state)
{
	assert_int_equal(in_child(fork_in_mid_run), 0);
	assert_int_equal(in_child(fork_init_first), 0);
}

/* ---- other users ---- */

static void check_modes(const char *dir)
{
	char path[400];
	struct stat st;
	DIR *in = opendir(dir);
	struct dirent *d;

	die_unless(in && !stat(dir, &st) && (st.st_mode & 07777) == 0700);
	while ((d = readdir(in))) {
		snprintf(path, sizeof(path), "%s/%s", dir, d->d_name);
		if (d->d_name[0] == '.' || lstat(path, &st))
			continue;
		if ((st.st_mode & 07777) != 0600)
			fprintf(stderr, "%s: %o\n", path, st.st_mode & 07777);
		die_unless((st.st_mode & 07777) == 0600);
	}
	closedir(in);
}

static void modes(void)
{
	char dir[80];
	struct things t;
	int err;

	snprintf(dir, sizeof(dir), "%s/modes-XXXXXX", getenv("SOFTRDMA_DIR"));
	die_unless(mkdtemp(dir));
	setenv("SOFTRDMA_DIR", dir, 1);
	umask(0);
	die_unless(things_make(&t, &err) == THINGS);
	die_unless(directory_entries(dir) >= 3);
	check_modes(dir);
	things_unmake(&t);
}

static void test_modes(void **state)
{
	assert_int_equal(in_child(modes), 0);
}

static unsigned int first_uid; /* and the next: users whom no other run of this test has */

static void become(unsigned int uid)
{
	die_unless(!setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
	unsetenv("SOFTRDMA_DIR");
}

static int first_user(int sock)
{
	struct end e;

	become(first_uid);
	end_open(&e, 1, THINGS_SIZE);
	die_unless(write(sock, sr_context(e.ctx)->dir, SR_PATH_MAX) == SR_PATH_MAX);
	die_unless(write(sock, &e.me, sizeof(e.me)) == sizeof(e.me));
	meet(sock);
	end_close(&e);
	return 0;
}

static int second_user(int sock)
{
	struct end_name other;
	char dir[SR_PATH_MAX], path[SR_PATH_MAX + 16];
	struct ibv_device **list;
	struct end e;

	become(first_uid + 1);
	die_unless(read(sock, dir, sizeof(dir)) == sizeof(dir) && read(sock, &other, sizeof(other)) == sizeof(other));
	/* A device of its own, with a name that leads nowhere. */
	end_open(&e, 1, THINGS_SIZE);
	die_unless(strcmp(sr_context(e.ctx)->dir, dir));
	die_unless(!sr_peer_get(sr_context(e.ctx), other.qpn[0] >> SR_QP_BITS));
	end_close(&e);
	snprintf(path, sizeof(path), "%s/ctx-%03x", dir, other.qpn[0] >> SR_QP_BITS);
	die_unless(open(path, O_RDONLY) < 0 && errno == EACCES);
	die_unless(!opendir(dir) && errno == EACCES);
	setenv("SOFTRDMA_DIR", dir, 1);
	list = ibv_get_device_list(NULL);
	die_unless(list && !ibv_open_device(list[0]) && errno == EPERM);
	meet(sock);
	return 0;
}

static void test_two_users(void **state)
{
	char dir[SR_PATH_MAX], command[160];
	struct end_name name;
	int sock[2];
	pid_t pid[2];

	if (geteuid()) {
		print_message("only root can be two users\n");
		skip();
	}
	first_uid = 20000 + (unsigned int)getpid() % 20000 * 2;
	pid[0] = spawn_end(first_user, &sock[0]);
	pid[1] = spawn_end(second_user, &sock[1]);
	die_unless(read(sock[0], dir, sizeof(dir)) == sizeof(dir));
	die_unless(read(sock[0], &name, sizeof(name)) == sizeof(name));
	die_unless(write(sock[1], dir, sizeof(dir)) == sizeof(dir));
	die_unless(write(sock[1], &name, sizeof(name)) == sizeof(name));
	meet(sock[1]);
	meet(sock[0]);
	assert_int_equal(reap(pid[0]), 0);
	assert_int_equal(reap(pid[1]), 0);
	snprintf(command, sizeof(command), "rm -rf /dev/shm/softrdma-%u /dev/shm/softrdma-%u", first_uid, first_uid + 1);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fork), cmocka_unit_test(test_modes), cmocka_unit_test(test_two_users),
	};

	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
