/* SPDX-License-Identifier: BSD-2-Clause */
/* What fake_device.c and the program that looks at it share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct world {
	_Atomic uint32_t bare, pthread, ended; /* how often they have been there */
	int bare_tid;
	uint32_t number; /* of the worlds that this process and those it comes from have made */
	pthread_mutex_t mutex;
};

struct world *fake_world(void);
