/* Walks over all keys of a database: SCAN and RANDOMKEY.
 *
 * A walk reads redis_metadata in the order of P (slot, length, name) and merges in the rows that the
 * transaction has touched: new ones are not stored yet, deleted ones still are. */
#include <stdlib.h>

#include "base/rand.h"
#include "engine/rocks/keys.h"

#define RANDOM_RUN 256 /* neighbouring keys to choose from */

/* The rows a transaction has created, which no iterator returns. */
struct made {
    struct made_row {
        bytes p; /* its P */
        struct row *row;
    } *v;
    u32 n, at;
};

struct key_walk {
    struct rk *rk;
    struct rk_db *db;
    struct store_iter *base; /* NULL: the database was flushed */
    struct made made;
    struct row *passing; /* for keys that are not cached */
    bool ahead;          /* the base is at a row that was not returned yet */
    bytes p;             /* of the row returned last */
};

static int by_p(const void *a, const void *b)
{
    return bytes_cmp(((const struct made_row *)a)->p, ((const struct made_row *)b)->p);
}

/* Collects the rows created in a database, from a position on, in order. */
static void find_made(struct rk *rk, const struct rk_db *db, bytes from, struct made *m)
{
    struct buf p = {0};
    u32 n = 0;
    for (struct row *r = rk->touched; r; r = r->next_touched)
        n += r->db == db && r->type != TYPE_NONE && (r->stored.type == TYPE_NONE || db->flushed);
    *m = (struct made){.v = n ? arena_alloc(&rk->arena, n * sizeof *m->v) : NULL};
    for (struct row *r = rk->touched; n && r; r = r->next_touched) {
        if (r->db != db || r->type == TYPE_NONE || (r->stored.type != TYPE_NONE && !db->flushed)) continue;
        buf_clear(&p);
        codec_key(&p, rk->region.prefix, db->index, row_key(r));
        if (bytes_cmp(buf_bytes(&p), from) < 0) continue;
        char *at = arena_alloc(&rk->arena, p.n);
        memcpy(at, p.p, p.n);
        m->v[m->n++] = (struct made_row){bytes_of(at, p.n), r};
    }
    buf_release(&p);
    if (m->n) qsort(m->v, m->n, sizeof *m->v, by_p);
}

/* Starts before the first key at or after `from`, which is a P or a prefix of one. */
static void key_walk_start(struct key_walk *w, struct rk *rk, struct rk_db *db, bytes from)
{
    struct buf lower = {0}, upper = {0};
    *w = (struct key_walk){.rk = rk, .db = db};
    keys_range(rk, db, &lower, &upper);
    find_made(rk, db, from, &w->made);
    if (!db->flushed) {
        w->base = store_iter(rk->session, FAM_META, buf_bytes(&lower), buf_bytes(&upper), STORE_ONCE);
        store_seek(w->base, from);
        w->ahead = true;
    }
    buf_release(&lower);
    buf_release(&upper);
}

/* The current state of the row an iterator returned, from the cache if possible. NULL: deleted or
 * unreadable. */
static struct row *scan_current(struct key_walk *w, bytes raw_key, bytes raw_value)
{
    struct codec_key k;
    if (!codec_key_read(raw_key, &k)) return NULL;
    struct row *r = row_peek(w->rk, w->db, k.key, row_hash(w->db, k.key));
    if (r) return r->type != TYPE_NONE ? r : NULL;
    if (w->passing && !w->passing->open) row_free(w->passing); /* otherwise freed with the transaction */
    w->passing = row_new(w->db, k.key);
    w->passing->passing = true;
    return row_decode(w->passing, raw_value) ? w->passing : NULL;
}

static bool base_next(struct key_walk *w)
{
    if (!w->base) return false;
    if (!w->ahead) store_next(w->base);
    w->ahead = true;
    return store_valid(w->base);
}

/* The next key, or NULL. The row is valid until the next call. */
static struct row *key_walk_next(struct key_walk *w)
{
    for (;;) {
        bool stored = base_next(w), made = w->made.at < w->made.n;
        if (!stored && !made) return NULL;
        if (made && (!stored || bytes_cmp(w->made.v[w->made.at].p, store_key(w->base)) < 0)) {
            w->p = w->made.v[w->made.at].p;
            return w->made.v[w->made.at++].row;
        }
        w->ahead = false;
        w->p = store_key(w->base);
        struct row *r = scan_current(w, w->p, store_iter_value(w->base));
        if (r) return r;
    }
}

static void key_walk_done(struct key_walk *w)
{
    if (w->base) store_iter_done(w->base);
    if (w->passing && !w->passing->open) row_free(w->passing);
}

/* -- SCAN ---------------------------------------------------------------------------------------------
 * A cursor says after which key to continue: 14 bits of slot, 32 of a fingerprint of the name (CURSOR_BITS).
 * The name itself is remembered as long as there is room for it; after that, and after a restart, the
 * keys of that slot are walked to find it again. If it is gone, they are all given again. */

static u32 print_of(bytes key)
{
    u32 print = (u32)cursor_of(key);
    return print ? print : 1; /* a cursor of 0 would mean the end */
}

static u64 cursor_after(struct rk *rk, bytes p)
{
    struct codec_key k;
    CHECK(codec_key_read(p, &k));
    u64 cursor = (u64)k.slot << 32 | print_of(k.key);
    cursor_remember(&rk->cursors, k.index, cursor, p);
    return cursor;
}

/* The position at which a cursor continues: right after the P it stands for. */
static void cursor_position(struct rk *rk, struct rk_db *db, u64 cursor, struct buf *out)
{
    bytes name;
    buf_clear(out);
    if (cursor_recall(&rk->cursors, db->index, cursor, &name)) {
        buf_append_bytes(out, name);
        buf_append_char(out, '\0'); /* the first position after it */
        return;
    }
    u16 slot = (u16)(cursor >> 32);
    struct key_walk w;
    codec_index_prefix(out, rk->region.prefix, db->index);
    size_t slot_at = out->n;
    put_u16(buf_reserve(out, 2), slot);
    out->n += 2;
    key_walk_start(&w, rk, db, buf_bytes(out));
    for (struct row *r; (r = key_walk_next(&w)) && get_u16(w.p.p + slot_at) == slot;) {
        if (print_of(row_key(r)) != (u32)cursor) continue;
        buf_clear(out);
        buf_append_bytes(out, w.p);
        buf_append_char(out, '\0');
        break;
    }
    key_walk_done(&w);
}

u64 keys_scan(struct engine *e, u32 db_number, u64 cursor, u32 count, key_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    struct key_walk w;
    struct buf from = {0}, last = {0};
    u64 next = 0;
    if (cursor) cursor_position(rk, db, cursor, &from);
    else codec_index_prefix(&from, rk->region.prefix, db->index);
    key_walk_start(&w, rk, db, buf_bytes(&from));
    for (struct row *r; (r = key_walk_next(&w));) {
        if (count-- == 0) { /* there is one more: continue after the last one returned */
            next = cursor_after(rk, buf_bytes(&last));
            break;
        }
        struct key_ref ref;
        buf_clear(&last);
        buf_append_bytes(&last, w.p);
        row_ref(r, row_hash(db, row_key(r)), &ref);
        fn(arg, &ref);
    }
    key_walk_done(&w);
    buf_release(&from);
    buf_release(&last);
    return next;
}

/* -- a slot ------------------------------------------------------------------------------------------- */

void rocks_slot_keys(struct engine *e, u32 db_number, u16 slot, bool (*fn)(void *arg, struct key_ref *ref),
                     void *arg)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    struct key_walk w;
    struct buf from = {0};
    codec_index_prefix(&from, rk->region.prefix, db->index);
    size_t slot_at = from.n;
    put_u16(buf_reserve(&from, 2), slot);
    from.n += 2;
    key_walk_start(&w, rk, db, buf_bytes(&from));
    for (struct row *r; (r = key_walk_next(&w)) && get_u16(w.p.p + slot_at) == slot;) {
        struct key_ref ref;
        row_ref(r, row_hash(db, row_key(r)), &ref);
        if (!fn(arg, &ref)) break;
    }
    key_walk_done(&w);
    buf_release(&from);
}

/* -- any key ------------------------------------------------------------------------------------------ */

/* A random key: one of the next RANDOM_RUN keys from a random slot on, wrapping around at the end. Slots are
 * a hash of the name, so a random one is a fair start; choosing among the next keys evens out the gaps. In a
 * small database the choice is among all keys. */
bool keys_random(struct engine *e, u32 db_number, u64 *rng, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    struct key_walk w;
    struct buf from = {0}, name = {0};
    if (db->count == 0) return false;
    u64 skip = rand_next(rng) % MIN(db->count, RANDOM_RUN), met = 0;
    codec_index_prefix(&from, rk->region.prefix, db->index);
    size_t start = from.n;
    if (db->count > RANDOM_RUN) {
        u32 slots = (u32)rk->region.last - rk->region.first + 1;
        put_u16(buf_reserve(&from, 2), (u16)(rk->region.first + rand_next(rng) % slots));
        from.n += 2;
    }
    for (int round = 0; round < 2 && met <= skip; round++) {
        key_walk_start(&w, rk, db, buf_bytes(&from));
        for (struct row *r; met <= skip && (r = key_walk_next(&w)); met++) {
            buf_clear(&name);
            buf_append_bytes(&name, row_key(r));
        }
        key_walk_done(&w);
        from.n = start;
    }
    bool found = met && e->ops->find(e, db_number, buf_bytes(&name), ref);
    buf_release(&from);
    buf_release(&name);
    return found;
}
