/* Snapshots: a second, read-only engine (the view) that sees the database under a RocksDB snapshot.
 *
 * Writers neither copy anything for it nor wait: RocksDB retains what is overwritten, and store_session.c
 * stops compactions and file drops from deleting what it needs. The view has rows, deltas and an arena of
 * its own, cleared with each key that is handed out: it takes the memory of one key, whatever the size of
 * the data.
 *
 * The walk goes through redis_metadata; while there may be strings of the old form, through `data` beside
 * it. Both are in the order of P, and the lower key is handed out: an old string counts only where
 * there is no metadata. Long runs of orphans contain no keys; one call passes a limited number of them.
 *
 * A failed read sets `failed` of the view and, if the walk itself can't continue, of the engine. */
#include "engine/rocks/companion.h"
#include "engine/rocks/delta.h"
#include "engine/rocks/type/random_element.h"
#include "engine/rocks/legacy.h"

#define STEPS 64 /* without finding a key, in one call */
#define ROW_BUDGET (1u << 20) /* for keys that are looked up in the view */

struct view {
    struct rk rk; /* first: the engine that is handed out */
    struct engine_ops ops; /* … and what it can do */
    struct rk *of;
    struct store_iter *meta, *old; /* at what comes next; old: NULL: no old strings */
    struct store_iter *marks;      /* of companions that stay, after all keys; NULL: there are none */
    struct rk_db *db;              /* of the last key */
    struct row *row;               /* the key handed out last */
    struct buf from;               /* scratch */
};

/* -- opening and closing ------------------------------------------------------------------ */

/* Field deadlines are read in sequence: no change record for each. */
static bool field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct store_value v;
    bytes key = delta_key(rk, r, field);
    *deadline_ms = 0;
    if (r->field_deadlines && store_get(rk->session, FAM_FIELD, key, &v)) {
        i64 at_ms = v.b.n == 8 ? (i64)get_u64(v.b.p) : 0;
        store_value_release(&v);
        if (!alive(at_ms, e->now_ms)) return false;
        *deadline_ms = at_ms;
        return true;
    }
    bool there = store_get(rk->session, FAM_DATA, key, &v);
    store_value_release(&v);
    return there;
}

static void rk_snap_set_ops(struct view *v)
{
    v->ops = *v->of->base.ops;
    v->ops.begin = NULL;
    v->ops.commit = NULL;
    v->ops.abort = NULL;
    v->ops.close = NULL;
    v->ops.snapshot = (struct snapshot_ops){0};
    v->ops.map.field_deadline = field_deadline;
    v->rk.base.ops = &v->ops;
}

/* A copy of the engine as it is now, without the store. */
static struct view *view_new(struct rk *of)
{
    struct view *v = mem_zalloc(sizeof *v);
    struct rk *rk = &v->rk;
    v->of = of;
    rk->base = of->base;
    rk->base.failed = false;
    rk_snap_set_ops(v);
    rk->region = of->region;
    rk->log = of->log;
    rk->touched_end = &rk->touched;
    rk->row_share.limit = ROW_BUDGET;
    rk->legacy = of->legacy;
    rk->companions = of->companions;
    rk->dbs = mem_alloc(rk->base.databases * sizeof *rk->dbs);
    for (u32 i = 0; i < rk->base.databases; i++) {
        const struct rk_db *db = of->dbs[i];
        rk->dbs[i] = mem_zalloc(sizeof **rk->dbs);
        *rk->dbs[i] = (struct rk_db){
            .index = db->index, .number = db->number, .count = db->count, .expires = db->expires,
        };
        table_init(&rk->dbs[i]->rows, db->rows.key_of, db->rows.seed);
    }
    return v;
}

/* Frees the key handed out last, and what was read of it. */
static void rk_snap_forget(struct view *v)
{
    struct rk *rk = &v->rk;
    bool goes = v->row && !v->row->open; /* otherwise it is freed with its delta */
    row_settle(rk, false);
    if (goes) row_free(v->row);
    v->row = NULL;
    arena_clear(&rk->arena);
    store_end_tick(rk->session);
    if (cached_get(&rk->cached.bytes) > rk->row_share.limit) row_sweep(rk, rk->row_share.limit);
}

static void view_free(struct view *v)
{
    struct rk *rk = &v->rk;
    if (rk->session) {
        rk_snap_forget(v);
        store_iter_done(v->meta);
        if (v->old) store_iter_done(v->old);
        if (v->marks) store_iter_done(v->marks);
    }
    store_view_close(rk->session);
    for (u32 i = 0; i < rk->base.databases; i++) {
        row_flush(rk, rk->dbs[i]);
        companion_flush(rk, rk->dbs[i]);
    }
    while (rk->lazyfree) row_lazyfree(rk, UINT32_MAX);
    for (u32 i = 0; i < rk->base.databases; i++) {
        companion_release(rk->dbs[i]);
        table_release(&rk->dbs[i]->rows);
        mem_free(rk->dbs[i]);
    }
    mem_free(rk->dbs);
    cursors_release(&rk->cursors);
    draws_free(rk->draws);
    arena_release(&rk->arena);
    buf_release(&rk->scratch);
    buf_release(&v->from);
    mem_free(v);
}

static struct store_iter *open_walk(struct view *v, enum family f)
{
    char from[8], to[8];
    put_u64(from, v->rk.region.prefix ^ 1ull << 63);
    put_u64(to, (v->rk.region.prefix + 1) ^ 1ull << 63);
    struct store_iter *it = store_iter(v->rk.session, f, bytes_of(from, 8), bytes_of(to, 8), STORE_KEPT);
    store_seek_first(it);
    return it;
}

static struct store_iter *open_marks(struct view *v)
{
    struct buf from = {0}, to = {0};
    buf_append_char(&from, COMPANION_MARK);
    buf_append_char(&to, COMPANION_MARK + 1);
    struct store_iter *it = store_iter(v->rk.session, FAM_INFO, buf_bytes(&from), buf_bytes(&to), STORE_KEPT);
    store_seek_first(it);
    buf_release(&from);
    buf_release(&to);
    return it;
}

/* Whether the open transaction has changes, which a RocksDB snapshot would miss. */
static bool rk_snap_pending(const struct rk *rk)
{
    for (u32 i = 0; i < rk->base.databases; i++)
        if (rk->dbs[i]->flushed || rk->dbs[i]->renumbered) return true;
    return rk->touched;
}

static bool rk_snap_begin_stored(struct engine *e)
{
    struct rk *rk = rk_of(e);
    if (rk->view) return false; /* one at a time */
    struct view *v = view_new(rk);
    v->rk.session = store_view(rk->store, rk->last_version, &v->rk.base.failed);
    if (!v->rk.session) {
        view_free(v);
        return false;
    }
    v->meta = open_walk(v, FAM_META);
    if (rk->legacy) v->old = open_walk(v, FAM_DATA);
    if (rk->companions) v->marks = open_marks(v);
    rk->view = v;
    return true;
}

static bool rk_snap_begin(struct engine *e, key_fn keep UNUSED, void *arg UNUSED)
{
    return !rk_snap_pending(rk_of(e)) && rk_snap_begin_stored(e);
}

static void rk_snap_end(struct engine *e)
{
    struct rk *rk = rk_of(e);
    if (rk->view) view_free(rk->view);
    rk->view = NULL;
}

/* -- walking -------------------------------------------------------------------------------- */

static struct rk_db *db_of(struct view *v, u64 index)
{
    if (!v->db || v->db->index != index) v->db = rk_db_of(&v->rk, index);
    return v->db;
}

static void rk_snap_take(struct view *v, const struct codec_key *k, bytes raw,
                         bool (*decode)(struct row *, bytes))
{
    struct rk_db *db = db_of(v, k->index);
    if (!db) return; /* an old string of an unknown database */
    v->row = row_new(db, k->key);
    v->row->passing = true;
    if (!decode(v->row, raw)) row_malformed(&v->rk, v->row);
}

static void take_meta(struct view *v)
{
    struct codec_key k;
    bool known = codec_key_read(store_key(v->meta), &k);
    const struct rocks_region *region = &v->rk.region;
    bool before = known && k.slot < region->first, after = known && k.slot > region->last;
    /* another region's, or a staging database: skip it in one step */
    if (known && (before || after || !db_of(v, k.index))) {
        buf_clear(&v->from);
        codec_index_prefix(&v->from, region->prefix, k.index);
        if (before && db_of(v, k.index)) {
            put_u16(buf_reserve(&v->from, 2), region->first);
            v->from.n += 2;
        } else {
            codec_after_prefix(&v->from);
        }
        store_seek(v->meta, buf_bytes(&v->from));
        return;
    }
    if (known) rk_snap_take(v, &k, store_iter_value(v->meta), row_decode);
    store_next(v->meta);
}

/* Steps to the next key of `data`; hands out the old string if it was there. */
static void take_old(struct view *v, bool has_meta)
{
    struct codec_key k;
    if (has_meta) {
        buf_clear(&v->from);
        buf_append_bytes(&v->from, store_key(v->meta));
        codec_after_prefix(&v->from);
    } else if (legacy_visit(v->old, &v->from, &k)) {
        rk_snap_take(v, &k, store_iter_value(v->old), row_decode_legacy);
    }
    store_seek(v->old, buf_bytes(&v->from));
}

/* How the next key of `data` compares with the next one of redis_metadata. */
static int rk_snap_compare(struct view *v)
{
    struct codec_key k;
    if (!v->old || !store_valid(v->old)) return 1;
    if (!store_valid(v->meta)) return -1;
    bytes old = store_key(v->old), meta = store_key(v->meta);
    if (codec_key_read(old, &k)) old.n -= k.rest.n;
    return bytes_cmp(old, meta);
}

/* Whether there is, or may be, a companion that stays. */
static bool take_marked(struct view *v)
{
    struct codec_key k;
    if (!v->marks || !store_valid(v->marks)) return false;
    bytes mark = store_key(v->marks);
    const struct rocks_region *r = &v->rk.region;
    bool known = codec_key_read(bytes_of(mark.p + 1, mark.n - 1), &k) && db_of(v, k.index);
    known = known && k.region == r->prefix && k.slot >= r->first && k.slot <= r->last;
    if (known) v->row = companion_marked_row(&v->rk, v->db, k.key);
    store_next(v->marks);
    return true;
}

/* True: there is a key, or may be one. */
static bool rk_snap_step(struct view *v)
{
    for (u32 n = 0; n < STEPS && !v->row && !v->rk.base.failed; n++) {
        int c = rk_snap_compare(v);
        if (c <= 0) take_old(v, c == 0);
        else if (store_valid(v->meta)) take_meta(v);
        else if (!take_marked(v)) return false;
    }
    return !v->rk.base.failed;
}

/* Access bits are not stored; the engine may have them cached. */
static u32 access_of(struct view *v, const struct row *r, u64 hash)
{
    struct rk_db *db = rk_db_of(v->of, r->db->index);
    const struct row *live = db ? row_peek(v->of, db, row_key(r), hash) : NULL;
    return live ? live->access : v->of->base.fresh_access;
}

static bool rk_snap_next(struct engine *e, struct key_ref *ref, struct engine **ref_of)
{
    struct view *v = rk_of(e)->view;
    *ref_of = &v->rk.base;
    rk_snap_forget(v);
    *ref = (struct key_ref){.type = TYPE_NONE};
    bool more = rk_snap_step(v);
    e->failed |= v->rk.base.failed;
    if (!more || !v->row) return more;
    u64 hash = row_hash(v->row->db, row_key(v->row));
    v->row->access = access_of(v, v->row, hash);
    row_ref(v->row, hash, ref);
    if (v->row->db->companions) ref->type = TYPE_NONE;
    return true;
}

static bool rk_snap_heavy(struct engine *e UNUSED, u32 db UNUSED, bytes key UNUSED) { return false; }

const struct snapshot_ops rk_snapshot_ops = {.begin = rk_snap_begin,
                                             .begin_stored = rk_snap_begin_stored,
                                             .next = rk_snap_next,
                                             .end = rk_snap_end,
                                             .heavy = rk_snap_heavy};
