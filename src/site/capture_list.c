/* Captured primitives of lists. An element's row is found by its index: rows are in the order of elements. */
#include <stdlib.h>

#include "site/capture_parts.h"
#include "site/place.h"

static const bytes no_path = {"", 0};

/* Appends the paths of elements [from, from + count), each with its length; from the back, in that order, if
 * they are the last ones and this is shorter. */
static void list_paths(struct site_key *k, u64 from, u64 count, struct buf *out)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    u64 rows = k->cells[TYPE_LIST].rows;
    bool reverse = from + count == rows && count < from;
    char first = reverse ? TYPE_LIST + 1 : TYPE_LIST;
    u64 skip = reverse ? 0 : from;
    struct rows_iter it;
    bytes row;
    ops->iter(k->e, &k->ref, bytes_of(&first, 1), reverse, &it);
    while (count > 0 && ops->next(&it, &row, NULL)) {
        if (row.n == 0 || row.p[0] < TYPE_LIST) break;
        if (row.p[0] != TYPE_LIST && !reverse) break;
        if (row.p[0] != TYPE_LIST || (skip > 0 && skip--)) continue;
        site_put_bytes(out, bytes_of(row.p + 1, row.n - 1));
        count--;
    }
    ops->done(&it);
}

/* The path of an element, in c->path. False: the engine has failed. */
static bool list_path(struct site_capture *c, struct site_key *k, u64 index)
{
    struct buf raw = {0};
    buf_clear(&c->path);
    list_paths(k, index, 1, &raw);
    struct site_reader r = site_reader_of(buf_bytes(&raw));
    buf_append_bytes(&c->path, site_get_bytes(&r));
    buf_release(&raw);
    return c->path.n > 0;
}

static i64 list_end(struct site_capture *c, struct site_key *k, bool front, i64 otherwise)
{
    u64 rows = k->cells[TYPE_LIST].rows;
    if (rows == 0 || !list_path(c, k, front ? 0 : rows - 1)) return otherwise;
    return site_place_n(buf_bytes(&c->path));
}

static void list_put(struct site_capture *c, struct site_key *k, bytes value)
{
    struct site_cell *cell = site_key_cell(k, TYPE_LIST, buf_bytes(&c->path), &c->site.cell);
    capture_put_cell(c, k, cell, value);
}

/* Moves for elements that are put at an end; the engine's are the caller's. */
static struct site_key *list_push(struct site_capture *c, struct key_ref *ref, bool front, const bytes *v,
                                  u32 n)
{
    struct site_key *k = capture_live_key(c, ref);
    capture_start(c, k, TYPE_LIST);
    i64 stamp = (i64)c->effect.stamp, at;
    if (front) at = MIN(-stamp, list_end(c, k, true, 1) - 1);
    else at = MAX(stamp, list_end(c, k, false, -1) + 1);
    for (u32 i = 0; i < n; i++) {
        buf_clear(&c->path);
        site_put_place(&c->path, at, c->effect.dot, front ? -(i64)i : (i64)i);
        list_put(c, k, v[i]);
    }
    return k;
}

static void capture_push_all(struct engine *e, struct key_ref *ref, bool front, const bytes *v, u32 n)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && n && !capture_plain_push(c, ref, front, v, n)) {
        struct site_key *k = list_push(c, ref, front, v, n);
        c->own->seq.push_all(e, &k->ref, front, v, n);
        capture_save(c, k, ref);
    } else {
        c->own->seq.push_all(e, ref, front, v, n);
    }
    capture_leave(c);
}

static void capture_push(struct engine *e, struct key_ref *ref, bool front, bytes value)
{
    capture_push_all(e, ref, front, &value, 1);
}

static void capture_seq_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && n) {
        struct site_key *k = list_push(c, ref, false, v, n);
        c->own->seq.fill(e, &k->ref, v, n);
        capture_save(c, k, ref);
    } else {
        c->own->seq.fill(e, ref, v, n);
    }
    capture_leave(c);
}

/* -- removing --------------------------------------------------------------------------------------- */

/* Whether the open effect made one of these elements. */
static bool list_made(struct site_capture *c, struct site_key *k, bytes paths)
{
    for (struct site_reader r = site_reader_of(paths); c->open && site_left(&r);)
        if (capture_made_cell(c, site_key_cell(k, TYPE_LIST, site_get_bytes(&r), &c->site.cell))) return true;
    return false;
}

static void list_rem_paths(struct site_capture *c, struct site_key *k, bytes paths)
{
    if (list_made(c, k, paths)) capture_split(c);
    for (struct site_reader r = site_reader_of(paths); site_left(&r);) {
        struct site_cell *cell = site_key_cell(k, TYPE_LIST, site_get_bytes(&r), &c->site.cell);
        if (site_cell_live(cell)) capture_rem_cell(c, k, cell);
    }
}

static void list_rem(struct site_capture *c, struct key_ref *ref, u64 from, u64 count)
{
    struct site_key *k = capture_live_key(c, ref);
    buf_clear(&c->value);
    if (count >= k->cells[TYPE_LIST].live) {
        capture_clear(c, k);
    } else {
        list_paths(k, from, count, &c->value);
        list_rem_paths(c, k, buf_bytes(&c->value));
    }
    capture_save(c, k, ref);
}

static void capture_pop(struct engine *e, struct key_ref *ref, bool front, struct buf *out)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && !capture_plain_pop(c, ref, front))
        list_rem(c, ref, front ? 0 : c->own->size(e, ref) - 1, 1);
    c->own->seq.pop(e, ref, front, out);
    capture_leave(c);
}

static void capture_seq_erase(struct engine *e, struct key_ref *ref, u64 from, u64 count)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && count) list_rem(c, ref, from, count);
    c->own->seq.erase(e, ref, from, count);
    capture_leave(c);
}

/* The companion must not change while the command walks over the list, so removed elements are recorded, and
 * processed afterwards. In a forward walk, recorded elements before this one are already missing in the
 * engine; in a backward walk, none is. */
static void capture_erase_current(struct seq_iter *it)
{
    struct engine *e = it->eng;
    struct site_capture *c = capture_of(e);
    e->ops = c->own;
    if (c->text) capture_settle_text(c);
    if (capture_serves(c, it->ref->db)) {
        if (c->erased.n == 0) capture_key(c, it->ref);
        buf_append(&c->erased, &e->intent_at, sizeof e->intent_at);
    }
    c->own->seq.erase_current(it);
    capture_leave(c);
}

static int index_cmp(const void *pa, const void *pb)
{
    u64 a, b;
    memcpy(&a, pa, sizeof a);
    memcpy(&b, pb, sizeof b);
    return (a > b) - (a < b);
}

/* Appends the paths of elements with these indexes, which are in order: one walk. */
static void list_paths_at(struct site_key *k, const u64 *index, u64 n, struct buf *out)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    const char first = TYPE_LIST;
    struct rows_iter it;
    bytes row;
    ops->iter(k->e, &k->ref, bytes_of(&first, 1), false, &it);
    for (u64 at = 0, i = 0; i < n && ops->next(&it, &row, NULL) && row.p[0] == TYPE_LIST; at++) {
        if (at != index[i]) continue;
        site_put_bytes(out, bytes_of(row.p + 1, row.n - 1));
        i++;
    }
    ops->done(&it);
}

void capture_settle_erased(struct site_capture *c)
{
    struct site_key *k = &c->key;
    struct key_ref ref;
    struct buf erased = c->erased;
    u64 *index = (u64 *)(void *)erased.p, n = erased.n / sizeof *index;
    c->erased = (struct buf){0};
    if (c->own->find(c->site.e, k->db, buf_bytes(&k->name), &ref) && ref.type == TYPE_LIST) {
        k->ref = ref;
        qsort(index, n, sizeof *index, index_cmp);
        buf_clear(&c->value);
        if (n >= k->cells[TYPE_LIST].live) {
            capture_clear(c, k);
        } else {
            list_paths_at(k, index, n, &c->value);
            list_rem_paths(c, k, buf_bytes(&c->value));
        }
        capture_save(c, k, &ref);
    }
    buf_clear(&erased);
    buf_release(&c->erased);
    c->erased = erased;
}

/* -- in the middle ------------------------------------------------------------------------------------ */

static void capture_seq_set(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db)) {
        struct site_key *k = capture_live_key(c, ref);
        if (list_path(c, k, index)) {
            capture_start(c, k, TYPE_LIST);
            list_put(c, k, value);
        }
        c->own->seq.set(e, &k->ref, index, value);
        capture_save(c, k, ref);
    } else {
        c->own->seq.set(e, ref, index, value);
    }
    capture_leave(c);
}

/* A position between the element at index - 1 and the one at index, in c->path. */
static bool list_place(struct site_capture *c, struct site_key *k, u64 index)
{
    u64 rows = k->cells[TYPE_LIST].rows;
    struct buf before = {0};
    bytes after = no_path;
    bool ok = rows > 0;
    struct site_dot dot = capture_dot(c);
    if (index > 0 && ok) {
        ok = list_path(c, k, index - 1);
        buf_append_bytes(&before, buf_bytes(&c->path));
    }
    if (index < rows && ok) ok = list_path(c, k, index);
    struct buf path = {0};
    if (index < rows) after = buf_bytes(&c->path);
    if (ok) site_put_place_between(&path, before.n ? buf_bytes(&before) : no_path, after, dot);
    buf_clear(&c->path);
    buf_append_bytes(&c->path, buf_bytes(&path));
    buf_release(&path);
    buf_release(&before);
    return ok;
}

static void capture_insert(struct engine *e, struct key_ref *ref, u64 index, bytes value)
{
    struct site_capture *c = capture_enter(e, ref);
    if (!capture_serves(c, ref->db)) {
        c->own->seq.insert(e, ref, index, value);
        capture_leave(c);
        return;
    }
    struct site_key *k = capture_live_key(c, ref);
    if (k->cells[TYPE_LIST].live == 0) {
        list_push(c, ref, false, &value, 1);
    } else {
        capture_start(c, k, TYPE_LIST);
        if (list_place(c, k, index)) list_put(c, k, value);
    }
    c->own->seq.insert(e, &k->ref, index, value);
    capture_save(c, k, ref);
    capture_leave(c);
}

void capture_list_ops(struct engine_ops *ops)
{
    ops->seq.push = capture_push;
    ops->seq.push_all = capture_push_all;
    ops->seq.fill = capture_seq_fill;
    ops->seq.pop = capture_pop;
    ops->seq.set = capture_seq_set;
    ops->seq.insert = capture_insert;
    ops->seq.erase = capture_seq_erase;
    ops->seq.erase_current = capture_erase_current;
}
