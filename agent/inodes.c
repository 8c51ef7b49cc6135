/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that is made again at a restart, since it is missing or on another host, has another inode, and so has one without a name. A program may know the one that it had: SQLite, before it writes, looks whether the name of
 * its database still leads to that (dev, ino), and else takes it for moved. So stat and its kin show this process (dev, ino) of such a file as it saw them before, by descriptor and by name.
 *
 * Owns the list of the pairs: what is now, and what is shown for it. Another file that has by now the numbers which one of the list is shown with (an inode that was freed is soon another file's) is shown with those that
 * the first one really has, which nobody else is shown with: what is shown stays different where the files are.
 *
 * The list is of regular files that were open at the checkpoint, and changes only while all threads stand. What the kernel tells otherwise (/proc, directories, locks, signals) is as it is now.
 */
#include "agent/inodes.h"

#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/fd_table.h"

struct number {
	uint64_t dev, ino;
};

static struct pair {
	struct number now, shown;
} *pairs;
static uint32_t count;

static bool same(struct number a, struct number b)
{
	return a.ino == b.ino && a.dev == b.dev;
}

static const struct pair *find_now(struct number n)
{
	for (uint32_t i = 0; i < count; i++)
		if (same(pairs[i].now, n))
			return &pairs[i];
	return NULL;
}

static const struct pair *find_shown(struct number n)
{
	for (uint32_t i = 0; i < count; i++)
		if (same(pairs[i].shown, n))
			return &pairs[i];
	return NULL;
}

/* Of a file that is not in the list: along those that are shown with the numbers, to ones that nobody is shown with. It ends, for no two files are now, or are shown, with the same. */
static struct number show(struct number n)
{
	const struct pair *p = find_now(n);

	if (p)
		return p->shown;
	while ((p = find_shown(n)))
		n = p->now;
	return n;
}

void inodes_show(uint64_t *dev, uint64_t *ino)
{
	struct number n = { *dev, *ino };

	if (likely(!count))
		return;
	n = show(n);
	*dev = n.dev;
	*ino = n.ino;
}

static bool is_listed(const struct pair *list, uint32_t n, struct number now, struct number shown)
{
	for (uint32_t i = 0; i < n; i++)
		if (same(list[i].now, now) || same(list[i].shown, shown))
			return true;
	return false;
}

/* Each file once, also those that have their numbers still: several names of one may have become several files. Where all have theirs, there is nothing to be shown. */
void inodes_restarted(void)
{
	struct pair *list = fermata_alloc((fd_table.count + 1) * sizeof(*list));
	uint32_t n = 0;
	bool any = false;

	for (uint32_t i = 0; i < fd_table.count && list; i++) {
		const struct fermata_desc *d = &fd_table.entries[i]->desc;
		struct number shown = show((struct number){ d->st.st_dev, d->st.st_ino }), now;
		struct stat st;

		if (!S_ISREG(d->st.st_mode) || RAW2(SYS_fstat, d->fd, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		now = (struct number){ st.st_dev, st.st_ino };
		if (is_listed(list, n, now, shown))
			continue;
		list[n++] = (struct pair){ now, shown };
		any |= !same(now, shown);
	}
	fermata_free(pairs);
	pairs = list;
	count = any ? n : 0;
}
