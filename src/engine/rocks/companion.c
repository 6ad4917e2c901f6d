#include "engine/rocks/companion.h"

#include "engine/rocks/delta.h"
#include "engine/rocks/keys.h"

/* -- rows of companions ---------------------------------------------------------------------------- */

/* The companions of a database, with its current index and flags. */
static struct rk_db *side_of(struct rk *rk, u32 number)
{
    struct rk_db *db = rk->dbs[number], *side = db->side;
    if (!side) {
        side = db->side = mem_zalloc(sizeof *side);
        side->companions = true;
        table_init(&side->rows, db->rows.key_of, db->rows.seed);
    }
    side->index = db->index;
    side->number = number;
    side->flushed = db->flushed;
    return side;
}

static bool rk_companion_decode(struct row *r, bytes raw)
{
    struct codec_companion c;
    if (!codec_companion_read(raw, &c)) return false;
    r->type = ROW_COMPANION;
    r->kept = c.kept;
    r->version = c.version;
    r->size = c.size;
    buf_append_bytes(&r->value, c.head);
    row_remember_stored(r);
    return true;
}

static void rk_companion_read(struct rk *rk, struct row *r)
{
    struct store_value v;
    if (!store_get(rk->session, FAM_COMPANION, row_raw_key(rk, r), &v)) return;
    if (!rk_companion_decode(r, v.b)) row_malformed(rk, r);
    store_value_release(&v);
}

/* The row of a key's companion, read if it is not cached; TYPE_NONE: absent. */
static struct row *rk_companion_row(struct rk *rk, const struct key_ref *ref)
{
    if (ref->type == TYPE_NONE && ref->entry) return ref->entry; /* a snapshot's */
    struct rk_db *side = side_of(rk, ref->db);
    struct row *r = row_peek(rk, side, ref->key, ref->hash);
    if (r) {
        r->used = true;
        return r;
    }
    r = row_new(side, ref->key);
    if (rk->companions && !side->flushed) {
        bool failed_before = rk->base.failed;
        rk->base.failed = false;
        rk_companion_read(rk, r);
        if (UNLIKELY(rk->base.failed)) return row_unreadable(rk, r);
        rk->base.failed = failed_before;
    }
    row_cache(rk, r, ref->hash);
    return r;
}

/* The row of an existing companion; NULL: none. */
static struct row *rk_companion_find(struct rk *rk, const struct key_ref *ref)
{
    if (!rk->companions) return NULL;
    struct row *r = rk_companion_row(rk, ref);
    return r->type == TYPE_NONE ? NULL : r;
}

/* Sets the flag in the key's metadata: it has a companion that goes with it. */
static void set_goes_along(struct rk *rk, const struct key_ref *ref, bool goes_along)
{
    struct row *key = row_of(ref);
    if (!key || key->companion == goes_along) return;
    row_touch(rk, key);
    key->companion = goes_along;
}

static struct row *rk_companion_open(struct rk *rk, const struct key_ref *ref)
{
    rk->companions = true;
    struct row *r = rk_companion_row(rk, ref);
    row_touch(rk, r);
    if (r->type != TYPE_NONE) return r;
    row_create(rk, r, (enum value_type)ROW_COMPANION);
    r->version = 0; /* until there are rows */
    struct rk_db *db = rk->dbs[ref->db];
    db->has_companions = true;
    r->kept = !ref->entry;
    set_goes_along(rk, ref, !r->kept);
    return r;
}

static void rk_companion_erase(struct rk *rk, struct row *r)
{
    row_drop(rk, r);
    r->kept = false;
}

void companion_after_drop(struct rk *rk, struct row *key)
{
    u64 hash = row_hash(key->db, row_key(key));
    struct key_ref ref = {.key = row_key(key), .db = key->db->number, .hash = hash};
    struct row *r = rk_companion_find(rk, &ref);
    if (r && !r->kept) rk_companion_erase(rk, r);
    key->companion = false;
}

/* -- primitives: the companion as a whole ------------------------------------------------------------- */

static bool rk_companion_head(struct engine *e, struct key_ref *ref, bytes *head)
{
    struct row *r = rk_companion_find(rk_of(e), ref);
    if (r) *head = buf_bytes(&r->value);
    return r != NULL;
}

static void rk_companion_set_head(struct engine *e, struct key_ref *ref, bytes head)
{
    CHECK(head.n <= COMPANION_HEAD_MAX);
    struct rk *rk = rk_of(e);
    struct row *r = rk_companion_open(rk, ref);
    head = delta_keep(rk, head); /* it may point into the companion */
    buf_clear(&r->value);
    buf_append_bytes(&r->value, head);
}

static void rk_companion_drop(struct engine *e, struct key_ref *ref)
{
    struct row *r = rk_companion_find(rk_of(e), ref);
    if (!r) return;
    rk_companion_erase(rk_of(e), r);
    set_goes_along(rk_of(e), ref, false);
}

static bool rk_companion_kept(struct engine *e, struct key_ref *ref)
{
    const struct row *r = rk_companion_find(rk_of(e), ref);
    return r && r->kept;
}

static void rk_companion_keep(struct engine *e, struct key_ref *ref, bool stays)
{
    struct rk *rk = rk_of(e);
    struct row *r = rk_companion_find(rk, ref);
    if (!r || r->kept == stays) return;
    if (!stays && !ref->entry) {
        rk_companion_erase(rk, r);
        return;
    }
    row_touch(rk, r);
    r->kept = stays;
    set_goes_along(rk, ref, !stays);
}

/* -- rows: as a stream's, under the companion's version ------------------------------------------------ */

static struct key_ref ref_to(struct row *r) { return (struct key_ref){.entry = r}; }

static bool rk_companion_get(struct engine *e, struct key_ref *ref, bytes name, bytes *value)
{
    struct row *r = rk_companion_find(rk_of(e), ref);
    if (!r || !r->version) return false;
    struct key_ref rows = ref_to(r);
    return rk_rows_ops.get(e, &rows, name, value);
}

/* Rows are counted, so this has to know whether the row exists. Callers have mostly read it before. */
static void rk_companion_put(struct engine *e, struct key_ref *ref, bytes name, bytes value)
{
    struct rk *rk = rk_of(e);
    struct row *r = rk_companion_open(rk, ref);
    if (!r->version) r->version = rk_new_version(rk);
    struct change *c = delta_at(rk, r, name);
    r->size += !c->exists;
    delta_put(rk, r, c, value);
}

static bool rk_companion_del(struct engine *e, struct key_ref *ref, bytes name)
{
    struct row *r = rk_companion_find(rk_of(e), ref);
    if (!r || !r->version) return false;
    struct key_ref rows = ref_to(r);
    if (!rk_rows_ops.del(e, &rows, name)) return false;
    r->size--;
    return true;
}

static void rk_companion_iter(struct engine *e, struct key_ref *ref, bytes from, bool reverse,
                              struct rows_iter *it)
{
    struct row *r = rk_companion_find(rk_of(e), ref);
    *it = (struct rows_iter){.eng = e, .ref = ref, .reverse = reverse};
    if (!r || !r->version) return; /* state[0] is NULL */
    struct key_ref rows = ref_to(r);
    rk_rows_ops.iter(e, &rows, from, reverse, it);
    it->ref = ref;
}

static bool rk_companion_next(struct rows_iter *it, bytes *name, bytes *value)
{
    return it->state[0] && rk_rows_ops.next(it, name, value);
}

static void rk_companion_done(struct rows_iter *it)
{
    if (it->state[0]) rk_rows_ops.done(it);
}

size_t companion_usage(struct rk *rk, const struct key_ref *ref, u32 samples)
{
    struct row *r = rk_companion_find(rk, ref);
    struct walk w;
    u64 seen = 0, bytes_seen = 0;
    if (!r) return 0;
    size_t prefix = CODEC_PREFIX_FIXED + r->key_len, total = prefix + 1 + r->value.n;
    if (!r->size) return total;
    for (bool more = walk_start(&w, rk, r, (bytes){0}, false); more; more = walk_next(&w)) {
        bytes_seen += prefix + 8 + w.sub.n + w.value.n;
        if (++seen == samples) break;
    }
    walk_done(&w);
    return seen ? total + (size_t)((double)bytes_seen / (double)seen * (double)r->size) : total;
}

/* -- those that stay ------------------------------------------------------------------------------------ */

void companion_marks(const struct rk *rk, const struct rk_db *db, struct buf *from, struct buf *to)
{
    buf_append_char(from, COMPANION_MARK);
    buf_append_char(to, COMPANION_MARK);
    keys_range(rk, db, from, to);
}

/* Fills in ref as find() does; false: this transaction dropped the companion, or it no longer stays. */
static bool find_marked(struct engine *e, u32 db, bytes mark, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct codec_key k;
    if (!codec_key_read(bytes_of(mark.p + 1, mark.n - 1), &k)) return false;
    bytes key = delta_keep(rk, k.key);
    e->ops->find(e, db, key, ref);
    const struct row *r = row_peek(rk, side_of(rk, db), key, ref->hash);
    return !r || (r->type != TYPE_NONE && r->kept);
}

/* `place` is the last mark visited. */
static bool rk_companion_each_kept(struct engine *e, u32 db, struct buf *place, u32 count, key_fn fn,
                                   void *arg)
{
    struct rk *rk = rk_of(e);
    if (!rk->companions || rk->dbs[db]->flushed) return false;
    struct buf from = {0}, to = {0};
    companion_marks(rk, rk->dbs[db], &from, &to);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to), STORE_ONCE);
    store_seek(it, place->n > from.n ? buf_bytes(place) : buf_bytes(&from));
    if (place->n && store_valid(it) && bytes_eq(store_key(it), buf_bytes(place))) store_next(it);
    for (u32 n = 0; store_valid(it) && n < count; store_next(it)) {
        struct key_ref ref;
        buf_clear(place);
        buf_append_bytes(place, store_key(it));
        if (!find_marked(e, db, buf_bytes(place), &ref)) continue;
        fn(arg, &ref);
        n++;
    }
    bool more = store_valid(it);
    store_iter_done(it);
    buf_release(&from);
    buf_release(&to);
    return more;
}

struct row *companion_marked_row(struct rk *rk, struct rk_db *db, bytes key)
{
    struct row *r = row_new(side_of(rk, db->number), key);
    r->passing = true;
    rk_companion_read(rk, r);
    return r;
}

/* -- the end of a transaction --------------------------------------------------------------------------- */

static void write_mark(struct rk *rk, const struct row *r, bool stays)
{
    buf_clear(&rk->scratch);
    buf_append_char(&rk->scratch, COMPANION_MARK);
    codec_key_in(&rk->scratch, rk->region.prefix, r->db->index, r->slot, row_key(r));
    if (stays) store_put(rk->session, FAM_INFO, buf_bytes(&rk->scratch), (bytes){"", 0});
    else store_delete(rk->session, FAM_INFO, buf_bytes(&rk->scratch));
}

void companion_write(struct rk *rk, struct row *r)
{
    bool there = r->type != TYPE_NONE, was_there = r->stored.type != TYPE_NONE;
    if (there) {
        struct codec_companion c = {.kept = r->kept, .version = r->version, .size = r->size,
                                    .head = buf_bytes(&r->value)};
        rk_rows_commit(rk, r);
        buf_clear(&rk->scratch);
        codec_key_in(&rk->scratch, rk->region.prefix, r->db->index, r->slot, row_key(r));
        size_t key_len = rk->scratch.n;
        codec_companion(&rk->scratch, &c);
        store_put(rk->session, FAM_COMPANION, bytes_of(rk->scratch.p, key_len),
                  bytes_of(rk->scratch.p + key_len, rk->scratch.n - key_len));
    } else if (was_there) {
        store_delete(rk->session, FAM_COMPANION, row_raw_key(rk, r));
    }
    bool stays = there && r->kept, stayed = was_there && r->stored.kept;
    if (stays != stayed) write_mark(rk, r, stays);
}

/* -- databases ------------------------------------------------------------------------------------ */

void companion_abandon(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) {
        struct rk_db *db = rk->dbs[i];
        db->has_companions = rk->companions && (!rk_is_staging(rk, db) || db->side);
    }
}

void companion_open_all(struct rk *rk)
{
    struct store_iter *it = store_iter(rk->session, FAM_COMPANION, (bytes){0}, (bytes){0}, STORE_ONCE);
    store_seek_first(it);
    rk->companions = store_valid(it);
    store_iter_done(it);
    companion_abandon(rk);
}

void companion_flush(struct rk *rk, struct rk_db *db)
{
    if (db->side) row_flush(rk, db->side);
}

void companion_release(struct rk_db *db)
{
    if (db->side) table_release(&db->side->rows);
    mem_free(db->side);
    db->side = NULL;
}

const struct companion_ops rk_companion_ops = {
    .head = rk_companion_head,
    .set_head = rk_companion_set_head,
    .put = rk_companion_put,
    .get = rk_companion_get,
    .del = rk_companion_del,
    .iter = rk_companion_iter,
    .next = rk_companion_next,
    .done = rk_companion_done,
    .drop = rk_companion_drop,
    .keep = rk_companion_keep,
    .kept = rk_companion_kept,
    .each_kept = rk_companion_each_kept,
};
