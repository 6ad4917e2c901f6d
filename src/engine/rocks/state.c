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

/* Which database an index is of that none of ours has. */
static u64 number_of(struct rk *rk, u64 index)
{
    u64 number = index - 1;
    bytes from = state_key(rk, 'i', RK_REGION, false, 0);
    struct store_iter *it = store_iter(rk->store, FAM_INFO, from, BYTES_LIT("j"), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes key = store_key(it), value = store_iter_value(it);
        if (key.n == 13 && value.n >= 8 && get_u64(value.p) == index) number = get_u32(key.p + 9);
    }
    store_iter_done(it);
    return number;
}

/* Keys are in the order of their index, so that one seek leads from each database to the next. */
static bool ours_only(struct rk *rk, enum family f, struct buf *why)
{
    struct buf at = {0}, end = {0};
    struct codec_key k;
    u64 stranger = 0;
    codec_index_prefix(&at, RK_REGION, 0);
    codec_index_prefix(&end, RK_REGION + 1, 0);
    struct store_iter *it = store_iter(rk->store, f, buf_bytes(&at), buf_bytes(&end), STORE_ONCE);
    store_seek_first(it);
    while (!stranger && store_valid(it) && codec_key_read(store_key(it), &k)) {
        struct rk_db *db = rk_db_of(rk, k.index);
        if (db) db->all_cached = false;
        else stranger = k.index;
        buf_clear(&at);
        codec_index_prefix(&at, RK_REGION, k.index);
        codec_after_prefix(&at);
        store_seek(it, buf_bytes(&at));
    }
    store_iter_done(it);
    buf_release(&at);
    buf_release(&end);
    if (!stranger) return true;
    unsigned long long number = number_of(rk, stranger);
    buf_printf(why, "database %llu has keys, but there are to be %u databases only, which would hide them: "
               "set 'databases' to %llu or more", number, rk->base.databases, number + 1);
    return false;
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
    for (u32 i = 0; i < rk->base.databases; i++) rk->dbs[i]->all_cached = true; /* until a key is met */
    bool ours = ours_only(rk, FAM_META, why);
    if (!rk->base.failed) return ours;
    buf_clear(why);
    buf_append_str(why, "the database's own state can't be read; see the log, and run mayfly-server --check "
                   "on the directory");
    return false;
}

bool state_covers_data(struct rk *rk, struct buf *why) { return ours_only(rk, FAM_DATA, why); }

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
