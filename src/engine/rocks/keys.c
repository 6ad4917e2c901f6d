/* Operations on whole keys (usage, copy, rename) and on databases. scan.c walks over all keys. */
#include "engine/rocks/keys.h"

#include "base/num.h"
#include "engine/rocks/companion.h"
#include "engine/rocks/delta.h"

#define EMBSTR_MAX 44

/* -- one key ---------------------------------------------------------------------------------- */

static bool rk_find(struct engine *e, u32 db_number, bytes key, struct key_ref *ref)
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

static void rk_create(struct engine *e, u32 db_number, bytes key, enum value_type type, struct key_ref *ref)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    u64 hash = row_hash(db, key);
    struct row *r = row_get(rk, db, key, hash);
    row_create(rk, r, type);
    row_ref(r, hash, ref);
}

static void rk_drop(struct engine *e, struct key_ref *ref)
{
    struct row *r = row_of(ref);
    row_drop(rk_of(e), r);
    if (UNLIKELY(r->companion)) companion_after_drop(rk_of(e), r);
    ref->entry = NULL;
}

static void rk_set_deadline(struct engine *e, struct key_ref *ref, i64 deadline_ms)
{
    row_set_deadline(rk_of(e), row_of(ref), deadline_ms);
    ref->deadline_ms = deadline_ms;
}

static u64 rk_size(struct engine *e, struct key_ref *ref)
{
    struct row *r = row_of(ref);
    switch (ref->type) {
    case TYPE_STRING: return row_value(rk_of(e), r)->n;
    case TYPE_HASH:
    case TYPE_SET: return rk_map_live(rk_of(e), r);
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

static const char *rk_encoding(struct engine *e, struct key_ref *ref)
{
    struct row *r = row_of(ref);
    switch (ref->type) {
    case TYPE_HASH:
    case TYPE_SET: return rk_map_encoding(rk_of(e), r);
    case TYPE_ZSET: return rk_zset_encoding(rk_of(e), r);
    case TYPE_LIST: return rk_list_encoding(rk_of(e), r);
    case TYPE_STREAM: return "stream";
    default: return string_encoding(rk_of(e), r);
    }
}

/* Bytes it takes on disk, before compression. */
static size_t rk_usage(struct engine *e, struct key_ref *ref, u32 samples)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    size_t prefix = CODEC_PREFIX_FIXED + r->key_len, seen_bytes = 0;
    size_t total = prefix + r->value.n + 25; /* of a dead string the value does not matter */
    total += companion_usage(rk, ref, samples);
    u64 seen = 0;
    struct walk w;
    if (ref->type == TYPE_STRING) return total;
    for (bool more = walk_start(&w, rk, r, (bytes){0}, false); more; more = walk_next(&w)) {
        seen_bytes += prefix + 8 + w.sub.n + w.value.n;
        if (r->type == TYPE_ZSET) seen_bytes += prefix + 8 + 8 + w.sub.n;
        if (++seen == samples) break;
    }
    walk_done(&w);
    if (ref->type == TYPE_STREAM && seen != samples) return total + seen_bytes; /* size() is not rows */
    return seen ? total + (size_t)((double)seen_bytes / (double)seen * (double)r->size) : total;
}

static u32 rk_access(struct engine *e UNUSED, struct key_ref *ref) { return row_of(ref)->access; }
static void rk_set_access(struct engine *e UNUSED, struct key_ref *ref, u32 bits)
{
    row_of(ref)->access = bits;
}

/* -- under another name ------------------------------------------------------------------------- */

/* O(elements): they are stored under their key's name. */
static struct row *rk_duplicate(struct rk *rk, struct row *from, u32 db_number, bytes key, bool moves,
                                struct key_ref *out)
{
    struct rk_db *db = rk->dbs[db_number];
    u64 hash = row_hash(db, key);
    struct row *to = row_get(rk, db, key, hash);
    row_create(rk, to, (enum value_type)from->type);
    switch ((enum value_type)from->type) {
    case TYPE_HASH:
    case TYPE_SET: rk_map_copy(rk, from, to, moves); break;
    case TYPE_LIST: rk_seq_copy(rk, from, to); break;
    case TYPE_ZSET: rk_zset_copy(rk, from, to); break;
    case TYPE_STREAM: rk_rows_copy(rk, from, to); break;
    default:
        row_value(rk, from);
        if (moves) row_move_value(to, from);
        else buf_append_bytes(&to->value, buf_bytes(&from->value));
        to->text = from->text;
        to->edited = from->edited;
    }
    row_set_deadline(rk, to, from->deadline_ms);
    row_ref(to, hash, out);
    return to;
}

static void rk_copy(struct engine *e, struct key_ref *ref, u32 db, bytes key, struct key_ref *out)
{
    rk_duplicate(rk_of(e), row_of(ref), db, key, false, out);
}

static void rk_rename(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    struct rk *rk = rk_of(e);
    struct row *from = row_of(ref);
    rk_duplicate(rk, from, db, key, true, ref)->access = from->access;
    row_drop(rk, from);
    if (UNLIKELY(from->companion)) companion_after_drop(rk, from);
}

/* -- databases ------------------------------------------------------------------------------------------ */

static u64 rk_count(struct engine *e, u32 db) { return rk_of(e)->dbs[db]->count; }
static u64 rk_timed_hashes(struct engine *e, u32 db) { return rk_of(e)->dbs[db]->timed_hashes; }
static u64 rk_expires(struct engine *e, u32 db) { return rk_of(e)->dbs[db]->expires; }

static double rk_mean_deadline(struct engine *e, u32 db_number)
{
    struct rk *rk = rk_of(e);
    return rk->dbs[db_number]->expires ? due_mean(rk, rk->dbs[db_number]) : 0;
}

u64 rocks_slot_count(struct engine *e, u32 db_number, u16 slot)
{
    struct rk *rk = rk_of(e);
    const struct rk_db *db = rk->dbs[db_number];
    u64 keys = db->flushed ? 0 : slots_keys(rk, db, slot);
    for (const struct row *r = rk->touched; r; r = r->next_touched)
        if (r->db == db && r->slot == slot)
            keys += (u64)(r->type != TYPE_NONE) - (u64)(r->stored.type != TYPE_NONE && !r->legacy);
    return keys;
}

/* True for a staging database that is empty and that this transaction has not touched. */
static bool is_unused(const struct rk *rk, const struct rk_db *db)
{
    bool unused = rk_is_staging(rk, db) && db->count == 0 && !rk->legacy && !db->has_companions;
    for (const struct row *r = rk->touched; r && unused; r = r->next_touched) unused = r->db != db;
    return unused;
}

static void rk_flush(struct engine *e, u32 db_number)
{
    struct rk *rk = rk_of(e);
    struct rk_db *db = rk->dbs[db_number];
    if (is_unused(rk, db)) return;
    rk->staging_touched |= rk_is_staging(rk, db);
    if (!rk_is_whole(rk)) due_flush(rk, db); /* before row_flush: it reads cached rows */
    row_flush(rk, db);
    companion_flush(rk, db);
    db->has_companions = false;
    if (rk_is_whole(rk)) due_flush(rk, db);
    db->count = db->expires = db->timed_hashes = 0;
    db->flushed = rk->state_changed = true;
}

static void rk_swap(struct engine *e, u32 a, u32 b)
{
    struct rk *rk = rk_of(e);
    struct rk_db *t = rk->dbs[a];
    rk->dbs[a] = rk->dbs[b];
    rk->dbs[b] = t;
    rk->dbs[a]->number = a;
    rk->dbs[b]->number = b;
    rk->dbs[a]->renumbered = rk->dbs[b]->renumbered = rk->state_changed = true;
    rk->staging_touched |= MAX(a, b) >= e->databases;
}

static const enum family by_prefix[] = {FAM_META, FAM_DATA, FAM_SCORE, FAM_RANK, FAM_FIELD, FAM_STREAM,
                                        FAM_COMPANION};

/* The last one is empty unless there are companions. */
static u32 families(const struct rk *rk) { return ARRAY_LEN(by_prefix) - !rk->companions; }

static void delete_marks(struct rk *rk, const struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    companion_marks(rk, db, &from, &to);
    store_delete_range(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
}

static void append_slot(struct buf *out, u32 slot)
{
    put_u16(buf_reserve(out, 2), (u16)slot);
    out->n += 2;
}

void keys_range(const struct rk *rk, const struct rk_db *db, struct buf *from, struct buf *to)
{
    codec_index_prefix(from, rk->region.prefix, db->index);
    append_slot(from, rk->region.first);
    codec_index_prefix(to, rk->region.prefix, db->index);
    append_slot(to, rk->region.last + 1u);
}

void keys_delete_all(struct rk *rk, struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    keys_range(rk, db, &from, &to);
    for (u32 i = 0; i < families(rk); i++)
        store_delete_range(rk->session, by_prefix[i], buf_bytes(&from), buf_bytes(&to));
    if (rk->companions) delete_marks(rk, db);
    buf_release(&from);
    buf_release(&to);
}

void keys_drop_files(struct rk *rk, struct rk_db *db)
{
    struct buf from = {0}, to = {0};
    keys_range(rk, db, &from, &to);
    for (u32 i = 0; i < families(rk); i++)
        store_drop_files(rk->session, by_prefix[i], buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
}

static void rk_expect(struct engine *e UNUSED, u32 db UNUSED, u64 keys UNUSED) {
} /* RocksDB has no use for it */

void rk_key_ops(struct engine_ops *ops)
{
    ops->find = rk_find;
    ops->create = rk_create;
    ops->expect = rk_expect;
    ops->drop = rk_drop;
    ops->set_deadline = rk_set_deadline;
    ops->rename = rk_rename;
    ops->copy = rk_copy;
    ops->size = rk_size;
    ops->encoding = rk_encoding;
    ops->usage = rk_usage;
    ops->access = rk_access;
    ops->set_access = rk_set_access;
    ops->count = rk_count;
    ops->expires = rk_expires;
    ops->timed_hashes = rk_timed_hashes;
    ops->mean_deadline = rk_mean_deadline;
    ops->scan = keys_scan;
    ops->random = keys_random;
    ops->flush = rk_flush;
    ops->swap = rk_swap;
}
