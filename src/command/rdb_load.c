/* Reading a value into an engine, element by element. Whatever the form it comes in, elements end
 * up in one of the add_ functions, which refuse what comes twice. */
#include "command/rdb_value.h"

#include "base/num.h"
#include "command/rdb_blob.h"

#define BREATH (1u << 20) /* bytes of input between two breaths */

#define ELEMENT_MAX (((size_t)1 << 31) - 4096) /* engines keep elements in blobs of less than 2 GB */
#define FIELD_TTL_MAX (((u64)1 << 48) - 1) /* what Redis 7.4 takes from a file */

/* -- the key ----------------------------------------------------------------------------------- */

static bool twice(struct rdb_load *l, const char *what, bytes name)
{
    return rdb_fail(l->in, "%s \"%.*s\" comes twice", what, (int)MIN(name.n, 64u), name.p);
}

/* Looks the key up, which should not be there. False: it comes twice. */
static bool find_free(struct rdb_load *l)
{
    if (!l->eng->ops->find(l->eng, l->db, l->key, &l->ref) || l->replace) return true;
    return twice(l, "the key", l->key);
}

static bool create(struct rdb_load *l, enum value_type type)
{
    if (!find_free(l)) return false;
    if (l->ref.entry) l->eng->ops->drop(l->eng, &l->ref);
    l->added = l->dead = 0;
    l->next_breath = rdb_offset(l->in) + BREATH;
    l->eng->ops->create(l->eng, l->db, l->key, type, &l->ref);
    return true;
}

/* After an element. False: the key has gone while nobody looked. */
static bool breathe(struct rdb_load *l)
{
    if (LIKELY(!l->breathe || rdb_offset(l->in) < l->next_breath)) return true;
    l->breathe(l->arg);
    l->next_breath = rdb_offset(l->in) + BREATH;
    return l->eng->ops->find(l->eng, l->db, l->key, &l->ref) ||
           rdb_fail(l->in, "the key was deleted while loading");
}

/* The collection is complete, or will never be. */
static enum rdb_result finish(struct rdb_load *l, bool ok)
{
    struct engine *e = l->eng;
    if (ok && l->added) {
        if (l->deadline_ms) e->ops->set_deadline(e, &l->ref, l->deadline_ms);
        return RDB_OK;
    }
    if (l->ref.entry) e->ops->drop(e, &l->ref);
    return !ok ? RDB_CORRUPT : l->dead ? RDB_DEAD : RDB_EMPTY;
}

/* -- elements ---------------------------------------------------------------------------------- */

static bool too_long(struct rdb_load *l) { return rdb_fail(l->in, "an element is too long"); }

static bool add_element(struct rdb_load *l, bytes value)
{
    if (value.n > ELEMENT_MAX) return too_long(l);
    l->eng->ops->seq.push(l->eng, &l->ref, false, value);
    l->added++;
    return breathe(l);
}

static bool add_member(struct rdb_load *l, bytes member)
{
    if (member.n > ELEMENT_MAX) return too_long(l);
    if (!l->eng->ops->map.put(l->eng, &l->ref, member, (bytes){"", 0}, false))
        return twice(l, "the member", member);
    l->added++;
    return breathe(l);
}

static bool add_scored(struct rdb_load *l, bytes member, double score)
{
    if (member.n > ELEMENT_MAX) return too_long(l);
    if (!l->eng->ops->zset.put(l->eng, &l->ref, member, score)) return twice(l, "the member", member);
    l->added++;
    return breathe(l);
}

static bool add_field(struct rdb_load *l, bytes field, bytes value, u64 deadline_ms)
{
    if (MAX(field.n, value.n) > ELEMENT_MAX) return too_long(l);
    if (deadline_ms > FIELD_TTL_MAX) return rdb_fail(l->in, "a field's deadline is out of range");
    if (!alive((i64)deadline_ms, l->now_ms)) {
        l->dead++;
        return breathe(l);
    }
    if (!l->eng->ops->map.put(l->eng, &l->ref, field, value, false)) return twice(l, "the field", field);
    if (deadline_ms) l->eng->ops->map.set_field_deadline(l->eng, &l->ref, field, (i64)deadline_ms);
    l->added++;
    return breathe(l);
}

/* -- collections written element by element ---------------------------------------------------- */

static bool load_list(struct rdb_load *l)
{
    u64 count;
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--)
        if (!rdb_read_string(l->in, &l->a) || !add_element(l, buf_bytes(&l->a))) return false;
    return true;
}

static bool load_set(struct rdb_load *l)
{
    u64 count;
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--)
        if (!rdb_read_string(l->in, &l->a) || !add_member(l, buf_bytes(&l->a))) return false;
    return true;
}

static bool load_zset(struct rdb_load *l, bool binary)
{
    u64 count;
    double score;
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--) {
        if (!rdb_read_string(l->in, &l->a)) return false;
        if (!(binary ? rdb_read_double(l->in, &score) : rdb_read_score(l->in, &score))) return false;
        if (!add_scored(l, buf_bytes(&l->a), score)) return false;
    }
    return true;
}

static bool load_hash(struct rdb_load *l)
{
    u64 count;
    if (!rdb_read_len(l->in, &count)) return false;
    for (; count > 0; count--) {
        if (!rdb_read_string(l->in, &l->a) || !rdb_read_string(l->in, &l->b)) return false;
        if (!add_field(l, buf_bytes(&l->a), buf_bytes(&l->b), 0)) return false;
    }
    return true;
}

/* Deadlines are counted from the nearest, which comes first, so that they are short; 0 is none. */
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

static bool read_blob(struct rdb_load *l, enum rdb_blob_kind kind, struct rdb_blob *b)
{
    if (!rdb_read_string(l->in, &l->a)) return false;
    rdb_blob_open(b, kind, buf_bytes(&l->a));
    return true;
}

static const char *blob_name(enum rdb_blob_kind kind)
{
    static const char *const names[] = {"a ziplist", "a zipmap", "an intset", "a listpack"};
    return names[kind];
}

/* The walk is over: did it end well? */
static bool blob_done(struct rdb_load *l, const struct rdb_blob *b)
{
    return !b->error || rdb_fail(l->in, "%s is damaged: %s", blob_name(b->kind), b->error);
}

/* The other parts of an element whose first was read. */
static bool next_part(struct rdb_load *l, struct rdb_blob *b, bytes *part)
{
    if (rdb_blob_next(b, part)) return true;
    return blob_done(l, b) &&
           rdb_fail(l->in, "%s is damaged: its last element is half there", blob_name(b->kind));
}

static bool load_packed_list(struct rdb_load *l, enum rdb_blob_kind kind)
{
    struct rdb_blob b;
    bytes value;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &value))
        if (!add_element(l, value)) return false;
    return blob_done(l, &b);
}

static bool load_packed_set(struct rdb_load *l, enum rdb_blob_kind kind)
{
    struct rdb_blob b;
    bytes member;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &member))
        if (!add_member(l, member)) return false;
    return blob_done(l, &b);
}

static bool load_packed_hash(struct rdb_load *l, enum rdb_blob_kind kind, bool ttls)
{
    struct rdb_blob b;
    bytes field, value, text;
    i64 deadline_ms = 0;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &field)) {
        if (!next_part(l, &b, &value)) return false;
        if (ttls) {
            if (!next_part(l, &b, &text)) return false;
            if (!num_parse_i64(text, &deadline_ms) || deadline_ms < 0)
                return rdb_fail(l->in, "a field's deadline is not a number");
        }
        if (!add_field(l, field, value, (u64)deadline_ms)) return false;
    }
    return blob_done(l, &b);
}

static bool load_packed_zset(struct rdb_load *l, enum rdb_blob_kind kind)
{
    struct rdb_blob b;
    bytes member, text;
    double score, last = 0;
    if (!read_blob(l, kind, &b)) return false;
    while (rdb_blob_next(&b, &member)) {
        if (!next_part(l, &b, &text)) return false;
        if (!num_parse_double(text, &score)) return rdb_fail(l->in, "a score that is not a number");
        if (l->added && score < last)
            return rdb_fail(l->in, "a sorted set is not in the order of its scores");
        last = score;
        if (!add_scored(l, member, score)) return false;
    }
    return blob_done(l, &b);
}

static bool load_quicklist(struct rdb_load *l, bool second)
{
    u64 nodes, form = RDB_NODE_PACKED;
    if (!rdb_read_len(l->in, &nodes)) return false;
    for (; nodes > 0; nodes--) {
        if (second && !rdb_read_len(l->in, &form)) return false;
        if (form == RDB_NODE_PLAIN) {
            if (!rdb_read_string(l->in, &l->a) || !add_element(l, buf_bytes(&l->a))) return false;
        } else {
            if (form != RDB_NODE_PACKED)
                return rdb_fail(l->in, "a list's node is of unknown form %llu", (unsigned long long)form);
            if (!load_packed_list(l, second ? BLOB_LISTPACK : BLOB_ZIPLIST)) return false;
        }
    }
    return true;
}

/* -- any type ---------------------------------------------------------------------------------- */

static enum rdb_result load_string(struct rdb_load *l)
{
    struct engine *e = l->eng;
    if (!rdb_read_string(l->in, &l->a) || !find_free(l)) return RDB_CORRUPT;
    e->ops->str.put(e, l->db, l->key, &l->ref, buf_bytes(&l->a), l->deadline_ms);
    return RDB_OK;
}

static enum value_type kind_of(enum rdb_type type)
{
    const char *name = rdb_type_name(type);
    switch (name ? name[0] : '?') {
    case 'h': return TYPE_HASH;
    case 'l': return TYPE_LIST;
    case 'z': return TYPE_ZSET;
    default: return TYPE_SET;
    }
}

static bool load_collection(struct rdb_load *l, enum rdb_type type)
{
    switch (type) {
    case RDB_LIST: return load_list(l);
    case RDB_LIST_ZIPLIST: return load_packed_list(l, BLOB_ZIPLIST);
    case RDB_QUICKLIST: return load_quicklist(l, false);
    case RDB_QUICKLIST_2: return load_quicklist(l, true);
    case RDB_SET: return load_set(l);
    case RDB_SET_INTSET: return load_packed_set(l, BLOB_INTSET);
    case RDB_SET_LISTPACK: return load_packed_set(l, BLOB_LISTPACK);
    case RDB_ZSET: return load_zset(l, false);
    case RDB_ZSET_2: return load_zset(l, true);
    case RDB_ZSET_ZIPLIST: return load_packed_zset(l, BLOB_ZIPLIST);
    case RDB_ZSET_LISTPACK: return load_packed_zset(l, BLOB_LISTPACK);
    case RDB_HASH: return load_hash(l);
    case RDB_HASH_ZIPMAP: return load_packed_hash(l, BLOB_ZIPMAP, false);
    case RDB_HASH_ZIPLIST: return load_packed_hash(l, BLOB_ZIPLIST, false);
    case RDB_HASH_LISTPACK: return load_packed_hash(l, BLOB_LISTPACK, false);
    case RDB_HASH_LISTPACK_TTL_EARLY: return load_packed_hash(l, BLOB_LISTPACK, true);
    case RDB_HASH_LISTPACK_TTL:
        /* The nearest deadline comes first; we find it ourselves. */
        return rdb_skip_raw(l->in, 8) && load_packed_hash(l, BLOB_LISTPACK, true);
    case RDB_HASH_TTL_EARLY: return load_hash_ttl(l, false);
    case RDB_HASH_TTL: return load_hash_ttl(l, true);
    default: return rdb_fail(l->in, "%u is no type of value", (unsigned)type);
    }
}

enum rdb_result rdb_load_value(struct rdb_load *l, enum rdb_type type)
{
    switch (type) {
    case RDB_STRING: return load_string(l);
    case RDB_MODULE_1:
    case RDB_MODULE_2:
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: return RDB_UNSUPPORTED;
    default: break;
    }
    if (!rdb_type_name(type)) {
        rdb_fail(l->in, "%u is no type of value", (unsigned)type);
        return RDB_CORRUPT;
    }
    if (!create(l, kind_of(type))) return RDB_CORRUPT;
    return finish(l, load_collection(l, type));
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
        if (!next_part(l, &b, &text) || !apply_field_ttl(l, field, text)) return RDB_CORRUPT;
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
