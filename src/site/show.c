/* The values of a key's cells in the engine: reading and changing them by path. An element of a list is found
 * by counting the rows before its own, from the nearer end. */
#include "base/num.h"
#include "xstream/xgroup.h"
#include "site/key.h"

/* How many rows of lists lie before the cell's row, and whether its own is among them is up to the caller. */
static u64 show_index(struct site_key *k, const struct site_cell *c)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    struct rows_iter up, down;
    bytes row, own = buf_bytes(&c->row);
    u64 before = 0, from = 0, total = k->cells[TYPE_LIST].rows, index;
    if (k->walked) return k->walked - 1;
    ops->iter(k->e, &k->ref, own, true, &down);
    ops->iter(k->e, &k->ref, own, false, &up);
    for (;;) {
        if (!ops->next(&down, &row, NULL) || row.p == NULL || row.n == 0 || row.p[0] != TYPE_LIST) {
            index = before;
            break;
        }
        before += !bytes_eq(row, own);
        if (!ops->next(&up, &row, NULL) || row.p[0] != TYPE_LIST) {
            index = total - from;
            break;
        }
        from++;
    }
    ops->done(&up);
    ops->done(&down);
    return index;
}

bool site_list_end(struct engine *e, struct key_ref *ref, bool front, struct buf *path)
{
    const struct companion_ops *ops = &e->ops->companion;
    const char from = front ? TYPE_LIST : TYPE_LIST + 1;
    struct rows_iter it;
    bytes row;
    ops->iter(e, ref, bytes_of(&from, 1), !front, &it);
    bool there = ops->next(&it, &row, NULL) && row.n > 1 && row.p[0] == TYPE_LIST;
    buf_clear(path);
    if (there) buf_append(path, row.p + 1, row.n - 1);
    ops->done(&it);
    return there;
}

static bool show_get_score(struct site_key *k, const struct site_cell *c, struct buf *out)
{
    double score;
    if (!k->e->ops->zset.score(k->e, &k->ref, site_cell_path(c), &score)) return false;
    out->n += num_print_double(buf_reserve(out, 64), score);
    return true;
}

/* -- streams ----------------------------------------------------------------------------------------- */

static void show_put_entry(struct site_key *k, bytes path, bytes value)
{
    struct xstream s;
    struct stream_id id = path.n ? stream_id_unpack(path.p) : STREAM_ID_MIN;
    xstream_open(&s, k->e, &k->ref);
    bool late = path.n && stream_id_cmp(id, s.last) < 0 && s.groups && !xstream_has(&s, id, NULL);
    if (path.n) xstream_insert(&s, SITE_NODE_LIMITS, id, value);
    if (late) xgroup_note_late(&s, id);
    xstream_save(&s);
}

static void show_del_entry(struct site_key *k, bytes path)
{
    struct xstream s;
    if (path.n == 0) return;
    xstream_open(&s, k->e, &k->ref);
    struct stream_id id = stream_id_unpack(path.p);
    if (stream_id_cmp(id, s.last) == 0) k->restate = true;
    if (xstream_delete(&s, id)) xstream_save(&s);
}

static bool show_get_entry(struct site_key *k, bytes path, struct buf *out)
{
    struct xstream s;
    bytes value;
    if (path.n == 0) return true;
    xstream_open(&s, k->e, &k->ref);
    if (!xstream_has(&s, stream_id_unpack(path.p), &value)) return false;
    buf_append_bytes(out, value);
    return true;
}

void site_show_last_id(struct site_key *k)
{
    struct site_cell c = {0};
    struct stream_id last = STREAM_ID_MIN, id;
    struct xstream s;
    const struct site_write *said = site_cell_winner(site_key_cell(k, TYPE_STREAM, SITE_LAST_ID, &c));
    xstream_open(&s, k->e, &k->ref);
    xwalk_edge(&s, xrow_kind('e'), true, &last);
    if (said) {
        id = stream_id_unpack(site_cell_text(&c, said).p);
        if (stream_id_cmp(id, last) > 0) last = id;
    }
    if (stream_id_cmp(last, s.last) != 0) {
        xstream_set_last(&s, last);
        xstream_save(&s);
    }
    k->restate = false;
    site_cell_release(&c);
}

/* -- all types --------------------------------------------------------------------------------------- */

bool site_show_get(struct site_key *k, const struct site_cell *c, struct buf *out)
{
    const struct engine_ops *ops = k->e->ops;
    struct str_view v;
    bytes value;
    i64 deadline_ms;
    switch (c->kind) {
    case TYPE_STRING:
        ops->str.get(k->e, &k->ref, &v);
        buf_append_bytes(out, v.b);
        return true;
    case TYPE_HASH:
        if (!ops->map.stored(k->e, &k->ref, site_cell_path(c), &value, &deadline_ms)) return false;
        buf_append_bytes(out, value);
        return true;
    case TYPE_LIST:
        ops->seq.get(k->e, &k->ref, show_index(k, c), &value);
        buf_append_bytes(out, value);
        return true;
    case TYPE_ZSET: return show_get_score(k, c, out);
    case TYPE_STREAM: return show_get_entry(k, site_cell_path(c), out);
    default: return true;
    }
}

static void show_put_element(struct site_key *k, const struct site_cell *c, bytes value)
{
    u64 at = show_index(k, c);
    if (c->was_live && c->stored) k->e->ops->seq.set(k->e, &k->ref, at, value);
    else k->e->ops->seq.insert(k->e, &k->ref, at, value);
}

void site_show_put(struct site_key *k, const struct site_cell *c, bytes value)
{
    const struct engine_ops *ops = k->e->ops;
    bytes path = site_cell_path(c);
    double score = 0;
    if (!k->ref.entry) ops->create(k->e, k->db, buf_bytes(&k->name), c->kind, &k->ref);
    switch (c->kind) {
    case TYPE_LIST: show_put_element(k, c, value); return;
    case TYPE_ZSET:
        num_parse_double(value, &score);
        ops->zset.put(k->e, &k->ref, path, score);
        return;
    case TYPE_HASH: ops->map.put(k->e, &k->ref, path, value, false); return;
    case TYPE_SET: ops->map.put(k->e, &k->ref, path, (bytes){"", 0}, true); return;
    case TYPE_STREAM: show_put_entry(k, path, value); return;
    default: return;
    }
}

/* The engine gives no deadline to a field that it hides: such a field is put again first. */
void site_show_deadline(struct site_key *k, const struct site_cell *c)
{
    const struct map_ops *map = &k->e->ops->map;
    bytes path = site_cell_path(c), value;
    i64 is_ms, at_ms = site_ttl_at(&c->ttl);
    if (!map->stored(k->e, &k->ref, path, &value, &is_ms) || is_ms == at_ms) return;
    if (!alive(is_ms, k->e->now_ms)) {
        struct buf copy = {0};
        buf_append_bytes(&copy, value);
        map->put(k->e, &k->ref, path, buf_bytes(&copy), false);
        buf_release(&copy);
    }
    if (at_ms || alive(is_ms, k->e->now_ms)) map->set_field_deadline(k->e, &k->ref, path, at_ms);
}

static void show_del_field(struct site_key *k, bytes path)
{
    const struct map_ops *map = &k->e->ops->map;
    if (!map->del(k->e, &k->ref, path)) map->reap_field(k->e, &k->ref, path, NULL, NULL);
}

void site_show_del(struct site_key *k, const struct site_cell *c)
{
    const struct engine_ops *ops = k->e->ops;
    if (c->kind == TYPE_LIST) ops->seq.erase(k->e, &k->ref, show_index(k, c), 1);
    else if (c->kind == TYPE_ZSET) ops->zset.del(k->e, &k->ref, site_cell_path(c));
    else if (c->kind == TYPE_STREAM) show_del_entry(k, site_cell_path(c));
    else if (c->kind == TYPE_HASH) show_del_field(k, site_cell_path(c));
    else ops->map.del(k->e, &k->ref, site_cell_path(c));
}
