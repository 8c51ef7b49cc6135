/* SPDX-License-Identifier: BSD-2-Clause */
/* A doubly linked list through its members. An empty head points at itself. */
#pragma once

#include "base/macro.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(l) { &(l), &(l) }
#define list_each(pos, head, member)                                                   \
	for (pos = container_of((head)->next, __typeof__(*pos), member); &pos->member != (head); \
	     pos = container_of(pos->member.next, __typeof__(*pos), member))
#define list_each_safe(pos, tmp, head, member)                                         \
	for (pos = container_of((head)->next, __typeof__(*pos), member),               \
	    tmp = container_of(pos->member.next, __typeof__(*pos), member);            \
	     &pos->member != (head); pos = tmp, tmp = container_of(tmp->member.next, __typeof__(*pos), member))

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
