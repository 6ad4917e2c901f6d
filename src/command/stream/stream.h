/* What the stream commands share. What a stream is: xstream/xstream.h. */
#ifndef MAYFLY_COMMAND_STREAM_STREAM_H
#define MAYFLY_COMMAND_STREAM_STREAM_H

#include "command/ctx.h"
#include "xstream/xstream.h"

/* -- IDs and entries: stream_id.c ---------------------------------------------------------------- */

void reply_stream_id(struct reply *r, struct stream_id id);
void reply_xentry(struct reply *r, struct stream_id id, bytes row);

/* Parse an ID argument; false: the error was replied. ctx_stream_edge also accepts -, + and a leading (. */
NODISCARD bool ctx_stream_id(struct ctx *c, bytes text, u64 missing_seq, struct stream_id *id); /* strict */
NODISCARD bool ctx_stream_edge(struct ctx *c, bytes text, u64 missing_seq, bool *exclusive,
                               struct stream_id *id);

/* Parses the start and end of an interval, each with an optional leading (, into inclusive bounds. */
NODISCARD bool ctx_stream_interval(struct ctx *c, bytes start, bytes end, struct stream_id *from,
                                   struct stream_id *to);

struct xnode_limits stream_node_limits(const struct keyspace *ks);

/* -- shared by the commands: stream_cmd.c ------------------------------------------------------ */

/* Look up and open a stream; results as of ctx_read and ctx_write. */
NODISCARD err ctx_read_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s);
NODISCARD err ctx_write_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s);

#endif
