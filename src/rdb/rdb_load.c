/* Reading a value into an engine. In whatever encoding they come, elements are collected in l->items and
 * added in batches, which is faster than one by one; duplicates are refused. */
#include "rdb/rdb_value.h"

#include <math.h>

#include "base/num.h"
#include "ds/rdb_blob.h"
#include "rdb/rdb_stream.h"

#define CHUNK_BYTES (1u << 20) /* bytes of input between two calls of commit_chunk */

#define ELEMENT_MAX (((size_t)1 << 31) - 4096) /* engines keep elements in blobs of less than 2 GB */
#define FIELD_TTL_MAX (((u64)1 << 48) - 1) /* Redis 7.4's limit in files */

/* -- the key ----------------------------------------------------------------------------------- */

static bool load_twice(struct rdb_load *l, const char *what, bytes name)
{
    return rdb_fail(l->in, "%s \"%.*s\" comes twice", what, (int)MIN(name.n, 64u), name.p);
}

/* Looks up the key, which must be absent. False: it is a duplicate. */
static bool find_free(struct rdb_load *l)
{
    if (!l->eng->ops->find(l->eng, l->db, l->key, &l->ref) || l->replace) return true;
    return load_twice(l, "the key", l->key);
}

/* Deletes an existing key, if replacing is allowed. */
static bool rdb_load_make_room(struct rdb_load *l)
{
    if (!find_free(l)) return false;
    if (l->ref.entry) l->eng->ops->drop(l->eng, &l->ref);
    return true;
}

/* Creates the key just before its first elements are added: by now the engine has had time to prefetch what
 * it needs to find the key's place. */
static bool rdb_load_create(struct rdb_load *l)
{
    if (l->made) return true;
    if (!rdb_load_make_room(l)) return false;
    l->eng->ops->create(l->eng, l->db, l->key, l->kind, &l->ref);
    l->made = true;
    return true;
}

bool rdb_load_commit_chunk(struct rdb_load *l)
{
    if (LIKELY(!l->made || !l->commit_chunk || rdb_offset(l->in) < l->next_commit)) return true;
    l->commit_chunk(l->arg);
    l->next_commit = rdb_offset(l->in) + CHUNK_BYTES;
    return l->eng->ops->find(l->eng, l->db, l->key, &l->ref) ||
           rdb_fail(l->in, "the key was deleted while loading");
}

/* The collection is complete, or has failed. */
static enum rdb_result rdb_load_finish(struct rdb_load *l, bool ok)
{
    struct engine *e = l->eng;
    if (ok && l->made) {
        if (l->deadline_ms) e->ops->set_deadline(e, &l->ref, l->deadline_ms);
        return RDB_OK;
    }
    if (l->made && l->ref.entry) e->ops->drop(e, &l->ref);
    if (!ok || !rdb_load_make_room(l)) return RDB_CORRUPT;
    return l->dead ? RDB_DEAD : RDB_EMPTY;
}

/* -- elements ---------------------------------------------------------------------------------- */

/* Adds the collected elements. */
static bool rdb_load_flush(struct rdb_load *l)
{
    struct engine *e = l->eng;
    u32 n = l->waiting, added = n;
    l->waiting = 0;
    if (n == 0) return true;
    for (u32 i = 0; i < n; i++)
        if (l->items[i].n > ELEMENT_MAX) return rdb_fail(l->in, "an element is too long");
    if (!rdb_load_create(l)) return false;
    switch (l->kind) {
    case TYPE_LIST: e->ops->seq.fill(e, &l->ref, l->items, n); break;
    case TYPE_ZSET: added = e->ops->zset.fill(e, &l->ref, l->items, l->scores, n); break;
    default: added = e->ops->map.fill(e, &l->ref, l->items, n);
    }
    if (added < n) return load_twice(l, l->kind == TYPE_HASH ? "the field" : "the member", l->items[added]);
    return rdb_load_commit_chunk(l);
}

/* A field with a deadline is added at once; a dead one is left out. */
static bool add_field(struct rdb_load *l, bytes field, bytes value, u64 deadline_ms)
{
    if (MAX(field.n, value.n) > ELEMENT_MAX) return rdb_fail(l->in, "an element is too long");
    if (deadline_ms > FIELD_TTL_MAX) return rdb_fail(l->in, "a field's deadline is out of range");
    if (!alive((i64)deadline_ms, l->now_ms)) {
        l->dead++;
        return rdb_load_commit_chunk(l);
    }
    if (!rdb_load_create(l)) return false;
    if (!l->eng->ops->map.put(l->eng, &l->ref, field, value, false)) return load_twice(l, "the field", field);
    if (deadline_ms) l->eng->ops->map.set_field_deadline(l->eng, &l->ref, field, (i64)deadline_ms);
    return rdb_load_commit_chunk(l);
}

/* -- collections written element by element ---------------------------------------------------- */

#define TEXT_TOGETHER (64u << 10) /* bytes of elements collected in a batch, about */

/* Collected elements are stored one after the other in l->b. While it grows, only lengths are recorded. */
static bool rdb_load_read_item(struct rdb_load *l)
{
    size_t before = l->b.n;
    if (!rdb_append_string(l->in, &l->b)) return false;
    l->items[l->waiting++].n = l->b.n - before;
    return true;
}

static bool flush_read(struct rdb_load *l)
{
    const char *p = l->b.p;
    for (u32 i = 0; i < l->waiting; p += l->items[i++].n) l->items[i].p = p;
    buf_clear(&l->b);
    return rdb_load_flush(l);
}

static bool is_full(const struct rdb_load *l)
{
    return l->waiting == RDB_LOAD_BATCH || l->b.n >= TEXT_TOGETHER;
}

/* Lists, sets and hashes: elements of one or two parts. */
static bool load_each(struct rdb_load *l, u32 parts)
{
    u64 count;
    buf_clear(&l->b);
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--) {
        if (!rdb_load_read_item(l) || (parts == 2 && !rdb_load_read_item(l))) return false;
        if (is_full(l) && !flush_read(l)) return false;
    }
    return flush_read(l);
}

/* Finds a member whose score is -0 and puts it into l->a. */
static bool find_minus_zero(struct rdb_load *l)
{
    struct zset_iter it;
    bytes member;
    double score;
    l->eng->ops->zset.iter(l->eng, &l->ref, &(struct zset_seek){.by = ZSEEK_SCORE, .score = 0}, &it);
    while (l->eng->ops->zset.next(&it, &member, &score) && score == 0) {
        if (!signbit(score)) continue;
        buf_clear(&l->a);
        buf_append_bytes(&l->a, member);
        return true;
    }
    return false;
}

/* Redis keeps -0 in a large sorted set, and turns it into 0 in a small one; its files do the same. */
static void settle_minus_zeros(struct rdb_load *l)
{
    struct engine *e = l->eng;
    if (!l->made || strcmp(e->ops->encoding(e, &l->ref), "listpack") != 0) return;
    while (find_minus_zero(l)) {
        e->ops->zset.put(e, &l->ref, buf_bytes(&l->a), 1); /* 0 would count as the same score */
        e->ops->zset.put(e, &l->ref, buf_bytes(&l->a), 0);
    }
}

static bool rdb_load_zset(struct rdb_load *l, bool binary)
{
    u64 count;
    bool minus_zero = false;
    buf_clear(&l->b);
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--) {
        double *score = &l->scores[l->waiting];
        if (!rdb_load_read_item(l)) return false;
        if (!(binary ? rdb_read_double(l->in, score) : rdb_read_score(l->in, score))) return false;
        minus_zero |= *score == 0 && signbit(*score);
        if (is_full(l) && !flush_read(l)) return false;
    }
    if (!flush_read(l)) return false;
    if (minus_zero) settle_minus_zeros(l);
    return true;
}

/* Deadlines are relative to the nearest one, which comes first; 0: none. */
static bool load_hash_ttl(struct rdb_load *l, bool relative)
{
    u64 count, base = 1, ttl;
    if (relative && !rdb_read_u64(l->in, &base)) return false;
    if (base > FIELD_TTL_MAX) return rdb_fail(l->in, "a hash's nearest deadline is out of range");
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--) {
        if (!rdb_read_len(l->in, &ttl)) return false;
        if (ttl > FIELD_TTL_MAX) return rdb_fail(l->in, "a field's deadline is out of range");
        if (!rdb_read_string(l->in, &l->a) || !rdb_read_string(l->in, &l->b)) return false;
        if (!add_field(l, buf_bytes(&l->a), buf_bytes(&l->b), ttl ? ttl + base - 1 : 0)) return false;
    }
    return true;
}

/* -- packed forms ------------------------------------------------------------------------------ */

_Static_assert(RDB_LOAD_BATCH <= RDB_BLOB_KEPT, "slices live until they are added");

static bool read_blob(struct rdb_load *l, enum rdb_blob_kind kind, struct rdb_blob *b)
{
    bytes raw;
    if (!rdb_view_string(l->in, &l->a, &raw)) return false;
    rdb_blob_open(b, kind, raw);
    return true;
}

static const char *blob_name(enum rdb_blob_kind kind)
{
    static const char *const names[] = {"a ziplist", "a zipmap", "an intset", "a listpack"};
    return names[kind];
}

/* Whether the walk ended well. */
static bool blob_done(struct rdb_load *l, const struct rdb_blob *b)
{
    return !b->error || rdb_fail(l->in, "%s is damaged: %s", blob_name(b->kind), b->error);
}

static bool half_there(struct rdb_load *l, const struct rdb_blob *b)
{
    return blob_done(l, b) &&
           rdb_fail(l->in, "%s is damaged: its last element is half there", blob_name(b->kind));
}

/* Lists, sets and hashes: elements of one or two parts. */
static bool load_packed(struct rdb_load *l, enum rdb_blob_kind kind, u32 parts)
{
    struct rdb_blob b;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &l->items[l->waiting]))
        if (++l->waiting == RDB_LOAD_BATCH && !rdb_load_flush(l)) return false;
    if (!blob_done(l, &b)) return false;
    return (l->waiting % parts) ? half_there(l, &b) : rdb_load_flush(l);
}

static bool load_packed_ttls(struct rdb_load *l)
{
    struct rdb_blob b;
    bytes field, value, text;
    i64 deadline_ms;
    if (!read_blob(l, BLOB_LISTPACK, &b)) return false;
    while (rdb_blob_next(&b, &field)) {
        if (!rdb_blob_next(&b, &value) || !rdb_blob_next(&b, &text)) return half_there(l, &b);
        if (!num_parse_i64(text, &deadline_ms) || deadline_ms < 0)
            return rdb_fail(l->in, "a field's deadline is not a number");
        if (!add_field(l, field, value, (u64)deadline_ms)) return false;
    }
    return blob_done(l, &b);
}

static bool load_packed_zset(struct rdb_load *l, enum rdb_blob_kind kind)
{
    struct rdb_blob b;
    bytes member;
    double score, last = -INFINITY;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &member)) {
        if (!rdb_blob_next_score(&b, &score)) return half_there(l, &b);
        if (score < last) return rdb_fail(l->in, "a sorted set is not in the order of its scores");
        l->items[l->waiting] = member;
        l->scores[l->waiting++] = last = score;
        if (2 * l->waiting == RDB_LOAD_BATCH && !rdb_load_flush(l)) return false;
    }
    return blob_done(l, &b) && rdb_load_flush(l);
}

static bool load_quicklist(struct rdb_load *l, bool second)
{
    u64 nodes, form = RDB_NODE_PACKED;
    if (!rdb_read_len(l->in, &nodes)) return false;
    for (; nodes > 0; nodes--) {
        if (second && !rdb_read_len(l->in, &form)) return false;
        if (form == RDB_NODE_PLAIN) {
            if (!rdb_view_string(l->in, &l->a, &l->items[l->waiting++]) || !rdb_load_flush(l)) return false;
        } else {
            if (form != RDB_NODE_PACKED)
                return rdb_fail(l->in, "a list's node is of unknown form %llu", (unsigned long long)form);
            if (!load_packed(l, second ? BLOB_LISTPACK : BLOB_ZIPLIST, 1)) return false;
        }
    }
    return true;
}

/* -- any type ---------------------------------------------------------------------------------- */

static enum rdb_result load_string(struct rdb_load *l)
{
    struct engine *e = l->eng;
    bytes value;
    if (!rdb_view_string(l->in, &l->a, &value) || !find_free(l)) return RDB_CORRUPT;
    e->ops->str.put(e, l->db, l->key, &l->ref, value, l->deadline_ms);
    return RDB_OK;
}

static enum value_type kind_of(enum rdb_type type)
{
    const char *name = rdb_type_name(type);
    switch (name ? name[0] : '?') {
    case 'h': return TYPE_HASH;
    case 'l': return TYPE_LIST;
    case 'z': return TYPE_ZSET;
    default: return name && strcmp(name, "stream") == 0 ? TYPE_STREAM : TYPE_SET;
    }
}

static bool load_collection(struct rdb_load *l, enum rdb_type type)
{
    switch (type) {
    case RDB_LIST:
    case RDB_SET: return load_each(l, 1);
    case RDB_HASH: return load_each(l, 2);
    case RDB_ZSET: return rdb_load_zset(l, false);
    case RDB_ZSET_2: return rdb_load_zset(l, true);
    case RDB_LIST_ZIPLIST: return load_packed(l, BLOB_ZIPLIST, 1);
    case RDB_SET_INTSET: return load_packed(l, BLOB_INTSET, 1);
    case RDB_SET_LISTPACK: return load_packed(l, BLOB_LISTPACK, 1);
    case RDB_HASH_ZIPMAP: return load_packed(l, BLOB_ZIPMAP, 2);
    case RDB_HASH_ZIPLIST: return load_packed(l, BLOB_ZIPLIST, 2);
    case RDB_HASH_LISTPACK: return load_packed(l, BLOB_LISTPACK, 2);
    case RDB_ZSET_ZIPLIST: return load_packed_zset(l, BLOB_ZIPLIST);
    case RDB_ZSET_LISTPACK: return load_packed_zset(l, BLOB_LISTPACK);
    case RDB_QUICKLIST: return load_quicklist(l, false);
    case RDB_QUICKLIST_2: return load_quicklist(l, true);
    case RDB_HASH_LISTPACK_TTL_EARLY: return load_packed_ttls(l);
    case RDB_HASH_LISTPACK_TTL:
        /* The nearest deadline comes first; it is recomputed here. */
        return rdb_skip_raw(l->in, 8) && load_packed_ttls(l);
    case RDB_HASH_TTL_EARLY: return load_hash_ttl(l, false);
    case RDB_HASH_TTL: return load_hash_ttl(l, true);
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: return rdb_load_create(l) && rdb_stream_load(l, type); /* a stream may be empty */
    default: return rdb_fail(l->in, "%u is no type of value", (unsigned)type);
    }
}

enum rdb_result rdb_load_value(struct rdb_load *l, enum rdb_type type)
{
    switch (type) {
    case RDB_STRING: return load_string(l);
    case RDB_MODULE_1:
    case RDB_MODULE_2: return RDB_UNSUPPORTED;
    default: break;
    }
    if (!rdb_type_name(type)) {
        rdb_fail(l->in, "%u is no type of value", (unsigned)type);
        return RDB_CORRUPT;
    }
    l->kind = kind_of(type);
    l->made = false;
    l->dead = l->waiting = 0;
    l->next_commit = rdb_offset(l->in) + CHUNK_BYTES;
    return rdb_load_finish(l, load_collection(l, type));
}

/* -- field deadlines kept aside ---------------------------------------------------------------- */

static bool apply_field_ttl(struct rdb_load *l, bytes field, bytes text)
{
    i64 deadline_ms;
    if (!num_parse_i64(text, &deadline_ms) || deadline_ms <= 0 || (u64)deadline_ms > FIELD_TTL_MAX)
        return rdb_fail(l->in, "a field's deadline is out of range");
    if (!l->eng->ops->map.get(l->eng, &l->ref, field, NULL))
        return rdb_fail(l->in, "a deadline is of a field that isn't there");
    if (alive(deadline_ms, l->now_ms))
        l->eng->ops->map.set_field_deadline(l->eng, &l->ref, field, deadline_ms);
    else l->eng->ops->map.del(l->eng, &l->ref, field);
    return true;
}

enum rdb_result rdb_load_field_ttls(struct rdb_load *l, bytes blob)
{
    struct rdb_blob b;
    bytes field, text;
    rdb_blob_open(&b, BLOB_LISTPACK, blob);
    while (rdb_blob_next(&b, &field))
        if (!(rdb_blob_next(&b, &text) ? apply_field_ttl(l, field, text) : half_there(l, &b)))
            return RDB_CORRUPT;
    if (!blob_done(l, &b)) return RDB_CORRUPT;
    if (l->now_ms == 0 || l->eng->ops->size(l->eng, &l->ref) > 0) return RDB_OK;
    l->eng->ops->drop(l->eng, &l->ref);
    return RDB_DEAD;
}

void rdb_load_release(struct rdb_load *l)
{
    buf_release(&l->a);
    buf_release(&l->b);
}
