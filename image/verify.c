/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks the blocks of an image against their checksums, several at a time. Hosted. Owns nothing beyond the
 * call.
 *
 * The lowest bad block is the one that is named: a thread that finds one lowers the limit up to which all go
 * on, so that every block below it has been checked when they end.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/hash.h"
#include "image/view.h"

#define THREADS_MAX 64u

struct verify {
	const struct image *i;
	_Atomic uint64_t next, limit; /* limit: the lowest bad block so far, or their number */
	pthread_mutex_t lock;	      /* holds @limit and @error together */
	int error;		      /* errno of the read that failed at @limit, or 0 */
	uint64_t zero_sum; /* of a whole block of zeros */
	pthread_t caller;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* A block that lies whole in a hole of the file need not be read. */
static bool is_hole(const struct verify *v, uint64_t offset, uint64_t length)
{
	off_t data;

	if (length != v->i->blocks.block_size)
		return false;
	data = lseek(v->i->fd, (off_t)offset, SEEK_DATA);
	return data < 0 ? errno == ENXIO : (uint64_t)data >= offset + length;
}

static int read_block(const struct image *i, char *to, uint64_t length, uint64_t offset)
{
	while (length) {
		ssize_t r = pread(i->fd, to, length, (off_t)offset);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r ? errno : ENODATA;
		to += r;
		offset += (uint64_t)r;
		length -= (uint64_t)r;
	}
	return 0;
}

static void lower(struct verify *v, uint64_t block, int error)
{
	pthread_mutex_lock(&v->lock);
	if (block < v->limit) {
		v->limit = block;
		v->error = error;
	}
	pthread_mutex_unlock(&v->lock);
}

static void tell(const struct verify *v, uint64_t block)
{
	const struct image_blocks *b = &v->i->blocks;

	if (v->progress && pthread_equal(pthread_self(), v->caller))
		v->progress(v->arg, block * b->block_size, b->data_end - b->data_start);
}

static void *run(void *arg)
{
	struct verify *v = arg;
	const struct image_blocks *b = &v->i->blocks;
	char *buffer = malloc(b->block_size);
	uint64_t block;

	if (!buffer)
		return NULL;
	while ((block = atomic_fetch_add(&v->next, 1)) < v->limit) {
		uint64_t offset = b->data_start + block * b->block_size, length = b->data_end - offset, sum;
		int error = 0;

		if (length > b->block_size)
			length = b->block_size;
		if (is_hole(v, offset, length)) {
			sum = v->zero_sum;
		} else {
			error = read_block(v->i, buffer, length, offset);
			sum = error ? 0 : image_hash64(buffer, length);
		}
		if (error || sum != v->i->sums[block])
			lower(v, block, error);
		tell(v, block);
	}
	free(buffer);
	return NULL;
}

static int sum_zeros(struct verify *v)
{
	char *zeros = calloc(1, v->i->blocks.block_size);

	if (!zeros)
		return -ENOMEM;
	v->zero_sum = image_hash64(zeros, v->i->blocks.block_size);
	free(zeros);
	return 0;
}

int image_verify(struct image *i, unsigned int threads, struct image_error *ret_error)
{
	return image_verify_progress(i, threads, NULL, NULL, ret_error);
}

int image_verify_progress(struct image *i, unsigned int threads, void (*progress)(void *arg, uint64_t done, uint64_t total),
			  void *arg, struct image_error *ret_error)
{
	const struct image_blocks *b = &i->blocks;
	struct verify v = { .i = i, .limit = b->count, .lock = PTHREAD_MUTEX_INITIALIZER, .caller = pthread_self(),
			    .progress = progress, .arg = arg };
	pthread_t made[THREADS_MAX];
	unsigned int n = 0;
	int r;

	*ret_error = (struct image_error){ .block = UINT64_MAX };
	if (sum_zeros(&v))
		return image_say(i, ret_error, IMAGE_MISSING, "no memory left to check it");
	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	while (n + 1 < threads && n + 1 < b->count && !pthread_create(&made[n], NULL, run, &v))
		n++;
	run(&v);
	while (n)
		pthread_join(made[--n], NULL);
	if (v.next < v.limit) /* every thread was without a buffer */
		return image_say(i, ret_error, IMAGE_MISSING, "no memory left to check it");
	if (v.limit == b->count)
		return 0;
	if (v.error)
		r = image_say(i, ret_error, IMAGE_DAMAGED, "is damaged: block %llu of %llu cannot be read: %s",
			      (unsigned long long)v.limit, (unsigned long long)b->count, strerror(v.error));
	else
		r = image_say(i, ret_error, IMAGE_DAMAGED,
			      "is damaged: block %llu of %llu (bytes %llu on) does not match its checksum",
			      (unsigned long long)v.limit, (unsigned long long)b->count,
			      (unsigned long long)(b->data_start + v.limit * b->block_size));
	ret_error->block = v.limit;
	return r;
}
