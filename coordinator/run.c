/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A coordinator's life: takes RUNDIR/JOB and DIR over, listens, says that it is ready, runs the loop, leaves when the job has. Owns the loop
 * and the job's directory. It leaves under the start lock only (rundir.h), after a last look at the accept queue: a launch that
 * holds that lock has its connection here before it lets go, so nobody joins a coordinator that is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "coordinator/internal.h"

#define RUN_GRACE_MS 1000
#define RUN_SOON_MS 20
#define RUN_END_MS 5000	  /* for killed processes to be gone */
#define RUN_ASKED_MS 5000 /* for the restart that has started us to ask for its job */

static bool run_wanted(struct coordinator *c)
{
	if (c->options->relay)
		return c->upstream && c->conn_count > 1;
	if (c->state == STATE_ENDING)
		return c->member_count && raw_now_ns() - c->state_since_ns < RUN_END_MS * 1000000ull;
	if (c->state != STATE_IDLE || c->pruning || c->directories_left || c->member_count || c->half_open || c->relay_count)
		return true;
	return c->options->linger && !c->had_member;
}

static void run_leave(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, leave_timer);
	int lock;

	if (run_wanted(c)) {
		run_check_leave(c);
		return;
	}
	lock = rundir_lock(0);
	if (lock == -EAGAIN) {
		uv_timer_start(&c->leave_timer, run_leave, 100, 0);
		return;
	}
	accept_all(c);
	if (run_wanted(c)) {
		close(lock);
		return;
	}
	relay_leave(c);
	c->start_lock_fd = lock;
	uv_stop(&c->loop);
}

/*
 * A process that goes without a word may have closed its connection before an exec; one that leaves a child may have begun a program that has not
 * connected yet. Of one that has said that it ends, and without a child, nothing comes.
 */
static uint64_t run_grace_ms(const struct coordinator *c)
{
	uint64_t grace = c->options->grace_ms ? c->options->grace_ms : RUN_GRACE_MS, since = (raw_now_ns() - c->may_come_ns) / 1000000;

	if (c->state == STATE_ENDING)
		return RUN_SOON_MS;
	if (c->options->relay || !c->had_member)
		return grace;
	if (!c->may_come_ns) /* not a moment: the machine may be up for less than the grace */
		return RUN_SOON_MS;
	return since + RUN_SOON_MS < grace ? grace - since : RUN_SOON_MS;
}

void run_check_leave(struct coordinator *c)
{
	uint64_t ms = run_grace_ms(c);

	if (run_wanted(c) && c->state != STATE_ENDING)
		return;
	if (!uv_is_active((uv_handle_t *)&c->leave_timer) || uv_timer_get_due_in(&c->leave_timer) > ms)
		uv_timer_start(&c->leave_timer, run_leave, ms, 0);
}

static void run_signal(uv_signal_t *handle, int signum)
{
	struct coordinator *c = handle->data;

	log_warn("signal %d: the coordinator leaves, the job goes on without checkpoints", signum);
	if (c->member_count)
		tell(c, "the coordinator was ended by signal %d: the job goes on, without checkpoints", signum);
	conduct_fail(c, -ECANCELED, "the coordinator was ended by signal %d", signum);
	uv_stop(&c->loop);
}

static void run_interval(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, interval_timer);

	c->interval_due |= c->state == STATE_IDLE || c->state == STATE_AGAIN;
	conduct_request(c);
}

static int run_write_text(const struct coordinator *c, const char *name, const char *text)
{
	char path[RUNDIR_PATH_MAX + 16];
	size_t len = strlen(text);
	int fd, r = 0;

	snprintf(path, sizeof(path), "%s/%s", c->jobdir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len)
		r = -EIO;
	close(fd);
	return r;
}

static int run_write_info(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;
	json_t *info = json_pack("{s:s, s:s, s:s?, s:i, s:s, s:i, s:i, s:s, s:s, s:i}", "job", o->job, "dir", c->store.dir, "relay", o->relay, "pid",
				 (int)getpid(), "fermata", FERMATA_VERSION, "interval", (int)o->interval_s, "keep",
				 (int)o->keep, "compress", o->compress, "rdma", o->rdma, "timeout_ms", (int)o->timeout_ms);
	char *text = info ? json_dumps(info, JSON_INDENT(2)) : NULL, pid[32];
	int r = text ? run_write_text(c, "info.json", text) : -ENOMEM;

	free(text);
	json_decref(info);
	snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	return r < 0 ? r : run_write_text(c, "pid", pid);
}

static void run_init_loop(struct coordinator *c)
{
	list_init(&c->conns);
	list_init(&c->members);
	list_init(&c->losses);
	list_init(&c->let_run);
	list_init(&c->leaving);
	uv_loop_init(&c->loop);
	uv_timer_init(&c->loop, &c->phase_timer);
	uv_timer_init(&c->loop, &c->retry_timer);
	uv_timer_init(&c->loop, &c->interval_timer);
	uv_timer_init(&c->loop, &c->leave_timer);
	uv_timer_init(&c->loop, &c->progress_timer);
	uv_timer_init(&c->loop, &c->look_timer);
	uv_prepare_init(&c->loop, &c->flush);
	uv_prepare_start(&c->flush, tunnel_flush_all);
	uv_signal_init(&c->loop, &c->term);
	uv_signal_init(&c->loop, &c->interrupt);
	uv_signal_init(&c->loop, &c->child);
	c->term.data = c->interrupt.data = c->child.data = c;
}

static int run_listen(struct coordinator *c)
{
	char why[256];
	int r = 0;

	if (!accept_network(c, c->options->listen, &r, why, sizeof(why)))
		log_error("job %s: %s", c->options->job, why);
	return r;
}

static int run_open(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;
	int r = rundir_job_create(o->job, c->jobdir, c->key);

	if (r < 0) {
		log_error("job %s: %s", o->job, r == -EBUSY ? "it is running already" : strerror(-r));
		return r;
	}
	c->job_lock_fd = r;
	r = o->relay ? relay_open(c) : store_open(&c->store, o->dir);
	if (r == 0 && o->restart)
		r = manifest_expect(c, o->restart);
	if (r < 0)
		return r;
	r = run_write_info(c);
	if (r == 0)
		r = accept_listen(c);
	if (r < 0)
		log_error("job %s: %s: %s", o->job, c->jobdir, strerror(-r));
	return r < 0 || !o->listen ? r : run_listen(c);
}

/* From here on the job's log is written, and the terminal is the programs'; what else is said there: tell.c. */
static void run_ready(struct coordinator *c)
{
	char path[RUNDIR_PATH_MAX + 16];
	int fd;

	if (c->options->ready_fd < 0)
		return;
	tell_open(c);
	snprintf(path, sizeof(path), "%s/log", c->jobdir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		dup2(fd, 2);
		close(fd);
	}
	if (raw_write_all(c->options->ready_fd, "ok\n", 3) < 0)
		log_warn("nobody waits for this coordinator");
	close(c->options->ready_fd);
}

/* Until MSG_WAIT_RESTART, which starts the timer anew, nobody's end tells us that the restart has been given up. */
static void run_not_asked(uv_timer_t *timer)
{
	struct coordinator *c = container_of(timer, struct coordinator, phase_timer);

	conduct_fail(c, -ECANCELED, "fermata restart was ended before its processes were restored");
}

static void run_start_timers(struct coordinator *c)
{
	const struct coordinator_options *o = c->options;

	uv_signal_start(&c->term, run_signal, SIGTERM);
	uv_signal_start(&c->interrupt, run_signal, SIGINT);
	if (o->interval_s)
		uv_timer_start(&c->interval_timer, run_interval, o->interval_s * 1000ull, o->interval_s * 1000ull);
	c->state_since_ns = raw_now_ns();
	if (o->restart) {
		c->state = STATE_RESTORE;
		uv_timer_start(&c->phase_timer, run_not_asked, RUN_ASKED_MS, 0);
	}
	run_check_leave(c);
}

static void run_close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle)) /* connections' are */
		uv_close(handle, NULL);
}

static void run_close(struct coordinator *c)
{
	const bool living = c->member_count;
	struct conn *k;

	c->state = STATE_ENDING;
	if (c->store.open)
		store_abandon(c);
	list_each_safe(k, &c->conns, node)
		connection_close(k);
	uv_walk(&c->loop, run_close_handle, c);
	uv_run(&c->loop, UV_RUN_DEFAULT);
	uv_loop_close(&c->loop);
	accept_close(c);
	tell_close(c);
	store_close(c);
	directories_end(c);
	names_clear(c);
	if (c->job_lock_fd >= 0) {
		rundir_job_remove(c->jobdir, living);
		close(c->job_lock_fd);
	}
	if (c->start_lock_fd >= 0)
		close(c->start_lock_fd);
	host_free(c);
	let_run_end(c);
	leaving_end(c);
	free(c->buckets);
	free(c->expected);
}

int coordinator_run(const struct coordinator_options *options)
{
	struct coordinator *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->options = options;
	c->listen_fd = c->job_lock_fd = c->start_lock_fd = c->tell_fd = c->store.lock_fd = -EBADF;
	c->next_member = 1;
	umask(077);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* what is told may go to a file that is as large as it may be */
	raw_descriptors_raise(); /* many processes are many connections */
	run_init_loop(c);
	r = run_open(c);
	if (r == 0) {
		run_ready(c);
		run_start_timers(c);
		uv_run(&c->loop, UV_RUN_DEFAULT);
		r = c->exit_error;
	}
	run_close(c);
	free(c);
	return r;
}
