/* A small sorted set of 64-bit integers in one allocation. A zeroed struct is empty. */
#ifndef MAYFLY_DS_INTSET_H
#define MAYFLY_DS_INTSET_H

#include "base/types.h"

struct intset {
    i64 *v; /* ascending */
    u32 n, cap;
};

void intset_release(struct intset *s);
void intset_copy(struct intset *to, const struct intset *from); /* `to` is empty */

bool intset_has(const struct intset *s, i64 value);
bool intset_add(struct intset *s, i64 value);    /* false: it was there */
bool intset_remove(struct intset *s, i64 value); /* false: it was not there */

#endif
