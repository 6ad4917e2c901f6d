/* Random changes of values, made to the engine and the model alike. */
#include "base/num.h"
#include "suite_model.h"

/* -- strings -------------------------------------------------------------------------- */

static void some_string(struct buf *b)
{
    static const u32 lengths[] = {4, 44, 60, 300, 600, 5000, 70000};
    buf_clear(b);
    if (below(4) == 0) {
        bytes number = text(4 * below(1000));
        buf_append_bytes(b, number);
        return;
    }
    u32 n = below(lengths[below(below(20) ? 5 : 7)]);
    while (b->n < n) buf_append_char(b, (char)below(256));
}

static void put_string(struct world *w, u32 db, u32 id, struct key_ref *ref, struct mval *m)
{
    i64 deadline_ms = below(2) ? 0 : w->now_ms + 1 + below(100000);
    struct buf value = {0};
    some_string(&value);
    bool as_text = below(4) == 0;
    (as_text ? w->ops->str.put_text : w->ops->str.put)(w->e, db, text(id), ref, buf_bytes(&value),
                                                       deadline_ms);
    mval_clear(m);
    *m = (struct mval){.type = TYPE_STRING, .deadline_ms = deadline_ms, .str = value};
}

static void edit_string(struct world *w, struct key_ref *ref, struct mval *m)
{
    u32 n = below(3) ? (u32)m->str.n + below(40) : below(below(10) ? 100 : 3000);
    char *p = w->ops->str.edit(w->e, ref, n);
    buf_reserve(&m->str, n);
    if (n > m->str.n) memset(m->str.p + m->str.n, 0, n - m->str.n);
    m->str.n = n;
    if (n) assert_memory_equal(p, m->str.p, n);
    for (u32 k = 0; k < 3 && n; k++) {
        u32 at = below(n);
        p[at] = m->str.p[at] = (char)below(256);
    }
}

static void change_string(struct world *w, struct key_ref *ref, struct mval *m)
{
    i64 number, want;
    switch (below(4)) {
    case 0: put_string(w, ref->db, text_id(ref->key), ref, m); break;
    case 1: edit_string(w, ref, m); break;
    case 2:
        number = (i64)suite_rng >> below(64);
        w->ops->str.set_int(w->e, ref, number);
        buf_clear(&m->str);
        buf_printf(&m->str, "%lld", (long long)number);
        /* fall through */
    default: {
        bool is_int = num_parse_i64(buf_bytes(&m->str), &want);
        assert_int_equal(w->ops->str.get_int(w->e, ref, &number), is_int);
        if (is_int) assert_int_equal(number, want);
    }
    }
}

/* -- hashes and sets -------------------------------------------------------------------- */

static void put_field(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 i = mval_index(m, id), value = m->type == TYPE_SET ? 0 : below(2000);
    bool keep = below(2), live = i != NONE && elem_live(&m->v[i], w->now_ms);
    bool fresh = w->ops->map.put(w->e, ref, text(id), text(value), keep);
    assert_int_equal(fresh, !live);
    struct elem el = {.id = id, .value = value};
    if (i == NONE) {
        mval_insert(m, m->n, el);
    } else {
        if (live && keep) el.deadline_ms = m->v[i].deadline_ms;
        m->v[i] = el;
    }
}

static void del_field(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 i = mval_index(m, id);
    bool live = i != NONE && elem_live(&m->v[i], w->now_ms);
    assert_int_equal(w->ops->map.del(w->e, ref, text(id)), live);
    if (live) mval_erase(m, i, 1);
}

/* Only some hashes get them: the others stay in the form that has none. */
static void set_field_deadline(struct world *w, struct key_ref *ref, struct mval *m)
{
    if (m->n == 0 || text_id(ref->key) % 3 == 0) return;
    struct elem *el = &m->v[below(m->n)];
    if (!elem_live(el, w->now_ms)) return;
    i64 deadline_ms = below(4) ? w->now_ms + 1 + below(below(2) ? 1000 : 10000000) : 0;
    w->ops->map.set_field_deadline(w->e, ref, text(el->id), deadline_ms);
    el->deadline_ms = deadline_ms;
}

static void note_reaped(void *arg, bytes field, bytes value, double deadline_ms)
{
    struct elem *el = arg;
    assert_true(bytes_eq(field, text(el->id)) && bytes_eq(value, text(el->value)));
    assert_true((i64)deadline_ms == el->deadline_ms);
    el->seen = true;
}

/* Only if it is dead; what else is dead stays. */
static void reap_field(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 i = mval_index(m, id);
    struct elem el = {0};
    if (i != NONE) el = m->v[i];
    bool dead = i != NONE && !elem_live(&el, w->now_ms);
    el.seen = false;
    assert_int_equal(w->ops->map.reap_field(w->e, ref, text(id), note_reaped, &el), dead);
    assert_int_equal(el.seen, dead);
    if (dead) mval_erase(m, i, 1);
}

static void change_map(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    u32 id = m->n && below(2) ? m->v[below(m->n)].id : below(elements);
    u32 what = below(11);
    if (what < 6) put_field(w, ref, m, id);
    else if (what < 8 || m->type == TYPE_SET) del_field(w, ref, m, id);
    else if (what < 10) set_field_deadline(w, ref, m);
    else reap_field(w, ref, m, id);
}

/* -- lists --------------------------------------------------------------------------------- */

/* A walk that erases about one in three of what it meets. */
static void erase_some(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct seq_iter it;
    bytes value;
    bool reverse = below(2);
    u32 at = below(m->n), steps = 1 + below(40);
    w->ops->seq.iter(w->e, ref, at, reverse, &it);
    while (steps-- > 0 && w->ops->seq.next(&it, &value)) {
        assert_int_equal(text_id(value), m->v[at].id);
        if (below(3) == 0) {
            w->ops->seq.erase_current(&it);
            mval_erase(m, at, 1);
            at -= reverse;
        } else {
            at += reverse ? -1u : 1;
        }
    }
}

static void change_list(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    const struct seq_ops *seq = &w->ops->seq;
    struct elem el = {.id = below(elements)};
    struct buf out = {0};
    bool front = below(2);
    u32 at = below(m->n ? m->n : 1), n = below(below(10) ? 3 : 200);
    switch (m->n ? below(10) : 0) {
    case 0: case 1: case 2: case 3:
        seq->push(w->e, ref, front, text(el.id));
        mval_insert(m, front ? 0 : m->n, el);
        break;
    case 4:
        buf_append_str(&out, ">");
        seq->pop(w->e, ref, front, &out);
        at = front ? 0 : m->n - 1;
        assert_int_equal(text_id(bytes_of(out.p + 1, out.n - 1)), m->v[at].id);
        mval_erase(m, at, 1);
        buf_release(&out);
        break;
    case 5:
        seq->set(w->e, ref, at, text(el.id));
        m->v[at] = el;
        break;
    case 6: case 7:
        at = below(m->n + 1);
        seq->insert(w->e, ref, at, text(el.id));
        mval_insert(m, at, el);
        break;
    case 8:
        n = MIN(n, m->n - at);
        seq->erase(w->e, ref, at, n);
        mval_erase(m, at, n);
        break;
    case 9: erase_some(w, ref, m); break;
    }
}

/* -- sorted sets ------------------------------------------------------------------------------ */

/* A third of the keys have one score only, for the lex seeks. */
static double some_score(struct key_ref *ref)
{
    static const double special[] = {0.0, -0.0, 1.0 / 0.0, -1.0 / 0.0, 1e300, -1e-300, 0.1};
    if (text_id(ref->key) % 3 == 0) return 1;
    switch (below(8)) {
    case 0: return special[below(ARRAY_LEN(special))];
    case 1: return (double)below(1u << 30) / 1000 - 1000;
    default: return below(10) - 2.0;
    }
}

static void put_member(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 i = mval_index(m, id);
    double score = some_score(ref);
    assert_int_equal(w->ops->zset.put(w->e, ref, text(id), score), i == NONE);
    if (i != NONE) mval_erase(m, i, 1);
    mval_insert(m, zset_place(m, score, id), (struct elem){.id = id, .score = score});
}

struct erasing {
    struct mval *m;
    u32 at;
};

static void member_goes(void *arg, bytes member, bytes value, double score)
{
    struct erasing *x = arg;
    const struct elem *el = &x->m->v[x->at++];
    assert_int_equal(text_id(member), el->id);
    assert_int_equal(value.n, 0);
    assert_true(score == el->score);
}

static void erase_ranks(struct world *w, struct key_ref *ref, struct mval *m)
{
    u32 at = below(m->n), n = below(below(10) ? 4 : 200);
    n = MIN(n, m->n - at);
    struct erasing x = {m, at};
    if (below(2)) {
        w->ops->zset.erase(w->e, ref, at, n, member_goes, &x);
        assert_int_equal(x.at, at + n);
    } else {
        w->ops->zset.erase(w->e, ref, at, n, NULL, NULL);
    }
    mval_erase(m, at, n);
}

static void change_zset(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    u32 id = m->n && below(2) ? m->v[below(m->n)].id : below(elements), what = below(10);
    if (what < 7 || m->n == 0) {
        put_member(w, ref, m, id);
    } else if (what < 9) {
        u32 i = mval_index(m, id);
        assert_int_equal(w->ops->zset.del(w->e, ref, text(id)), i != NONE);
        if (i != NONE) mval_erase(m, i, 1);
    } else {
        erase_ranks(w, ref, m);
    }
}

/* -- any type ---------------------------------------------------------------------------- */

void change_value(struct world *w, struct key_ref *ref, struct mval *m, u32 elements)
{
    u32 fills = m->type == TYPE_STRING || m->type == TYPE_STREAM ? 0 : below(200);
    if (fills == 1) {
        fill_value(w, ref, m, elements);
        return;
    }
    if (fills == 2 && m->type != TYPE_LIST && below(5) == 0) {
        fill_twice(w, ref, m, elements);
        return;
    }
    switch (m->type) {
    case TYPE_STRING: change_string(w, ref, m); return;
    case TYPE_HASH:
    case TYPE_SET: change_map(w, ref, m, elements); break;
    case TYPE_LIST: change_list(w, ref, m, elements); break;
    case TYPE_ZSET: change_zset(w, ref, m, elements); break;
    case TYPE_STREAM: change_rows(w, ref, m, elements); return; /* it may be empty */
    case TYPE_NONE: fail();
    }
    if (m->n == 0) drop_key(w, ref, m);
}

void create_value(struct world *w, u32 db, u32 id, enum value_type type, struct key_ref *ref)
{
    struct mval *m = &w->key[db][id];
    assert_false(w->ops->find(w->e, db, text(id), ref));
    if (type == TYPE_STRING) {
        put_string(w, db, id, ref, m);
        return;
    }
    w->ops->create(w->e, db, text(id), type, ref);
    *m = (struct mval){.type = type};
    for (u32 n = type == TYPE_STREAM ? below(10) : 0; n > 0; n--) change_rows(w, ref, m, 300);
    if (type == TYPE_STREAM) return;
    while (m->type != TYPE_NONE && m->n == 0) {
        u32 element = below(300);
        if (below(2)) fill_value(w, ref, m, 300);
        else if (type == TYPE_LIST) change_list(w, ref, m, 300);
        else if (type == TYPE_ZSET) put_member(w, ref, m, element);
        else put_field(w, ref, m, element);
    }
}
