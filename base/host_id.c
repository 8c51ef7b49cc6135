/* SPDX-License-Identifier: BSD-2-Clause */
/* See host_id.h. No state. */
#include "base/host_id.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/sys.h"

#define DIGITS 16

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u; /* FNV-1a */
	return h;
}

uint64_t host_id_boot(void)
{
	char text[64];
	long n = raw_read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text));

	return hash(0xcbf29ce484222325u, text, n > 0 ? (size_t)n : 0);
}

uint64_t host_id_where_of(uint64_t boot, const char *ns)
{
	struct stat st = { 0 };
	uint64_t ino;

	RAW4(SYS_newfstatat, AT_FDCWD, ns, &st, 0);
	ino = st.st_ino;
	return hash(boot, &ino, sizeof(ino));
}

uint64_t host_id_where(uint64_t boot)
{
	return host_id_where_of(boot, "/proc/thread-self/ns/pid");
}

void host_id_node(char name[HOST_ID_NAME])
{
	char text[HOST_ID_NAME + 8];
	long n = raw_read_file("/proc/sys/kernel/hostname", text, sizeof(text));

	text[n > 0 ? (size_t)n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	text[HOST_ID_NAME - 1] = 0; /* Linux has names of one byte more */
	memcpy(name, text, HOST_ID_NAME);
}

void host_id_entry(char *entry, uint64_t where, uint64_t part, const char *name)
{
	fm_format(entry, HOST_ID_ENTRY, HOST_ID_VARIABLE "%016lx:%016lx:%s", (unsigned long)where, (unsigned long)part, name);
}

const char *host_id_digits(const char *at, uint64_t *ret)
{
	*ret = 0;
	for (int i = 0; i < DIGITS; i++, at++) {
		if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f')))
			return NULL;
		*ret = *ret << 4 | (uint64_t)(*at <= '9' ? *at - '0' : *at - 'a' + 10);
	}
	return at;
}

/* Behind the digits and the colon, or NULL. */
static const char *take_number(const char *at, uint64_t *ret)
{
	at = host_id_digits(at, ret);
	return at && *at == ':' ? at + 1 : NULL;
}

int host_id_take(const char *value, uint64_t where, uint64_t *ret_part, char ret_name[HOST_ID_NAME])
{
	uint64_t made, part;

	if (!value || !(value = take_number(value, &made)) || !(value = take_number(value, &part)) || !*value ||
	    strlen(value) >= HOST_ID_NAME || made != where)
		return -EINVAL;
	*ret_part = part;
	memcpy(ret_name, value, strlen(value) + 1);
	return 0;
}
