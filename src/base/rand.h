/* A small seeded generator (splitmix64). Commands use no other source of randomness: the seed is part of a
 * command's input. */
#ifndef MAYFLY_BASE_RAND_H
#define MAYFLY_BASE_RAND_H

#include "base/types.h"

static inline u64 rand_next(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Uniform in [0, n), n > 0. */
static inline u64 rand_below(u64 *state, u64 n)
{
    return (u64)(((unsigned __int128)rand_next(state) * n) >> 64);
}

#endif
