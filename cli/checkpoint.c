/* SPDX-License-Identifier: BSD-2-Clause */
/* fermata checkpoint: asks the coordinator for one and waits until it is committed or has failed. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macro.h"
#include "cli/cli.h"
#include "protocol/external.h"
#include "protocol/files.h"
#include "protocol/text.h"

static const char checkpoint_help[] =
	"Usage: fermata checkpoint [JOB] [--stop] [--files WHAT] [--external WHAT] [--text WHAT] [--json]\n"
	"Takes a checkpoint of JOB (or of the only job that runs) and waits for it.\n"
	"  --stop   end the job when the checkpoint is committed\n"
	"  --files WHAT  restore, check or ignore, for this checkpoint: see fermata launch --help\n"
	"  --external WHAT  fail, error or reconnect-listen: likewise\n"
	"  --text WHAT  ref or save: likewise\n"
	"  --json   the result as JSON\n"
	"Exit status: 0 committed; 4 it failed and the job goes on unharmed.\n";

static const struct option checkpoint_long[] = {
	{ "stop", no_argument, NULL, 's' },
	{ "files", required_argument, NULL, 'f' },
	{ "external", required_argument, NULL, 'e' },
	{ "text", required_argument, NULL, 't' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static void checkpoint_progress(const struct link_message *m, bool *drawn)
{
	static const char *const names[] = { "", "suspending", "quiescing", "draining", "writing", "committing", "", "has failed, going back" };
	struct msg_checkpoint_progress p;
	char done[32], total[32];

	if (!isatty(STDERR_FILENO) || m->length < sizeof(p))
		return;
	memcpy(&p, m->data, sizeof(p));
	*drawn = true;
	if (p.phase == PHASE_NONE) {
		fprintf(stderr, "\r\033[Krefused for the moment, %u times: waiting to try again", p.round);
		return;
	}
	size_format((double)p.bytes_done, done, sizeof(done));
	size_format((double)p.bytes_total, total, sizeof(total));
	fprintf(stderr, "\r\033[K%s: %u of %u processes", p.phase < ARRAY_SIZE(names) ? names[p.phase] : "", p.reported, p.processes);
	if (p.bytes_total)
		fprintf(stderr, ", %s of %s", done, total);
}

static int checkpoint_print(const struct job *job, const struct link_message *m, bool json)
{
	struct msg_checkpoint_result r;
	const char *path, *text;
	char size[80];

	if (m->length < sizeof(r))
		return CLI_FAILED;
	memcpy(&r, m->data, sizeof(r));
	if (r.path_length + (size_t)r.text_length > m->length - sizeof(r))
		return CLI_FAILED;
	path = (const char *)m->data + sizeof(r);
	text = path + r.path_length;
	if (json) {
		json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:i, s:I, s:f, s:s%, s:s%}", "job", job->name, "error", r.error,
				      "attempts", (int)r.attempts, "checkpoint", (int)r.checkpoint, "processes", (int)r.processes, "bytes",
				      (json_int_t)r.bytes, "contents", (int)r.contents, "contents_bytes",
				      (json_int_t)r.contents_bytes, "pause_ms", (double)r.pause_ns / 1e6, "path", path,
				      (size_t)r.path_length, "text", text, (size_t)r.text_length);

		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
	} else if (!r.error) {
		size_format_contents((double)r.bytes, (double)r.contents_bytes, r.contents, size, sizeof(size));
		printf("checkpoint %u: %u process%s, %s, paused %.0f ms, %.*s\n", r.checkpoint, r.processes,
		       r.processes == 1 ? "" : "es", size, (double)r.pause_ns / 1e6, (int)r.path_length, path);
	}
	if (r.error && !json)
		fprintf(stderr, "fermata: job %s: checkpoint failed, the job goes on: %.*s\n", job->name, (int)r.text_length,
			text);
	return r.error ? CLI_CHECKPOINT_FAILED : CLI_OK;
}

static int checkpoint_wait(struct job *job, bool json)
{
	struct link_message m;
	bool drawn = false;
	int r;

	while ((r = link_receive(&job->link, &m, -1)) == 0 && m.type == MSG_CHECKPOINT_PROGRESS)
		checkpoint_progress(&m, &drawn);
	if (drawn)
		fputs("\r\033[K", stderr);
	if (r == 0 && m.type == MSG_CHECKPOINT_RESULT)
		return checkpoint_print(job, &m, json);
	if (r == 0 && m.type == MSG_ERROR && m.length >= sizeof(struct msg_error))
		fprintf(stderr, "fermata: job %s: no checkpoint: %.*s\n", job->name,
			(int)(m.length - sizeof(struct msg_error)), (const char *)m.data + sizeof(struct msg_error));
	else
		log_error("job %s: no checkpoint: its coordinator is gone", job->name);
	return CLI_CHECKPOINT_FAILED;
}

int cmd_checkpoint(int argc, char **argv)
{
	struct msg_checkpoint request = { 0 };
	bool json = false;
	struct job job;
	int o, r;

	while ((o = getopt_long(argc, argv, "h", checkpoint_long, NULL)) != -1) {
		switch (o) {
		case 's': request.flags |= MSG_CHECKPOINT_STOP; break;
		case 'f':
			if (options_check(NULL, NULL, optarg) < 0)
				return CLI_USAGE;
			request.files = files_parse(optarg);
			break;
		case 'e':
			if (options_external(optarg) < 0)
				return CLI_USAGE;
			request.flags |= external_flag(external_parse(optarg));
			break;
		case 't':
			if (options_program_text(optarg) < 0)
				return CLI_USAGE;
			request.flags |= text_flag(text_parse(optarg));
			break;
		case 'j': json = true; break;
		case 'h': fputs(checkpoint_help, stdout); return CLI_OK;
		default: fputs(checkpoint_help, stderr); return CLI_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs(checkpoint_help, stderr);
		return CLI_USAGE;
	}
	r = job_connect(argv[optind], &job);
	if (r < 0)
		return r == -ENOENT || r == -EINVAL ? CLI_USAGE : CLI_CHECKPOINT_FAILED;
	r = link_send(&job.link, MSG_CHECKPOINT, &request, sizeof(request));
	r = r < 0 ? CLI_CHECKPOINT_FAILED : checkpoint_wait(&job, json);
	job_close(&job);
	return r;
}
