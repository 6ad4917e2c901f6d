/* How much disk space slots take: from the indexes of files, which are in the order of slots. */
#include "engine/rocks/rk.h"

static u64 sizes_in_family(struct rk *rk, enum family f, u16 first, u16 last)
{
    struct buf from = {0}, to = {0};
    u64 index = rk->dbs[0]->index;
    codec_index_prefix(&from, rk->region.prefix, index);
    codec_index_prefix(&to, rk->region.prefix, index);
    put_u16(buf_reserve(&from, 2), first);
    put_u16(buf_reserve(&to, 2), (u16)(last + 1));
    from.n += 2;
    to.n += 2;
    u64 n = store_range_bytes(rk->session, f, buf_bytes(&from), buf_bytes(&to));
    buf_release(&from);
    buf_release(&to);
    return n;
}

/* RocksDB knows of a blob file only how much of it is live. */
static u64 sizes_of_blobs(struct rk *rk, u16 first, u16 last, u64 keys_all)
{
    u64 bytes = store_blob_bytes(rk->store), keys = 0;
    if (!bytes || !keys_all) return 0;
    for (u32 slot = first; slot <= last; slot++) keys += slots_keys(rk, rk->dbs[0], (u16)slot);
    return (u64)((double)bytes * (double)MIN(keys, keys_all) / (double)keys_all);
}

u64 rocks_slots_bytes(struct engine *e, u16 first, u16 last, u64 keys)
{
    static const enum family of_keys[] = {FAM_META, FAM_DATA,   FAM_SCORE,    FAM_RANK,
                                          FAM_FIELD, FAM_STREAM, FAM_COMPANION};
    struct rk *rk = rk_of(e);
    u64 n = sizes_of_blobs(rk, first, last, keys);
    for (u32 i = 0; i < ARRAY_LEN(of_keys); i++) n += sizes_in_family(rk, of_keys[i], first, last);
    return n;
}

/* The lower part grows with the slot, so this halves the slots until one is left. */
u16 rocks_half(struct engine *e, u64 keys)
{
    const struct rocks_region *r = &rk_of(e)->region;
    u64 all = rocks_slots_bytes(e, r->first, r->last, keys);
    u16 low = (u16)(r->first + 1), high = r->last;
    if (r->first == r->last || !all) return 0;
    while (low < high) {
        u16 mid = (u16)((low + high) / 2);
        if (rocks_slots_bytes(e, r->first, (u16)(mid - 1), keys) >= all / 2) high = mid;
        else low = (u16)(mid + 1);
    }
    if (low - 1 == r->first) return low;
    u64 more = rocks_slots_bytes(e, r->first, (u16)(low - 1), keys);
    u64 less = rocks_slots_bytes(e, r->first, (u16)(low - 2), keys);
    return more + less > all ? (u16)(low - 1) : low; /* the nearer one */
}

u64 rocks_written(struct engine *e) { return store_session_written(rk_of(e)->session); }

u64 rocks_written_all(const struct rocks *db) { return store_written(db->store); }

bool rocks_drops_files(const struct rocks *db) { return store_drops_files(db->store); }
