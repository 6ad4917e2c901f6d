/* Journal effects of the consumer-group commands. As in Redis, a delivery is propagated to replicas and the
 * AOF as XCLAIM, XACK and XGROUP commands. */
#ifndef MAYFLY_COMMAND_STREAM_STREAM_EFFECT_H
#define MAYFLY_COMMAND_STREAM_STREAM_EFFECT_H

#include "command/stream/stream.h"
#include "xstream/xgroup.h"

/* The group a command works on: its stream, its record, and the consumer if one is named. */
struct group_use {
    bytes key, group, consumer; /* names */
    struct key_ref ref;
    struct xstream s;
    struct xgroup g;
    struct xconsumer c;
    bool consumer_made;
};

/* Finds the stream and its group. ERR_NOT_FOUND: the stream or the group is missing. */
NODISCARD err ctx_find_group(struct ctx *c, bytes key, bytes group, bool write, struct group_use *u);
void ctx_no_group(struct ctx *c, bytes key, bytes group); /* replies the NOGROUP error */

/* Finds the consumer and updates its seen time, or creates it. */
void ctx_open_consumer(struct ctx *c, bytes name, struct group_use *u);

/* Writes the group and consumer records back. */
void group_save(struct group_use *u);

void effect_created(struct ctx *c, const struct group_use *u); /* the consumer was created */
void effect_group_id(struct ctx *c, const struct group_use *u);
void effect_acked(struct ctx *c, const struct group_use *u, struct stream_id id);

/* Batches the pending entries of one consumer: entries with the same delivery time and count are propagated
 * in one XCLAIM. Call effect_claims_end() after the last one. */
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
