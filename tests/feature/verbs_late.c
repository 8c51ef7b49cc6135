/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names that somebody gets long after they were told. One process, the early one, has queue pairs that are connected to nobody, with receives, and has told
 * their numbers, its LID and its key. LATES others wait: some have not looked for a device yet, some have looked, some have opened one and closed it, one
 * becomes another program when its turn comes, one begins another, and one has become another already and has a region. In a step
 * one of these makes a queue pair, connects it to one of the early ones by what was told, sends to it, reads and writes there, gets an answer,
 * and ends; another takes its place. The first process has nothing to do with RDMA, and makes them.
 */
#include "feature.h"

#include <infiniband/verbs.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LATES 6u
#define WORDS 64u
#define POSTED 1000u /* and the operation: an id; receives have their slot's number */
#define NUMBER 100 /* the descriptor of what is shared, for programs that are begun */
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct name {
	uint32_t qpn, rkey;
	uint64_t address;
	uint16_t lid;
};

static struct shared {
	sem_t go[LATES], come, connected; /* for a late one; for the early one, with @who; for the late one again */
	struct name early[LATES], late;
	uint32_t who; /* LATES: it ends */
} *shared;

static struct memory {
	uint64_t in[LATES][WORDS], out[WORDS], read[WORDS], written[WORDS];
} memory __attribute__((aligned(4096)));

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static void wait_for(sem_t *s)
{
	while (sem_wait(s))
		CHECK(errno == EINTR);
}

/* ---- both ---- */

static void device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context);
	ibv_free_device_list(list);
}

static void objects_make(void)
{
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, &memory, sizeof(memory), ALL);
	CHECK(pd && cq && mr);
}

static struct ibv_qp *qp_make(struct name *told, uint32_t slot)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 1, 1, 1, 0 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };
	struct ibv_sge sge = { (uintptr_t)memory.in[slot], sizeof(memory.in[slot]), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_port_attr port;

	CHECK(qp && !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_post_recv(qp, &wr, &bad) && !ibv_query_port(context, 1, &port));
	*told = (struct name){ qp->qp_num, mr->rkey, (uintptr_t)&memory, port.lid };
	return qp;
}

static void qp_connect(struct ibv_qp *qp, const struct name *to)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qpn, .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 1, .ah_attr = { .dlid = to->lid, .port_num = 1 } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC));
}

static enum ibv_wc_opcode any_completion(const struct ibv_qp *qp)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.qp_num == qp->qp_num);
	if (wc.status != IBV_WC_SUCCESS)
		feature_fail("operation %lu of queue pair 0x%x: %s", (unsigned long)wc.wr_id, qp->qp_num, ibv_wc_status_str(wc.status));
	return wc.opcode;
}

static void completion(enum ibv_wc_opcode opcode, const struct ibv_qp *qp)
{
	CHECK(any_completion(qp) == opcode);
}

/* The answer may come before one knows that the question has arrived. */
static void answered(const struct ibv_qp *qp)
{
	enum ibv_wc_opcode first = any_completion(qp);

	completion(first == IBV_WC_SEND ? IBV_WC_RECV : IBV_WC_SEND, qp);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t *words, const struct name *to, size_t at)
{
	struct ibv_sge sge = { (uintptr_t)words, WORDS * sizeof(*words), mr->lkey };
	struct ibv_send_wr wr = { .wr_id = POSTED + opcode, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
				  .wr.rdma = { .remote_addr = to->address + at, .rkey = to->rkey } };
	struct ibv_send_wr *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* ---- the early one ---- */

static void serve(struct ibv_qp *qp, uint32_t who)
{
	const struct name *late = &shared->late;

	qp_connect(qp, late);
	CHECK(sem_post(&shared->connected) == 0);
	completion(IBV_WC_RECV, qp);
	CHECK(pattern_holds(memory.in[who], sizeof(memory.in[who]), late->qpn));
	CHECK(pattern_holds(memory.written, sizeof(memory.written), late->qpn)); /* it was written before */
	post(qp, IBV_WR_RDMA_WRITE, memory.out, late, offsetof(struct memory, written));
	completion(IBV_WC_RDMA_WRITE, qp);
	post(qp, IBV_WR_SEND, memory.out, late, 0);
	completion(IBV_WC_SEND, qp);
}

static void early(void)
{
	struct ibv_qp *qps[LATES];

	device_open();
	objects_make();
	pattern_fill(memory.out, sizeof(memory.out), 0);
	for (uint32_t i = 0; i < LATES; i++)
		qps[i] = qp_make(&shared->early[i], i);
	CHECK(sem_post(&shared->connected) == 0);
	for (;;) {
		uint32_t who;

		wait_for(&shared->come);
		who = shared->who;
		if (who == LATES)
			exit(0);
		serve(qps[who], who);
		CHECK(!ibv_destroy_qp(qps[who]));
		qps[who] = qp_make(&shared->early[who], who);
		CHECK(sem_post(&shared->connected) == 0);
	}
}

/* ---- a late one ---- */

static void late_work(uint32_t who)
{
	struct name to = shared->early[who];
	struct ibv_qp *qp;

	if (!context) {
		device_open();
		objects_make();
	}
	qp = qp_make(&shared->late, 0);
	qp_connect(qp, &to);
	shared->who = who;
	CHECK(sem_post(&shared->come) == 0);
	wait_for(&shared->connected);
	pattern_fill(memory.out, sizeof(memory.out), qp->qp_num);
	post(qp, IBV_WR_RDMA_READ, memory.read, &to, offsetof(struct memory, out));
	completion(IBV_WC_RDMA_READ, qp);
	CHECK(pattern_holds(memory.read, sizeof(memory.read), 0));
	post(qp, IBV_WR_RDMA_WRITE, memory.out, &to, offsetof(struct memory, written));
	completion(IBV_WC_RDMA_WRITE, qp);
	post(qp, IBV_WR_SEND, memory.out, &to, 0);
	answered(qp);
	CHECK(pattern_holds(memory.in[0], sizeof(memory.in[0]), 0) && pattern_holds(memory.written, sizeof(memory.written), 0));
}

static void ended_well(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		feature_fail("a process ended with status 0x%x", (unsigned int)status);
}

/* What a late one does that is to be another program, this one with a word and its number; main() goes on with it. */
static void other_program(const char *word, uint32_t who, int spawn)
{
	char number[16];
	char *argv[] = { "late", (char *)word, number, NULL };
	extern char **environ;
	pid_t pid;

	snprintf(number, sizeof(number), "%u", who);
	if (!spawn) {
		execv("/proc/self/exe", argv);
		feature_fail("exec: %s", strerror(errno));
	}
	CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
	ended_well(pid);
}

static void late_wait(uint32_t who)
{
	CHECK(sem_post(&shared->connected) == 0);
	wait_for(&shared->go[who]);
}

static void late_forked(uint32_t who)
{
	if (who == 1)
		ibv_free_device_list(ibv_get_device_list(NULL));
	if (who == 2) {
		device_open();
		CHECK(!ibv_close_device(context));
		context = NULL;
	}
	if (who == 5)
		other_program("wait", who, 0);
	late_wait(who);
	if (who == 3 || who == 4)
		other_program("work", who, who == 4);
	else
		late_work(who);
}

static int late_begun(const char *word, uint32_t who)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, NUMBER, 0);
	CHECK(shared != MAP_FAILED);
	if (!strcmp(word, "wait")) {
		device_open();
		objects_make();
		late_wait(who);
	}
	late_work(who);
	return 0;
}

static pid_t late(uint32_t who)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	late_forked(who);
	exit(0);
}

/* ---- who has no device ---- */

static pid_t begin(void)
{
	int fd = memfd_create("shared", 0);
	pid_t pid;

	CHECK(fd >= 0 && ftruncate(fd, sizeof(*shared)) == 0 && dup2(fd, NUMBER) == NUMBER && close(fd) == 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, NUMBER, 0);
	CHECK(shared != MAP_FAILED);
	for (uint32_t i = 0; i < LATES; i++)
		CHECK(sem_init(&shared->go[i], 1, 0) == 0);
	CHECK(sem_init(&shared->come, 1, 0) == 0 && sem_init(&shared->connected, 1, 0) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		early();
	wait_for(&shared->connected);
	return pid;
}

int main(int argc, char **argv)
{
	pid_t first, pids[LATES];
	uint32_t n = 0;

	if (argc > 1)
		return late_begun(argv[1], (uint32_t)atoi(argv[2]));
	first = begin();
	for (uint32_t i = 0; i < LATES; i++) {
		pids[i] = late(i);
		wait_for(&shared->connected);
	}
	feature_ready();
	do {
		CHECK(sem_post(&shared->go[n]) == 0);
		ended_well(pids[n]);
		wait_for(&shared->connected); /* the early one has a new queue pair for the next */
		pids[n] = late(n);
		wait_for(&shared->connected);
		n = (n + 1) % LATES;
	} while (feature_step());
	shared->who = LATES;
	CHECK(sem_post(&shared->come) == 0);
	ended_well(first);
	for (uint32_t i = 0; i < LATES; i++) {
		CHECK(kill(pids[i], SIGKILL) == 0);
		CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
	}
	return 0;
}
