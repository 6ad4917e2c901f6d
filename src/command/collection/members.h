/* A temporary set of names that lives as long as one command: the result of SUNION, the members SRANDMEMBER
 * has already drawn.
 *
 * It borrows the bytes (usually the engine's) and never has more names than it was made for, so a name is
 * never moved and memory is bounded by the sizes of the sets it is filled from. */
#ifndef MAYFLY_COMMAND_COLLECTION_MEMBERS_H
#define MAYFLY_COMMAND_COLLECTION_MEMBERS_H

#include "ds/table.h"

struct member {
    bytes name;
    bool gone; /* removed again */
};

struct members {
    struct member *v; /* in order of insertion, including removed ones */
    u64 n, cap;
    u64 live;           /* not removed */
    struct table index; /* of the live ones that members_add() brought */
    char *owned;        /* the names' bytes, after members_own() */
};

void members_init(struct members *m, u64 cap, u64 seed);
void members_release(struct members *m);

/* A name that cannot be there yet. It is not indexed: add() and take() won't see it. */
void members_push(struct members *m, bytes name);

bool members_add(struct members *m, bytes name);  /* false: it is there already */
bool members_take(struct members *m, bytes name); /* false: it is not there */

/* Copies the names, for a caller about to change the keys they came from.
 * After this the set can only be read. */
void members_own(struct members *m);

#endif
