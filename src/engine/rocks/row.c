/* Rows: the cache of decoded keys, as transactions see them.
 *
 * Invariants:
 * 1. An untouched cached row agrees with RocksDB, and so does `stored` of a touched one. A row of type
 *    TYPE_NONE says that the key is absent.
 * 2. Rows leave the cache only between transactions, so that pointers to them stay valid.
 * 3. rk->cached.bytes is the sum of the cost of the cached rows, and of those that wait to be freed.
 * 4. A string's value begins `before` bytes into its memory. Nothing but release_bytes and row_own_value
 *    needs to know: it is only made longer after row_own_value. */
#include "engine/rocks/delta.h"
#include "engine/rocks/type/rows.h"
#include "engine/rocks/type/ranks.h"
#include "engine/rocks/rk.h"
#include "engine/rocks/state.h"

#define READ_TOGETHER 64
#define ROW_BYTES 256 /* a row with its key; few are longer */
#define SWEEP_BUCKETS 512 /* looked at per transaction at most */

/* -- making and freeing ------------------------------------------------------------- */

struct row *row_new(struct rk_db *db, bytes key)
{
    struct row *r = mem_alloc(sizeof *r + key.n);
    *r = (struct row){.db = db, .key = (char *)(r + 1), .key_len = (u32)key.n};
    if (key.n) memcpy(r->key, key.p, key.n);
    return r;
}

/* -- strings in memory that was a client's input ------------------------------------------------ */

#define INPUT_WORTH (1u << 20) /* shorter values are copied */

static void release_bytes(struct row *r)
{
    if (UNLIKELY(r->type == TYPE_STRING && r->before)) {
        r->value.p -= r->before;
        r->before = 0;
    }
    buf_release(&r->value);
}

bool row_take_input(struct rk *rk, struct row *r, bytes value)
{
    struct buf *in = rk->base.input;
    if (!in || value.n < INPUT_WORTH || value.p < in->p || value.p >= in->p + in->n) return false;
    size_t before = (size_t)(value.p - in->p);
    bool is_last = before + value.n + strlen("\r\n") == in->n; /* no other request needs the memory */
    if (!is_last || in->cap - value.n > value.n / 8) return false;
    release_bytes(r);
    r->value = (struct buf){.p = in->p + before, .n = value.n, .cap = in->cap - before};
    r->before = before;
    *in = (struct buf){0};
    return true;
}

void row_clear_value(struct row *r)
{
    if (UNLIKELY(r->value.cap >= INPUT_WORTH)) release_bytes(r);
    buf_clear(&r->value);
}

void row_move_value(struct row *to, struct row *from)
{
    release_bytes(to);
    to->value = from->value;
    to->before = from->before;
    from->value = (struct buf){0};
    from->before = 0;
}

void row_own_value(struct row *r)
{
    if (LIKELY(!r->before)) return;
    char *start = r->value.p - r->before;
    memmove(start, r->value.p, r->value.n);
    r->value.p = start;
    r->value.cap += r->before;
    r->before = 0;
}

static void release_value(struct row *r)
{
    release_bytes(r);
    if (r->delta) delta_release(r->delta);
    r->delta = NULL;
    ranks_free(r->ranks);
    r->ranks = NULL;
    gaps_free(r->gaps);
    r->gaps = NULL;
    r->unread = false;
}

void row_free(struct row *r)
{
    release_value(r);
    mem_free(r);
}

static void set_cost(struct rk *rk, struct row *r)
{
    u64 cost = sizeof *r + r->key_len + r->value.cap + (r->ranks ? ranks_memory(r->ranks) : 0);
    cached_add(&rk->cached.bytes, cost - r->cost);
    r->cost = cost;
}

void row_cache(struct rk *rk, struct row *r, u64 hash)
{
    r->used = true;
    table_insert(&r->db->rows, hash, r);
    cached_add(&rk->cached.rows, 1);
    set_cost(rk, r);
}

static void row_uncache(struct rk *rk, struct row *r)
{
    cached_add(&rk->cached.bytes, -r->cost);
    cached_add(&rk->cached.rows, -1);
    if (r->type != TYPE_NONE || r->stored.type != TYPE_NONE) r->db->all_cached = false;
    table_remove(&r->db->rows, row_hash(r->db, row_key(r)), r);
    row_free(r);
}

/* -- reading -------------------------------------------------------------------------- */

void row_remember_stored(struct row *r)
{
    r->stored.type = r->type;
    r->stored.deadline_ms = r->deadline_ms;
    r->stored.version = r->version;
    r->stored.size = r->size;
    r->stored.field_deadlines = r->type == TYPE_HASH && r->field_deadlines;
    r->stored.kept = r->kept;
    r->stored.has_deadline = r->deadline_ms != 0;
}

/* Does not copy the values of strings that are dead by dead_ms: they are needed rarely, for a replica. */
static bool decode(struct row *r, bytes raw, i64 dead_ms)
{
    struct codec_meta m;
    if (!codec_meta_read(raw, &m)) return false;
    r->type = (u8)m.type;
    r->field_deadlines = m.field_deadlines;
    r->companion = m.companion;
    r->deadline_ms = m.deadline_ms;
    r->version = m.version;
    r->size = m.size;
    r->head = m.head;
    r->tail = m.tail;
    r->unread = m.type == TYPE_STRING && m.payload.n > 0 && !alive(m.deadline_ms, dead_ms);
    if (!r->unread) buf_append_bytes(&r->value, m.payload);
    row_remember_stored(r);
    return true;
}

bool row_decode(struct row *r, bytes raw) { return decode(r, raw, INT64_MIN); }

bool row_decode_legacy(struct row *r, bytes raw)
{
    bytes payload;
    if (!codec_legacy_read(raw, &r->deadline_ms, &payload)) return false;
    r->type = TYPE_STRING;
    r->legacy = true;
    buf_append_bytes(&r->value, payload);
    row_remember_stored(r);
    return true;
}

void row_malformed(struct rk *rk, const struct row *r)
{
    log_line(rk->log, LOG_WARNING, "The metadata of key '%.*s' (database %u) can't be read: the database "
             "is damaged. Run mayfly-server --check on it.",
             (int)MIN(r->key_len, 128), r->key, r->db->number);
    rk->base.failed = true;
}

static void read_row(struct rk *rk, struct row *r)
{
    struct store_value v;
    bytes raw_key = row_raw_key(rk, r);
    if (!r->db->all_cached && store_get(rk->session, FAM_META, raw_key, &v)) {
        if (!decode(r, v.b, rk->base.now_ms)) row_malformed(rk, r);
        store_value_release(&v);
        return;
    }
    if (LIKELY(!rk->legacy)) return;
    buf_append_char(&rk->scratch, CODEC_LEGACY);
    if (store_get(rk->session, FAM_DATA, buf_bytes(&rk->scratch), &v)) {
        if (!row_decode_legacy(r, v.b)) row_malformed(rk, r);
        store_value_release(&v);
    }
}

void row_read_value(struct rk *rk, struct row *r)
{
    struct store_value v;
    struct codec_meta m;
    if (!store_get(rk->session, FAM_META, row_raw_key(rk, r), &v)) {
        rk->base.failed = true;
        return;
    }
    if (codec_meta_read(v.b, &m)) {
        buf_append_bytes(&r->value, m.payload);
        r->unread = false;
        if (!r->passing) set_cost(rk, r);
    } else {
        row_malformed(rk, r);
    }
    store_value_release(&v);
}

struct row *row_peek(struct rk *rk UNUSED, struct rk_db *db, bytes key, u64 hash)
{
    return table_find(&db->rows, key, hash);
}

/* A row that could not be read is not cached, or the key would look absent later; it is freed with the
 * transaction. */
struct row *row_unreadable(struct rk *rk, struct row *r)
{
    r->passing = true;
    row_open(rk, r);
    return r;
}

struct row *row_get(struct rk *rk, struct rk_db *db, bytes key, u64 hash)
{
    struct row *r = row_peek(rk, db, key, hash);
    if (LIKELY(r)) {
        cached_add(&rk->cached.hits, 1);
        r->used = true;
        return r;
    }
    cached_add(&rk->cached.misses, 1);
    r = row_new(db, key);
    if (!db->flushed) {
        bool failed_before = rk->base.failed;
        rk->base.failed = false;
        read_row(rk, r);
        if (UNLIKELY(rk->base.failed)) return row_unreadable(rk, r);
        rk->base.failed = failed_before;
    }
    r->access = rk->base.fresh_access;
    row_cache(rk, r, hash);
    return r;
}

/* Prefetches the value into the CPU cache, so that its misses overlap with those of other rows. */
static void prefetch_value(const struct row *r)
{
    __builtin_prefetch(r->value.p);
    if (r->value.n > 64) __builtin_prefetch(r->value.p + 64);
}

/* Reads keys with one MultiGet. Duplicates and cached keys are fine. */
static void row_read_together(struct rk *rk, const struct want *want, u32 n)
{
    bytes keys[READ_TOGETHER];
    struct store_value values[READ_TOGETHER];
    size_t at[READ_TOGETHER];
    const struct want *of[READ_TOGETHER];
    u64 hash[READ_TOGETHER];
    u32 reads = 0;
    buf_clear(&rk->scratch);
    for (u32 i = 0; i < n; i++) {
        const struct rk_db *db = rk->dbs[want[i].db];
        hash[i] = row_hash(db, want[i].key);
        table_prefetch_bucket(&db->rows, hash[i]);
    }
    for (u32 i = 0; i < n; i++) table_prefetch_item(&rk->dbs[want[i].db]->rows, hash[i], ROW_BYTES);
    for (u32 i = 0; i < n; i++) {
        struct rk_db *db = rk->dbs[want[i].db];
        struct row *cached = row_peek(rk, db, want[i].key, hash[i]);
        if (cached) prefetch_value(cached);
        if (db->flushed || cached || (db->all_cached && !rk->legacy)) continue;
        at[reads] = rk->scratch.n;
        of[reads++] = &want[i];
        codec_key(&rk->scratch, rk->region.prefix, db->index, want[i].key);
    }
    if (reads < 2) return; /* row_get reads a single one just as well */
    for (u32 i = 0; i < reads; i++)
        keys[i] = bytes_of(rk->scratch.p + at[i], (i + 1 < reads ? at[i + 1] : rk->scratch.n) - at[i]);
    bool failed_before = rk->base.failed;
    rk->base.failed = false;
    store_multi_get(rk->session, FAM_META, reads, keys, values);
    bool failed = rk->base.failed; /* before this: row_get repeats a failed read, and reports it */
    rk->base.failed = failed_before;
    for (u32 i = 0; i < reads; i++) {
        struct rk_db *db = rk->dbs[of[i]->db];
        bytes key = of[i]->key;
        u64 of_key = row_hash(db, key);
        bool absent = !values[i].pin;
        if (!failed && !(absent && rk->legacy) && !row_peek(rk, db, key, of_key)) {
            struct row *r = row_new(db, key);
            if (absent || decode(r, values[i].b, rk->base.now_ms)) {
                r->access = rk->base.fresh_access;
                row_cache(rk, r, of_key);
                cached_add(&rk->cached.misses, 1);
                cached_add(&rk->cached.together, 1);
                cached_add(&rk->cached.hits, -1); /* row_get will find it */
            } else {
                row_free(r);
            }
        }
        store_value_release(&values[i]);
    }
}

void row_prefetch(struct rk *rk, const struct want *want, u32 n)
{
    for (u32 i = 0; i < n; i += READ_TOGETHER) row_read_together(rk, want + i, MIN(n - i, READ_TOGETHER));
}

void row_ref(struct row *r, u64 hash, struct key_ref *ref)
{
    *ref = (struct key_ref){
        .key = row_key(r), .db = r->db->number, .type = (enum value_type)r->type,
        .deadline_ms = r->deadline_ms, .hash = hash, .entry = r,
    };
}

/* -- changing --------------------------------------------------------------------------- */

/* A legacy string is converted when it is first touched: only then is it counted and its deadline filed. */
static void count_legacy(struct row *r)
{
    r->db->count++;
    r->db->expires += r->deadline_ms != 0;
    r->stored.deadline_ms = 0;
    r->stored.has_deadline = false;
}

void row_touch(struct rk *rk, struct row *r)
{
    if (r->touched) return;
    r->touched = true;
    r->slot = codec_slot(row_key(r));
    rk->staging_touched |= rk_is_staging(rk, r->db);
    if (UNLIKELY(r->legacy)) count_legacy(r);
    r->next_touched = NULL;
    *rk->touched_end = r;
    rk->touched_end = &r->next_touched;
}

void row_set_deadline(struct rk *rk, struct row *r, i64 deadline_ms)
{
    if (r->deadline_ms == deadline_ms) return;
    row_touch(rk, r);
    r->db->expires += !!deadline_ms;
    r->db->expires -= !!r->deadline_ms;
    r->deadline_ms = deadline_ms;
}

void row_create(struct rk *rk, struct row *r, enum value_type type)
{
    CHECK(r->type == TYPE_NONE);
    row_touch(rk, r);
    r->type = (u8)type;
    r->access = rk->base.fresh_access;
    r->version = type == TYPE_STRING ? 0 : rk_new_version(rk);
    r->head = r->tail = type == TYPE_LIST ? CODEC_LIST_MIDDLE : 0;
    r->db->count++;
}

void row_drop(struct rk *rk, struct row *r)
{
    CHECK(r->type != TYPE_NONE);
    row_touch(rk, r);
    row_set_deadline(rk, r, 0);
    release_value(r);
    r->type = TYPE_NONE;
    r->field_deadlines = r->text = r->edited = r->unpacked = false;
    r->version = r->size = r->head = r->tail = 0;
    r->db->count--;
}

/* From the clock, or one more than the last version of any region: unique even if the clock steps back. */
u64 rk_new_version(struct rk *rk)
{
    rk->state_changed = true;
    return state_next_version(rk, ((u64)MAX(rk->base.now_ms, 0) * 1000) << 11);
}

/* -- the end of a transaction --------------------------------------------------------------- */

/* Returns the rows that are not in the cache, for the caller to free. */
static struct row *close_deltas(struct rk *rk, bool kept)
{
    struct row *passing = NULL;
    for (struct row *r = rk->open, *next; r; r = next) {
        next = r->next_open;
        r->open = false;
        if (kept) delta_kept(rk, r);
        if (r->delta) delta_release(r->delta);
        r->delta = NULL;
        if (!r->passing) continue;
        r->next_open = passing;
        passing = r;
    }
    rk->open = NULL;
    return passing;
}

void row_settle(struct rk *rk, bool kept)
{
    struct row *passing = close_deltas(rk, kept);
    for (struct row *r = rk->touched, *next; r; r = next) {
        next = r->next_touched;
        r->touched = false;
        if (r->passing) continue;
        if (!kept) {
            row_uncache(rk, r);
            continue;
        }
        row_remember_stored(r);
        r->legacy = false;
        set_cost(rk, r);
    }
    rk->touched = NULL;
    rk->touched_end = &rk->touched;
    for (struct row *r = passing, *next; r; r = next) {
        next = r->next_open;
        row_free(r);
    }
}

/* -- the cache's size ------------------------------------------------------------------------ */

struct victims {
    struct row *row[64];
    u32 n;
};

static void row_look_at(void *arg, void *item)
{
    struct victims *v = arg;
    struct row *r = item;
    if (r->used) r->used = false;
    else if (!r->open && !r->touched && v->n < ARRAY_LEN(v->row)) v->row[v->n++] = r;
}

/* CLOCK eviction: the hand goes round all rows and evicts those not used since its last pass. A transaction
 * may begin again, at another time, when it has only read so far: what it has opened stays. */
void row_sweep(struct rk *rk, u64 bytes)
{
    for (u32 n = 0; n < SWEEP_BUCKETS && cached_get(&rk->cached.bytes) > bytes; n++) {
        struct victims v = {.n = 0};
        struct rk_db *db = rk->dbs[rk->sweep_db / 2];
        if (rk->sweep_db % 2) db = db->side; /* of each database first the keys, then the companions */
        rk->sweep_cursor = db ? table_scan(&db->rows, rk->sweep_cursor, row_look_at, &v) : 0;
        for (u32 i = 0; i < v.n; i++) row_uncache(rk, v.row[i]);
        if (rk->sweep_cursor == 0) rk->sweep_db = (rk->sweep_db + 1) % (2 * rk_all(rk));
    }
}

/* -- flushing a database --------------------------------------------------------------------- */

struct row_lazyfree {
    struct row_lazyfree *next;
    struct table rows;
};

void row_flush(struct rk *rk, struct rk_db *db)
{
    struct row **at = &rk->touched;
    for (struct row *r; (r = *at);) {
        if (r->db == db) *at = r->next_touched;
        else at = &r->next_touched;
    }
    rk->touched_end = at;
    for (at = &rk->open; *at;) {
        struct row *r = *at;
        if (r->db != db || r->passing) {
            at = &r->next_open;
            continue;
        }
        *at = r->next_open;
        if (r->delta) delta_release(r->delta);
        r->delta = NULL;
    }
    struct row_lazyfree *g = mem_alloc(sizeof *g);
    *g = (struct row_lazyfree){rk->lazyfree, db->rows};
    rk->lazyfree = g;
    rk->lazyfree_count += db->rows.count;
    cached_add(&rk->cached.rows, -db->rows.count);
    db->all_cached = false;
    table_init(&db->rows, db->rows.key_of, db->rows.seed);
}

static void row_lazyfree_item(void *arg, void *item)
{
    struct rk *rk = arg;
    struct row *r = item;
    cached_add(&rk->cached.bytes, -r->cost);
    rk->lazyfree_count--;
    row_free(r);
}

u64 row_lazyfree(struct rk *rk, u32 units)
{
    struct row_lazyfree *g = rk->lazyfree;
    if (g && table_drain(&g->rows, units, row_lazyfree_item, rk)) {
        rk->lazyfree = g->next;
        table_release(&g->rows);
        mem_free(g);
    }
    return rk->lazyfree_count;
}
