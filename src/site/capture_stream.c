/* Captured primitives of streams. Only the entries of a stream are replicated, and the last id of its head:
 * nodes, groups and pending entries are local to the site. */
#include "site/capture_parts.h"
#include "xstream/xstream.h"

static const bytes nothing = {"", 0};

static bytes entry_path(bytes row) { return bytes_of(row.p + 1, row.n - 1); }

/* The stream is there, by this effect. */
static void stream_say_there(struct site_capture *c, struct site_key *k)
{
    struct site_cell *cell = site_key_cell(k, TYPE_STREAM, nothing, &c->site.cell);
    if (!capture_made_cell(c, cell)) capture_put_cell(c, k, cell, nothing);
}

static void capture_create(struct engine *e, u32 db, bytes key, enum value_type type, struct key_ref *ref)
{
    struct site_capture *c = capture_enter(e, NULL);
    c->own->create(e, db, key, type, ref);
    if (type == TYPE_STREAM && capture_serves(c, db)) {
        struct site_key *k = capture_live_key(c, ref);
        capture_start(c, k, TYPE_STREAM);
        stream_say_there(c, k);
        capture_save(c, k, ref);
    }
    capture_leave(c);
}

/* -- adding ----------------------------------------------------------------------------------------- */

/* The cell of an entry that is about to be put. Beyond the last id there can't be one, so it is not read. */
static struct site_cell *stream_cell(struct site_capture *c, struct site_key *k, bytes path)
{
    struct stream_id last = xstream_head_last(c->own->rows.head(c->site.e, &k->ref));
    if (stream_id_cmp(stream_id_unpack(path.p), last) <= 0)
        return site_key_cell(k, TYPE_STREAM, path, &c->site.cell);
    site_cell_reset(&c->site.cell, TYPE_STREAM, path);
    return &c->site.cell;
}

static void stream_put(struct site_capture *c, struct key_ref *ref, bytes path, bytes value)
{
    struct stream_id last = xstream_head_last(c->own->rows.head(c->site.e, ref));
    bool beyond = stream_id_cmp(stream_id_unpack(path.p), last) > 0;
    if (beyond && capture_plain_entry(c, ref, path, value)) return;
    struct site_key *k = capture_live_key(c, ref);
    capture_start(c, k, TYPE_STREAM);
    capture_put_cell(c, k, stream_cell(c, k, path), value);
    capture_save(c, k, ref);
}

static void capture_rows_put(struct engine *e, struct key_ref *ref, bytes row, bytes value)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && xrow_is_entry(row)) {
        bytes path = entry_path(row);
        stream_put(c, ref, path, value);
        c->own->rows.put(e, ref, row, value);
        memcpy(c->entry, path.p, SITE_ID_BYTES);
        c->added = true;
    } else {
        c->own->rows.put(e, ref, row, value);
    }
    capture_leave(c);
}

/* -- removing --------------------------------------------------------------------------------------- */

static void stream_rem(struct site_capture *c, struct site_key *k, bytes path)
{
    if (!site_cell_live(site_key_cell(k, TYPE_STREAM, path, &c->site.cell))) return;
    c->cut = true;
    c->added = false;
    if (k->cells[TYPE_STREAM].live == 1) { /* of one that survived a DEL: it stays, too */
        capture_start(c, k, TYPE_STREAM);
        stream_say_there(c, k);
    }
    capture_rem_cell(c, k, site_key_cell(k, TYPE_STREAM, path, &c->site.cell));
}

static bool capture_rows_del(struct engine *e, struct key_ref *ref, bytes row)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && xrow_is_entry(row) && c->own->rows.get(e, ref, row, NULL)) {
        struct site_key *k = capture_live_key(c, ref);
        stream_rem(c, k, entry_path(row));
        capture_save(c, k, ref);
    }
    bool there = c->own->rows.del(e, ref, row);
    capture_leave(c);
    return there;
}

/* Metadata of the entries with from <= row < to; their paths are in c->value meanwhile. */
static void stream_rem_range(struct site_capture *c, struct key_ref *ref, bytes from, bytes to)
{
    struct rows_iter it;
    bytes row;
    buf_clear(&c->value);
    c->own->rows.iter(c->site.e, ref, from, false, &it);
    while (c->own->rows.next(&it, &row, NULL) && bytes_cmp(row, to) < 0 && row.p[0] == 'e')
        if (xrow_is_entry(row)) buf_append_bytes(&c->value, entry_path(row));
    c->own->rows.done(&it);
    if (c->value.n == 0) return;
    struct site_key *k = capture_live_key(c, ref);
    for (size_t at = 0; at < c->value.n; at += SITE_ID_BYTES)
        stream_rem(c, k, bytes_of(c->value.p + at, SITE_ID_BYTES));
    capture_save(c, k, ref);
}

static bool stream_is_range(const struct site_capture *c, const struct key_ref *ref, bytes from)
{
    return capture_serves(c, ref->db) && from.n && from.p[0] == 'e';
}

static u64 capture_rows_erase(struct engine *e, struct key_ref *ref, bytes from, bytes to)
{
    struct site_capture *c = capture_enter(e, ref);
    if (stream_is_range(c, ref, from)) stream_rem_range(c, ref, from, to);
    u64 n = c->own->rows.erase(e, ref, from, to);
    capture_leave(c);
    return n;
}

static void capture_rows_wipe(struct engine *e, struct key_ref *ref, bytes from, bytes to, u64 about)
{
    struct site_capture *c = capture_enter(e, ref);
    if (stream_is_range(c, ref, from)) stream_rem_range(c, ref, from, to);
    c->own->rows.wipe(e, ref, from, to, about);
    capture_leave(c);
}

/* -- the last id -------------------------------------------------------------------------------------- */

/* Whether entries and metadata make others show this last id, which is in `raw`, too. */
static bool stream_last_is_said(struct site_capture *c, struct site_key *k, struct stream_id last, bytes raw)
{
    struct xrow row = xrow_entry(last);
    const struct site_write *said = NULL;
    int order = -1;
    bool added = c->added && bytes_eq(bytes_of(c->entry, SITE_ID_BYTES), raw);
    if (k->cells[TYPE_STREAM].rows > k->cells[TYPE_STREAM].live) {
        const struct site_cell *cell = site_key_cell(k, TYPE_STREAM, SITE_LAST_ID, &c->site.cell);
        said = site_cell_winner(cell);
        if (said) order = bytes_cmp(site_cell_text(cell, said), raw);
    }
    if (added || c->own->rows.get(c->site.e, &k->ref, xrow_bytes(&row), NULL)) return order <= 0;
    return said ? order == 0 : stream_id_zero(last);
}

static void capture_rows_set_head(struct engine *e, struct key_ref *ref, bytes head, u64 size)
{
    struct site_capture *c = capture_enter(e, ref);
    struct stream_id last = xstream_head_last(head);
    char text[SITE_ID_BYTES];
    bytes raw = bytes_of(text, sizeof text);
    struct stream_id old = xstream_head_last(c->own->rows.head(e, ref));
    bool changes = c->cut || stream_id_cmp(last, old) != 0;
    c->own->rows.set_head(e, ref, head, size);
    stream_id_pack(text, last);
    bool added = c->added && bytes_eq(bytes_of(c->entry, SITE_ID_BYTES), raw);
    bool said = added && capture_plain_only_entries(c, ref);
    if (changes && !said && capture_serves(c, ref->db)) {
        struct site_key *k = capture_key(c, ref);
        c->cut = false;
        if (!stream_last_is_said(c, k, last, raw)) {
            k = capture_live_key(c, ref);
            capture_start(c, k, TYPE_STREAM);
            capture_put_cell(c, k, site_key_cell(k, TYPE_STREAM, SITE_LAST_ID, &c->site.cell), raw);
            capture_save(c, k, ref);
        }
    }
    capture_leave(c);
}

void capture_gather_stream(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    struct xstream s;
    struct xwalk walk;
    struct stream_id id, top = STREAM_ID_MIN;
    bytes packed;
    char raw[SITE_ID_BYTES];
    xstream_open(&s, c->site.e, ref);
    site_put_bytes(out, nothing);
    site_put_bytes(out, nothing);
    xstream_walk(&walk, &s, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (xwalk_next(&walk, &id, &packed)) {
        top = id;
        stream_id_pack(raw, id);
        site_put_bytes(out, bytes_of(raw, sizeof raw));
        site_put_bytes(out, packed);
    }
    if (stream_id_cmp(top, s.last) == 0) return;
    stream_id_pack(raw, s.last);
    site_put_bytes(out, SITE_LAST_ID);
    site_put_bytes(out, bytes_of(raw, sizeof raw));
}

void capture_stream_ops(struct engine_ops *ops)
{
    ops->create = capture_create;
    ops->rows.put = capture_rows_put;
    ops->rows.del = capture_rows_del;
    ops->rows.erase = capture_rows_erase;
    ops->rows.wipe = capture_rows_wipe;
    ops->rows.set_head = capture_rows_set_head;
}
