/* Keys as a whole: facts about one, copies, walks over all, databases.
 *
 * A walk goes through redis_metadata in the order of P (slot, length, name) and merges in what
 * the transaction has touched: rows it made are not stored yet, rows it dropped still are. */
#include "engine/rocks/keys.h"

#include <stdlib.h>

#include "base/num.h"
#include "base/rand.h"
#include "engine/rocks/delta.h"

#define EMBSTR_MAX 44
#define RANDOM_RUN 256 /* neighbours among which chance decides */

/* -- one key ---------------------------------------------------------------------------------- */

static bool find(struct engine *e, u32 db_number, bytes key, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    u64 hash = row_hash(db, key);
    struct row *r = row_get(rk, db, key, hash);
    if (r->type != TYPE_NONE) {
        row_ref(r, hash, ref);
        return true;
    }
    *ref = (struct key_ref){.key = key, .db = db_number, .hash = hash};
    return false;
}

static void create(struct engine *e, u32 db_number, bytes key, enum value_type type, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    u64 hash = row_hash(db, key);
    struct row *r = row_get(rk, db, key, hash);
    row_create(rk, r, type);
    row_ref(r, hash, ref);
}

static void drop(struct engine *e, struct key_ref *ref)
{
    row_drop(rk_of(e), row_of(ref));
    ref->entry = NULL;
}

static void set_deadline(struct engine *e, struct key_ref *ref, i64 deadline_ms)
{
    row_set_deadline(rk_of(e), row_of(ref), deadline_ms);
    ref->deadline_ms = deadline_ms;
}

static u64 size(struct engine *e, struct key_ref *ref)
{
    struct row *r = row_of(ref);
    switch (ref->type) {
    case TYPE_STRING: return row_value(rk_of(e), r)->n;
    case TYPE_HASH:
    case TYPE_SET: return map_live(rk_of(e), r);
    default: return r->size;
    }
}

static const char *string_encoding(struct rk *rk, struct row *r)
{
    i64 number;
    bytes v = buf_bytes(row_value(rk, r));
    if (r->edited) return "raw";
    if (!r->text && v.n <= 20 && num_parse_i64(v, &number)) return "int";
    return v.n <= EMBSTR_MAX ? "embstr" : "raw";
}

static const char *encoding(struct engine *e, struct key_ref *ref)
{
    struct row *r = row_of(ref);
    switch (ref->type) {
    case TYPE_HASH:
    case TYPE_SET: return map_encoding(rk_of(e), r);
    case TYPE_ZSET: return zset_encoding(rk_of(e), r);
    case TYPE_LIST: return "quicklist";
    case TYPE_STREAM: return "stream";
    default: return string_encoding(rk_of(e), r);
    }
}

/* Bytes it takes on disk, before compression. */
static size_t usage(struct engine *e, struct key_ref *ref, u32 samples)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    size_t prefix = CODEC_PREFIX_FIXED + r->key_len, seen_bytes = 0;
    size_t total = prefix + r->value.n + 25; /* of a dead string the value does not matter */
    u64 seen = 0;
    struct walk w;
    if (ref->type == TYPE_STRING) return total;
    for (bool more = walk_start(&w, rk, r, (bytes){0}, false); more; more = walk_next(&w)) {
        seen_bytes += prefix + 8 + w.sub.n + w.value.n;
        if (r->type == TYPE_ZSET) seen_bytes += prefix + 8 + 8 + w.sub.n;
        if (++seen == samples) break;
    }
    walk_done(&w);
    if (ref->type == TYPE_STREAM && seen != samples) return total + seen_bytes; /* size() counts no rows */
    return seen ? total + (size_t)((double)seen_bytes / (double)seen * (double)r->size) : total;
}

static u32 access_bits(struct engine *e UNUSED, struct key_ref *ref) { return row_of(ref)->access; }
static void set_access(struct engine *e UNUSED, struct key_ref *ref, u32 bits) { row_of(ref)->access = bits; }

/* -- under another name ------------------------------------------------------------------------- */

/* The elements are stored under their key's name, so that this costs what they are. */
static struct row *duplicate(struct rk *rk, struct row *from, u32 db_number, bytes key, bool moves,
                             struct key_ref *out)
{
    struct rk_db *db = rk->dbs[db_number];
    u64 hash = row_hash(db, key);
    struct row *to = row_get(rk, db, key, hash);
    row_create(rk, to, (enum value_type)from->type);
    switch ((enum value_type)from->type) {
    case TYPE_HASH:
    case TYPE_SET: map_copy(rk, from, to, moves); break;
    case TYPE_LIST: seq_copy(rk, from, to); break;
    case TYPE_ZSET: zset_copy(rk, from, to); break;
    case TYPE_STREAM: rows_copy(rk, from, to); break;
    default:
        buf_append_bytes(&to->value, buf_bytes(row_value(rk, from)));
        to->text = from->text;
        to->edited = from->edited;
    }
    row_set_deadline(rk, to, from->deadline_ms);
    row_ref(to, hash, out);
    return to;
}

static void copy(struct engine *e, struct key_ref *ref, u32 db, bytes key, struct key_ref *out)
{
    duplicate(rk_of(e), row_of(ref), db, key, false, out);
}

static void rename_key(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    struct rk *rk = rk_of(e);
    struct row *from = row_of(ref);
    duplicate(rk, from, db, key, true, ref)->access = from->access;
    row_drop(rk, from);
}

/* -- walks over all keys -------------------------------------------------------------------------- */

/* The rows a transaction made, which no iterator shows. */
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
    struct store_iter *base; /* NULL: nothing stored counts */
    struct made made;
    struct row *passing; /* for keys that are not cached */
    bool ahead;          /* the base stands on a row that was not given yet */
    bytes p;             /* of the row given last */
};

static int by_p(const void *a, const void *b)
{
    return bytes_cmp(((const struct made_row *)a)->p, ((const struct made_row *)b)->p);
}

/* Those of a database from a position on, in order. */
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
        codec_key(&p, RK_REGION, db->index, row_key(r));
        if (bytes_cmp(buf_bytes(&p), from) < 0) continue;
        char *at = arena_alloc(&rk->arena, p.n);
        memcpy(at, p.p, p.n);
        m->v[m->n++] = (struct made_row){bytes_of(at, p.n), r};
    }
    buf_release(&p);
    if (m->n) qsort(m->v, m->n, sizeof *m->v, by_p);
}

/* Stands before the first key at or after a position, which is given as a P or the start of one. */
static void key_walk_start(struct key_walk *w, struct rk *rk, struct rk_db *db, bytes from)
{
    struct buf lower = {0}, upper = {0};
    *w = (struct key_walk){.rk = rk, .db = db};
    codec_index_prefix(&lower, RK_REGION, db->index);
    codec_index_prefix(&upper, RK_REGION, db->index);
    codec_after_prefix(&upper);
    find_made(rk, db, from, &w->made);
    if (!db->flushed) {
        w->base = store_iter(rk->store, FAM_META, buf_bytes(&lower), buf_bytes(&upper), STORE_ONCE);
        store_seek(w->base, from);
        w->ahead = true;
    }
    buf_release(&lower);
    buf_release(&upper);
}

/* What an iterator shows, as it is now: from the cache if that knows it. NULL: gone, or unreadable. */
static struct row *current(struct key_walk *w, bytes raw_key, bytes raw_value)
{
    struct codec_key k;
    if (!codec_key_read(raw_key, &k)) return NULL;
    struct row *r = row_peek(w->rk, w->db, k.key, row_hash(w->db, k.key));
    if (r) return r->type != TYPE_NONE ? r : NULL;
    if (w->passing && !w->passing->open) row_free(w->passing); /* else it goes with the transaction */
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

/* The next key, or NULL. The row is good until the next call. */
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
        struct row *r = current(w, w->p, store_iter_value(w->base));
        if (r) return r;
    }
}

static void key_walk_done(struct key_walk *w)
{
    if (w->base) store_iter_done(w->base);
    if (w->passing && !w->passing->open) row_free(w->passing);
}

/* -- SCAN ---------------------------------------------------------------------------------------------
 * A cursor says after which key to go on: 14 bits of slot, 9 of length, 40 of a fingerprint of the name.
 * The name itself is remembered as long as there is room for it; after that, and after a restart, the
 * keys of that slot and length are walked to find it again. If it is gone, they are all given again. */

#define FINGERPRINT_BITS 40
#define LENGTH_MAX 511u

static u64 print_of(bytes key)
{
    u64 print = cursor_of(key) & (((u64)1 << FINGERPRINT_BITS) - 1);
    return print ? print : 1; /* a cursor of 0 would mean the end */
}

static u64 cursor_after(struct rk *rk, bytes p)
{
    struct codec_key k;
    CHECK(codec_key_read(p, &k));
    u64 print = print_of(k.key);
    u64 cursor = (u64)k.slot << 49 | (u64)MIN(k.key.n, LENGTH_MAX) << FINGERPRINT_BITS | print;
    cursor_remember(&rk->cursors, k.index, cursor, p);
    return cursor;
}

/* The start of everything in the cursor's slot that is at least as long as the name it stands for. */
static void cursor_group(const struct rk_db *db, u64 cursor, struct buf *out)
{
    codec_index_prefix(out, RK_REGION, db->index);
    char at[6];
    put_u16(at, (u16)(cursor >> 49));
    put_u32(at + 2, (u32)(cursor >> FINGERPRINT_BITS) & LENGTH_MAX);
    buf_append(out, at, sizeof at);
}

/* Where to go on; a P that is to be skipped if it is there itself. */
static void cursor_position(struct rk *rk, struct rk_db *db, u64 cursor, struct buf *out)
{
    bytes name;
    buf_clear(out);
    if (cursor_recall(&rk->cursors, db->index, cursor, &name)) {
        buf_append_bytes(out, name);
        buf_append_char(out, '\0'); /* the first position after it */
        return;
    }
    u64 print = cursor & (((u64)1 << FINGERPRINT_BITS) - 1);
    struct key_walk w;
    struct buf start = {0};
    cursor_group(db, cursor, &start);
    buf_append_bytes(out, buf_bytes(&start));
    key_walk_start(&w, rk, db, buf_bytes(&start));
    for (struct row *r; (r = key_walk_next(&w));) {
        u64 got = print_of(row_key(r));
        bool same_group = get_u16(w.p.p + 16) == (u16)(cursor >> 49) &&
                          MIN(r->key_len, LENGTH_MAX) == ((cursor >> FINGERPRINT_BITS) & LENGTH_MAX);
        if (!same_group) break;
        if (got != print) continue;
        buf_clear(out);
        buf_append_bytes(out, w.p);
        buf_append_char(out, '\0');
        break;
    }
    key_walk_done(&w);
    buf_release(&start);
}

static u64 scan(struct engine *e, u32 db_number, u64 cursor, u32 count, key_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    struct key_walk w;
    struct buf from = {0}, last = {0};
    u64 next = 0;
    if (cursor) cursor_position(rk, db, cursor, &from);
    else codec_index_prefix(&from, RK_REGION, db->index);
    key_walk_start(&w, rk, db, buf_bytes(&from));
    for (struct row *r; (r = key_walk_next(&w));) {
        if (count-- == 0) { /* there is one more: go on after the last one given */
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

/* -- any key ------------------------------------------------------------------------------------------ */

/* Names are spread over the slots by a hash, so that a random slot is a fair start; but the gaps between
 * keys differ, which choosing among the next few evens out. The end joins the beginning. In a small
 * database the choice is among all keys. */
static bool random_key(struct engine *e, u32 db_number, u64 *rng, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    struct key_walk w;
    struct buf from = {0}, name = {0};
    if (db->count == 0) return false;
    u64 skip = rand_next(rng) % MIN(db->count, RANDOM_RUN), met = 0;
    codec_index_prefix(&from, RK_REGION, db->index);
    size_t start = from.n;
    if (db->count > RANDOM_RUN) {
        put_u16(buf_reserve(&from, 2), (u16)(rand_next(rng) & 0x3FFF));
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
    bool found = met && find(e, db_number, buf_bytes(&name), ref);
    buf_release(&from);
    buf_release(&name);
    return found;
}

/* -- databases ------------------------------------------------------------------------------------------ */

static u64 count(struct engine *e, u32 db) { return rk_of(e)->dbs[db]->count; }
static u64 expires(struct engine *e, u32 db) { return rk_of(e)->dbs[db]->expires; }

static double mean_deadline(struct engine *e, u32 db_number)
{
    const struct rk_db *db = rk_of(e)->dbs[db_number];
    return db->expires ? (double)db->deadline_total / (double)db->expires : 0;
}

/* Whether there is nothing in a spare database, nor has this transaction anything to do with it. */
static bool is_unused(const struct rk *rk, const struct rk_db *db)
{
    bool unused = rk_is_spare(rk, db) && db->count == 0 && !rk->legacy;
    for (const struct row *r = rk->touched; r && unused; r = r->next_touched) unused = r->db != db;
    return unused;
}

static void flush(struct engine *e, u32 db_number)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    if (is_unused(rk, db)) return;
    rk->spare_touched |= rk_is_spare(rk, db);
    row_flush(rk, db);
    due_flush(rk, db);
    db->count = db->expires = 0;
    db->deadline_total = 0;
    db->counts_changed = db->flushed = rk->state_changed = true;
}

static void swap(struct engine *e, u32 a, u32 b)
{
    struct rk *rk = rk_of(e);
    struct rk_db *t = rk->dbs[a];
    rk->dbs[a] = rk->dbs[b];
    rk->dbs[b] = t;
    rk->dbs[a]->number = a;
    rk->dbs[b]->number = b;
    rk->dbs[a]->renumbered = rk->dbs[b]->renumbered = rk->state_changed = true;
    rk->spare_touched |= MAX(a, b) >= e->databases;
}

static const enum family by_prefix[] = {FAM_META, FAM_DATA, FAM_SCORE, FAM_RANK, FAM_FIELD, FAM_STREAM};

static void whole_database(const struct rk_db *db, struct buf *from, struct buf *to)
{
    codec_index_prefix(from, RK_REGION, db->index);
    codec_index_prefix(to, RK_REGION, db->index);
    codec_after_prefix(to);
}

void keys_delete_all(struct rk *rk, struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    whole_database(db, &from, &to);
    for (u32 i = 0; i < ARRAY_LEN(by_prefix); i++)
        store_delete_range(rk->store, by_prefix[i], buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
}

void keys_drop_files(struct rk *rk, struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    whole_database(db, &from, &to);
    for (u32 i = 0; i < ARRAY_LEN(by_prefix); i++)
        store_drop_files(rk->store, by_prefix[i], buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
}

static void expect(struct engine *e UNUSED, u32 db UNUSED, u64 keys UNUSED) {} /* RocksDB has no use for it */

void rk_key_ops(struct engine_ops *ops)
{
    ops->find = find;
    ops->create = create;
    ops->expect = expect;
    ops->drop = drop;
    ops->set_deadline = set_deadline;
    ops->rename = rename_key;
    ops->copy = copy;
    ops->size = size;
    ops->encoding = encoding;
    ops->usage = usage;
    ops->access = access_bits;
    ops->set_access = set_access;
    ops->count = count;
    ops->expires = expires;
    ops->mean_deadline = mean_deadline;
    ops->scan = scan;
    ops->random = random_key;
    ops->flush = flush;
    ops->swap = swap;
}
