/* SPDX-License-Identifier: BSD-2-Clause */
/* ssh's command lines: which are for another host's part of the job, what is the host, the command, and what ssh itself is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/remote.h"

#define WORDS 32

static void split(char *line, char **words)
{
	char *at = NULL;
	int n = 0;

	for (char *w = strtok_r(line, " ", &at); w; w = strtok_r(NULL, " ", &at))
		words[n++] = w;
	words[n] = NULL;
}

static const struct {
	const char *line, *host, *command, *told; /* @told: what ssh itself is given */
	bool no_input;
} lines[] = {
	{ "ssh b cmd", "b", "cmd", "ssh b", false },
	{ "ssh b cmd  -x y", "b", "cmd -x y", "ssh b", false },
	{ "ssh -x b cmd", "b", "cmd", "ssh -x b", false },
	{ "ssh -x -n b cmd", "b", "cmd", "ssh -x b", true },
	{ "ssh -xnq b cmd", "b", "cmd", "ssh -xq b", true },
	{ "ssh -p 22 -lme b cmd", "b", "cmd", "ssh -p 22 -lme b", false },
	{ "ssh -pn b cmd", "b", "cmd", "ssh -pn b", false },
	{ "ssh -np 22 b cmd", "b", "cmd", "ssh -p 22 b", true },
	{ "ssh -o A=b -F f -i n me@b cmd", "me@b", "cmd", "ssh -o A=b -F f -i n me@b", false },
	{ "ssh b -p 22 cmd", "b", "cmd", "ssh b -p 22", false },
	{ "ssh b -n cmd", "b", "cmd", "ssh b", true },
	{ "ssh -- b cmd", "b", "cmd", "ssh -- b", false },
	{ "ssh b -- cmd -n", "b", "cmd -n", "ssh b --", false },
	{ "ssh -vvv -4 -C b cmd", "b", "cmd", "ssh -vvv -4 -C b", false },
	{ "ssh -L 1:b:2 -J j,k -B eth0 b cmd", "b", "cmd", "ssh -L 1:b:2 -J j,k -B eth0 b", false },
	{ "ssh ssh://me@b:22 cmd", "ssh://me@b:22", "cmd", "ssh ssh://me@b:22", false },
};

static const char *const left_alone[] = {
	"ssh", "ssh b", "ssh -p 22 b", "ssh -p", "ssh -t b cmd", "ssh -tt b cmd", "ssh -xt b cmd", "ssh -N b cmd", "ssh -f b cmd", "ssh -nf b cmd",
	"ssh -W c:22 b cmd", "ssh -s b sftp", "ssh b -s sftp", "ssh -G b cmd", "ssh -V", "ssh -Q mac", "ssh -O exit b cmd", "ssh -M b cmd",
	"ssh -o RequestTTY=force b cmd", "ssh -orequesttty=force b cmd", "ssh -o SessionType=none b cmd", "ssh -Z b cmd", "ssh -P x b cmd",
};

static void test_lines(void **state)
{
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char line[256], told[256] = "", *words[WORDS], *out[WORDS], *command;
		struct remote_options o;

		snprintf(line, sizeof(line), "%s", lines[i].line);
		split(line, words);
		assert_true(remote_options_parse(words, &o));
		assert_string_equal(o.host, lines[i].host);
		assert_int_equal(o.no_input, lines[i].no_input);
		command = remote_options_command(words, &o);
		assert_string_equal(command, lines[i].command);
		free(command);
		remote_options_copy(words, &o, out);
		for (char **w = out; *w; w++)
			snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s%s", w == out ? "" : " ", *w);
		assert_string_equal(told, lines[i].told);
	}
}

static void test_left_alone(void **state)
{
	for (size_t i = 0; i < sizeof(left_alone) / sizeof(left_alone[0]); i++) {
		char line[256], *words[WORDS];
		struct remote_options o;

		snprintf(line, sizeof(line), "%s", left_alone[i]);
		split(line, words);
		if (remote_options_parse(words, &o))
			fail_msg("%s", left_alone[i]);
	}
}

/* The words are joined as they are: what is empty is there, and quotes are the other shell's. */
static void test_command(void **state)
{
	char *words[] = { "ssh", "b", "echo", "", "a  b", "'$HOME'", NULL };
	struct remote_options o;
	char *command;

	assert_true(remote_options_parse(words, &o));
	command = remote_options_command(words, &o);
	assert_string_equal(command, "echo  a  b '$HOME'");
	free(command);
	words[2] = "";
	words[3] = NULL;
	assert_false(remote_options_parse(words, &o));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines), cmocka_unit_test(test_left_alone), cmocka_unit_test(test_command) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
