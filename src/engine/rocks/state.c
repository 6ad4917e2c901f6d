#include "engine/rocks/state.h"

#define LAYOUT 1

static bytes state_key(struct rk *rk, char kind, u64 a, bool has_b, u64 b)
{
    struct buf *k = &rk->scratch;
    buf_clear(k);
    buf_append_char(k, kind);
    append_u64(k, a);
    if (has_b) append_u64(k, b);
    return buf_bytes(k);
}

static bytes index_key(struct rk *rk, u32 number)
{
    struct buf *k = &rk->scratch;
    state_key(rk, 'i', RK_REGION, false, 0);
    put_u32(buf_reserve(k, 4), number);
    k->n += 4;
    return buf_bytes(k);
}

static bytes counts_key(struct rk *rk, const struct rk_db *db) { return state_key(rk, 'c', RK_REGION, true, db->index); }

/* -- loading -------------------------------------------------------------------------------- */

/* A value of at least n bytes; false if there is none. */
static bool load(struct rk *rk, bytes key, size_t n, char *out)
{
    struct store_value v;
    if (!store_get(rk->store, FAM_INFO, key, &v)) return false;
    bool fits = v.b.n >= n;
    if (fits) memcpy(out, v.b.p, n);
    store_value_release(&v);
    return fits;
}

static void load_counts(struct rk *rk, struct rk_db *db)
{
    char raw[32];
    db->count = db->expires = 0;
    db->deadline_total = 0;
    db->counts_changed = db->flushed = false;
    if (!load(rk, counts_key(rk, db), sizeof raw, raw)) return;
    db->count = get_u64(raw);
    db->expires = get_u64(raw + 8);
    db->deadline_total = (__int128)((unsigned __int128)get_u64(raw + 16) << 64 | get_u64(raw + 24));
}

static void load_region(struct rk *rk)
{
    char raw[24];
    rk->state_changed = false;
    rk->applied_seq = rk->last_version = 0;
    if (!load(rk, state_key(rk, 's', RK_REGION, false, 0), sizeof raw, raw)) return;
    rk->applied_seq = get_u64(raw);
    rk->last_version = get_u64(raw + 8);
}

static void load_indexes(struct rk *rk)
{
    for (u32 i = 0; i < rk->base.databases; i++) {
        char raw[8];
        struct rk_db *db = rk->dbs[i];
        db->number = i;
        db->index = load(rk, index_key(rk, i), sizeof raw, raw) ? get_u64(raw) : i + 1;
    }
}

bool state_load(struct rk *rk, struct buf *why)
{
    char raw[4];
    bool known = load(rk, BYTES_LIT("v"), sizeof raw, raw);
    if (known && get_u32(raw) != LAYOUT) {
        buf_printf(why, "the database has layout %u, this version of Mayfly reads layout %d", get_u32(raw), LAYOUT);
        return false;
    }
    load_region(rk);
    load_indexes(rk);
    for (u32 i = 0; i < rk->base.databases; i++) load_counts(rk, rk->dbs[i]);
    rk->new_layout = !known;
    return !rk->base.failed;
}

/* -- writing ---------------------------------------------------------------------------------- */

static void write_counts(struct rk *rk, struct rk_db *db)
{
    char raw[32];
    put_u64(raw, db->count);
    put_u64(raw + 8, db->expires);
    put_u64(raw + 16, (u64)((unsigned __int128)db->deadline_total >> 64));
    put_u64(raw + 24, (u64)db->deadline_total);
    store_put(rk->store, FAM_INFO, counts_key(rk, db), bytes_of(raw, sizeof raw));
}

static void write_index(struct rk *rk, const struct rk_db *db)
{
    char raw[8];
    put_u64(raw, db->index);
    store_put(rk->store, FAM_INFO, index_key(rk, db->number), bytes_of(raw, sizeof raw));
}

void state_commit(struct rk *rk, u64 seq)
{
    for (u32 i = 0; i < rk->base.databases; i++) {
        struct rk_db *db = rk->dbs[i];
        if (db->counts_changed) write_counts(rk, db);
        if (db->renumbered) write_index(rk, db);
    }
    if (rk->new_layout) {
        char raw[4];
        put_u32(raw, LAYOUT);
        store_put(rk->store, FAM_INFO, BYTES_LIT("v"), bytes_of(raw, sizeof raw));
    }
    char raw[24];
    put_u64(raw, seq);
    put_u64(raw + 8, rk->last_version);
    put_u64(raw + 16, (u64)rk->base.now_ms);
    store_put(rk->store, FAM_INFO, state_key(rk, 's', RK_REGION, false, 0), bytes_of(raw, sizeof raw));
}

void state_committed(struct rk *rk, u64 seq)
{
    rk->applied_seq = seq;
    rk->state_changed = rk->new_layout = false;
    for (u32 i = 0; i < rk->base.databases; i++)
        rk->dbs[i]->counts_changed = rk->dbs[i]->renumbered = rk->dbs[i]->flushed = false;
}

/* Versions given out are not taken back: what was handed out once is never handed out again. Nor need they be
 * written: the next batch that has anything to write has them. */
void state_abandon(struct rk *rk)
{
    rk->state_changed = false;
    struct rk_db **was = mem_alloc(rk->base.databases * sizeof *was);
    memcpy(was, rk->dbs, rk->base.databases * sizeof *was);
    for (u32 i = 0; i < rk->base.databases; i++) { /* databases that were swapped go back */
        char raw[8];
        u64 index = load(rk, index_key(rk, i), sizeof raw, raw) ? get_u64(raw) : i + 1;
        for (u32 j = 0; j < rk->base.databases; j++)
            if (was[j]->index == index) rk->dbs[i] = was[j];
        rk->dbs[i]->number = i;
        rk->dbs[i]->renumbered = false;
        load_counts(rk, rk->dbs[i]);
    }
    mem_free(was);
}
