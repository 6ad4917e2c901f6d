/* Streams: rows in the order of their names. The model's elements are sorted by text(id); its string is the
 * head. */
#include "suite_model.h"

static void new_head(struct world *w, struct key_ref *ref, struct mval *m)
{
    char head[ROWS_HEAD_MAX];
    u32 n = below(below(4) ? 60 : ROWS_HEAD_MAX + 1);
    for (u32 i = 0; i < n; i++) head[i] = (char)below(256);
    m->size = below(m->n + 1); /* it counts some of the rows */
    w->ops->rows.set_head(w->e, ref, bytes_of(head, n), m->size);
    buf_clear(&m->str);
    buf_append(&m->str, head, n);
}

/* Values begin alike now and then, or are what another row has; an ordinary one is text(). */
static void put_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id)), value = below(2000);
    bytes given = text(value);
    if (m->n && below(10) == 0) {
        const struct elem *other = &m->v[below(m->n)];
        value = other->value;
        assert_true(w->ops->rows.get(w->e, ref, text(other->id), &given));
    }
    w->ops->rows.put(w->e, ref, text(id), given);
    if (row_is_at(m, at, id)) m->v[at].value = value;
    else mval_insert(m, at, (struct elem){.id = id, .value = value});
}

static void del_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id));
    bool there = row_is_at(m, at, id);
    assert_int_equal(w->ops->rows.del(w->e, ref, text(id)), there);
    if (there) mval_erase(m, at, 1);
}

/* About n of them; sometimes the bounds are the wrong way round, and nothing goes. */
static void erase_rows(struct world *w, struct key_ref *ref, struct mval *m, u32 elements, u32 n)
{
    u32 from = below(m->n + 1);
    u32 to = MIN(from + n, m->n);
    char a[TEXT_MAX], b[TEXT_MAX];
    bytes low = text_keep(a, from < m->n ? text(m->v[from].id) : text(below(elements)));
    bytes last = below(2) ? BYTES_LIT("\xff\xff") : text(below(elements));
    bytes high = text_keep(b, to < m->n ? text(m->v[to].id) : last);
    if (from == 0 && below(2)) low = BYTES_LIT("");
    from = row_place(m, low);
    to = row_place(m, high);
    n = to > from ? to - from : 0;
    if (below(2)) assert_int_equal(w->ops->rows.erase(w->e, ref, low, high), n);
    else w->ops->rows.wipe(w->e, ref, low, high, below(8) ? n : below(2000));
    if (n) mval_erase(m, from, n);
}

void change_rows(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    u32 id = m->n && below(3) == 0 ? m->v[below(m->n)].id : below(elements), what = below(20);
    if (what < 15) put_row(w, ref, m, id);
    else if (what < 18) del_row(w, ref, m, id);
    else if (below(8) == 0) erase_rows(w, ref, m, elements, below(below(10) ? 5 : below(4) ? 100 : 1000));
    if (m->size > m->n || below(4) == 0) new_head(w, ref, m);
}

static void assert_text(bytes got, u32 id)
{
    bytes want = text(id);
    assert_int_equal(got.n, want.n);
    if (want.n) assert_memory_equal(got.p, want.p, want.n);
}

static void check_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id));
    bool there = row_is_at(m, at, id);
    bytes value;
    assert_int_equal(w->ops->rows.get(w->e, ref, text(id), NULL), there);
    assert_int_equal(w->ops->rows.get(w->e, ref, text(id), &value), there);
    if (there) assert_text(value, m->v[at].value);
}

/* Ranges of hundreds of rows, that lie across each other, with a few rows put back, asked for or deleted
 * between. */
void erase_ranges(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    for (u32 id = 0; id < elements; id++)
        if (below(8)) put_row(w, ref, m, id);
    new_head(w, ref, m);
    if (below(4)) world_tick(w, 1);
    for (u32 n = 1 + below(4); n > 0; n--) {
        for (u32 k = below(20); k > 0; k--) check_row(w, ref, m, below(elements));
        erase_rows(w, ref, m, elements, 250 + below(600));
        for (u32 k = below(20); k > 0; k--) put_row(w, ref, m, below(elements));
        for (u32 k = below(20); k > 0; k--) del_row(w, ref, m, below(elements));
        new_head(w, ref, m);
        check_rows(w, ref, m);
    }
    world_tick(w, 1);
}

/* -- comparing ------------------------------------------------------------------------------- */

/* Walks from a row, or from between two, up or down; rows already passed may be removed meanwhile. */
static void check_walk(struct world *w, struct key_ref *ref, struct mval *m, bytes from, bool reverse)
{
    struct rows_iter it;
    bytes name, value, first = {0};
    u32 at = row_place(m, from);
    u32 left = !reverse ? m->n - at : at + (at < m->n && bytes_eq(text(m->v[at].id), from));
    u32 begin = left, first_id = 0;
    bool passing = below(2), named = below(4) == 0;
    w->ops->rows.iter(w->e, ref, from, reverse, &it);
    it.passing = passing;
    for (u32 n = 0, stop = below(4) ? below(30) : NONE; n < stop; n++, left--) {
        bool more = w->ops->rows.next(&it, &name, named ? NULL : &value);
        assert_int_equal(more, left > 0);
        if (!more) break;
        const struct elem *el = &m->v[reverse ? left - 1 : m->n - left];
        assert_text(name, el->id);
        if (!named) assert_text(value, el->value);
        if (left == begin) {
            first = name;
            first_id = el->id;
        }
    }
    if (first.p && !passing) assert_text(first, first_id);
    if (below(2)) return; /* it may be left as it is, but had better be ended */
    for (u32 n = 0; n < 2; n++) {
        w->ops->rows.done(&it);
        assert_false(w->ops->rows.next(&it, &name, NULL));
    }
}

void check_rows(struct world *w, struct key_ref *ref, struct mval *m)
{
    bytes head = w->ops->rows.head(w->e, ref);
    assert_int_equal(head.n, m->str.n);
    if (head.n) assert_memory_equal(head.p, m->str.p, head.n);
    assert_string_equal(w->ops->encoding(w->e, ref), "stream");
    for (u32 n = 0; n < 6; n++) check_row(w, ref, m, n < 3 && m->n ? m->v[below(m->n)].id : below(400));
    check_walk(w, ref, m, BYTES_LIT(""), false);
    check_walk(w, ref, m, BYTES_LIT("\xff\xff"), true);
    for (u32 n = 0; n < 4; n++) {
        char from[TEXT_MAX];
        bytes bound = text(m->n && below(2) ? m->v[below(m->n)].id : below(2000));
        check_walk(w, ref, m, text_keep(from, bound), below(2));
    }
}
