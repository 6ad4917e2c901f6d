/* Row keys, walks over rows, and the nodes Redis would have. */
#include "base/crc64.h"
#include "ds/rdb_blob.h"
#include "xstream/xcode.h"

/* -- rows -------------------------------------------------------------------------------------- */

struct xrow xrow_kind(char kind) { return (struct xrow){.p = {kind}, .n = 1}; }

static struct xrow with_id(struct xrow row, struct stream_id id)
{
    stream_id_pack(row.p + row.n, id);
    row.n += STREAM_ID_RAW;
    return row;
}

static struct xrow with_number(struct xrow row, u32 number)
{
    u32 v = htobe32(number);
    memcpy(row.p + row.n, &v, 4);
    row.n += 4;
    return row;
}

struct xrow xrow_entry(struct stream_id id) { return with_id(xrow_kind('e'), id); }
struct xrow xrow_node(struct stream_id id) { return with_id(xrow_kind('n'), id); }
struct xrow xrow_of_group(char kind, u32 group) { return with_number(xrow_kind(kind), group); }
struct xrow xrow_owner(u32 group, u32 consumer) { return with_number(xrow_of_group('q', group), consumer); }

struct xrow xrow_pending(u32 group, struct stream_id id) { return with_id(xrow_of_group('p', group), id); }

struct xrow xrow_owned(u32 group, u32 consumer, struct stream_id id)
{
    return with_id(xrow_owner(group, consumer), id);
}

struct xrow xrow_consumer_name(u32 group, u32 consumer)
{
    return with_number(xrow_of_group('d', group), consumer);
}

struct xrow xrow_after(struct xrow prefix)
{
    while (prefix.n > 1 && (u8)prefix.p[prefix.n - 1] == 0xff) prefix.n--;
    prefix.p[prefix.n - 1]++;
    return prefix;
}

void xwalk(struct xwalk *w, struct xstream *s, struct xrow prefix, struct stream_id from, struct stream_id to,
           bool reverse)
{
    struct xrow start = with_id(prefix, reverse ? to : from);
    *w = (struct xwalk){.prefix = prefix, .stop = reverse ? from : to};
    s->eng->ops->rows.iter(s->eng, s->ref, xrow_bytes(&start), reverse, &w->it);
    w->it.passing = true;
}

static bool xrow_begins_with(bytes row, const struct xrow *prefix, size_t n)
{
    return row.n == n && memcmp(row.p, prefix->p, prefix->n) == 0;
}

bool xwalk_next(struct xwalk *w, struct stream_id *id, bytes *value)
{
    bytes row;
    if (!w->it.eng->ops->rows.next(&w->it, &row, value)) return false;
    if (xrow_begins_with(row, &w->prefix, w->prefix.n + STREAM_ID_RAW)) {
        struct stream_id at = stream_id_unpack(row.p + w->prefix.n);
        int beyond = stream_id_cmp(at, w->stop);
        if (w->it.reverse ? beyond >= 0 : beyond <= 0) {
            *id = at;
            return true;
        }
    }
    xwalk_end(w);
    return false;
}

void xwalk_end(struct xwalk *w) { w->it.eng->ops->rows.done(&w->it); }

bool xwalk_edge(struct xstream *s, struct xrow prefix, bool last, struct stream_id *id)
{
    struct xwalk w;
    xwalk(&w, s, prefix, STREAM_ID_MIN, STREAM_ID_MAX, last);
    bool there = xwalk_next(&w, id, NULL);
    xwalk_end(&w);
    return there;
}

void xstream_walk(struct xwalk *w, struct xstream *s, struct stream_id from, struct stream_id to,
                  bool reverse)
{
    xwalk(w, s, xrow_kind('e'), from, to, reverse);
}

/* -- size of a node in Redis ------------------------------------------------------------------- */

u64 xnode_size(const struct xnode *n)
{
    return n->bytes + listpack_int_cost(n->live) + listpack_int_cost(n->gone);
}

u64 xnode_fields(bytes names) { return crc64(0, names); }

static u64 xnode_checksum(bytes packed) { return xnode_fields(xentry_names(packed)); }

void xnode_begin(struct xnode *n, struct stream_id id, bytes packed)
{
    struct xentry e;
    bytes name, value;
    xentry_open(&e, packed);
    *n = (struct xnode){.id = id, .last = id, .fields = xnode_checksum(packed)};
    u64 size = LISTPACK_EMPTY + listpack_int_cost((i64)e.count) + listpack_int_cost(0);
    while (xentry_next(&e, &name, &value)) size += listpack_cost(name);
    n->bytes = (u32)MIN(size, UINT32_MAX / 2);
}

/* In Redis an entry is: flags · ms · seq · field names (unless they equal the first entry's) · values · the
 * number of these elements. */
void xnode_add(struct xnode *n, struct stream_id id, bytes packed)
{
    struct xentry e;
    bytes name, value;
    bool same = xnode_checksum(packed) == n->fields;
    xentry_open(&e, packed);
    i64 count = (i64)e.count;
    u64 size = listpack_int_cost(0) + listpack_int_cost((i64)(id.ms - n->id.ms)) +
               listpack_int_cost((i64)(id.seq - n->id.seq));
    size += same ? listpack_int_cost(count + 3) : listpack_int_cost(count) + listpack_int_cost(2 * count + 4);
    while (xentry_next(&e, &name, &value)) size += listpack_cost(value) + (same ? 0 : listpack_cost(name));
    n->bytes = (u32)MIN(n->bytes + size, UINT32_MAX / 2);
    n->live++;
    n->last = id;
}

/* -- storing nodes ----------------------------------------------------------------------------- */

static bool is_tail(const struct xstream *s, const struct xnode *n)
{
    return s->nodes && stream_id_cmp(n->id, s->tail.id) == 0;
}

static void xnode_read(struct stream_id id, bytes value, struct xnode *n)
{
    struct reader r = {value.p, value.p + value.n};
    n->id = id;
    reader_get_node(&r, n);
}

/* The last node stored as a row whose first ID is at most `id`. */
static bool stored_node(struct xstream *s, struct stream_id id, struct xnode *n)
{
    struct xwalk w;
    bytes value;
    xwalk(&w, s, xrow_kind('n'), STREAM_ID_MIN, id, true);
    bool there = xwalk_next(&w, &id, &value);
    if (there) xnode_read(id, value, n);
    xwalk_end(&w);
    return there;
}

bool xstream_node_of(struct xstream *s, struct stream_id id, struct xnode *n)
{
    if (s->nodes == 0) return false;
    *n = s->tail;
    return stream_id_cmp(id, s->tail.id) >= 0 || stored_node(s, id, n);
}

void xstream_put_node(struct xstream *s, const struct xnode *n)
{
    char record[64];
    struct writer w = {record};
    struct xrow row = xrow_node(n->id);
    if (is_tail(s, n)) {
        s->tail = *n;
        return;
    }
    writer_put_node(&w, n);
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), bytes_of(record, (size_t)(w.p - record)));
}

void xstream_push_node(struct xstream *s, const struct xnode *n)
{
    struct xnode before = s->tail;
    s->tail = *n;
    if (s->nodes++ > 0) xstream_put_node(s, &before);
}

/* After the tail was dropped: makes the last stored node the tail. */
static void pull_tail(struct xstream *s)
{
    if (s->nodes == 0 || !stored_node(s, STREAM_ID_MAX, &s->tail)) return;
    struct xrow row = xrow_node(s->tail.id);
    s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row));
}

void xstream_drop_node(struct xstream *s, const struct xnode *n)
{
    struct xrow row = xrow_node(n->id);
    bool tail = is_tail(s, n);
    s->nodes--;
    if (tail) pull_tail(s);
    else s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row));
}

void xstream_set_last(struct xstream *s, struct stream_id last)
{
    while (s->nodes && s->tail.live == 0 && stream_id_cmp(s->tail.last, last) > 0) {
        struct xnode tail = s->tail;
        xstream_drop_node(s, &tail);
    }
    if (s->nodes && stream_id_cmp(s->tail.last, last) > 0) s->tail.last = last;
    s->last = last;
}

void xnode_walk(struct xnode_walk *w, struct xstream *s)
{
    *w = (struct xnode_walk){.s = s};
    xwalk(&w->w, s, xrow_kind('n'), STREAM_ID_MIN, STREAM_ID_MAX, false);
}

bool xnode_next(struct xnode_walk *w, struct xnode *n)
{
    struct stream_id id;
    bytes value;
    if (w->tail_given || w->s->nodes == 0) return false;
    if (xwalk_next(&w->w, &id, &value)) {
        xnode_read(id, value, n);
        return true;
    }
    *n = w->s->tail;
    return w->tail_given = true;
}

void xnode_walk_end(struct xnode_walk *w) { xwalk_end(&w->w); }
