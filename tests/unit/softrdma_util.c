/* SPDX-License-Identifier: BSD-2-Clause */
#include "softrdma_util.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn void end_die(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: [%d] failed: %s (errno %d)\n", file, line, getpid(), what, errno);
	_exit(1);
}

void end_open(struct end *e, int nqp, size_t size)
{
	end_open_as(e, nqp, size, IBV_QPT_RC);
}

void end_open_as(struct end *e, int nqp, size_t size, enum ibv_qp_type type)
{
	end_open_at(e, 0, nqp, size, type);
}

/* Each end is another host, with an address of the loopback's own. The key is the same for all that come of this process. */
static void host_begin(void)
{
	static const char key[] = "a key that is long enough";
	static int fd = -1, number;
	char text[64];

	if (fd < 0) {
		fd = memfd_create("key", 0);
		die_unless(write(fd, key, sizeof(key)) == sizeof(key) && !fchmod(fd, 0600));
		number = getpid();
	}
	snprintf(text, sizeof(text), "/proc/self/fd/%d", fd);
	setenv("SOFTRDMA_KEY", text, 1);
	number++;
	snprintf(text, sizeof(text), "127.77.%d.%d", 1 + number / 200 % 7, 1 + number % 200);
	setenv("SOFTRDMA_ADDRESS", text, 1);
}

void end_open_at(struct end *e, int device, int nqp, size_t size, enum ibv_qp_type type)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	int i;

	if (getenv("END_HOSTS"))
		host_begin();
	*e = (struct end){ .nqp = nqp, .size = size, .timeout = 8, .retry_cnt = 3, .rnr_retry = 7,
			   .access = ALL_ACCESS };
	if (getenv("END_HOSTS")) /* the other's thread may have to wait for a processor */
		e->timeout = 15;
	e->ctx = ibv_open_device(list[device]);
	die_unless(e->ctx);
	ibv_free_device_list(list);
	die_unless(!ibv_query_port(e->ctx, 1, &port));
	e->channel = ibv_create_comp_channel(e->ctx);
	e->pd = ibv_alloc_pd(e->ctx);
	e->scq = ibv_create_cq(e->ctx, 1024, e, e->channel, 0);
	e->rcq = ibv_create_cq(e->ctx, 1024, e, e->channel, 0);
	e->buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	die_unless(e->channel && e->pd && e->scq && e->rcq && e->buf != MAP_FAILED);
	e->mr = ibv_reg_mr(e->pd, e->buf, size, ALL_ACCESS);
	die_unless(e->mr);
	for (i = 0; i < nqp; i++) {
		struct ibv_qp_init_attr init = { .send_cq = e->scq, .recv_cq = e->rcq, .qp_type = type,
						 .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4,
							  .max_recv_sge = 4, .max_inline_data = 128 } };

		e->qp[i] = ibv_create_qp(e->pd, &init);
		die_unless(e->qp[i]);
		e->me.qpn[i] = e->qp[i]->qp_num;
	}
	e->me.addr = (uintptr_t)e->buf;
	e->me.rkey = e->mr->rkey;
	e->me.lid = port.lid;
}

void end_close(struct end *e)
{
	int i;

	for (i = 0; i < e->nqp; i++)
		die_unless(!ibv_destroy_qp(e->qp[i]));
	die_unless(!ibv_dereg_mr(e->mr));
	die_unless(!ibv_destroy_cq(e->scq));
	die_unless(!ibv_destroy_cq(e->rcq));
	die_unless(!ibv_dealloc_pd(e->pd));
	die_unless(!ibv_destroy_comp_channel(e->channel));
	die_unless(!ibv_close_device(e->ctx));
	munmap(e->buf, e->size);
}

void qp_to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned int)access,
				 .qkey = END_QKEY };

	die_unless(!ibv_modify_qp(qp, &a,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					  (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

static const int rtr_ud = IBV_QP_STATE;
static const int rtr_uc = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
static const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const int rts_ud = IBV_QP_STATE | IBV_QP_SQ_PSN;
static const int requester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

static int rtr_mask(enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return rtr_ud;
	return type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV ? rtr_uc | responder : rtr_uc;
}

static int rts_mask(enum ibv_qp_type type)
{
	if (type == IBV_QPT_XRC_RECV)
		return rts_ud | IBV_QP_TIMEOUT;
	return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND ? rts_ud | requester : rts_ud;
}

void qp_to_rtr(struct ibv_qp *qp, uint32_t dest, const struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
				 .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				 .ah_attr = { .dlid = e->other.lid ? e->other.lid : e->me.lid, .port_num = 1 } };

	die_unless(!ibv_modify_qp(qp, &a, rtr_mask(qp->qp_type)));
}

void qp_to_rts(struct ibv_qp *qp, uint32_t dest, const struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = (uint8_t)e->timeout,
				 .retry_cnt = (uint8_t)e->retry_cnt, .rnr_retry = (uint8_t)e->rnr_retry,
				 .max_rd_atomic = 1 };

	qp_to_rtr(qp, dest, e);
	die_unless(!ibv_modify_qp(qp, &a, rts_mask(qp->qp_type)));
}

void end_connect_to(struct end *e, const struct end_name *other)
{
	int i;

	e->other = *other;
	for (i = 0; i < e->nqp; i++) {
		qp_to_init(e->qp[i], e->access);
		qp_to_rts(e->qp[i], e->other.qpn[i], e);
	}
}

void end_connect(struct end *e, int sock)
{
	struct end_name other;

	die_unless(write(sock, &e->me, sizeof(e->me)) == sizeof(e->me));
	die_unless(recv(sock, &other, sizeof(other), MSG_WAITALL) == sizeof(other));
	end_connect_to(e, &other);
	meet(sock);
}

void end_open_connected(struct end *e, int nqp, size_t size, int sock)
{
	end_open(e, nqp, size);
	end_connect(e, sock);
}

int end_connection(int from)
{
	struct sockaddr_in sa;
	socklen_t len;

	for (; from < 256; from++)
		if (len = sizeof(sa), !getpeername(from, (struct sockaddr *)&sa, &len) && sa.sin_family == AF_INET)
			return from;
	return -1;
}

void meet(int sock)
{
	char byte = 0;

	die_unless(send(sock, &byte, 1, MSG_NOSIGNAL) == 1);
	die_unless(read(sock, &byte, 1) == 1);
}

int post_recv(struct end *e, int q, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + off, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(e->qp[q], &wr, &bad);
}

int post_wr(struct end *e, int q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(e->qp[q], wr, &bad);
}

int post(struct end *e, int q, uint64_t id, enum ibv_wr_opcode op, size_t off, uint32_t len, size_t to,
	 unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + off, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .send_flags = flags,
				  .imm_data = (uint32_t)id ^ 0x5a5a };

	wr.wr.rdma.remote_addr = e->other.addr + to;
	wr.wr.rdma.rkey = e->other.rkey;
	return post_wr(e, q, &wr);
}

struct ibv_wc next_wc(struct ibv_cq *cq)
{
	time_t end = time(NULL) + 20;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		die_unless(time(NULL) < end);
	die_unless(n == 1);
	return wc;
}

struct ibv_wc next_good_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc = next_wc(cq);

	if (wc.status != IBV_WC_SUCCESS)
		end_die(__FILE__, __LINE__, ibv_wc_status_str(wc.status));
	return wc;
}

void expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(cq);

	if (wc.status != status || wc.wr_id != id) {
		fprintf(stderr, "completion %lu: %s; expected %lu: %s\n", (unsigned long)wc.wr_id,
			ibv_wc_status_str(wc.status), (unsigned long)id, ibv_wc_status_str(status));
		_exit(1);
	}
}

struct ibv_wc good_wc(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc = next_good_wc(cq);

	die_unless(wc.wr_id == id);
	return wc;
}

void expect_empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	die_unless(ibv_poll_cq(cq, 1, &wc) == 0);
}

pid_t end_fork(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS };
	pid_t pid = fork();

	for (size_t i = 0; !pid && i < sizeof(crashes) / sizeof(*crashes); i++)
		signal(crashes[i], SIG_DFL);
	return pid;
}

pid_t spawn_end(int (*fn)(int sock), int *ret_sock)
{
	int sock[2];
	pid_t pid;

	die_unless(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = end_fork();
	die_unless(pid >= 0);
	if (!pid) {
		close(sock[0]);
		_exit(fn(sock[1]));
	}
	close(sock[1]);
	*ret_sock = sock[0];
	return pid;
}

int reap(pid_t pid)
{
	int status;

	die_unless(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void fill(char *p, size_t n, unsigned int seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (char)(seed + i * 7 + (i >> 8));
}

int filled(const char *p, size_t n, unsigned int seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (p[i] != (char)(seed + i * 7 + (i >> 8)))
			return 0;
	return 1;
}
