/* Reading a stream. Everything is verified: IDs ascend, nodes hold what their headers say, and each pending
 * entry belongs to exactly one consumer. */
#include "rdb/rdb_stream.h"

#include "ds/rdb_blob.h"
#include "xstream/xcode.h"

#define NO_CONSUMER UINT32_MAX /* owner of a pending entry whose consumer has not been read yet */

struct stream_in {
    struct rdb_load *l;
    struct xstream s;
    struct stream_id top;  /* highest ID read so far, deleted entries included; 0-0: none */
    struct stream_id live; /* highest ID of the live entries */
    struct buf names, values, packed, master;
    u64 master_count;
};

static bool stream_in_bad(struct stream_in *r, const char *what)
{
    return rdb_fail(r->l->in, "a stream is damaged: %s", what);
}

static bool read_id(struct rdb_in *in, struct stream_id *id)
{
    return rdb_read_len(in, &id->ms) && rdb_read_len(in, &id->seq);
}

static bool read_raw_id(struct rdb_in *in, struct stream_id *id)
{
    char raw[STREAM_ID_RAW];
    if (!rdb_read_raw(in, raw, sizeof raw)) return false;
    *id = stream_id_unpack(raw);
    return true;
}

/* -- nodes ------------------------------------------------------------------------------------- */

static bool next_item(struct stream_in *r, struct rdb_blob *b, bytes *item)
{
    if (rdb_blob_next(b, item)) return true;
    return stream_in_bad(r, b->error ? b->error : "a node ends within an entry");
}

static bool next_int(struct stream_in *r, struct rdb_blob *b, i64 *v)
{
    bytes item;
    if (!next_item(r, b, &item)) return false;
    return num_parse_i64(item, v) || stream_in_bad(r, "an element of a node is not a number");
}

static bool next_count(struct stream_in *r, struct rdb_blob *b, i64 *v)
{
    return next_int(r, b, v) && ((*v >= 0 && *v <= INT32_MAX) || stream_in_bad(r, "a count is out of range"));
}

static bool add_item(struct stream_in *r, struct rdb_blob *b, struct buf *to)
{
    bytes item;
    if (!next_item(r, b, &item)) return false;
    xentry_put_varint(to, item.n);
    buf_append_bytes(to, item);
    return true;
}

/* counts · the names of the first entry's fields · 0 */
static bool read_master(struct stream_in *r, struct rdb_blob *b, struct xnode *n)
{
    i64 live, gone, count, zero;
    if (!next_count(r, b, &live) || !next_count(r, b, &gone) || !next_count(r, b, &count)) return false;
    n->live = (u32)live;
    n->gone = (u32)gone;
    r->master_count = (u64)count;
    buf_clear(&r->master);
    for (i64 i = 0; i < count; i++)
        if (!add_item(r, b, &r->master)) return false;
    return next_int(r, b, &zero) && (zero == 0 || stream_in_bad(r, "a node's first element does not end"));
}

/* The ID of an entry: above all IDs before it, so never 0-0, and not below its node's. */
static bool read_entry_id(struct stream_in *r, struct rdb_blob *b, struct xnode *n, struct stream_id *id)
{
    i64 ms, seq;
    if (!next_int(r, b, &ms) || !next_int(r, b, &seq)) return false;
    *id = (struct stream_id){n->id.ms + (u64)ms, n->id.seq + (u64)seq};
    if (stream_id_cmp(*id, n->id) < 0 || stream_id_cmp(*id, r->top) <= 0)
        return stream_in_bad(r, "its entries are not in order");
    r->top = n->last = *id;
    return true;
}

static bool read_fields(struct stream_in *r, struct rdb_blob *b, bool same, i64 *elements)
{
    i64 count = (i64)r->master_count;
    buf_clear(&r->names);
    buf_clear(&r->values);
    if (!same && !next_count(r, b, &count)) return false;
    *elements = same ? count + 3 : 2 * count + 4;
    if (count == 0) return stream_in_bad(r, "an entry has no fields");
    for (i64 i = 0; i < count; i++)
        if ((!same && !add_item(r, b, &r->names)) || !add_item(r, b, &r->values)) return false;
    buf_clear(&r->packed);
    xentry_put_varint(&r->packed, (u64)count);
    buf_append_bytes(&r->packed, buf_bytes(same ? &r->master : &r->names));
    buf_append_bytes(&r->packed, buf_bytes(&r->values));
    return true;
}

static void stream_in_put_entry(struct stream_in *r, struct stream_id id)
{
    struct xrow row = xrow_entry(id);
    struct xstream *s = &r->s;
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), buf_bytes(&r->packed));
    if (s->length++ == 0) s->first = id;
    r->live = id;
}

static bool read_entry(struct stream_in *r, struct rdb_blob *b, struct xnode *n, u32 *live, u32 *gone)
{
    struct stream_id id;
    i64 flags, elements, told;
    if (!next_int(r, b, &flags)) return false;
    if (flags & ~(i64)(RDB_ENTRY_DELETED | RDB_ENTRY_SAME))
        return stream_in_bad(r, "an entry has unknown flags");
    if (!read_entry_id(r, b, n, &id) || !read_fields(r, b, flags & RDB_ENTRY_SAME, &elements)) return false;
    if (!next_int(r, b, &told)) return false;
    if (told != elements) return stream_in_bad(r, "an entry tells a wrong size of its own");
    if (flags & RDB_ENTRY_DELETED) {
        ++*gone;
        return true;
    }
    ++*live;
    stream_in_put_entry(r, id);
    return true;
}

/* Sets the node's state as Redis would have it if it continued to fill the node. */
static void settle_node(struct stream_in *r, struct xnode *n, size_t size)
{
    u64 counts = listpack_int_cost(n->live) + listpack_int_cost(n->gone);
    n->bytes = (u32)MIN(size > counts ? size - counts : 0, UINT32_MAX / 2);
    buf_clear(&r->names);
    xentry_put_varint(&r->names, r->master_count);
    buf_append_bytes(&r->names, buf_bytes(&r->master));
    n->fields = xnode_fields(buf_bytes(&r->names));
    xstream_push_node(&r->s, n);
}

static bool stream_in_node(struct stream_in *r)
{
    struct rdb_blob b;
    struct xnode n = {0};
    bytes key, raw;
    u32 live = 0, gone = 0;
    u64 entries;
    if (!rdb_view_string(r->l->in, &r->l->a, &key)) return false;
    if (key.n != STREAM_ID_RAW) return stream_in_bad(r, "a node's ID is not of 16 bytes");
    n.id = n.last = stream_id_unpack(key.p);
    if (!stream_id_zero(r->top) && stream_id_cmp(n.id, r->top) <= 0)
        return stream_in_bad(r, "its nodes are not in order");
    if (!rdb_view_string(r->l->in, &r->l->a, &raw)) return false;
    rdb_blob_open(&b, BLOB_LISTPACK, raw);
    if (b.error || !read_master(r, &b, &n)) return b.error ? stream_in_bad(r, b.error) : false;
    for (entries = (u64)n.live + n.gone; entries > 0; entries--)
        if (!read_entry(r, &b, &n, &live, &gone)) return false;
    bytes rest;
    if (rdb_blob_next(&b, &rest)) return stream_in_bad(r, "a node has more entries than it says");
    if (b.error) return stream_in_bad(r, b.error);
    if (live != n.live || gone != n.gone) return stream_in_bad(r, "a node has other entries than it says");
    if (live + gone == 0) return stream_in_bad(r, "a node has no entries");
    settle_node(r, &n, raw.n);
    xstream_save(&r->s);
    return rdb_load_commit_chunk(r->l);
}

static bool read_nodes(struct stream_in *r)
{
    u64 nodes;
    if (!rdb_read_len(r->l->in, &nodes)) return false;
    if (nodes > UINT32_MAX) return stream_in_bad(r, "it has too many nodes");
    for (; nodes > 0; nodes--)
        if (!stream_in_node(r)) return false;
    return true;
}

static bool rdb_stream_load_read_head(struct stream_in *r, enum rdb_type type)
{
    struct rdb_in *in = r->l->in;
    struct stream_id first, last;
    u64 length;
    if (!rdb_read_len(in, &length) || !read_id(in, &last)) return false;
    if (length != r->s.length) return stream_in_bad(r, "its length is not the number of its entries");
    if (stream_id_cmp(last, r->live) < 0) return stream_in_bad(r, "its last ID is below its entries'");
    xstream_set_last(&r->s, last); /* XSETID may have set it below deleted ones */
    r->s.added = length;
    if (type == RDB_STREAM) return true;
    return read_id(in, &first) && read_id(in, &r->s.max_deleted) && rdb_read_len(in, &r->s.added);
}

/* -- groups ------------------------------------------------------------------------------------ */

static void stream_in_put_row(struct xstream *s, struct xrow row, bytes value)
{
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), value);
}

static void stream_in_put_pending(struct xstream *s, const struct xgroup *g, struct stream_id id,
                                  const struct xpending *p)
{
    char record[32];
    struct writer w = {record};
    writer_put_u32(&w, p->consumer);
    writer_put_u64(&w, (u64)p->time_ms);
    writer_put_u64(&w, p->count);
    stream_in_put_row(s, xrow_pending(g->number, id), bytes_of(record, (size_t)(w.p - record)));
}

static bool read_pending(struct stream_in *r, struct xgroup *g)
{
    struct rdb_in *in = r->l->in;
    struct xpending p = {.consumer = NO_CONSUMER}, other;
    struct stream_id id;
    u64 time_ms;
    if (!rdb_read_len(in, &g->pending)) return false;
    for (u64 i = 0; i < g->pending; i++) {
        if (!read_raw_id(in, &id) || !rdb_read_u64(in, &time_ms) || !rdb_read_len(in, &p.count)) return false;
        if (xpending_find(&r->s, g, id, &other))
            return stream_in_bad(r, "an entry is pending twice in a group");
        p.time_ms = (i64)time_ms;
        stream_in_put_pending(&r->s, g, id, &p);
        if (!rdb_load_commit_chunk(r->l)) return false;
    }
    return true;
}

static bool read_owned(struct stream_in *r, const struct xgroup *g, const struct xconsumer *c)
{
    struct xpending p;
    struct stream_id id;
    for (u64 i = 0; i < c->pending; i++) {
        if (!read_raw_id(r->l->in, &id)) return false;
        if (!xpending_find(&r->s, g, id, &p))
            return stream_in_bad(r, "a consumer's pending entry is not its group's");
        if (p.consumer != NO_CONSUMER) return stream_in_bad(r, "an entry is pending for two consumers");
        p.consumer = c->number;
        stream_in_put_pending(&r->s, g, id, &p);
        stream_in_put_row(&r->s, xrow_owned(g->number, c->number, id), (bytes){"", 0});
        if (!rdb_load_commit_chunk(r->l)) return false;
    }
    return true;
}

static bool stream_in_consumer(struct stream_in *r, struct xgroup *g, enum rdb_type type, u64 *owned)
{
    struct rdb_in *in = r->l->in;
    struct xconsumer c;
    u64 seen_ms, active_ms;
    if (!rdb_read_string(in, &r->l->a) || !rdb_read_u64(in, &seen_ms)) return false;
    active_ms = seen_ms;
    if (type == RDB_STREAM_3 && !rdb_read_u64(in, &active_ms)) return false;
    bytes name = buf_bytes(&r->l->a);
    if (xconsumer_find(&r->s, g, name, &c)) return stream_in_bad(r, "a consumer comes twice");
    xconsumer_create(&r->s, g, name, (i64)seen_ms, &c);
    c.active_ms = (i64)active_ms;
    if (!rdb_read_len(in, &c.pending) || !read_owned(r, g, &c)) return false;
    *owned += c.pending;
    xconsumer_put(&r->s, g, name, &c);
    return true;
}

static bool stream_in_group(struct stream_in *r, enum rdb_type type)
{
    struct rdb_in *in = r->l->in;
    struct xgroup g;
    struct stream_id last;
    u64 read, consumers, owned = 0;
    if (!rdb_read_string(in, &r->l->b) || !read_id(in, &last)) return false;
    bytes name = buf_bytes(&r->l->b);
    if (xgroup_find(&r->s, name, &g)) return stream_in_bad(r, "a group comes twice");
    if (type == RDB_STREAM) read = (u64)xstream_entries_up_to(&r->s, last);
    else if (!rdb_read_len(in, &read)) return false;
    xgroup_create(&r->s, name, last, MAX((i64)read, ENTRIES_READ_UNKNOWN), &g);
    if (!read_pending(r, &g) || !rdb_read_len(in, &consumers)) return false;
    for (; consumers > 0; consumers--)
        if (!stream_in_consumer(r, &g, type, &owned)) return false;
    if (owned != g.pending) return stream_in_bad(r, "an entry is pending for no consumer");
    xgroup_put(&r->s, name, &g);
    xstream_save(&r->s);
    return true;
}

static bool read_stream(struct stream_in *r, enum rdb_type type)
{
    u64 groups;
    if (!read_nodes(r) || !rdb_stream_load_read_head(r, type) || !rdb_read_len(r->l->in, &groups))
        return false;
    for (; groups > 0; groups--)
        if (!stream_in_group(r, type)) return false;
    xstream_save(&r->s);
    return true;
}

bool rdb_stream_load(struct rdb_load *l, enum rdb_type type)
{
    struct stream_in r = {.l = l};
    xstream_open(&r.s, l->eng, &l->ref);
    bool ok = read_stream(&r, type);
    buf_release(&r.names);
    buf_release(&r.values);
    buf_release(&r.packed);
    buf_release(&r.master);
    return ok;
}
