/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * confined [-d] PROG [ARGS]: PROG as in a container with Docker's default seccomp profile and no added capability. A filter stays with
 * all that a process starts, so a whole test runs under it. -d: only what concerns descriptors (kcmp, pidfd_getfd) is refused: what does without these
 * can then be seen at a restart in namespaces, too.
 *
 * The profile lets a list of calls through and answers EPERM to the rest. Here those of the rest are listed that a program, or
 * fermata, may come upon; clone3 is ENOSYS there, so that libc falls back to clone, whose flags a filter can see. ptrace, process_vm_*
 * and pidfd_open are let through. This is no fence: it does not look at foreign system call tables.
 *
 * A process without CAP_SYS_ADMIN may only filter itself with no_new_privs; one that has it keeps its way to setuid programs.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than this system's headers may be; the numbers are those of every architecture. */
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_set_mempolicy_home_node
#define SYS_set_mempolicy_home_node 450
#endif

#define NEW_NAMESPACE (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define REFUSE(err) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (err))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)

static const uint32_t refused[] = {
	SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsconfig,
	SYS_fsmount, SYS_fspick, SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise, SYS_perf_event_open, SYS_userfaultfd, SYS_bpf,
	SYS_keyctl, SYS_add_key, SYS_request_key, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_open_by_handle_at, SYS_fanotify_init, SYS_lookup_dcookie, SYS_quotactl, SYS_quotactl_fd, SYS_sethostname,
	SYS_setdomainname, SYS_syslog, SYS_acct, SYS_settimeofday, SYS_clock_settime, SYS_vhangup,
	SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_set_mempolicy_home_node, SYS_migrate_pages, SYS_move_pages,
	SYS_swapon, SYS_swapoff, SYS_reboot, SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_nfsservctl,
};

static const uint32_t refused_of_descriptors[] = { SYS_kcmp, SYS_pidfd_getfd };

static const struct sock_filter special[] = {
	UNLESS(SYS_clone3, 1),
	REFUSE(ENOSYS),
	UNLESS(SYS_clone, 4),
	LOAD(args[0]),
	BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACE, 0, 1),
	REFUSE(EPERM),
	ALLOW,
	UNLESS(SYS_personality, 7),
	LOAD(args[0]),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x8, 4, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x20000, 3, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x20008, 2, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0),
	REFUSE(EPERM),
	ALLOW,
};

static int confine(bool descriptors)
{
	struct sock_filter code[1 + 2 * COUNT(refused) + COUNT(special)] = { LOAD(nr) };
	const uint32_t *list = descriptors ? refused_of_descriptors : refused;
	size_t count = descriptors ? COUNT(refused_of_descriptors) : COUNT(refused), n = 1;
	struct sock_fprog program = { .filter = code };

	for (size_t i = 0; i < count; i++) {
		code[n++] = (struct sock_filter)UNLESS(list[i], 1);
		code[n++] = (struct sock_filter)REFUSE(EPERM);
	}
	if (descriptors)
		code[n++] = (struct sock_filter)ALLOW;
	else
		memcpy(code + n, special, sizeof(special));
	program.len = (unsigned short)(descriptors ? n : n + COUNT(special));
	if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		return 0;
	if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) ? -errno : 0;
}

int main(int argc, char **argv)
{
	bool descriptors = argc > 1 && !strcmp(argv[1], "-d");
	int r;

	argv += descriptors;
	if (argc < 2 + descriptors) {
		fprintf(stderr, "Usage: confined [-d] PROG [ARGS]\n");
		return 2;
	}
	r = confine(descriptors);
	if (r) {
		fprintf(stderr, "confined: no filter: %s\n", strerror(-r));
		return 126;
	}
	execvp(argv[1], argv + 1);
	fprintf(stderr, "confined: %s: %s\n", argv[1], strerror(errno));
	return 127;
}
