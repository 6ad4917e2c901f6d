/* Writes touched rows into the batch at commit: metadata, changed elements, deletion of orphaned ones. */
#include "engine/rocks/companion.h"

#define LONG_STRING (256u << 10)
#define BIG_COLLECTION 256 /* elements from which on a range deletion is worth what it costs readers */

bytes row_raw_key(struct rk *rk, const struct row *r)
{
    buf_clear(&rk->scratch);
    codec_key(&rk->scratch, rk->region.prefix, r->db->index, row_key(r));
    return buf_bytes(&rk->scratch);
}

void row_prefix(struct rk *rk, const struct row *r, u64 version, struct buf *out)
{
    codec_key(out, rk->region.prefix, r->db->index, row_key(r));
    append_u64(out, version);
}

static enum family stored_family(const struct row *r)
{
    if (r->stored.type < TYPE_STREAM) return FAM_DATA;
    return r->stored.type == TYPE_STREAM ? FAM_STREAM : FAM_COMPANION;
}

/* Deletes the elements of a big collection whose version is no longer referenced. A compaction would drop
 * them, too, but later. */
static void delete_orphans(struct rk *rk, const struct row *r)
{
    struct buf from = {0}, to = {0};
    row_prefix(rk, r, r->stored.version, &from);
    buf_append_bytes(&to, buf_bytes(&from));
    codec_after_prefix(&to);
    static const enum family beside[] = {FAM_SCORE, FAM_RANK, FAM_FIELD};
    bool scored = r->stored.type == TYPE_ZSET || r->stored.type == TYPE_HASH; /* fields by deadline */
    store_delete_range(rk->session, stored_family(r), buf_bytes(&from), buf_bytes(&to));
    for (u32 i = 0; scored && i < ARRAY_LEN(beside); i++)
        store_delete_range(rk->session, beside[i], buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
}

/* Counts orphaned elements: enough of them start a compaction. */
static void count_orphans(struct rk *rk, const struct row *r)
{
    store_orphaned(rk->store, stored_family(r), r->stored.size);
    if (r->stored.type == TYPE_ZSET) store_orphaned(rk->store, FAM_SCORE, r->stored.size);
}

static bool is_long_string(const struct row *r)
{
    return r->type == TYPE_STRING && r->value.n >= LONG_STRING;
}

/* A long string is not joined with what precedes it: RocksDB does that. */
static void write_meta(struct rk *rk, struct row *r)
{
    bytes value = buf_bytes(row_value(rk, r));
    struct codec_meta m = {
        .type = (enum value_type)r->type, .field_deadlines = r->field_deadlines, .companion = r->companion,
        .deadline_ms = r->deadline_ms, .version = r->version, .size = r->size, .head = r->head,
        .tail = r->tail, .payload = value,
    };
    buf_clear(&rk->scratch);
    codec_key_in(&rk->scratch, rk->region.prefix, r->db->index, r->slot, row_key(r));
    size_t key_len = rk->scratch.n;
    bool apart = is_long_string(r);
    if (UNLIKELY(apart)) codec_meta_head(&rk->scratch, &m);
    else codec_meta(&rk->scratch, &m);
    bytes key = bytes_of(rk->scratch.p, key_len), head = bytes_of(key.p + key_len, rk->scratch.n - key_len);
    if (UNLIKELY(apart)) store_put_value2(rk->session, FAM_META, key, head, value);
    else store_put(rk->session, FAM_META, key, head);
}

/* Long strings come last: a batch that grows after one would copy it. */
void row_write_long(struct rk *rk)
{
    if (LIKELY(!rk->long_strings)) return;
    rk->long_strings = false;
    for (struct row *r = rk->touched; r; r = r->next_touched)
        if (is_long_string(r) && !r->db->companions) write_meta(rk, r);
}

static void orphan_rows(struct rk *rk, const struct row *r)
{
    if (r->stored.size >= BIG_COLLECTION) delete_orphans(rk, r);
    count_orphans(rk, r);
}

static void write_row(struct rk *rk, struct row *r)
{
    bool orphaned = r->stored.version && r->stored.version != r->version;
    if (UNLIKELY(r->db->companions)) {
        if (orphaned) orphan_rows(rk, r);
        companion_write(rk, r);
        return;
    }
    if (orphaned) {
        due_forget_fields(rk, r);
        orphan_rows(rk, r);
    }
    switch ((enum value_type)r->type) {
    case TYPE_HASH:
    case TYPE_SET: rk_map_commit(rk, r); break;
    case TYPE_LIST: rk_seq_commit(rk, r); break;
    case TYPE_ZSET: rk_zset_commit(rk, r); break;
    case TYPE_STREAM: rk_rows_commit(rk, r); break;
    case TYPE_STRING:
    case TYPE_NONE: break;
    }
    if (UNLIKELY(is_long_string(r))) {
        rk->long_strings = true;
    } else if (r->type != TYPE_NONE) {
        write_meta(rk, r);
    } else if (r->stored.type != TYPE_NONE && !(r->legacy && r->stored.type == TYPE_STRING)) {
        store_delete(rk->session, FAM_META, row_raw_key(rk, r));
    }
    if (UNLIKELY(rk->legacy)) {
        bytes raw_key = row_raw_key(rk, r);
        store_delete2(rk->session, FAM_DATA, raw_key, BYTES_LIT("S"));
    }
    slots_count(rk, r);
    if (r->stored.deadline_ms != r->deadline_ms)
        due_changed(rk, r, r->stored.deadline_ms, r->deadline_ms);
}

#define DIGIT_BITS 7 /* two of them are a slot */
#define DIGITS (1u << DIGIT_BITS)

/* One pass of a stable radix sort by slot. */
static void sort_by_digit(struct rk *rk, u32 shift)
{
    struct row *first[DIGITS] = {0}, **end[DIGITS];
    for (struct row *r = rk->touched, *next; r; r = next) {
        u32 d = r->slot >> shift & (DIGITS - 1);
        next = r->next_touched;
        if (!first[d]) end[d] = &first[d];
        *end[d] = r;
        end[d] = &r->next_touched;
    }
    rk->touched_end = &rk->touched;
    for (u32 d = 0; d < DIGITS; d++) {
        if (!first[d]) continue;
        *rk->touched_end = first[d];
        rk->touched_end = end[d];
    }
    *rk->touched_end = NULL;
}

static bool touched_many(const struct rk *rk)
{
    enum { MANY = 16 }; /* fewer are too far apart for their order to matter */
    u32 n = 0;
    for (const struct row *r = rk->touched; r && n < MANY; r = r->next_touched) n++;
    return n == MANY;
}

/* Writes rows in the order of slots, which is the order of stored keys: RocksDB inserts each near the one
 * before, in memory that is still cached. */
void row_write_all(struct rk *rk)
{
    if (touched_many(rk)) {
        sort_by_digit(rk, 0);
        sort_by_digit(rk, DIGIT_BITS);
    }
    for (struct row *r = rk->touched; r; r = r->next_touched) write_row(rk, r);
}
