/* A stream as the commands that create it: XADD, XSETID, XGROUP, XCLAIM. Part of command_save.c.
 *
 * As in Redis, what these commands can't express is lost: when a consumer was seen, and pending entries that
 * have been deleted. */
#ifndef MAYFLY_PERSIST_COMMAND_STREAM_H
#define MAYFLY_PERSIST_COMMAND_STREAM_H

#include "rdb/rdb_out.h"
#include "xstream/xgroup.h"

struct command_stream {
    struct rdb_out *out;
    i64 *budget;
    struct xstream s;
    enum { MAKE_ENTRIES, MAKE_HEAD, MAKE_GROUP, MAKE_CONSUMER, MAKE_OWNED, MAKE_DONE } phase;
    bool walking;
    struct xwalk walk;
    struct xname_walk groups, consumers;
    struct xgroup group;
    struct xconsumer consumer;
    struct buf group_name, consumer_name, args;
};

struct command_stream *command_stream_begin(struct rdb_out *out, struct engine *eng, struct key_ref *ref,
                                            i64 *budget);
bool command_stream_step(struct command_stream *w); /* true: complete */
void command_stream_release(struct command_stream *w);

#endif
