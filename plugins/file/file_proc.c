/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a file of /proc. What such a file says is made as it is read, and is another thing after a restart; an offset in it means little, but that there is no more to read is what a program goes by: at the old
 * offset of a file that has become longer, it would read the rest of a line. So one that was at its end is read to its end again. No state.
 */
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/sys.h"
#include "plugins/file/file.h"

#define READS_MAX 4096

/* Not what reading takes away (the kernel's log). */
bool file_proc_is_at_end(const struct fermata_desc *d, int64_t offset)
{
	struct statfs fs;
	char byte;

	return offset > 0 && S_ISREG(d->st.st_mode) && (d->status & O_ACCMODE) != O_WRONLY && strcmp(d->link, "/proc/kmsg") != 0 && !RAW2(SYS_fstatfs, d->fd, &fs) &&
	       fs.f_type == PROC_SUPER_MAGIC && RAW4(SYS_pread64, d->fd, &byte, 1, offset) == 0;
}

void file_proc_read_to_end(int fd)
{
	char text[4096];

	for (int i = 0; i < READS_MAX && raw_read(fd, text, sizeof(text)) > 0; i++)
		;
}
