/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * speculates [-n] PROG [ARGS]: PROG, and all that it begins, as on a processor and a kernel that let a thread choose about speculation (prctl(2), PR_SET_SPECULATION_CTRL), whatever this one
 * lets choose: the parent of PROG answers for the kernel (seccomp_unotify(2)), by the number of the thread that asks. Who has chosen nothing speculates; a child does not inherit here. -n: as
 * on one that speculates and lets nobody choose. Its status is that of PROG.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 3, THREADS = 4 << 20 };
static uint8_t chosen[KINDS][THREADS]; /* pages that nobody asked about are not there */
static bool may_choose = true;

static int filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_SPECULATION_CTRL, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SPECULATION_CTRL, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(*code), .filter = code };

	if (geteuid() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int64_t answer(const struct seccomp_notif *asked, int32_t *ret_error)
{
	uint64_t kind = asked->data.args[1], wanted = asked->data.args[2];
	uint8_t *has = kind < KINDS && asked->pid < THREADS ? &chosen[kind][asked->pid] : NULL;

	if (!has)
		*ret_error = -ENODEV;
	else if (asked->data.args[0] == PR_GET_SPECULATION_CTRL)
		return may_choose ? PR_SPEC_PRCTL | (*has ? *has : PR_SPEC_ENABLE) : PR_SPEC_ENABLE;
	else if (!may_choose || *has & PR_SPEC_FORCE_DISABLE)
		*ret_error = may_choose ? -EPERM : -ENXIO;
	else
		*has = (uint8_t)wanted;
	return 0;
}

static void serve(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	while (poll(&p, 1, -1) == 1 && !(p.revents & POLLHUP)) { /* the last of them has ended */
		struct seccomp_notif asked = { 0 };
		struct seccomp_notif_resp said = { 0 };

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
			continue; /* it was killed */
		said.id = asked.id;
		said.val = answer(&asked, &said.error);
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &said);
	}
}

static void hand(int via, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec one = { &byte, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (fd >= 0)
		sendmsg(via, &m, 0);
	close(via);
}

static int take(int via)
{
	char room[CMSG_SPACE(sizeof(int))] = "", byte;
	struct iovec one = { &byte, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(via, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(via);
	return fd;
}

int main(int argc, char **argv)
{
	int ends[2], status, listener;
	pid_t pid;

	may_choose = argc < 2 || strcmp(argv[1], "-n");
	argv += !may_choose;
	if (argc < 2 + !may_choose || socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
		fprintf(stderr, "Usage: speculates [-n] PROG [ARGS]\n");
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		listener = filter();
		hand(ends[1], listener);
		close(ends[0]);
		close(listener);
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	close(ends[1]);
	listener = take(ends[0]);
	if (pid < 0 || listener < 0) {
		fprintf(stderr, "speculates: this kernel lets nobody answer for it\n");
		return 126;
	}
	serve(listener);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
