/* A small sorted set of 64-bit integers in one allocation. NULL is an empty set. */
#ifndef MAYFLY_DS_INTSET_H
#define MAYFLY_DS_INTSET_H

#include "base/types.h"

struct intset {
    u32 n, cap;
    i64 v[]; /* ascending */
};

static inline u32 intset_count(const struct intset *s) { return s ? s->n : 0; }

void intset_free(struct intset *s);
struct intset *intset_copy(const struct intset *s);

bool intset_has(const struct intset *s, i64 value);
bool intset_add(struct intset **s, i64 value);    /* false: already present */
bool intset_remove(struct intset **s, i64 value); /* false: not present */

/* Makes room for n values in total. */
void intset_reserve(struct intset **s, u32 n);

#endif
