/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a library of the kernel's RDMA devices may ask of libc in any call: malloc by itself and through libc, streams, directories, dlopen, thread-local memory of a
 * library that was loaded late, mutexes that know their owner, a thread of its own. No state but a thread's own.
 */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "tests/rdma/provider.h"

static _Atomic unsigned int ran;
static __thread unsigned int calls, *calls_at;

static void *run(void *arg)
{
	atomic_fetch_add(&ran, 1);
	return arg;
}

static void want_thread(void)
{
	unsigned int before = atomic_load(&ran);
	pthread_t thread;
	void *answer;

	MUST(pthread_create(&thread, NULL, run, &before) == 0);
	MUST(pthread_join(thread, &answer) == 0 && answer == &before && atomic_load(&ran) > before);
}

static void want_owner(void)
{
	pthread_mutexattr_t kind;
	pthread_mutex_t m;

	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&m, &kind);
	MUST(pthread_mutex_unlock(&m) == EPERM);
	MUST(pthread_mutex_lock(&m) == 0 && pthread_mutex_lock(&m) == EDEADLK && pthread_mutex_unlock(&m) == 0);
	pthread_mutex_destroy(&m);
}

static void want_memory(void)
{
	size_t sizes[] = { 1, 24, 400, 5000, 200000 };
	char *p[5], *text = NULL;
	void *aligned;

	for (int i = 0; i < 5; i++) {
		MUST(p[i] = malloc(sizes[i]));
		memset(p[i], 'a' + i, sizes[i]);
	}
	for (int i = 0; i < 5; i++) {
		MUST(p[i] = realloc(p[i], sizes[i] * 3));
		MUST(p[i][0] == 'a' + i && p[i][sizes[i] - 1] == 'a' + i);
		free(p[i]);
	}
	MUST(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0);
	free(aligned);
	MUST(asprintf(&text, "%s/%d", "uverbs", 12) == 9 && strcmp(text, "uverbs/12") == 0);
	free(text);
}

static void want_files(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char *line = NULL;
	size_t room = 0;
	DIR *d;

	MUST(f && getline(&line, &room, f) > 5 && strncmp(line, "Name:", 5) == 0);
	free(line);
	MUST(fclose(f) == 0);
	d = opendir("/sys/class");
	MUST(d && readdir(d));
	closedir(d);
	fflush(stderr);
}

static void want_linker(void)
{
	void *late = dlopen("libanl.so.1", RTLD_NOW | RTLD_LOCAL), *math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
	double (*root)(double) = math ? (double (*)(double))dlsym(math, "sqrt") : NULL;

	MUST(root && root(16) == 4);
	dlclose(math);
	if (late)
		dlclose(late);
	MUST(!dlopen("no-such-library.so", RTLD_NOW) && strstr(dlerror(), "no-such-library.so"));
}

void provider_want_libc(void)
{
	if (!calls_at)
		calls_at = &calls;
	MUST(calls_at == &calls && pthread_self());
	calls++;
	MUST(isalpha('q') && strtod("2.5", NULL) == 2.5 && strerror(EINVAL));
	want_owner();
	want_memory();
	want_files();
	want_linker();
	want_thread();
}
