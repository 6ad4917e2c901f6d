/* Files deadlines in the index, counts them, and stores both. */
#include "engine/rocks/due/due.h"

#include "engine/rocks/keys.h"

/* -- rows ------------------------------------------------------------------------------- */

bytes due_row(struct due *d, struct due_place p, const struct due_name *n)
{
    buf_clear(&d->row);
    codec_due(&d->row, &(struct codec_due){d->region->prefix, p.due_ms, p.level, n->index, n->slot, n->key});
    return buf_bytes(&d->row);
}

bool due_below_low(struct due *d, struct due_place p, const struct due_name *n)
{
    const struct due_queue *q = &d->queue[due_kind(p.level)];
    if (LIKELY(p.due_ms != q->low_ms)) return p.due_ms < q->low_ms;
    return bytes_cmp(due_row(d, p, n), buf_bytes(&q->low)) < 0;
}

void due_file(struct rk *rk, struct due_place p, const struct due_name *n)
{
    struct due *d = rk->due;
    struct due_queue *q = &d->queue[due_kind(p.level)];
    bytes row = due_row(d, p, n);
    store_put(rk->session, FAM_DEADLINE, row, (bytes){"", 0});
    if (p.due_ms < q->filed_ms || (p.due_ms == q->filed_ms && bytes_cmp(row, buf_bytes(&q->filed)) < 0)) {
        q->filed_ms = p.due_ms;
        buf_clear(&q->filed);
        buf_append_bytes(&q->filed, row);
    }
    d->changed = true;
}

/* The prefix of the first row due at due_ms, at this level or above. */
static void row_start(const struct due *d, struct buf *out, i64 due_ms, u8 level)
{
    buf_clear(out);
    append_u64(out, d->region->prefix);
    append_u64(out, (u64)due_ms);
    buf_append_char(out, (char)level);
}

void due_set_low(struct due *d, enum due_kind kind, i64 low_ms)
{
    d->queue[kind].low_ms = low_ms;
    row_start(d, &d->queue[kind].low, low_ms, 0);
}

void due_raise_low(struct due *d, enum due_kind kind, const struct store_iter *it)
{
    struct due_queue *q = &d->queue[kind];
    struct codec_due next;
    if (!store_valid(it)) {
        due_set_low(d, kind, INT64_MAX);
    } else if (codec_due_read(store_key(it), &next)) {
        buf_clear(&q->low);
        buf_append_bytes(&q->low, store_key(it));
        q->low_ms = next.due_ms;
    }
}

/* Ends a round whose rows have all been visited. Between rounds the position follows the clock, so that new
 * deadlines are filed at the right level even when nothing is due or nothing is drained. */
void due_advance(struct due *d, i64 now_ms)
{
    i64 free_ms = due_soonest(d, DUE_COARSE) - 1;
    if (d->at.from_ms < d->at.to_ms && free_ms >= d->at.to_ms) {
        d->at.from_ms = d->at.to_ms;
        due_set_last(d, &(struct codec_due){0});
    }
    if (d->at.from_ms == d->at.to_ms)
        d->at.from_ms = d->at.to_ms = MAX(d->at.to_ms, MIN(MIN(free_ms, now_ms), DUE_PLACE_LATEST));
}

void due_set_last(struct due *d, const struct codec_due *last)
{
    buf_clear(&d->last_key);
    buf_append_bytes(&d->last_key, last->key);
    d->at.last = *last;
    d->at.last.key = buf_bytes(&d->last_key);
}

/* Seeks to the first row of the region in the block that `at` is in, or (after) in the next block. */
static void seek_region(struct due *d, struct store_iter *it, const struct codec_due *at, bool after)
{
    row_start(d, &d->row, at->due_ms, at->level);
    append_u64(&d->row, at->index + after);
    put_u16(buf_reserve(&d->row, 2), d->region->first);
    d->row.n += 2;
    store_seek(it, buf_bytes(&d->row));
}

/* Skips rows of the other kind and of other regions with one seek per block. Coarse rows form blocks because
 * thousands are due at the same moment, always a multiple of level 1's width; the rows of other regions do
 * because those of a bucket are ordered by slot. */
void due_iter_find(struct due *d, struct store_iter *it, enum due_kind kind, i64 limit_ms)
{
    const u64 step = 1ull << DUE_PLACE_SHIFT(1);
    for (struct codec_due at; store_valid(it);) {
        if (!codec_due_read(store_key(it), &at)) return;
        if (due_kind(at.level) == kind) {
            if (at.due_ms > limit_ms) return;
            if (LIKELY(at.slot >= d->region->first && at.slot <= d->region->last)) return;
            seek_region(d, it, &at, at.slot > d->region->last);
            continue;
        }
        if (kind == DUE_FINE) row_start(d, &d->row, at.due_ms + 1, 0);
        else row_start(d, &d->row, (i64)(((u64)at.due_ms + step - 1) & -step), 1);
        store_seek(it, buf_bytes(&d->row));
    }
}

struct store_iter *due_iter(struct store_session *s, struct due *d, enum due_kind kind, i64 limit_ms)
{
    char end[8];
    put_u64(end, d->region->prefix + 1);
    struct store_iter *it =
        store_iter(s, FAM_DEADLINE, buf_bytes(&d->queue[kind].low), bytes_of(end, sizeof end), STORE_ONCE);
    store_seek_first(it);
    due_iter_find(d, it, kind, limit_ms);
    return it;
}

/* -- loading ------------------------------------------------------------------------------ */

static bytes position_key(struct due *d, u64 region)
{
    buf_clear(&d->row);
    buf_append_char(&d->row, 'p');
    append_u64(&d->row, region);
    return buf_bytes(&d->row);
}

static bool due_load_position(struct rk *rk, struct due *d)
{
    struct store_value v;
    d->at = (struct due_position){0};
    if (!store_get(rk->session, FAM_INFO, position_key(d, rk->region.id), &v)) return !rk->base.failed;
    bool sound = due_position_read(v.b, &d->at);
    if (sound) due_set_last(d, &d->at.last);
    store_value_release(&v);
    return sound;
}

static bool load_queue(struct rk *rk, struct due *d, enum due_kind kind)
{
    due_set_low(d, kind, d->at.low_ms);
    struct store_iter *it = due_iter(rk->session, d, kind, INT64_MIN);
    if (!rk->base.failed) due_raise_low(d, kind, it);
    store_iter_done(it);
    return !rk->base.failed;
}

/* -- counts ------------------------------------------------------------------------------- */

static bool load_bucket(struct due_counts *t, bytes key, bytes value)
{
    return key.n == 26 &&
           due_counts_load(t, get_u64(key.p + 9), (u8)key.p[17], (i64)get_u64(key.p + 18), value);
}

static void due_nothing(void *arg UNUSED, const struct due_bucket *b UNUSED) {}

static void bucket_range(u64 prefix, struct buf *from, struct buf *to)
{
    buf_append_char(from, 'b');
    append_u64(from, prefix);
    buf_append_bytes(to, buf_bytes(from));
    codec_after_prefix(to);
}

static bool load_counts(struct rk *rk, struct due_shared *c)
{
    struct buf from = {0}, to = {0};
    bool sound = true, failed_before = rk->base.failed;
    rk->base.failed = false;
    bucket_range(c->prefix, &from, &to);
    due_counts_clear(&c->counts);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to), STORE_ONCE);
    for (store_seek_first(it); store_valid(it) && sound; store_next(it))
        sound = load_bucket(&c->counts, store_key(it), store_iter_value(it));
    store_iter_done(it);
    due_counts_settle(&c->counts, due_nothing, NULL);
    buf_release(&from);
    buf_release(&to);
    c->loaded = sound && !rk->base.failed;
    rk->base.failed |= failed_before || !c->loaded;
    return c->loaded;
}

bool due_lock(struct rk *rk)
{
    struct due_shared *c = rk->due->shared;
    pthread_mutex_lock(&c->lock);
    if (LIKELY(c->loaded) || load_counts(rk, c)) return true;
    pthread_mutex_unlock(&c->lock);
    return false;
}

void due_unlock(struct due *d) { pthread_mutex_unlock(&d->shared->lock); }

void due_count(struct due *d, u64 index, struct due_place p, i64 deadline_ms, int n)
{
    if (UNLIKELY(d->changes_n == d->changes_cap)) {
        d->changes_cap = d->changes_cap ? d->changes_cap * 2 : 64;
        d->changes = mem_realloc(d->changes, d->changes_cap * sizeof *d->changes);
    }
    d->changes[d->changes_n++] = (struct due_change){index, p, deadline_ms, n};
}

void due_recount(struct rk *rk)
{
    struct buf from = {0}, to = {0};
    struct due_shared *c = rk->due->shared;
    bucket_range(c->prefix, &from, &to);
    pthread_mutex_lock(&c->lock);
    due_counts_clear(&c->counts);
    c->loaded = true;
    store_delete_range(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to));
    pthread_mutex_unlock(&c->lock);
    rk->due->recounted = true;
    buf_release(&from);
    buf_release(&to);
}

/* Called while the database is being opened, by one thread: needs no lock. */
void due_count_filed(struct rk *rk, const struct row *r)
{
    struct due_name n = due_name(r);
    struct due_place p = due_key_place(rk->due, r->deadline_ms, &n);
    due_counts_add(&rk->due->shared->counts, n.index, p, r->deadline_ms, 1);
}

/* -- transactions --------------------------------------------------------------------------- */

static void due_end_transaction(struct due *d)
{
    d->queue[DUE_FINE].filed_ms = d->queue[DUE_COARSE].filed_ms = d->barrier_ms = INT64_MAX;
    d->changed = false;
    d->again.n = d->visited.n = 0;
    d->changes_n = 0;
    d->recounted = false;
    buf_clear(&d->emptied);
}

static bool due_load(struct rk *rk, struct due *d)
{
    due_end_transaction(d);
    d->unread = !due_load_position(rk, d) || !load_queue(rk, d, DUE_FINE) || !load_queue(rk, d, DUE_COARSE);
    return !d->unread;
}

struct due *due_open(struct rk *rk, struct due_shared *shared)
{
    struct due *d = rk->due = mem_zalloc(sizeof *d);
    d->region = &rk->region;
    d->shared = shared;
    if (due_load(rk, d) && due_lock(rk)) {
        due_unlock(d);
        return d;
    }
    due_close(d);
    return rk->due = NULL;
}

void due_close(struct due *d)
{
    mem_free(d->changes);
    buf_release(&d->emptied);
    mem_free(d->again.v);
    mem_free(d->visited.v);
    for (u32 kind = 0; kind < DUE_KINDS; kind++) {
        buf_release(&d->queue[kind].low);
        buf_release(&d->queue[kind].filed);
    }
    buf_release(&d->last_key);
    buf_release(&d->row);
    buf_release(&d->names);
    mem_free(d);
}

void due_rest(struct due *d)
{
    if (d->changes_n || d->again.n || d->visited.n) return;
    mem_free(d->changes);
    mem_free(d->again.v);
    mem_free(d->visited.v);
    d->changes = NULL;
    d->changes_cap = 0;
    d->again = d->visited = (struct due_rows){0};
    buf_release(&d->row);
    buf_release(&d->names);
}

/* Storage has just failed and may fail again: then due_usable() reloads before the next use. */
void due_abandon(struct rk *rk)
{
    struct due *d = rk->due;
    if (d->locked) {
        load_counts(rk, d->shared);
        due_unlock(d);
        d->locked = false;
    }
    rk->base.failed = false;
    due_load(rk, d);
    rk->base.failed = false;
}

bool due_usable(struct rk *rk) { return LIKELY(!rk->due->unread) || due_load(rk, rk->due); }

/* -- at commit ------------------------------------------------------------------------------- */

/* A visited row is deleted already, unless this transaction has filed it again. */
static void unfile(struct rk *rk, struct due_place p, const struct due_name *n, bool visited)
{
    struct due *d = rk->due;
    if (visited && p.due_ms < d->queue[due_kind(p.level)].filed_ms) return;
    store_delete(rk->session, FAM_DEADLINE, due_row(d, p, n));
}

/* Deletes the old row at once. That is one tombstone; leaving the row to be visited would cost the same
 * tombstone and a read, and keys that are overwritten or deleted early would leave rows behind. The row stays
 * if it may also be that of the hash's fields. */
void due_changed(struct rk *rk, const struct row *r, i64 old_ms, i64 new_ms)
{
    struct due *d = rk->due;
    if (!due_usable(rk)) return;
    due_advance(d, rk_clock(rk));
    struct due_name n = due_name(r);
    struct due_place was = {0}, is = {0};
    d->changed = true;
    if (old_ms) {
        was = due_key_place(d, old_ms, &n);
        due_count(d, n.index, was, old_ms, -1);
    }
    if (new_ms) {
        is = due_key_place(d, new_ms, &n);
        due_count(d, n.index, is, new_ms, 1);
    }
    bool visited = old_ms && due_below_low(d, was, &n), same = due_place_same(was, is);
    if (same && !visited) return;
    if (old_ms && !r->field_deadlines) unfile(rk, was, &n, visited);
    if (new_ms) due_file(rk, is, &n);
}

void due_file_fields(struct rk *rk, const struct row *r, i64 due_ms)
{
    struct due *d = rk->due;
    if (!due_usable(rk)) return;
    due_advance(d, rk_clock(rk));
    struct due_name n = due_name(r);
    due_file(rk, due_key_place(d, due_ms, &n), &n);
}

void due_forget_fields(struct rk *rk, const struct row *r)
{
    struct due *d = rk->due;
    if (!r->stored.field_due_ms || !due_usable(rk)) return;
    struct due_name n = due_name(r);
    struct due_place p = due_key_place(d, r->stored.field_due_ms, &n);
    bool shared = r->stored.deadline_ms && due_place_same(p, due_key_place(d, r->stored.deadline_ms, &n));
    if (!shared) unfile(rk, p, &n, due_below_low(d, p, &n));
}

static void write_bucket(void *arg, const struct due_bucket *b)
{
    struct rk *rk = arg;
    char key[26];
    key[0] = 'b';
    put_u64(key + 1, rk->region.prefix);
    put_u64(key + 9, b->name.index);
    key[17] = (char)b->name.level;
    put_u64(key + 18, (u64)b->name.bucket);
    if (b->keys) {
        buf_clear(&rk->scratch);
        due_counts_append(&rk->scratch, b);
        store_put(rk->session, FAM_INFO, bytes_of(key, sizeof key), buf_bytes(&rk->scratch));
    } else {
        store_delete(rk->session, FAM_INFO, bytes_of(key, sizeof key));
    }
}

/* Lowers `low` to the earliest filed row and no further: while a wide bucket is drained, rows are filed
 * behind the drain all the time, and an iterator from the bucket's start would read all tombstones of visited
 * rows. */
static void lower_low(struct due_queue *q)
{
    if (q->filed_ms == INT64_MAX || bytes_cmp(buf_bytes(&q->filed), buf_bytes(&q->low)) >= 0) return;
    q->low_ms = q->filed_ms;
    buf_clear(&q->low);
    buf_append_bytes(&q->low, buf_bytes(&q->filed));
}

static void apply_changes(struct due *d)
{
    struct due_counts *t = &d->shared->counts;
    for (size_t at = 0; at < d->emptied.n; at += 8) {
        struct table_iter it = {0};
        for (struct due_bucket *b; (b = due_counts_next(t, &it, get_u64(d->emptied.p + at)));)
            due_counts_empty(t, b);
    }
    for (u32 i = 0; i < d->changes_n; i++) {
        const struct due_change *c = &d->changes[i];
        due_counts_add(t, c->index, c->at, c->deadline_ms, c->n);
    }
}

static void write_position(struct rk *rk, u64 region)
{
    struct due *d = rk->due;
    buf_clear(&rk->scratch);
    due_position_append(&rk->scratch, &d->at);
    store_put(rk->session, FAM_INFO, position_key(d, region), buf_bytes(&rk->scratch));
}

void due_commit(struct rk *rk)
{
    struct due *d = rk->due;
    if (!due_usable(rk)) return;
    due_drain_commit(rk);
    for (u32 kind = 0; kind < DUE_KINDS; kind++) lower_low(&d->queue[kind]);
    if (d->changes_n || d->emptied.n || UNLIKELY(d->recounted)) {
        if (!due_lock(rk)) return;
        d->locked = true;
        apply_changes(d);
        due_counts_settle(&d->shared->counts, write_bucket, rk);
    }
    bool split = UNLIKELY(rk->cut.pending);
    if (d->changed || split) {
        d->at.low_ms = MIN(d->queue[DUE_FINE].low_ms, d->queue[DUE_COARSE].low_ms);
        write_position(rk, rk->region.id);
    }
    if (split) write_position(rk, rk->cut.child.id);
    due_end_transaction(d);
}

void due_committed(struct rk *rk)
{
    struct due *d = rk->due;
    if (d->locked) due_unlock(d);
    d->locked = false;
}

/* -- at any time ------------------------------------------------------------------------------- */

/* True if no other database has keys and the transaction has touched nothing. */
static bool only_one(const struct rk *rk, const struct rk_db *db)
{
    for (u32 i = 0; i < rk_all(rk); i++)
        if (rk->dbs[i] != db && rk->dbs[i]->count > 0) return false;
    return !rk->touched;
}

static void forget_rows(struct due_rows *l, const struct rk_db *db)
{
    u32 kept = 0;
    for (u32 i = 0; i < l->n; i++)
        if (l->v[i]->db != db) l->v[kept++] = l->v[i];
    l->n = kept;
}

static void forget_changes(struct due *d, u64 index)
{
    u32 kept = 0;
    for (u32 i = 0; i < d->changes_n; i++)
        if (d->changes[i].index != index) d->changes[kept++] = d->changes[i];
    d->changes_n = kept;
}

/* The counts are shared by all regions, so this region's keys have to be read to be subtracted. */
static void count_out_region(struct rk *rk, struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    struct codec_key k;
    struct codec_meta m;
    keys_range(rk, db, &from, &to);
    struct store_iter *it = store_iter(rk->session, FAM_META, buf_bytes(&from), buf_bytes(&to), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        if (!codec_key_read(store_key(it), &k) || !codec_meta_read(store_iter_value(it), &m)) continue;
        struct due_name n = {k.index, k.slot, k.key};
        const struct row *r = row_peek(rk, db, k.key, row_hash(db, k.key));
        i64 at_ms = r ? r->stored.deadline_ms : m.deadline_ms; /* 0: the drain has counted it out */
        if (at_ms) due_count(rk->due, db->index, due_key_place(rk->due, at_ms, &n), at_ms, -1);
    }
    store_iter_done(it);
    buf_release(&from);
    buf_release(&to);
}

/* Makes the rows of its keys stale. They lie among those of other databases and regions and are dropped when
 * visited; if there are no others, one range deletion drops them all. */
void due_flush(struct rk *rk, struct rk_db *db)
{
    struct due *d = rk->due;
    if (!due_usable(rk)) return;
    forget_rows(&d->again, db);
    forget_rows(&d->visited, db);
    d->changed = true;
    if (!rk_is_whole(rk)) {
        if (!db->flushed) count_out_region(rk, db);
        return;
    }
    forget_changes(d, db->index);
    append_u64(&d->emptied, db->index);
    if (!only_one(rk, db)) return;
    char from[8], to[8];
    put_u64(from, rk->region.prefix);
    put_u64(to, rk->region.prefix + 1);
    store_delete_range(rk->session, FAM_DEADLINE, bytes_of(from, sizeof from), bytes_of(to, sizeof to));
}

void rk_due_ops(struct engine_ops *ops)
{
    ops->due = rk_due;
    due_query_ops(ops);
}
