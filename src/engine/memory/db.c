/* Keys of the memory engine: finding, creating, dropping, deadlines, scans. Due keys are in due.c.
 *
 * Invariants:
 * - An entry has a deadline block if and only if the key has a deadline, and
 *   then exactly one valid reference in db->deadlines, at entry_pos().
 * - A hash with field deadlines has one valid reference in db->fields, for the
 *   nearest of them (struct map_filing). */
#include "base/rand.h"
#include "engine/memory/small.h"

#define PREFETCH_TOGETHER 16u
#define SCAN_FAR 100 /* keys: a scan of so many prefetches */

static bytes key_of_entry(const void *item) { return entry_key(item); }

void mem_ref(struct key_ref *ref, u32 db, u64 hash, struct entry *entry)
{
    *ref = (struct key_ref){
        .key = entry_key(entry), .db = db, .type = entry_type(entry),
        .deadline_ms = entry_deadline(entry), .hash = hash, .entry = entry,
    };
}

void mem_moved(struct engine *e, struct key_ref *ref, struct entry *fresh)
{
    struct entry *old = ref->entry;
    if (UNLIKELY(entry_has_companion(old))) fresh = mem_companion_carry(e, ref, fresh);
    mem_replace(e, &mem_db_of(e, ref->db)->keys, ref->hash, old, fresh);
    mem_ref(ref, ref->db, ref->hash, fresh);
    entry_free(old);
}

static bool mem_find(struct engine *e, u32 db, bytes key, struct key_ref *ref)
{
    struct table *keys = &mem_db_of(e, db)->keys;
    u64 hash = table_hash(keys, key);
    struct entry *entry = table_find(keys, key, hash);
    if (entry) {
        mem_ref(ref, db, hash, entry);
        return true;
    }
    *ref = (struct key_ref){.key = key, .db = db, .hash = hash};
    return false;
}

/* An empty collection. Small ones are in their entry; a stream has an object at once. */
static struct entry *mem_entry_created(bytes key, enum value_type type)
{
    if (type == TYPE_STREAM) {
        struct entry *entry = entry_new(key, type, FORM_POINTER, false, sizeof(void *));
        entry_set_object(entry, mem_rows_new(OMAP_LEAF));
        return entry;
    }
    if (type == TYPE_SET) {
        struct entry *entry = entry_new(key, type, FORM_INTS, false, 1);
        length_write((char *)entry_value(entry), 0);
        return entry;
    }
    struct entry *entry = entry_new(key, type, FORM_INLINE, false, small_value_size(0, 0));
    small_write_head((char *)entry_value(entry), 0, 0);
    return entry;
}

static void mem_create(struct engine *e, u32 db, bytes key, enum value_type type, struct key_ref *ref)
{
    struct table *keys = &mem_db_of(e, db)->keys;
    CHECK(type != TYPE_STRING && type != TYPE_NONE); /* create is for collections */
    struct entry *entry = mem_entry_created(key, type);
    u64 hash = table_hash(keys, key);
    entry_set_access(entry, e->fresh_access);
    mem_insert(e, keys, hash, entry);
    mem_ref(ref, db, hash, entry);
}

static void mem_expect(struct engine *e, u32 db, u64 keys)
{
    struct table *t = &mem_db_of(e, db)->keys;
    table_reserve(t, t->count + keys);
}

/* -- deadlines ---------------------------------------------------------------------- */

/* The same key and value with or without a deadline block. */
static struct entry *with_deadline(const struct entry *old, bool deadline)
{
    size_t n = entry_value_size(old);
    struct entry *fresh = entry_new(entry_key(old), entry_type(old), entry_form(old), deadline, n);
    entry_set_access(fresh, entry_access(old));
    memcpy((char *)entry_value(fresh), entry_value(old), n);
    return fresh;
}

static void mem_set_deadline(struct engine *e, struct key_ref *ref, i64 deadline_ms)
{
    struct mem_engine *m = mem_of(e);
    struct mem_db *db = mem_db_of(e, ref->db);
    i64 old_ms = ref->deadline_ms;
    if (old_ms == deadline_ms) return;
    mem_keep(e, ref);
    if (old_ms && deadline_ms) {
        struct entry *entry = ref->entry;
        wheel_pos pos =
            wheel_move(&db->deadlines, entry_pos(entry), ref->hash, old_ms, deadline_ms, m->clock_ms);
        entry_set_deadline(entry, deadline_ms, pos);
        ref->deadline_ms = deadline_ms;
    } else {
        struct entry *fresh = with_deadline(ref->entry, deadline_ms != 0);
        if (deadline_ms)
            entry_set_deadline(fresh, deadline_ms,
                               mem_file_deadline(m, ref->db, &db->deadlines, ref->hash, deadline_ms));
        else
            wheel_drop(&db->deadlines, entry_pos(ref->entry), old_ms);
        mem_moved(e, ref, fresh);
    }
    db->deadline_total += (__int128)deadline_ms - old_ms;
}

/* Removes a key from the table and the indexes. The caller owns the entry then. */
static struct entry *detach(struct engine *e, struct key_ref *ref)
{
    struct mem_db *db = mem_db_of(e, ref->db);
    struct entry *entry = ref->entry;
    table_remove(&db->keys, ref->hash, entry);
    i64 deadline_ms = entry_deadline(entry);
    if (deadline_ms) {
        wheel_drop(&db->deadlines, entry_pos(entry), deadline_ms);
        db->deadline_total -= deadline_ms;
    }
    if (entry_type(entry) == TYPE_HASH) mem_map_unfile(e, ref->db, entry);
    return entry;
}

static void attach(struct engine *e, u32 db_at, struct entry *entry, struct key_ref *ref)
{
    struct mem_db *db = mem_db_of(e, db_at);
    u64 hash = table_hash(&db->keys, entry_key(entry));
    i64 deadline_ms = entry_deadline(entry);
    if (deadline_ms) {
        entry_set_deadline(entry, deadline_ms,
                           mem_file_deadline(mem_of(e), db_at, &db->deadlines, hash, deadline_ms));
        db->deadline_total += deadline_ms;
    }
    mem_insert(e, &db->keys, hash, entry);
    mem_ref(ref, db_at, hash, entry);
    if (entry_type(entry) == TYPE_HASH) mem_map_file(e, ref);
}

static void mem_drop(struct engine *e, struct key_ref *ref)
{
    struct entry *entry = detach(e, ref);
    mem_discard(e, ref, entry);
    ref->entry = NULL;
}

/* A copy of the entry under another name, with its value and deadline. */
static struct entry *renamed(const struct entry *old, bytes key)
{
    size_t n = entry_value_size(old);
    bool deadline = entry_has_deadline(old);
    struct entry *fresh = entry_new(key, entry_type(old), entry_form(old), deadline, n);
    entry_set_access(fresh, entry_access(old));
    if (deadline) entry_set_deadline(fresh, entry_deadline(old), 0);
    memcpy((char *)entry_value(fresh), entry_value(old), n);
    return fresh;
}

static void mem_rename(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    mem_keep(e, ref);
    struct entry *old = detach(e, ref);
    attach(e, db, renamed(old, key), ref);
    if (UNLIKELY(entry_has_companion(old))) mem_companion_discard(mem_of(e), old);
    entry_free(old);
}

static void mem_copy(struct engine *e, struct key_ref *ref, u32 db, bytes key, struct key_ref *out)
{
    struct mem_engine *m = mem_of(e);
    const struct entry *old = ref->entry;
    struct entry *fresh = renamed(old, key);
    void *object = entry_form(old) == FORM_POINTER ? entry_object(old) : NULL;
    if (object) {
        switch (entry_type(old)) {
        case TYPE_HASH:
        case TYPE_SET: object = map_table_copy(object, e->now_ms); break;
        case TYPE_LIST: object = mem_seq_copy(m, object); break;
        case TYPE_ZSET: object = mem_zset_copy(m, object); break;
        case TYPE_STREAM: object = mem_rows_copy(object); break;
        default: {
            struct blob *b = object, *twin = mem_alloc(sizeof *twin + b->n);
            twin->n = twin->cap = b->n;
            memcpy(twin->data, b->data, b->n);
            object = twin;
        }
        }
        entry_set_object(fresh, object);
    }
    fresh = mem_map_copied(fresh, e->now_ms);
    entry_set_access(fresh, e->fresh_access);
    attach(e, db, fresh, out);
}

/* -- facts --------------------------------------------------------------------------- */

static u64 mem_size_of(struct engine *e, struct key_ref *ref)
{
    switch (ref->type) {
    case TYPE_STRING: return e->ops->str.length(e, ref);
    case TYPE_HASH:
    case TYPE_SET: return mem_map_count(ref->entry, e->now_ms);
    case TYPE_LIST: return mem_seq_count(ref->entry);
    case TYPE_ZSET: return mem_zset_count(ref->entry);
    case TYPE_STREAM: return ((struct mem_rows *)entry_object(ref->entry))->size;
    case TYPE_NONE: break;
    }
    return 0;
}

static const char *mem_encoding(struct engine *e UNUSED, struct key_ref *ref)
{
    const struct entry *entry = ref->entry;
    switch (ref->type) {
    case TYPE_HASH:
    case TYPE_SET: return mem_map_encoding(entry);
    case TYPE_LIST: return mem_seq_encoding(entry);
    case TYPE_ZSET: return mem_zset_encoding(entry);
    case TYPE_STREAM: return "stream";
    default: break;
    }
    if (entry_form(entry) == FORM_INT) return "int";
    return entry_form(entry) == FORM_INLINE && entry_inline(entry).n <= 44 ? "embstr" : "raw";
}

static size_t mem_usage(struct engine *e, struct key_ref *ref, u32 samples)
{
    const struct entry *entry = ref->entry;
    size_t n = entry_size(entry) + sizeof(u64) + mem_companion_usage(e, ref);
    if (entry_has_deadline(entry)) n += sizeof(u64);
    if (entry_form(entry) != FORM_POINTER) return n;
    switch (entry_type(entry)) {
    case TYPE_STRING: return n + mem_size(entry_object(entry));
    case TYPE_LIST: return n + mem_seq_memory(entry_object(entry));
    case TYPE_ZSET: return n + mem_zset_memory(entry_object(entry), samples);
    case TYPE_STREAM: return n + mem_rows_memory(entry_object(entry));
    default: return n + map_table_memory(entry_object(entry), samples);
    }
}

static u32 mem_access(struct engine *e UNUSED, struct key_ref *ref) { return entry_access(ref->entry); }
static void mem_set_access(struct engine *e UNUSED, struct key_ref *ref, u32 bits)
{
    entry_set_access(ref->entry, bits);
}

/* -- walks ----------------------------------------------------------------------------- */

static u64 mem_count(struct engine *e, u32 db) { return mem_db_of(e, db)->keys.count; }
static u64 mem_timed_hashes(struct engine *e, u32 db) { return mem_db_of(e, db)->fields.live; }
static u64 mem_expires(struct engine *e, u32 db) { return mem_db_of(e, db)->deadlines.live; }

static bool mem_has_deadlines(struct engine *e, u32 db)
{
    struct mem_db *d = mem_db_of(e, db);
    return d->deadlines.live || d->fields.live;
}

static double mem_mean_deadline(struct engine *e, u32 db)
{
    struct mem_db *d = mem_db_of(e, db);
    return d->deadlines.live ? (double)d->deadline_total / (double)d->deadlines.live : 0;
}

struct key_scan {
    struct table *keys;
    key_fn fn;
    void *arg;
    u32 db, seen;
};

static void scan_key(void *arg, void *item)
{
    struct key_scan *s = arg;
    struct key_ref ref;
    mem_ref(&ref, s->db, table_hash(s->keys, entry_key(item)), item);
    s->seen++;
    s->fn(s->arg, &ref);
}

static u64 mem_scan(struct engine *e, u32 db, u64 cursor, u32 count, key_fn fn, void *arg)
{
    struct key_scan s = {&mem_db_of(e, db)->keys, fn, arg, db, 0};
    u64 steps = (u64)count * 10;
    do {
        if (count >= SCAN_FAR) table_scan_ahead(s.keys, cursor, ENTRY_BYTES);
        cursor = table_scan(s.keys, cursor, scan_key, &s);
    } while (cursor && s.seen < count && --steps);
    return cursor;
}

static bool mem_random(struct engine *e, u32 db, u64 *rng, struct key_ref *ref)
{
    struct table *keys = &mem_db_of(e, db)->keys;
    struct entry *entry = table_random(keys, rng);
    if (entry) mem_ref(ref, db, table_hash(keys, entry_key(entry)), entry);
    return entry != NULL;
}

/* First every bucket, then every item, so that cache misses overlap; at a site then what companions refer
 * to. */
static void prefetch_some(struct engine *e, const struct want *want, u32 n)
{
    u64 hash[PREFETCH_TOGETHER];
    const struct entry *entry[PREFETCH_TOGETHER];
    for (u32 i = 0; i < n; i++) {
        const struct table *keys = &mem_db_of(e, want[i].db)->keys;
        hash[i] = table_hash(keys, want[i].key);
        table_prefetch_bucket(keys, hash[i]);
    }
    if (n == 1) return; /* that would wait for its bucket */
    for (u32 i = 0; i < n; i++)
        entry[i] = table_prefetch_item(&mem_db_of(e, want[i].db)->keys, hash[i], ENTRY_BYTES);
    for (u32 i = 0; i < n && UNLIKELY(e->site != NULL); i++)
        if (entry[i]) mem_companion_prefetch(entry[i]);
}

static void mem_prefetch(struct engine *e, const struct want *want, u32 n)
{
    for (u32 i = 0; i < n; i += PREFETCH_TOGETHER)
        prefetch_some(e, want + i, MIN(n - i, PREFETCH_TOGETHER));
}

/* -- life ------------------------------------------------------------------------------------ */

static void db_init(struct mem_db *d, u64 seed)
{
    *d = (struct mem_db){0};
    table_init(&d->keys, key_of_entry, seed);
    table_init(&d->kept, key_of_entry, seed);
    wheel_init(&d->deadlines);
    wheel_init(&d->fields);
}

static void mem_flush(struct engine *e, u32 db)
{
    struct mem_engine *m = mem_of(e);
    struct mem_db *d = &m->dbs[db];
    if (d->keys.count == 0 && d->kept.count == 0) return;
    struct mem_db *old = mem_alloc(sizeof *old);
    *old = *d;
    db_init(d, m->seed);
    if (m->snap && mem_snap_flush(m, old)) return;
    mem_lazyfree_add(m, LAZYFREE_KEYS, old);
}

static void mem_swap(struct engine *e, u32 a, u32 b)
{
    struct mem_engine *m = mem_of(e);
    struct mem_db t = m->dbs[a];
    m->dbs[a] = m->dbs[b];
    m->dbs[b] = t;
    if (m->dbs[a].deadlines.refs || m->dbs[a].fields.refs) mem_note_timed(m, a);
    if (m->dbs[b].deadlines.refs || m->dbs[b].fields.refs) mem_note_timed(m, b);
    if (m->snap) mem_snap_swap(m, a, b);
}

static void mem_begin(struct engine *e, i64 now_ms)
{
    e->now_ms = now_ms;
    if (LIKELY(now_ms)) mem_of(e)->clock_ms = now_ms;
}

static bool mem_commit(struct engine *e, u64 seq UNUSED)
{
    arena_clear(&mem_of(e)->handed_out);
    mem_of(e)->transaction++;
    e->repl_position.changed = false; /* nothing is stored */
    return true;
}

/* Nothing can fail here, so no transaction is ever aborted. */
static void mem_abort(struct engine *e UNUSED) { CHECK(!"the memory engine gives nothing up"); }

static void mem_close(struct engine *e)
{
    struct mem_engine *m = mem_of(e);
    mem_snap_close(e);
    for (u32 i = 0; i < mem_all_dbs(m); i++) mem_flush(e, i);
    while (mem_reclaim(e, 1u << 20)) {}
    for (u32 i = 0; i < mem_all_dbs(m); i++) {
        table_release(&m->dbs[i].keys); /* an empty table may still have buckets */
        table_release(&m->dbs[i].kept);
        wheel_release(&m->dbs[i].deadlines);
        wheel_release(&m->dbs[i].fields);
    }
    arena_release(&m->handed_out);
    buf_release(&e->repl_position.text);
    mem_free(m->dbs);
    mem_free(m);
}

/* Metadata is only read at start, when there is none. */
static void mem_meta_put(struct engine *e UNUSED, enum meta_kind kind UNUSED, bytes name UNUSED,
                         bytes value UNUSED) {}
static void mem_meta_del(struct engine *e UNUSED, enum meta_kind kind UNUSED, bytes name UNUSED) {}
static void mem_meta_each(struct engine *e UNUSED, enum meta_kind kind UNUSED, pair_fn fn UNUSED,
                          void *arg UNUSED) {}

static const struct engine_ops key_ops = {
    .name = "memory",
    .close = mem_close, .begin = mem_begin, .commit = mem_commit, .abort = mem_abort,
    .prefetch = mem_prefetch,
    .find = mem_find, .create = mem_create, .expect = mem_expect, .drop = mem_drop,
    .set_deadline = mem_set_deadline, .rename = mem_rename, .copy = mem_copy,
    .size = mem_size_of, .encoding = mem_encoding, .usage = mem_usage,
    .access = mem_access, .set_access = mem_set_access,
    .count = mem_count, .expires = mem_expires, .timed_hashes = mem_timed_hashes,
    .scan = mem_scan, .random = mem_random,
    .random_volatile = mem_random_volatile, .flush = mem_flush, .swap = mem_swap,
    .has_deadlines = mem_has_deadlines, .due = mem_due, .next_due = mem_next_due, .forecast = mem_forecast,
    .mean_deadline = mem_mean_deadline, .reclaim = mem_reclaim,
    .meta = {.put = mem_meta_put, .del = mem_meta_del, .each = mem_meta_each},
    /* the families' tables are copied in by memory_engine_new */
};

struct engine *memory_engine_new(u32 databases, u64 seed)
{
    static const struct engine_limits redis_defaults = {
        .hash_max_listpack_entries = 128, .hash_max_listpack_value = 64,
        .zset_max_listpack_entries = 128, .zset_max_listpack_value = 64,
        .set_max_intset_entries = 512, .set_max_listpack_entries = 128, .set_max_listpack_value = 64,
        .list_max_listpack_size = -2,
    };
    struct mem_engine *m = mem_zalloc(sizeof *m);
    m->ops = key_ops;
    m->ops.snapshot = mem_snapshot_ops;
    m->ops.str = mem_str_ops;
    m->ops.map = mem_map_ops;
    m->ops.seq = mem_seq_ops;
    m->ops.zset = mem_zset_ops;
    m->ops.rows = mem_rows_ops;
    m->ops.companion = mem_companion_ops;
    m->base.ops = &m->ops;
    m->base.limits = redis_defaults;
    m->base.databases = databases;
    m->base.caps.draw_cost = 3;
    m->base.caps.prefetch_ahead = PREFETCH_TOGETHER;
    m->seed = seed;
    m->dbs = mem_alloc(mem_all_dbs(m) * sizeof *m->dbs);
    for (u32 i = 0; i < mem_all_dbs(m); i++) db_init(&m->dbs[i], seed);
    return &m->base;
}
