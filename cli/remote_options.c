/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ssh's command line: options, the host, options again, the command. What asks for something else than a command without a terminal is left to
 * ssh: a login, a terminal (-t), a subsystem, a session in the background, mere forwarding, a question to ssh itself. No state.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/remote.h"

#define WITH_ARGUMENT "BbcDEeFIiJLlmOopQRSWw"
#define PLAIN "1246AaCgKkqTvXxYy"
#define LEFT_ALONE "fGMNsVtOQWP" /* -P was without an argument once, and has one now */

/* Those that make a session something else than it looks like here. */
static bool is_left_alone(const char *setting)
{
	static const char *const keys[] = { "RemoteCommand", "RequestTTY", "SessionType", "StdinNull", "ForkAfterAuthentication" };
	size_t len;

	setting += strspn(setting, " \t");
	len = strcspn(setting, " \t=");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (len == strlen(keys[i]) && !strncasecmp(setting, keys[i], len))
			return true;
	return false;
}

/* One word of options, whose argument may be the next one: how many words it takes; 0: not for us. */
static int parse_word(const char *word, const char *next, struct remote_options *o)
{
	for (const char *c = word + 1; *c; c++) {
		const char *argument;

		if (strchr(LEFT_ALONE, *c))
			return 0;
		if (*c == 'n') {
			o->no_input = true;
			continue;
		}
		if (strchr(PLAIN, *c))
			continue;
		if (!strchr(WITH_ARGUMENT, *c))
			return 0;
		argument = c[1] ? c + 1 : next;
		if (!argument || (*c == 'o' && is_left_alone(argument)))
			return 0;
		return c[1] ? 1 : 2;
	}
	return 1;
}

static bool is_option(const char *word)
{
	return word && word[0] == '-' && word[1] && strcmp(word, "--");
}

bool remote_options_parse(char *const argv[], struct remote_options *ret)
{
	struct remote_options o = { 0 };
	int at = 1;

	for (;;) {
		while (is_option(argv[at])) {
			int n = parse_word(argv[at], argv[at + 1], &o);

			if (!n)
				return false;
			at += n;
		}
		if (argv[at] && !strcmp(argv[at], "--"))
			at++;
		if (o.host || !argv[at])
			break;
		o.host = argv[at++]; /* behind it may be options again */
	}
	if (!o.host || !*o.host || *o.host == '-' || !argv[at] || (!*argv[at] && !argv[at + 1]))
		return false;
	o.command = at;
	*ret = o;
	return true;
}

/* A word of options without its n's, in @ret. False: nothing is left of it. */
static bool copy_word(const char *word, char **ret)
{
	char *copy = strdup(word);

	*ret = copy;
	for (char *c = copy ? copy + 1 : (char *)""; *c && !strchr(WITH_ARGUMENT, *c);) {
		if (*c == 'n')
			memmove(c, c + 1, strlen(c));
		else
			c++;
	}
	return copy && copy[1];
}

void remote_options_copy(char *const argv[], const struct remote_options *o, char **out)
{
	struct remote_options ignored;
	int n = 0, at = 1;

	out[n++] = argv[0];
	while (at < o->command) {
		if (!is_option(argv[at])) {
			out[n++] = argv[at++];
			continue;
		}
		n += copy_word(argv[at], &out[n]);
		if (parse_word(argv[at], argv[at + 1], &ignored) == 2)
			out[n++] = argv[++at];
		at++;
	}
	out[n] = NULL;
}

char *remote_options_command(char *const argv[], const struct remote_options *o)
{
	size_t size = 1, at = 0;
	char *text;

	for (char *const *w = argv + o->command; *w; w++)
		size += strlen(*w) + 1;
	text = malloc(size);
	for (char *const *w = argv + o->command; text && *w; w++) {
		size_t len = strlen(*w);

		if (at)
			text[at++] = ' ';
		memcpy(text + at, *w, len);
		at += len;
	}
	if (text)
		text[at] = 0;
	return text;
}
