/* What the engine's primitives (engine.h) take and return: references to keys, views of values, iterators. */
#ifndef MAYFLY_ENGINE_HANDLES_H
#define MAYFLY_ENGINE_HANDLES_H

#include "base/bytes.h"
#include "ds/due_span.h"

struct engine;

enum value_type {
    TYPE_NONE = 0, /* also: "any type" where a type is asked for */
    TYPE_STRING = 1,
    TYPE_HASH = 2,
    TYPE_LIST = 3,
    TYPE_SET = 4,
    TYPE_ZSET = 5,
    TYPE_STREAM = 6,
};

/* A found key. Valid until the key itself is changed in any way through another
 * reference, which may move it; changes to other keys don't matter. */
struct key_ref {
    bytes key; /* the engine's copy of the name */
    u32 db;
    enum value_type type;
    i64 deadline_ms;
    u64 hash;    /* engine's own */
    void *entry; /* engine's own */
};

/* A string's value. For integers the digits are printed into `num`. */
struct str_view {
    bytes b;
    char num[24];
};

/* Iterators live on the caller's stack; `state` is the engine's. The collection
 * must not be changed while one is in use (except by the iterator's own erase). */
struct map_iter {
    struct engine *eng;
    struct key_ref *ref;
    bool passing; /* the caller may set it after iter(): slices need only live until the next step */
    u64 state[8];
};
struct seq_iter {
    struct engine *eng;
    struct key_ref *ref;
    bool reverse;
    bool passing; /* as above */
    u64 state[8];
};
struct zset_iter {
    struct engine *eng;
    struct key_ref *ref;
    bool reverse;
    bool passing; /* as above */
    u64 state[8];
};

struct rows_iter {
    struct engine *eng;
    struct key_ref *ref;
    bool reverse;
    bool passing; /* as above */
    u64 state[8];
};

/* Where a walk over a sorted set begins. `exclusive` skips entries equal to the
 * bound. With reverse the walk goes down from the last entry within the bound.
 * Lex bounds assume equal scores, as Redis does; unbounded = {NULL, 0} + lex_inf. */
struct zset_seek {
    enum { ZSEEK_RANK, ZSEEK_SCORE, ZSEEK_LEX } by;
    bool reverse, exclusive;
    int lex_inf;  /* -1: before everything, +1: after everything, 0: use lex */
    u64 rank;     /* counted from the low end, also with reverse */
    double score;
    bytes lex;
};

typedef void (*key_fn)(void *arg, struct key_ref *ref);
typedef void (*pair_fn)(void *arg, bytes member, bytes value, double score);
typedef void (*gather_fn)(void *arg, u32 i, bytes member, double score); /* of the i-th collection */

/* A point read that a later request of the tick will make. */
struct want {
    u32 db;
    bytes key;
    bytes element; /* of a hash, set or sorted set; p NULL: none, or unknown */
};

#endif
