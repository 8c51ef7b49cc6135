/* SPDX-License-Identifier: BSD-2-Clause */
/* A doubly linked list through its members. An empty head points at itself. */
#pragma once

#include "base/macro.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(l) { &(l), &(l) }
/* @pos is an element's in the body alone: the head is no member of one, and need not be aligned as one is. */
#define list_each(pos, head, member)                                                                           \
	for (struct list *pos##_at = (head)->next;                                                             \
	     pos##_at != (head) && (pos = container_of(pos##_at, __typeof__(*pos), member), 1);                \
	     pos##_at = pos##_at->next)
/* @pos may leave the list, or go. */
#define list_each_safe(pos, head, member)                                                                      \
	for (struct list *pos##_at = (head)->next, *pos##_next;                                                \
	     pos##_at != (head) && (pos##_next = pos##_at->next,                                               \
				    pos = container_of(pos##_at, __typeof__(*pos), member), 1);                \
	     pos##_at = pos##_next)

static inline void list_init(struct list *l) { l->next = l->prev = l; }
static inline int list_empty(const struct list *l) { return l->next == l; }
static inline void list_add_tail(struct list *head, struct list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}
