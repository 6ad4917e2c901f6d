/* Arguments and replies of stream commands. */
#include "command/stream/stream.h"

void reply_stream_id(struct reply *r, struct stream_id id)
{
    char text[STREAM_ID_TEXT];
    reply_bulk(r, stream_id_print(text, id));
}

void reply_xentry(struct reply *r, struct stream_id id, bytes row)
{
    struct xentry e;
    bytes name, value;
    xentry_open(&e, row);
    reply_array(r, 2);
    reply_stream_id(r, id);
    reply_array(r, 2 * e.count);
    while (xentry_next(&e, &name, &value)) {
        reply_bulk(r, name);
        reply_bulk(r, value);
    }
}

#define NODE_BYTES_MAX (1u << 30)

struct xnode_limits stream_node_limits(const struct keyspace *ks)
{
    u64 limit = ks->stream_node_max_bytes;
    return (struct xnode_limits){
        .bytes = limit == 0 || limit > NODE_BYTES_MAX ? NODE_BYTES_MAX : limit,
        .entries = ks->stream_node_max_entries,
    };
}

static bool invalid(struct ctx *c)
{
    reply_error(c->out, "ERR Invalid stream ID specified as stream command argument");
    return false;
}

bool ctx_stream_id(struct ctx *c, bytes text, u64 missing_seq, struct stream_id *id)
{
    return stream_id_parse(text, missing_seq, true, NULL, id) || invalid(c);
}

bool ctx_stream_edge(struct ctx *c, bytes text, u64 missing_seq, bool *exclusive, struct stream_id *id)
{
    *exclusive = text.n > 1 && text.p[0] == '(';
    if (*exclusive) text = bytes_of(text.p + 1, text.n - 1);
    return stream_id_parse(text, missing_seq, *exclusive, NULL, id) || invalid(c);
}

bool ctx_stream_interval(struct ctx *c, bytes start, bytes end, struct stream_id *from, struct stream_id *to)
{
    bool exclusive;
    if (!ctx_stream_edge(c, start, 0, &exclusive, from)) return false;
    if (exclusive && !stream_id_incr(from)) {
        reply_error(c->out, "ERR invalid start ID for the interval");
        return false;
    }
    if (!ctx_stream_edge(c, end, UINT64_MAX, &exclusive, to)) return false;
    if (exclusive && !stream_id_decr(to)) {
        reply_error(c->out, "ERR invalid end ID for the interval");
        return false;
    }
    return true;
}
