/* Groups, consumers and pending entries as rows. Pending rows refer to their group and consumer by number to
 * stay short. A group's number is not reused during the life of the stream, nor a consumer's during the life
 * of its group. */
#include "xstream/xgroup.h"

#include "xstream/xcode.h"

/* -- names in rows ----------------------------------------------------------------------------- */

/* Appends a name, escaped and terminated as described in stream.h. */
static void end_name(struct buf *row, bytes name)
{
    for (size_t i = 0; i < name.n; i++) {
        buf_append_char(row, name.p[i]);
        if (name.p[i] == '\0') buf_append_char(row, (char)0xff);
    }
    buf_append(row, "\0\1", 2);
}

/* The reverse. */
static void begin_name(struct buf *name, bytes ended)
{
    buf_clear(name);
    for (size_t i = 0; i + 2 < ended.n; i++) {
        buf_append_char(name, ended.p[i]);
        if (ended.p[i] == '\0') i++;
    }
}

/* Reads, writes or deletes the row whose key is the prefix and a name. */
enum row_deed { ROW_GET, ROW_PUT, ROW_DEL };

static bool with_name(struct xstream *s, struct xrow prefix, bytes name, enum row_deed deed, bytes *value)
{
    struct buf row = {0};
    bool there = true;
    buf_append(&row, prefix.p, prefix.n);
    end_name(&row, name);
    if (deed == ROW_GET) there = s->eng->ops->rows.get(s->eng, s->ref, buf_bytes(&row), value);
    else if (deed == ROW_DEL) there = s->eng->ops->rows.del(s->eng, s->ref, buf_bytes(&row));
    else s->eng->ops->rows.put(s->eng, s->ref, buf_bytes(&row), *value);
    buf_release(&row);
    return there;
}

static void xgroup_put_row(struct xstream *s, struct xrow row, bytes value)
{
    s->eng->ops->rows.put(s->eng, s->ref, xrow_bytes(&row), value);
}

static void xgroup_erase_all(struct xstream *s, struct xrow prefix, u64 count)
{
    struct xrow to = xrow_after(prefix);
    s->eng->ops->rows.wipe(s->eng, s->ref, xrow_bytes(&prefix), xrow_bytes(&to), count);
}

/* -- groups ------------------------------------------------------------------------------------ */

static void xgroup_read(bytes value, struct xgroup *g)
{
    struct reader r = {value.p, value.p + value.n};
    g->number = reader_get_u32(&r);
    g->next_consumer = reader_get_u32(&r);
    g->last = reader_get_id(&r);
    g->entries_read = (i64)reader_get_u64(&r);
    g->pending = reader_get_u64(&r);
    g->consumers = reader_get_u32(&r);
}

bool xgroup_find(struct xstream *s, bytes name, struct xgroup *g)
{
    bytes value;
    if (s->groups == 0 || !with_name(s, xrow_kind('g'), name, ROW_GET, &value)) return false;
    xgroup_read(value, g);
    return true;
}

void xgroup_put(struct xstream *s, bytes name, const struct xgroup *g)
{
    char record[64];
    struct writer w = {record};
    writer_put_u32(&w, g->number);
    writer_put_u32(&w, g->next_consumer);
    writer_put_id(&w, g->last);
    writer_put_u64(&w, (u64)g->entries_read);
    writer_put_u64(&w, g->pending);
    writer_put_u32(&w, g->consumers);
    bytes value = bytes_of(record, (size_t)(w.p - record));
    with_name(s, xrow_kind('g'), name, ROW_PUT, &value);
}

void xgroup_create(struct xstream *s, bytes name, struct stream_id last, i64 entries_read, struct xgroup *g)
{
    *g = (struct xgroup){.number = s->next_group++, .last = last, .entries_read = entries_read};
    s->groups++;
    xgroup_put(s, name, g);
}

void xgroup_destroy(struct xstream *s, bytes name, const struct xgroup *g)
{
    with_name(s, xrow_kind('g'), name, ROW_DEL, NULL);
    for (const char *kind = "cdpq"; *kind; kind++)
        xgroup_erase_all(s, xrow_of_group(*kind, g->number), *kind < 'p' ? g->consumers : g->pending);
    s->groups--;
}

/* -- consumers --------------------------------------------------------------------------------- */

static void xconsumer_read(bytes value, struct xconsumer *c)
{
    struct reader r = {value.p, value.p + value.n};
    c->number = reader_get_u32(&r);
    c->seen_ms = (i64)reader_get_u64(&r);
    c->pending = reader_get_u64(&r);
    c->active_ms = r.p < r.end ? (i64)reader_get_u64(&r) : c->seen_ms; /* older records end here */
}

bool xconsumer_find(struct xstream *s, const struct xgroup *g, bytes name, struct xconsumer *c)
{
    bytes value;
    if (!with_name(s, xrow_of_group('c', g->number), name, ROW_GET, &value)) return false;
    xconsumer_read(value, c);
    return true;
}

void xconsumer_put(struct xstream *s, const struct xgroup *g, bytes name, const struct xconsumer *c)
{
    char record[32];
    struct writer w = {record};
    writer_put_u32(&w, c->number);
    writer_put_u64(&w, (u64)c->seen_ms);
    writer_put_u64(&w, c->pending);
    writer_put_u64(&w, (u64)c->active_ms);
    bytes value = bytes_of(record, (size_t)(w.p - record));
    with_name(s, xrow_of_group('c', g->number), name, ROW_PUT, &value);
}

void xconsumer_create(struct xstream *s, struct xgroup *g, bytes name, i64 now_ms, struct xconsumer *c)
{
    *c = (struct xconsumer){.number = g->next_consumer++, .seen_ms = now_ms, .active_ms = NEVER_ACTIVE};
    g->consumers++;
    xconsumer_put(s, g, name, c);
    xgroup_put_row(s, xrow_consumer_name(g->number, c->number), name);
}

bytes xconsumer_name(struct xstream *s, const struct xgroup *g, u32 number)
{
    struct xrow row = xrow_consumer_name(g->number, number);
    bytes name = {"", 0};
    s->eng->ops->rows.get(s->eng, s->ref, xrow_bytes(&row), &name);
    return name;
}

/* Collects the IDs a consumer has pending, as an array of struct stream_id. */
static void collect_owned(struct xstream *s, const struct xgroup *g, const struct xconsumer *c,
                          struct buf *ids)
{
    struct xwalk w;
    struct stream_id id;
    xpending_walk(&w, s, g, c, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (xwalk_next(&w, &id, NULL)) buf_append(ids, &id, sizeof id);
}

void xconsumer_delete(struct xstream *s, struct xgroup *g, bytes name, const struct xconsumer *c)
{
    struct buf ids = {0};
    struct xrow row = xrow_consumer_name(g->number, c->number);
    collect_owned(s, g, c, &ids);
    for (size_t at = 0; at < ids.n; at += sizeof(struct stream_id)) {
        struct stream_id id;
        memcpy(&id, ids.p + at, sizeof id);
        struct xrow pending = xrow_pending(g->number, id);
        g->pending -= s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&pending));
    }
    buf_release(&ids);
    xgroup_erase_all(s, xrow_owner(g->number, c->number), c->pending);
    s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row));
    with_name(s, xrow_of_group('c', g->number), name, ROW_DEL, NULL);
    g->consumers--;
}

/* -- pending entries --------------------------------------------------------------------------- */

void xpending_read(bytes row, struct xpending *p)
{
    struct reader r = {row.p, row.p + row.n};
    p->consumer = reader_get_u32(&r);
    p->time_ms = (i64)reader_get_u64(&r);
    p->count = reader_get_u64(&r);
}

bool xpending_find(struct xstream *s, const struct xgroup *g, struct stream_id id, struct xpending *p)
{
    struct xrow row = xrow_pending(g->number, id);
    bytes value;
    if (!s->eng->ops->rows.get(s->eng, s->ref, xrow_bytes(&row), &value)) return false;
    xpending_read(value, p);
    return true;
}

/* Adds `by` to a consumer's pending count. `self` (may be NULL) is a consumer the caller has open and saves
 * itself; any other consumer's record is updated here. */
static void count_owned(struct xstream *s, const struct xgroup *g, struct xconsumer *self, u32 number, int by)
{
    struct xconsumer other;
    if (self && self->number == number) {
        self->pending += (u64)by;
        return;
    }
    struct buf name = {0};
    buf_append_bytes(&name, xconsumer_name(s, g, number));
    if (xconsumer_find(s, g, buf_bytes(&name), &other)) {
        other.pending += (u64)by;
        xconsumer_put(s, g, buf_bytes(&name), &other);
    }
    buf_release(&name);
}

static void disown(struct xstream *s, const struct xgroup *g, struct xconsumer *self, struct stream_id id,
                   u32 from)
{
    struct xrow row = xrow_owned(g->number, from, id);
    if (s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row))) count_owned(s, g, self, from, -1);
}

void xpending_put(struct xstream *s, struct xgroup *g, struct xconsumer *self, struct stream_id id,
                  const struct xpending *p)
{
    char record[32];
    struct writer w = {record};
    struct xpending old;
    bool there = xpending_find(s, g, id, &old);
    writer_put_u32(&w, p->consumer);
    writer_put_u64(&w, (u64)p->time_ms);
    writer_put_u64(&w, p->count);
    xgroup_put_row(s, xrow_pending(g->number, id), bytes_of(record, (size_t)(w.p - record)));
    g->pending += !there;
    if (there && old.consumer == p->consumer) return;
    if (there) disown(s, g, self, id, old.consumer);
    xgroup_put_row(s, xrow_owned(g->number, p->consumer, id), (bytes){"", 0});
    count_owned(s, g, self, p->consumer, 1);
}

bool xpending_delete(struct xstream *s, struct xgroup *g, struct xconsumer *self, struct stream_id id)
{
    struct xrow row = xrow_pending(g->number, id);
    struct xpending old;
    if (!xpending_find(s, g, id, &old)) return false;
    s->eng->ops->rows.del(s->eng, s->ref, xrow_bytes(&row));
    g->pending--;
    disown(s, g, self, id, old.consumer);
    return true;
}

void xpending_walk(struct xwalk *w, struct xstream *s, const struct xgroup *g,
                   const struct xconsumer *consumer, struct stream_id from, struct stream_id to, bool reverse)
{
    struct xrow prefix = consumer ? xrow_owner(g->number, consumer->number) : xrow_of_group('p', g->number);
    xwalk(w, s, prefix, from, to, reverse);
}

/* -- walks by name ----------------------------------------------------------------------------- */

static void name_walk(struct xname_walk *w, struct xstream *s, struct xrow prefix)
{
    *w = (struct xname_walk){.s = s, .prefix = prefix};
    s->eng->ops->rows.iter(s->eng, s->ref, xrow_bytes(&w->prefix), false, &w->it);
    w->it.passing = true;
}

static bool name_next(struct xname_walk *w, bytes *name, bytes *value)
{
    bytes row;
    if (!w->s->eng->ops->rows.next(&w->it, &row, value)) return false;
    if (row.n < w->prefix.n || memcmp(row.p, w->prefix.p, w->prefix.n) != 0) {
        w->s->eng->ops->rows.done(&w->it);
        return false;
    }
    begin_name(&w->name, bytes_of(row.p + w->prefix.n, row.n - w->prefix.n));
    *name = buf_bytes(&w->name);
    return true;
}

void xgroup_walk(struct xname_walk *w, struct xstream *s) { name_walk(w, s, xrow_kind('g')); }

bool xgroup_next(struct xname_walk *w, bytes *name, struct xgroup *g)
{
    bytes value;
    if (!name_next(w, name, &value)) return false;
    xgroup_read(value, g);
    return true;
}

void xconsumer_walk(struct xname_walk *w, struct xstream *s, const struct xgroup *g)
{
    name_walk(w, s, xrow_of_group('c', g->number));
}

bool xconsumer_next(struct xname_walk *w, bytes *name, struct xconsumer *c)
{
    bytes value;
    if (!name_next(w, name, &value)) return false;
    xconsumer_read(value, c);
    return true;
}

void xname_walk_end(struct xname_walk *w) { buf_release(&w->name); }

/* -- entries that come late -------------------------------------------------------------------- */

/* Names of the groups that have gone past it. */
static void xgroup_past(struct xstream *s, struct stream_id id, struct buf *names)
{
    struct xname_walk w;
    struct xgroup g;
    bytes name;
    xgroup_walk(&w, s);
    while (xgroup_next(&w, &name, &g)) {
        if (stream_id_cmp(id, g.last) > 0) continue;
        buf_append(names, &name.n, sizeof name.n);
        buf_append_bytes(names, name);
    }
    xname_walk_end(&w);
}

static void xgroup_note_late_in(struct xstream *s, bytes name, struct stream_id id)
{
    struct xgroup g;
    struct xconsumer c;
    i64 at_ms = (i64)MIN(id.ms, (u64)INT64_MAX);
    if (!xgroup_find(s, name, &g)) return;
    if (!xconsumer_find(s, &g, XGROUP_LATE, &c)) xconsumer_create(s, &g, XGROUP_LATE, at_ms, &c);
    xpending_put(s, &g, &c, id, &(struct xpending){.consumer = c.number, .time_ms = at_ms});
    xconsumer_put(s, &g, XGROUP_LATE, &c);
    xgroup_put(s, name, &g);
}

void xgroup_note_late(struct xstream *s, struct stream_id id)
{
    struct buf names = {0};
    if (LIKELY(s->groups == 0)) return;
    xgroup_past(s, id, &names);
    for (size_t at = 0, n; at < names.n; at += n) {
        memcpy(&n, names.p + at, sizeof n);
        at += sizeof n;
        xgroup_note_late_in(s, bytes_of(names.p + at, n), id);
    }
    buf_release(&names);
}

/* -- counters ---------------------------------------------------------------------------------- */

i64 xstream_entries_up_to(const struct xstream *s, struct stream_id id)
{
    int to_last = stream_id_cmp(id, s->last), to_first = stream_id_cmp(id, s->first);
    if (s->added == 0) return 0;
    if (s->length == 0 && to_last <= 0) return (i64)s->added;
    if (to_last == 0) return (i64)s->added;
    if (to_last > 0) return ENTRIES_READ_UNKNOWN;
    if (stream_id_zero(s->max_deleted) || stream_id_cmp(s->max_deleted, s->first) < 0) {
        if (to_first < 0) return (i64)(s->added - s->length);
        if (to_first == 0) return (i64)(s->added - s->length + 1);
    }
    return ENTRIES_READ_UNKNOWN;
}

bool xstream_holes_after(const struct xstream *s, struct stream_id id)
{
    if (s->length == 0 || stream_id_zero(s->max_deleted)) return false;
    return stream_id_cmp(s->first, s->max_deleted) <= 0 && stream_id_cmp(id, s->max_deleted) <= 0;
}

bool xgroup_lag(const struct xstream *s, const struct xgroup *g, i64 *lag)
{
    i64 read = g->entries_read;
    *lag = 0;
    if (s->added == 0) return true;
    if (read == ENTRIES_READ_UNKNOWN || xstream_holes_after(s, g->last))
        read = xstream_entries_up_to(s, g->last);
    if (read == ENTRIES_READ_UNKNOWN) return false;
    *lag = (i64)(s->added - (u64)read);
    return true;
}

void xgroup_advance(const struct xstream *s, struct xgroup *g, struct stream_id id)
{
    bool counts = g->entries_read != ENTRIES_READ_UNKNOWN && g->entries_read < INT64_MAX;
    if (counts && !xstream_holes_after(s, id)) g->entries_read++;
    else if (s->added) g->entries_read = xstream_entries_up_to(s, id);
    g->last = id;
}
