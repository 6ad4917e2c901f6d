/* What commands on groups did, as the journal tells it: by XCLAIM, XACK and XGROUP, as Redis's replicas
 * hear it. */
#ifndef MAYFLY_COMMAND_STREAM_STREAM_EFFECT_H
#define MAYFLY_COMMAND_STREAM_STREAM_EFFECT_H

#include "command/stream/stream_group.h"

/* A group as a command has it at hand. */
struct group_use {
    bytes key, group, consumer; /* names */
    struct key_ref ref;
    struct xstream s;
    struct xgroup g;
    struct xconsumer c;
    bool consumer_made;
};

/* Finds the stream and its group. ERR_NOT_FOUND: either isn't there. */
NODISCARD err ctx_find_group(struct ctx *c, bytes key, bytes group, bool write, struct group_use *u);
void ctx_no_group(struct ctx *c, bytes key, bytes group); /* the error */

/* Finds the consumer, and notes that it was seen; or makes it. */
void ctx_open_consumer(struct ctx *c, bytes name, struct group_use *u);

/* Writes group, consumer and head back. */
void group_save(struct group_use *u);

void effect_created(struct ctx *c, const struct group_use *u); /* the consumer */
void effect_group_id(struct ctx *c, const struct group_use *u);
void effect_acked(struct ctx *c, const struct group_use *u, struct stream_id id);

/* Pending entries of one consumer: collected while they have the same time and count, then told at once. */
#define CLAIMS_TOGETHER 256
struct claims {
    struct ctx *c;
    const struct group_use *u;
    i64 time_ms;
    u64 count;
    int n;
    struct stream_id ids[CLAIMS_TOGETHER];
};
void effect_claimed(struct claims *all, struct stream_id id, i64 time_ms, u64 count);
void effect_claims_end(struct claims *all);

#endif
