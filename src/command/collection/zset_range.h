/* Ranges of a sorted set: by rank, by score, by member. All the range commands,
 * and the counting ones, read and apply them here. */
#ifndef MAYFLY_COMMAND_COLLECTION_ZSET_RANGE_H
#define MAYFLY_COMMAND_COLLECTION_ZSET_RANGE_H

#include "command/ctx.h"

enum zrange_by { ZRANGE_RANK, ZRANGE_SCORE, ZRANGE_LEX };

/* One end of a range. */
struct zbound {
    bool exclusive;
    double score;
    int lex_inf; /* -1 for "-", +1 for "+", 0: lex */
    bytes lex;   /* borrowed from the argument */
};

struct zrange {
    enum zrange_by by;
    i64 from, to; /* ZRANGE_RANK: as given, negative ones count from the end */
    struct zbound min, max;
};

/* Reads both ends. False: the error for this kind of range was replied. */
NODISCARD bool zrange_parse(struct ctx *c, enum zrange_by by, bytes min, bytes max,
                            struct zrange *out);

/* How many entries the range covers, and the rank of the lowest. Ranks count
 * from the low end. */
u64 zrange_locate(struct ctx *c, struct key_ref *ref, const struct zrange *r, u64 *first);

#endif
