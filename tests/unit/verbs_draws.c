/* SPDX-License-Identifier: BSD-2-Clause */
/* Drawing again while names are old ones: what is drawn in vain is held until a good one comes, and all of it given back; without an end it fails. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugins/verbs/verbs_draws.h"

/* A device that counts: the objects 1, 2, .. of which @live are not given back. */
static uintptr_t made, live;

static void *create(void)
{
	live++;
	return (void *)++made;
}

static int destroy(void *object)
{
	live--;
	errno = EIO;
	return 0;
}

/* The first @bad names are @known, the others new. */
static void *draw(uintptr_t bad, enum name_known known)
{
	struct verbs_draws draws = { 0 };
	void *object;

	made = live = 0;
	errno = 0;
	do {
		object = create();
		assert_int_equal(live, made); /* each is held, so that none comes twice */
	} while (verbs_draws_hold(&draws, made <= bad ? known : NAME_NEW, object));
	return verbs_draws_end(&draws, object, destroy);
}

static void test_draws(void **state)
{
	assert_ptr_equal(draw(0, NAME_OWN), (void *)1);
	assert_ptr_equal(draw(1000, NAME_OWN), (void *)1001);
	assert_int_equal(live, 1);
	/* somebody else's, where there is nothing but such */
	assert_ptr_equal(draw(10, NAME_OTHERS), (void *)11);
	assert_ptr_equal(draw(1000, NAME_OTHERS), (void *)33);
	assert_int_equal(live, 1);
}

static void test_none(void **state)
{
	struct verbs_draws draws = { 0 };

	assert_null(draw(UINTPTR_MAX, NAME_OWN));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(live, 0);
	/* what the device says when it gives nothing is said */
	errno = EMFILE;
	assert_null(verbs_draws_end(&draws, NULL, destroy));
	assert_int_equal(errno, EMFILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_draws), cmocka_unit_test(test_none) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
