/* Rows of Raft logs: see rocks.h. Only entries that were removed at the end of a log are deleted one by one;
 * what is compacted goes by range. */
#include "base/alloc.h"
#include "engine/rocks/codec.h"
#include "engine/rocks/rk.h"

#define RANGE_FROM 16 /* rows: fewer are deleted one by one, which costs readers less */

/* -- writing -------------------------------------------------------------------------------- */

struct rocks_log_batch {
    struct store_session *session;
    bool failed; /* nothing is read through it */
};

struct rocks_log_batch *rocks_log_batch_open(struct rocks *db)
{
    struct rocks_log_batch *b = mem_zalloc(sizeof *b);
    b->session = store_log_session_open(db->store, &b->failed);
    return b;
}

void rocks_log_batch_close(struct rocks_log_batch *b)
{
    if (!b) return;
    store_session_close(b->session);
    mem_free(b);
}

void rocks_log_put(struct rocks_log_batch *b, u64 region, const struct rocks_log_entry *e)
{
    char key[CODEC_LOG_KEY], head[CODEC_LOG_HEAD];
    CHECK(e->index && e->term);
    store_put_value2(b->session, FAM_RAFT_LOG, codec_log_key(key, region, e->index),
                     codec_log_head(head, e->term, e->type), e->data);
}

/* The first key after an entry. */
static bytes raft_log_after(char out[CODEC_LOG_KEY], u64 region, u64 index)
{
    if (index < UINT64_MAX) return codec_log_key(out, region, index + 1);
    CHECK(region < UINT64_MAX);
    return codec_log_key(out, region + 1, 0);
}

void rocks_log_delete(struct rocks_log_batch *b, u64 region, u64 first, u64 last)
{
    char from[CODEC_LOG_KEY], to[CODEC_LOG_KEY];
    CHECK(first);
    if (first > last) return;
    if (last - first < RANGE_FROM) {
        for (u64 i = first; i <= last; i++)
            store_delete(b->session, FAM_RAFT_LOG, codec_log_key(from, region, i));
        return;
    }
    store_delete_range(b->session, FAM_RAFT_LOG, codec_log_key(from, region, first),
                       raft_log_after(to, region, last));
}

static void raft_log_put_numbers(struct rocks_log_batch *b, u64 region, enum codec_log_row row,
                                 const u64 *numbers, u32 n)
{
    char key[CODEC_LOG_KEY], value[24];
    for (u32 i = 0; i < n; i++) put_u64(value + 8 * i, numbers[i]);
    store_put(b->session, FAM_RAFT_LOG, codec_log_state_key(key, region, row), bytes_of(value, 8 * n));
}

void rocks_log_put_hard_state(struct rocks_log_batch *b, u64 region, u64 term, u64 vote, u64 commit)
{
    raft_log_put_numbers(b, region, CODEC_LOG_HARD_STATE, (u64[]){term, vote, commit}, 3);
}

void rocks_log_put_point(struct rocks_log_batch *b, u64 region, u64 index, u64 term)
{
    raft_log_put_numbers(b, region, CODEC_LOG_POINT, (u64[]){index, term}, 2);
}

void rocks_log_delete_region(struct rocks_log_batch *b, u64 region)
{
    char from[CODEC_LOG_KEY], to[CODEC_LOG_KEY];
    store_delete_range(b->session, FAM_RAFT_LOG, codec_log_key(from, region, 0),
                       raft_log_after(to, region, UINT64_MAX));
}

bool rocks_log_write(struct rocks_log_batch *b, bool sync)
{
    return store_write(b->session) && (!sync || store_sync(b->session));
}

/* -- reading -------------------------------------------------------------------------------- */

struct rocks_log {
    struct store_session *session;
    bool failed;
};

struct rocks_log *rocks_log_open(struct rocks *db)
{
    struct rocks_log *l = mem_zalloc(sizeof *l);
    l->session = store_log_session_open(db->store, &l->failed);
    return l;
}

void rocks_log_close(struct rocks_log *l)
{
    if (!l) return;
    store_session_close(l->session);
    mem_free(l);
}

/* Writes go through other sessions, so an iterator is of no use a second time. */
static void raft_log_done(struct rocks_log *l, struct store_iter *it)
{
    store_iter_done(it);
    store_drop_idle(l->session);
}

static bool raft_log_damaged(struct rocks_log *l, const char *what)
{
    store_damaged(l->session, what);
    return false;
}

/* All zeros if there is no such row. */
static bool raft_log_get_numbers(struct rocks_log *l, u64 region, enum codec_log_row row, u64 *numbers, u32 n)
{
    char key[CODEC_LOG_KEY];
    struct store_value v;
    memset(numbers, 0, n * sizeof *numbers);
    bool there = store_get(l->session, FAM_RAFT_LOG, codec_log_state_key(key, region, row), &v);
    bool ok = !there || codec_log_numbers_read(v.b, numbers, n);
    store_value_release(&v);
    if (!ok) return raft_log_damaged(l, "a state of the Raft log can't be decoded");
    return !l->failed;
}

/* The first and the last entry; 0: there are none. */
static bool raft_log_ends(struct rocks_log *l, u64 region, u64 *first, u64 *last)
{
    char from[CODEC_LOG_KEY], to[CODEC_LOG_KEY];
    enum codec_log_row row;
    u64 of;
    struct store_iter *it = store_iter(l->session, FAM_RAFT_LOG, codec_log_key(from, region, 1),
                                       raft_log_after(to, region, UINT64_MAX), 0);
    bool ok = true;
    *first = *last = 0;
    store_seek_first(it);
    if (store_valid(it)) ok = codec_log_key_read(store_key(it), &of, first, &row);
    store_seek_last(it);
    if (ok && store_valid(it)) ok = codec_log_key_read(store_key(it), &of, last, &row);
    raft_log_done(l, it);
    return ok || raft_log_damaged(l, "a key of the Raft log can't be decoded");
}

bool rocks_log_load(struct rocks_log *l, u64 region, struct rocks_log_state *out)
{
    u64 hard[3], point[2], first, last;
    l->failed = false;
    if (!raft_log_get_numbers(l, region, CODEC_LOG_HARD_STATE, hard, 3) ||
        !raft_log_get_numbers(l, region, CODEC_LOG_POINT, point, 2) ||
        !raft_log_ends(l, region, &first, &last) || l->failed)
        return false;
    if (first && first != point[0] + 1)
        return raft_log_damaged(l, "a Raft log does not begin after its compaction point");
    *out = (struct rocks_log_state){hard[0], hard[1], hard[2], point[0], point[1], last ? last : point[0]};
    return true;
}

/* The row that the iterator stands on is to be the entry `index`. */
static bool raft_log_entry(struct store_iter *it, u64 region, u64 index, struct rocks_log_entry *e)
{
    char key[CODEC_LOG_KEY];
    if (!store_valid(it) || !bytes_eq(store_key(it), codec_log_key(key, region, index))) return false;
    e->index = index;
    return codec_log_entry_read(store_iter_value(it), &e->term, &e->type, &e->data);
}

bool rocks_log_read(struct rocks_log *l, u64 region, u64 low, u64 high,
                    bool (*each)(void *arg, const struct rocks_log_entry *e), void *arg)
{
    char from[CODEC_LOG_KEY], to[CODEC_LOG_KEY];
    struct rocks_log_entry e;
    bool ok = true, more = true;
    l->failed = false;
    CHECK(low && low <= high);
    struct store_iter *it = store_iter(l->session, FAM_RAFT_LOG, codec_log_key(from, region, low),
                                       codec_log_key(to, region, high), 0);
    store_seek_first(it);
    for (u64 i = low; i < high && ok && more; i++) {
        ok = raft_log_entry(it, region, i, &e);
        if (ok) more = each(arg, &e);
        if (more && i + 1 < high) store_next(it);
    }
    raft_log_done(l, it);
    return ok || raft_log_damaged(l, "an entry of a Raft log is missing or can't be decoded");
}

u64 rocks_log_term(struct rocks_log *l, u64 region, u64 index)
{
    char key[CODEC_LOG_KEY];
    struct store_value v;
    u64 term = 0;
    u8 type;
    bytes data;
    l->failed = false;
    if (!store_get(l->session, FAM_RAFT_LOG, codec_log_key(key, region, index), &v)) return 0;
    if (!codec_log_entry_read(v.b, &term, &type, &data))
        raft_log_damaged(l, "an entry of a Raft log can't be decoded");
    store_value_release(&v);
    return term;
}
