/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a fuzzer without libFuzzer: each file of the corpora named on the command line as it is, then ROUNDS mutations of them
 * from a fixed seed, so that a failure comes back. Usage: NAME_fuzz DIRECTORY.. [FILE..]
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

#define DRIVER_INPUT_MAX (1u << 20)
#define DRIVER_ROUNDS 5000
#define DRIVER_FILES 4096

struct input {
	uint8_t *data;
	size_t size;
};

static struct input inputs[DRIVER_FILES];
static size_t input_count;
static uint64_t seed = 0x2545f4914f6cdd1dull;

static uint64_t driver_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void driver_load(const char *path)
{
	struct input *in = &inputs[input_count];
	FILE *f = fopen(path, "rb");

	if (!f || input_count == DRIVER_FILES) {
		fprintf(stderr, "%s: cannot be read\n", path);
		exit(1);
	}
	in->data = malloc(DRIVER_INPUT_MAX);
	in->size = in->data ? fread(in->data, 1, DRIVER_INPUT_MAX, f) : 0;
	fclose(f);
	input_count++;
	LLVMFuzzerTestOneInput(in->data, in->size);
}

static int driver_wanted(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void driver_load_all(const char *path)
{
	struct dirent **names;
	char file[4096];
	struct stat st;
	int count;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		driver_load(path);
		return;
	}
	count = scandir(path, &names, driver_wanted, alphasort);
	for (int i = 0; i < count; i++) {
		snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
		driver_load(file);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

/* Flips, sets to a telling value, cuts, grows, and crosses with another input. */
static size_t driver_mutate(uint8_t *data, size_t size)
{
	static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff };
	const struct input *other = &inputs[driver_random() % input_count];
	size_t at = size ? driver_random() % size : 0;

	switch (driver_random() % 5) {
	case 0:
		if (size)
			data[at] ^= (uint8_t)(1u << (driver_random() % 8));
		break;
	case 1:
		if (size)
			data[at] = telling[driver_random() % sizeof(telling)];
		break;
	case 2: size = at; break;
	case 3:
		if (size < DRIVER_INPUT_MAX - 16) {
			memset(data + size, (int)driver_random(), 16);
			size += 1 + driver_random() % 16;
		}
		break;
	default:
		if (at < other->size) {
			memcpy(data + at, other->data + at, other->size - at);
			size = other->size;
		}
	}
	return size;
}

int main(int argc, char **argv)
{
	static uint8_t data[DRIVER_INPUT_MAX];

	for (int i = 1; i < argc; i++)
		driver_load_all(argv[i]);
	if (!input_count) {
		fprintf(stderr, "no corpus given\n");
		return 1;
	}
	for (int round = 0; round < DRIVER_ROUNDS; round++) {
		const struct input *in = &inputs[driver_random() % input_count];
		size_t size = in->size;

		memcpy(data, in->data, size);
		for (uint64_t n = driver_random() % 8; n; n--)
			size = driver_mutate(data, size);
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("%zu inputs, %d mutations\n", input_count, DRIVER_ROUNDS);
	return 0;
}
