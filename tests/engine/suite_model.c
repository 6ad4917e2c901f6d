/* The model, and comparing an engine with it. */
#include "suite_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rand.h"

u64 suite_rng;
u32 suite_ring;

void suite_seed(void)
{
    const char *seed = getenv("SUITE_SEED");
    suite_rng = seed ? strtoull(seed, NULL, 10) : 42;
}

u32 below(u32 n) { return (u32)rand_below(&suite_rng, n); }

/* -- numbered strings ------------------------------------------------------------- */

static bytes padded(char *buf, u32 id, u32 length)
{
    u32 n = (u32)sprintf(buf, "%ux", id);
    while (n < length) buf[n++] = 'x';
    return bytes_of(buf, n);
}

bytes text(u32 id)
{
    static char ring[2][16][1024];
    static u32 turn;
    char *buf = ring[suite_ring][turn++ % 16];
    if (id == 0) return bytes_of(buf, 0);
    if (id % 97 == 0) return padded(buf, id, 250 + id % 700);
    switch (id % 4) {
    case 0: return bytes_of(buf, (size_t)sprintf(buf, "%s%u", id % 8 ? "" : "-", id));
    case 1: return bytes_of(buf, (size_t)sprintf(buf, "name:%u", id));
    case 2: return padded(buf, id, id % 90);
    }
    memcpy(buf, "\0\xff", 2);
    memcpy(buf + 2, &id, 4);
    return bytes_of(buf, 6);
}

u32 text_id(bytes s)
{
    char buf[16] = {0};
    u32 id = 0;
    if (s.n == 0) return 0;
    if (s.p[0] == '\0') {
        assert_int_equal(s.n, 6);
        memcpy(&id, s.p + 2, 4);
    } else {
        size_t skip = s.p[0] == 'n' ? 5 : s.p[0] == '-';
        memcpy(buf, s.p + skip, MIN(s.n - skip, sizeof buf - 1));
        id = (u32)strtoul(buf, NULL, 10);
    }
    assert_true(bytes_eq(text(id), s));
    return id;
}

/* -- the model ---------------------------------------------------------------------- */

void mval_clear(struct mval *m)
{
    buf_release(&m->str);
    mem_free(m->v);
    *m = (struct mval){0};
}

bool elem_live(const struct elem *el, i64 now_ms) { return alive(el->deadline_ms, now_ms); }

/* Dead fields do not go along. */
void mval_copy(struct mval *to, const struct mval *from, i64 now_ms)
{
    *to = (struct mval){.type = from->type, .deadline_ms = from->deadline_ms, .size = from->size};
    buf_append_bytes(&to->str, buf_bytes(&from->str));
    for (u32 i = 0; i < from->n; i++) {
        if (elem_live(&from->v[i], now_ms)) mval_insert(to, to->n, from->v[i]);
    }
}

u32 mval_index(const struct mval *m, u32 id)
{
    for (u32 i = 0; i < m->n; i++) {
        if (m->v[i].id == id) return i;
    }
    return NONE;
}

struct elem *mval_insert(struct mval *m, u32 at, struct elem el)
{
    if (m->n == m->cap) {
        m->cap = m->cap * 2 + 8;
        m->v = mem_realloc(m->v, m->cap * sizeof *m->v);
    }
    memmove(&m->v[at + 1], &m->v[at], (m->n - at) * sizeof *m->v);
    m->v[at] = el;
    m->n++;
    return &m->v[at];
}

void mval_erase(struct mval *m, u32 at, u32 n)
{
    memmove(&m->v[at], &m->v[at + n], (m->n - at - n) * sizeof *m->v);
    m->n -= n;
}

u64 mval_size(const struct mval *m, i64 now_ms)
{
    if (m->type == TYPE_STRING) return m->str.n;
    if (m->type == TYPE_STREAM) return m->size;
    u64 n = 0;
    for (u32 i = 0; i < m->n; i++) n += elem_live(&m->v[i], now_ms);
    return n;
}

i64 mval_nearest_field(const struct mval *m)
{
    i64 nearest = 0;
    for (u32 i = 0; i < m->n; i++) {
        i64 d = m->v[i].deadline_ms;
        if (d && (!nearest || d < nearest)) nearest = d;
    }
    return nearest;
}

u32 row_place(const struct mval *m, bytes name)
{
    u32 low = 0, high = m->n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (bytes_cmp(text(m->v[mid].id), name) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

bool row_is_at(const struct mval *m, u32 at, u32 id) { return at < m->n && m->v[at].id == id; }

bytes text_keep(char *to, bytes b)
{
    if (b.n) memcpy(to, b.p, b.n);
    return bytes_of(to, b.n);
}

u32 zset_place(const struct mval *m, double score, u32 id)
{
    u32 at = 0;
    while (at < m->n && (m->v[at].score < score ||
                         (m->v[at].score == score && bytes_cmp(text(m->v[at].id), text(id)) < 0)))
        at++;
    return at;
}

/* -- the world ------------------------------------------------------------------------- */

void world_open(struct world *w, struct engine *e)
{
    memset(w, 0, sizeof *w);
    w->e = e;
    w->ops = e->ops;
    w->now_ms = START;
    w->ops->begin(e, w->now_ms);
}

void world_tick(struct world *w, i64 step_ms)
{
    assert_false(w->e->failed);
    assert_true(w->ops->commit(w->e, ++w->seq));
    w->now_ms += step_ms;
    w->ops->begin(w->e, w->now_ms);
}

void world_close(struct world *w)
{
    for (u32 db = 0; db < DBS; db++) {
        for (u32 id = 0; id < IDS; id++) {
            struct key_ref ref;
            if (below(2) && w->ops->find(w->e, db, text(id), &ref)) w->ops->drop(w->e, &ref);
            mval_clear(&w->key[db][id]);
            mval_clear(&w->companion[db][id]);
        }
        if (below(2)) w->ops->flush(w->e, db);
    }
    for (u32 n = below(100); n > 0; n--) w->ops->reclaim(w->e, 10); /* close() frees the rest */
    world_tick(w, 0);
    w->ops->close(w->e);
}

/* -- comparing values ---------------------------------------------------------------------- */

static void assert_text(bytes got, u32 id)
{
    bytes want = text(id);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
}

static void check_string(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct str_view v;
    w->ops->str.get(w->e, ref, &v);
    assert_int_equal(v.b.n, m->str.n);
    if (v.b.n) assert_memory_equal(v.b.p, m->str.p, v.b.n);
    assert_int_equal(w->ops->str.length(w->e, ref), m->str.n);
}

static void check_field(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 i = mval_index(m, id);
    bool want = i != NONE && elem_live(&m->v[i], w->now_ms);
    bytes value;
    i64 deadline_ms;
    assert_int_equal(w->ops->map.get(w->e, ref, text(id), &value), want);
    assert_int_equal(w->ops->map.get(w->e, ref, text(id), NULL), want);
    if (m->type == TYPE_HASH) {
        if (want) assert_text(value, m->v[i].value);
        assert_int_equal(w->ops->map.field_deadline(w->e, ref, text(id), &deadline_ms), want);
        if (want) assert_int_equal(deadline_ms, m->v[i].deadline_ms);
    }
}

static void meet(struct mval *m, bytes field, bytes value, i64 now_ms, bool again_is_fine)
{
    u32 i = mval_index(m, text_id(field));
    assert_true(i != NONE && elem_live(&m->v[i], now_ms));
    if (!again_is_fine) assert_false(m->v[i].seen);
    m->v[i].seen = true;
    if (m->type == TYPE_HASH) assert_text(value, m->v[i].value);
    else assert_int_equal(value.n, 0);
}

static void all_met(struct mval *m, i64 now_ms)
{
    for (u32 i = 0; i < m->n; i++) {
        assert_int_equal(m->v[i].seen, elem_live(&m->v[i], now_ms));
        m->v[i].seen = false;
    }
}

struct meeting {
    struct world *w;
    struct mval *m;
    struct key_ref *ref;
};

static void meet_pair(void *arg, bytes member, bytes value, double score)
{
    struct meeting *x = arg;
    meet(x->m, member, value, x->w->now_ms, true);
    if (x->m->type != TYPE_ZSET) return;
    assert_true(x->m->v[mval_index(x->m, text_id(member))].score == score);
}

static void check_scan(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct meeting x = {.w = w, .m = m};
    u64 cursor = 0;
    u32 calls = 0, count = 1 + below(100);
    do {
        cursor = (m->type == TYPE_ZSET ? w->ops->zset.scan : w->ops->map.scan)(
            w->e, ref, cursor, count, meet_pair, &x);
        assert_true(++calls < 100000);
    } while (cursor);
    all_met(m, w->now_ms);
}

static void check_map(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct map_iter it;
    bytes field, value;
    w->ops->map.iter(w->e, ref, &it);
    while (w->ops->map.next(&it, &field, &value)) meet(m, field, value, w->now_ms, false);
    all_met(m, w->now_ms);
    check_scan(w, ref, m);
    for (u32 n = 0; n < 5; n++) check_field(w, ref, m, below(400));
    if (m->n) check_field(w, ref, m, m->v[below(m->n)].id);

    bool some = mval_size(m, w->now_ms) > 0;
    assert_int_equal(w->ops->map.random(w->e, ref, &suite_rng, &field, &value), some);
    if (some) meet(m, field, value, w->now_ms, true);
    for (u32 i = 0; i < m->n; i++) m->v[i].seen = false;
    if (m->type == TYPE_HASH)
        assert_int_equal(w->ops->map.has_field_deadlines(w->e, ref), mval_nearest_field(m) != 0);
}

static void check_list(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct seq_iter it;
    bytes value;
    u32 from = below(m->n + 2), i = from;
    w->ops->seq.iter(w->e, ref, from, false, &it);
    for (; w->ops->seq.next(&it, &value); i++) assert_text(value, m->v[i].id);
    assert_int_equal(i, MAX(from, m->n));
    assert_false(w->ops->seq.next(&it, &value));

    from = m->n ? below(m->n) : 0;
    w->ops->seq.iter(w->e, ref, from, true, &it);
    for (i = from + 1; w->ops->seq.next(&it, &value); i--) assert_text(value, m->v[i - 1].id);
    assert_int_equal(i, m->n ? 0 : 1);
    for (u32 n = 0; n < 5 && m->n; n++) {
        i = below(m->n);
        w->ops->seq.get(w->e, ref, i, &value);
        assert_text(value, m->v[i].id);
    }
}

/* Whether entry i lies before the bound; `through`: also if it equals it. */
static bool entry_before(const struct mval *m, u32 i, const struct zset_seek *s, bool through)
{
    int c = 0;
    switch (s->by) {
    case ZSEEK_RANK: c = i < s->rank ? -1 : i > s->rank; break;
    case ZSEEK_SCORE: c = m->v[i].score < s->score ? -1 : m->v[i].score > s->score; break;
    case ZSEEK_LEX: c = s->lex_inf ? -s->lex_inf : bytes_cmp(text(m->v[i].id), s->lex); break;
    }
    return c < 0 || (through && c == 0);
}

static u32 entries_before(const struct mval *m, const struct zset_seek *s, bool through)
{
    u32 n = 0;
    for (u32 i = 0; i < m->n; i++) n += entry_before(m, i, s, through);
    return n;
}

static void check_seek(struct world *w, struct key_ref *ref, struct mval *m,
                       const struct zset_seek *s)
{
    struct zset_iter it;
    bytes member;
    double score;
    assert_int_equal(w->ops->zset.before(w->e, ref, s), entries_before(m, s, s->exclusive));
    w->ops->zset.iter(w->e, ref, s, &it);
    u32 at = entries_before(m, s, s->exclusive != s->reverse);
    u32 left = s->reverse ? at : m->n - at;
    for (u32 n = 0, stop = below(20) ? below(30) : NONE; n < stop; n++, left--) {
        bool more = w->ops->zset.next(&it, &member, &score);
        assert_int_equal(more, left > 0);
        if (!more) break;
        const struct elem *el = &m->v[s->reverse ? left - 1 : m->n - left];
        assert_text(member, el->id);
        assert_true(score == el->score);
    }
}

static void check_seeks(struct world *w, struct key_ref *ref, struct mval *m)
{
    bool one_score = m->n > 0 && m->v[0].score == m->v[m->n - 1].score;
    for (u32 n = 0; n < 8; n++) {
        char lex[1024]; /* text() would be overwritten by the comparing */
        bytes bound = text(below(400));
        memcpy(lex, bound.p, bound.n);
        struct zset_seek s = {
            .by = below(one_score ? 3 : 2), .reverse = below(2), .exclusive = below(2),
            .rank = below(m->n + 3),
            .score = m->n && below(2) ? m->v[below(m->n)].score : below(12) - 3.0,
            .lex_inf = below(4) ? 0 : (int)below(3) - 1, .lex = bytes_of(lex, bound.n),
        };
        if (s.by == ZSEEK_RANK) s.exclusive = false;
        check_seek(w, ref, m, &s);
    }
}

static void check_zset(struct world *w, struct key_ref *ref, struct mval *m)
{
    struct zset_iter it;
    bytes member;
    double score;
    w->ops->zset.iter(w->e, ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
    for (u32 i = 0; i < m->n; i++) {
        assert_true(w->ops->zset.next(&it, &member, &score));
        assert_text(member, m->v[i].id);
        assert_true(score == m->v[i].score);
    }
    assert_false(w->ops->zset.next(&it, &member, &score));
    for (u32 n = 0; n < 6; n++) {
        u32 id = n < 3 && m->n ? m->v[below(m->n)].id : below(400), i = mval_index(m, id);
        u64 rank;
        assert_int_equal(w->ops->zset.score(w->e, ref, text(id), &score), i != NONE);
        assert_int_equal(w->ops->zset.rank(w->e, ref, text(id), &rank), i != NONE);
        if (i == NONE) continue;
        assert_true(score == m->v[i].score);
        assert_int_equal(rank, i);
    }
    check_seeks(w, ref, m);
    check_scan(w, ref, m);
}

void check_value(struct world *w, struct key_ref *ref, struct mval *m)
{
    assert_int_equal(w->ops->size(w->e, ref), mval_size(m, w->now_ms));
    assert_non_null(w->ops->encoding(w->e, ref));
    assert_true(w->ops->usage(w->e, ref, 0) >= m->str.n);
    assert_true(w->ops->usage(w->e, ref, 5) > 0);
    switch (m->type) {
    case TYPE_STRING: check_string(w, ref, m); break;
    case TYPE_HASH:
    case TYPE_SET: check_map(w, ref, m); break;
    case TYPE_LIST: check_list(w, ref, m); break;
    case TYPE_ZSET: check_zset(w, ref, m); break;
    case TYPE_STREAM: check_rows(w, ref, m); break;
    case TYPE_NONE: fail();
    }
    assert_false(w->e->failed);
}

/* -- comparing keys ---------------------------------------------------------------------------- */

static void check_ref(struct world *w, u32 db, u32 id, struct key_ref *ref)
{
    const struct mval *m = &w->key[db][id];
    assert_int_equal(ref->db, db);
    assert_int_equal(ref->type, m->type);
    assert_int_equal(ref->deadline_ms, m->deadline_ms);
    assert_text(ref->key, id);
}

bool world_find(struct world *w, u32 db, u32 id, struct key_ref *ref)
{
    bool found = w->ops->find(w->e, db, text(id), ref);
    assert_int_equal(found, w->key[db][id].type != TYPE_NONE);
    if (found) check_ref(w, db, id, ref);
    else assert_null(ref->entry);
    return found;
}

static void check_key(struct world *w, u32 db, u32 id)
{
    struct key_ref ref;
    if (world_find(w, db, id, &ref)) check_value(w, &ref, &w->key[db][id]);
}

struct seen_keys {
    struct world *w;
    u32 db;
};

static void see_key(void *arg, struct key_ref *ref)
{
    struct seen_keys *s = arg;
    u32 id = text_id(ref->key);
    assert_true(id < IDS);
    check_ref(s->w, s->db, id, ref);
    s->w->key[s->db][id].seen = true;
}

static void add_up(void *arg, const struct due_span *s)
{
    assert_true(s->from_ms <= s->to_ms && s->keys > 0);
    *(u64 *)arg += s->keys;
}

void check_db(struct world *w, u32 db)
{
    struct engine *e = w->e;
    u64 keys = 0, expires = 0, cursor = 0, forecast = 0;
    double sum = 0;
    struct key_ref ref;
    struct seen_keys s = {w, db};
    do cursor = w->ops->scan(e, db, cursor, 1 + below(20), see_key, &s);
    while (cursor);
    for (u32 id = 0; id < IDS; id++) {
        struct mval *m = &w->key[db][id];
        check_key(w, db, id);
        assert_int_equal(m->seen, m->type != TYPE_NONE);
        m->seen = false;
        keys += m->type != TYPE_NONE;
        expires += m->deadline_ms != 0;
        sum += (double)m->deadline_ms;
    }
    assert_int_equal(w->ops->count(e, db), keys);
    assert_int_equal(w->ops->expires(e, db), expires);
    w->ops->forecast(e, db, add_up, &forecast);
    assert_int_equal(forecast, expires);
    if (expires) assert_true(sum / (double)expires - w->ops->mean_deadline(e, db) < 1000);
    if (expires) assert_true(w->ops->mean_deadline(e, db) - sum / (double)expires < 1000);

    compare_companions(w, db);
    assert_int_equal(w->ops->random(e, db, &suite_rng, &ref), keys > 0);
    if (keys) check_ref(w, db, text_id(ref.key), &ref);
    assert_int_equal(w->ops->random_volatile(e, db, &suite_rng, &ref), expires > 0);
    if (expires) {
        check_ref(w, db, text_id(ref.key), &ref);
        assert_true(ref.deadline_ms != 0);
    }
}

void check_world(struct world *w)
{
    for (u32 db = 0; db < DBS; db++) check_db(w, db);
}

/* -- expiry ----------------------------------------------------------------------------------- */

/* A deadline that has been due for 64 ms was offered, and the next one will be in time. */
static void check_not_late(struct world *w, i64 deadline_ms, i64 next_ms)
{
    if (!deadline_ms) return;
    assert_true(deadline_ms + 64 > w->now_ms);
    assert_true(next_ms <= deadline_ms + 64);
}

static void reaped(void *arg, bytes field, bytes value, double deadline_ms)
{
    struct meeting *x = arg;
    u32 i = mval_index(x->m, text_id(field));
    assert_true(i != NONE && !elem_live(&x->m->v[i], x->w->now_ms));
    assert_text(value, x->m->v[i].value);
    assert_true((i64)deadline_ms == x->m->v[i].deadline_ms);
    mval_erase(x->m, i, 1);
}

/* It has to be dead, and its value can still be read. */
static void met_due(void *arg, bytes field, bytes none, double deadline_ms)
{
    struct meeting *x = arg;
    u32 i = mval_index(x->m, text_id(field));
    i64 stored_ms;
    bytes value;
    assert_true(i != NONE && !elem_live(&x->m->v[i], x->w->now_ms) && none.n == 0);
    assert_true(x->w->ops->map.stored(x->w->e, x->ref, field, &value, &stored_ms));
    assert_text(value, x->m->v[i].value);
    assert_true((i64)deadline_ms == x->m->v[i].deadline_ms && stored_ms == x->m->v[i].deadline_ms);
}

static void check_due_fields(struct world *w, struct key_ref *ref, struct mval *m)
{
    u32 dead = m->n - (u32)mval_size(m, w->now_ms), max = below(4) ? NONE : below(3);
    struct meeting x = {.w = w, .m = m, .ref = ref};
    assert_int_equal(w->ops->map.due(w->e, ref, w->now_ms, max, met_due, &x), MIN(max, dead));
    assert_int_equal(w->ops->map.due(w->e, ref, 0, NONE, met_due, &x), 0);
    assert_int_equal(w->ops->map.dead_fields(w->e, ref), dead);
}

static void reap(struct world *w, struct key_ref *ref, struct mval *m)
{
    check_due_fields(w, ref, m);

    u32 max = below(4) ? NONE : 1 + below(3);
    u32 dead = m->n - (u32)mval_size(m, w->now_ms);
    u32 n = w->ops->map.reap(w->e, ref, max, reaped, &(struct meeting){.w = w, .m = m});
    assert_int_equal(n, MIN(max, dead));
    if (m->n == 0) drop_key(w, ref, m);
}

static void due_key(void *arg, struct key_ref *ref)
{
    struct world *w = arg;
    struct mval *m = &w->key[ref->db][text_id(ref->key)];
    assert_true(ref->db < w->e->databases); /* nothing of a staging one */
    check_ref(w, ref->db, text_id(ref->key), ref);
    i64 field_ms = mval_nearest_field(m);
    assert_true(!alive(m->deadline_ms, w->now_ms) || !alive(field_ms, w->now_ms));
    if (!alive(m->deadline_ms, w->now_ms)) drop_key(w, ref, m);
    else reap(w, ref, m);
}

u64 drain_due(struct world *w, u32 db)
{
    u64 total = 0;
    for (u32 n; (n = w->ops->due(w->e, w->now_ms, 1 + below(100), due_key, w));) total += n;
    i64 next = w->ops->next_due(w->e);
    for (u32 staging = w->e->databases; staging < DBS; staging++)
        if (w->ops->count(w->e, staging)) return total; /* there may have been nothing to offer */
    assert_true(next > w->now_ms);
    for (u32 id = 0; id < IDS && db < w->e->databases; id++) {
        check_not_late(w, w->key[db][id].deadline_ms, next);
        check_not_late(w, mval_nearest_field(&w->key[db][id]), next);
    }
    return total;
}

void drop_key(struct world *w, struct key_ref *ref, struct mval *m)
{
    w->ops->drop(w->e, ref);
    mval_clear(m);
    model_after_drop(w, m);
}

void change_deadline(struct world *w, struct key_ref *ref, struct mval *m)
{
    u32 bits = w->ops->access(w->e, ref);
    m->deadline_ms = below(3) ? w->now_ms + 1 + below(below(3) ? 5000 : 100000000) : 0;
    w->ops->set_deadline(w->e, ref, m->deadline_ms);
    assert_int_equal(ref->deadline_ms, m->deadline_ms);
    assert_int_equal(w->ops->access(w->e, ref), bits);
}

struct mval *rename_key(struct world *w, struct key_ref *ref, struct mval *m)
{
    u32 db = below(DBS), id = below(IDS);
    struct mval *to = &w->key[db][id];
    if (to->type != TYPE_NONE) return NULL;
    w->ops->rename(w->e, ref, db, text(id));
    *to = *m;
    *m = (struct mval){0};
    model_after_drop(w, m);
    assert_int_equal(ref->db, db);
    return to;
}

struct mval *copy_key(struct world *w, struct key_ref *ref, struct mval *m, struct key_ref *out)
{
    u32 db = below(DBS), id = below(IDS);
    struct mval *to = &w->key[db][id];
    if (to->type != TYPE_NONE || (m->type == TYPE_HASH && mval_size(m, w->now_ms) == 0)) return NULL;
    w->ops->copy(w->e, ref, db, text(id), out);
    mval_copy(to, m, w->now_ms);
    return to;
}

void flush_db(struct world *w, u32 db)
{
    w->ops->flush(w->e, db);
    for (u32 id = 0; id < IDS; id++) {
        mval_clear(&w->key[db][id]);
        mval_clear(&w->companion[db][id]);
    }
}

void swap_dbs(struct world *w, u32 a, u32 b)
{
    w->ops->swap(w->e, a, b);
    for (u32 id = 0; id < IDS; id++) {
        struct mval t = w->key[a][id];
        w->key[a][id] = w->key[b][id];
        w->key[b][id] = t;
        t = w->companion[a][id];
        w->companion[a][id] = w->companion[b][id];
        w->companion[b][id] = t;
    }
}
