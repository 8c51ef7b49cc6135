/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory of the test's own for what softrdma keeps in shared memory: other tests of the same user, at the same time, would clear away what
 * the dead have left in theirs, hear its multicast groups, and be counted. Set-up and tear-down of a group of tests.
 */
#pragma once

int directory_make(void **state);
int directory_remove(void **state);

/* Its entries that belong to contexts. */
int directory_entries(const char *path);
