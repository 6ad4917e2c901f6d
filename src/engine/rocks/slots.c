#include "engine/rocks/slots.h"

#include "engine/rocks/state.h"

#define LOGGED_MAX 4096 /* slots in one row of the log: more are written as base rows */
#define COUNTS_MAX 15   /* encoded size of a slot's counts, in bytes */

/* -- bytes ------------------------------------------------------------------------------------------ */

void slots_append(struct buf *out, const struct slot_counts *c)
{
    char *start = buf_reserve(out, COUNTS_MAX);
    char *p = codec_put_varint(start, (u64)c->keys << 2 | (c->expires ? 2 : 0) | (c->timed ? 1 : 0));
    if (c->expires) p = codec_put_varint(p, c->expires);
    if (c->timed) p = codec_put_varint(p, c->timed);
    out->n += (size_t)(p - start);
}

bool slots_take(bytes *raw, struct slot_counts *out)
{
    u64 keys, expires = 0, timed = 0;
    if (!codec_take_varint(raw, &keys)) return false;
    if ((keys & 2) && !codec_take_varint(raw, &expires)) return false;
    if ((keys & 1) && !codec_take_varint(raw, &timed)) return false;
    if (keys >> 2 > UINT32_MAX || expires > keys >> 2 || timed > keys >> 2) return false;
    *out = (struct slot_counts){(u32)(keys >> 2), (u32)expires, (u32)timed};
    return true;
}

static void append_u16(struct buf *b, u16 v)
{
    put_u16(buf_reserve(b, 2), v);
    b->n += 2;
}

bool slots_read_base(bytes key, bytes value, slots_fn fn, void *arg)
{
    if (key.n != 19 || value.n < 10) return false;
    u64 index = get_u64(key.p + 9), stamp = get_u64(value.p);
    u32 first = get_u16(key.p + 17), n = get_u16(value.p + 8);
    bytes raw = bytes_of(value.p + 10, value.n - 10);
    if (n == 0 || first + n > ROCKS_SLOTS) return false;
    for (u32 i = 0; i < n; i++) {
        struct slot_counts c = {0};
        if (raw.n && !slots_take(&raw, &c)) return false;
        fn(arg, index, (u16)(first + i), stamp, &c);
    }
    return raw.n == 0;
}

bool slots_read_changes(bytes raw, u64 stamp, slots_fn fn, void *arg)
{
    while (raw.n >= 10) {
        u64 index = get_u64(raw.p);
        u32 n = get_u16(raw.p + 8);
        raw = bytes_of(raw.p + 10, raw.n - 10);
        for (; n > 0; n--) {
            struct slot_counts c;
            if (raw.n < 2) return false;
            u16 slot = get_u16(raw.p);
            raw = bytes_of(raw.p + 2, raw.n - 2);
            if (slot >= ROCKS_SLOTS || !slots_take(&raw, &c)) return false;
            fn(arg, index, slot, stamp, &c);
        }
    }
    return raw.n == 0;
}

/* -- memory ------------------------------------------------------------------------------------------- */

static u32 slots_in(const struct rk *rk) { return (u32)rk->region.last - rk->region.first + 1; }

static struct slot_counts *slots_at(struct rk *rk, struct rk_db *db, u16 slot)
{
    if (UNLIKELY(!db->slots.v)) db->slots.v = mem_zalloc(slots_in(rk) * sizeof *db->slots.v);
    CHECK(slot >= rk->region.first && slot <= rk->region.last);
    return &db->slots.v[slot - rk->region.first];
}

u64 slots_keys(const struct rk *rk, const struct rk_db *db, u16 slot)
{
    return db->slots.v ? db->slots.v[slot - rk->region.first].keys : 0;
}

static void slots_sum(const struct rk *rk, struct rk_db *db)
{
    db->count = db->expires = db->timed_hashes = 0;
    for (u32 i = 0; db->slots.v && i < slots_in(rk); i++) {
        db->count += db->slots.v[i].keys;
        db->expires += db->slots.v[i].expires;
        db->timed_hashes += db->slots.v[i].timed;
    }
}

void slots_total(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) slots_sum(rk, rk->dbs[i]);
}

/* -- loading ------------------------------------------------------------------------------------------- */

struct slots_loading {
    struct rk *rk;
    u64 **stamps; /* by database and slot: the stamp of the counts read so far; NULL: none yet */
    struct rk_db *db;
    u64 db_index;
};

static void slots_see(void *arg, u64 index, u16 slot, u64 stamp, const struct slot_counts *c)
{
    struct slots_loading *l = arg;
    struct rk *rk = l->rk;
    if (slot < rk->region.first || slot > rk->region.last) return;
    rk->slot_log.stamp = MAX(rk->slot_log.stamp, stamp);
    if (!l->db || l->db_index != index) l->db = rk_db_of(rk, l->db_index = index);
    if (!l->db) return;
    u64 **stamps = &l->stamps[l->db->number];
    if (!*stamps) *stamps = mem_zalloc(slots_in(rk) * sizeof **stamps);
    if (stamp < (*stamps)[slot - rk->region.first]) return;
    (*stamps)[slot - rk->region.first] = stamp;
    *slots_at(rk, l->db, slot) = *c;
}

static void slots_malformed(struct rk *rk)
{
    log_line(rk->log, LOG_WARNING, "The counts of keys per slot can't be read: the database is damaged. Run "
             "mayfly-server --check on it.");
    rk->base.failed = true;
}

/* Reads the rows of all regions with this prefix, which are few; skips other slots. */
static void slots_load_base(struct rk *rk, struct slots_loading *l)
{
    struct buf from = {0}, to = {0};
    buf_append_char(&from, 'c');
    append_u64(&from, rk->region.prefix);
    buf_append_bytes(&to, buf_bytes(&from));
    codec_after_prefix(&to);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes key = store_key(it);
        struct rk_db *db = key.n == 17 ? rk_db_of(rk, get_u64(key.p + 9)) : NULL;
        if (db) db->has_row = true;
        if (key.n == 19 && !slots_read_base(key, store_iter_value(it), slots_see, l)) slots_malformed(rk);
    }
    store_iter_done(it);
    buf_release(&from);
    buf_release(&to);
}

static void slots_load_log(struct rk *rk, struct slots_loading *l)
{
    struct store_iter *it = state_log_iter(rk);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        struct state_head head;
        bytes changes;
        if (state_read_log(store_key(it), store_iter_value(it), &head, &changes) &&
            slots_read_changes(changes, head.stamp, slots_see, l))
            continue;
        slots_malformed(rk);
        break;
    }
    store_iter_done(it);
}

void slots_load(struct rk *rk)
{
    struct slots_loading l = {.rk = rk, .stamps = mem_zalloc(rk_all(rk) * sizeof(u64 *))};
    slots_load_base(rk, &l);
    slots_load_log(rk, &l);
    for (u32 i = 0; i < rk_all(rk); i++) mem_free(l.stamps[i]);
    mem_free(l.stamps);
    rk->slot_log.logged = true;
    slots_total(rk);
}

/* -- counting, at commit --------------------------------------------------------------------------------- */

static void slots_remember(struct slot_log *l, struct rk_db *db, u16 slot, const struct slot_counts *was)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->changed = mem_realloc(l->changed, l->cap * sizeof *l->changed);
    }
    l->changed[l->n++] = (struct slot_change){db, slot, *was};
    db->slots.changed = true;
}

void slots_count_key(struct rk *rk, struct rk_db *db, u16 slot, struct slot_counts add)
{
    struct slot_counts *c = slots_at(rk, db, slot);
    c->keys += add.keys;
    c->expires += add.expires;
    c->timed += add.timed;
}

/* Legacy strings are not counted before they are migrated (legacy.h); touching one migrates it. */
void slots_count(struct rk *rk, const struct row *r)
{
    struct slot_log *l = &rk->slot_log;
    int keys = (r->type != TYPE_NONE) - (r->stored.type != TYPE_NONE && !r->legacy);
    int expires = (r->deadline_ms != 0) - r->stored.has_deadline;
    int timed = (r->type == TYPE_HASH && r->field_deadlines) - r->stored.field_deadlines;
    if (LIKELY(!(keys | expires | timed))) return;
    struct slot_counts *c = slots_at(rk, r->db, r->slot);
    bool again = l->n && l->changed[l->n - 1].slot == r->slot && l->changed[l->n - 1].db == r->db;
    if (!again) slots_remember(l, r->db, r->slot, c);
    c->keys += (u32)keys;
    c->expires += (u32)expires;
    c->timed += (u32)timed;
    r->db->timed_hashes += (u64)(i64)timed;
}

void slots_flush(struct rk *rk, struct rk_db *db)
{
    struct slot_log *l = &rk->slot_log;
    l->flushed = mem_realloc(l->flushed, (l->flushes + 1) * sizeof *l->flushed);
    l->flushed[l->flushes++] = (struct slot_flush){db, db->slots.v};
    db->slots.v = NULL;
    l->base = true;
}

/* -- writing ----------------------------------------------------------------------------------- */

static bool slots_zero(const struct slot_counts *c) { return !(c->keys | c->expires | c->timed); }

static void slots_write_block(struct rk *rk, const struct rk_db *db, u32 first, u32 last)
{
    char key[19];
    struct buf *out = &rk->scratch;
    const struct slot_counts *v = db->slots.v ? db->slots.v + (first - rk->region.first) : NULL;
    u32 n = v ? last - first + 1 : 0;
    while (n > 0 && slots_zero(&v[n - 1])) n--;
    key[0] = 'c';
    put_u64(key + 1, rk->region.prefix);
    put_u64(key + 9, db->index);
    put_u16(key + 17, (u16)first);
    buf_clear(out);
    append_u64(out, rk->slot_log.stamp);
    append_u16(out, (u16)(last - first + 1));
    for (u32 i = 0; i < n; i++) slots_append(out, &v[i]);
    store_put(rk->session, FAM_INFO, bytes_of(key, sizeof key), buf_bytes(out));
}

void slots_write(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) {
        const struct rk_db *db = rk->dbs[i];
        if ((!db->has_row && !db->slots.v) || (rk_is_staging(rk, db) && !db->count)) continue;
        for (u32 first = rk->region.first, last; first <= rk->region.last; first = last + 1) {
            last = MIN(first | (SLOT_BLOCK - 1), (u32)rk->region.last);
            slots_write_block(rk, db, first, last);
        }
    }
}

static void slots_append_database(struct rk *rk, const struct rk_db *db, struct buf *out)
{
    const struct slot_log *l = &rk->slot_log;
    u16 n = 0;
    append_u64(out, db->index);
    size_t n_at = out->n;
    append_u16(out, 0);
    for (u32 i = 0; i < l->n; i++) {
        if (l->changed[i].db != db) continue;
        append_u16(out, l->changed[i].slot);
        slots_append(out, &db->slots.v[l->changed[i].slot - rk->region.first]);
        n++;
    }
    put_u16(out->p + n_at, n);
}

void slots_append_changes(struct rk *rk, struct buf *out)
{
    if (!rk->slot_log.n) return;
    for (u32 i = 0; i < rk_changed(rk); i++)
        if (rk->dbs[i]->slots.changed) slots_append_database(rk, rk->dbs[i], out);
}

static u32 slots_log_rows(const struct rk *rk)
{
    return MAX(SLOT_LOG_ROWS * slots_in(rk) / ROCKS_SLOTS, SLOT_LOG_ROWS_MIN);
}

bool slots_next(struct rk *rk)
{
    struct slot_log *l = &rk->slot_log;
    l->stamp++;
    l->full = l->rows >= slots_log_rows(rk);
    l->base |= rk->new_region || rk->old_log || l->n > LOGGED_MAX || (l->full && l->logged);
    return l->base;
}

/* -- the end of a transaction ------------------------------------------------------------------ */

static void slots_end(struct slot_log *l)
{
    for (u32 i = 0; i < l->n; i++) l->changed[i].db->slots.changed = false;
    l->n = l->flushes = 0;
    l->base = false;
}

void slots_committed(struct rk *rk)
{
    struct slot_log *l = &rk->slot_log;
    l->rows = l->base ? 0 : l->full ? 1 : l->rows + 1;
    l->logged = !l->base && (l->logged || l->n);
    for (u32 i = 0; i < l->flushes; i++) mem_free(l->flushed[i].was);
    slots_end(l);
}

void slots_abandon(struct rk *rk)
{
    struct slot_log *l = &rk->slot_log;
    for (u32 i = l->n; i-- > 0;) {
        struct slot_change *c = &l->changed[i];
        c->db->slots.v[c->slot - rk->region.first] = c->was;
    }
    for (u32 i = l->flushes; i-- > 0;) {
        mem_free(l->flushed[i].db->slots.v);
        l->flushed[i].db->slots.v = l->flushed[i].was;
    }
    slots_end(l);
    for (u32 i = 0; i < rk_changed(rk); i++) slots_sum(rk, rk->dbs[i]);
}

void slots_release(struct rk *rk)
{
    struct slot_log *l = &rk->slot_log;
    for (u32 i = 0; i < l->flushes; i++) mem_free(l->flushed[i].was);
    for (u32 i = 0; i < rk_all(rk); i++) mem_free(rk->dbs[i]->slots.v);
    mem_free(l->changed);
    mem_free(l->flushed);
}
