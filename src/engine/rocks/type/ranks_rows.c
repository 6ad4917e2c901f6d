/* Loads the rows of a sorted set's blocks (ranks.h), and writes changes.
 *
 * Invariants:
 * - A block's count is that of its row as of the row's stamp, plus what was logged for its id since,
 *   plus `grown` of the open transaction. `logged`: something was logged since its row was written.
 * - When the hand has gone round, every block's row is newer than the start of the round, or nothing was
 *   logged for the block since: log rows up to that stamp can be deleted. */
#include <stdlib.h>

#include "engine/rocks/type/ranks_block.h"

#define LOG_MARK UINT64_MAX /* the enc8 of a NaN: behind all scores */
#define ROW_SIZE 20
#define LOGGED_SIZE 8

/* -- loading ----------------------------------------------------------------------------------- */

struct loading {
    struct ranks *k;
    struct block **v, **by_id; /* in order; by_id NULL: not made yet */
    u64 *stamp;                /* of v[i]'s row */
    u32 n, cap;
    bool damaged;
};

static bool ranks_load_block(struct loading *l, bytes sub, bytes value)
{
    struct spot start = SPOT_FIRST;
    if (l->by_id || value.n != ROW_SIZE || (sub.n == 0) != (l->n == 0)) return false;
    if (l->n && (!spot_read(sub, &start) || isnan(start.score))) return false;
    if (l->n == l->cap) {
        l->cap = MAX(2 * l->cap, 64);
        l->v = mem_realloc(l->v, l->cap * sizeof *l->v);
        l->stamp = mem_realloc(l->stamp, l->cap * sizeof *l->stamp);
    }
    struct block *b = block_new(l->k, &start, get_u32(value.p + 8));
    b->stored = true;
    b->grown = (i64)get_u64(value.p);
    b->link.count = l->n; /* for now its place in v */
    l->stamp[l->n] = get_u64(value.p + 12);
    l->k->stamp = MAX(l->k->stamp, l->stamp[l->n]);
    l->k->next_id = MAX(l->k->next_id, b->id + 1);
    l->v[l->n++] = b;
    return true;
}

static int compare_ids(const void *x, const void *y)
{
    u32 a = (*(struct block *const *)x)->id, b = (*(struct block *const *)y)->id;
    return (a > b) - (a < b);
}

static void ranks_apply(struct loading *l, u64 stamp, u32 id, i32 by)
{
    u32 low = 0, high = l->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (l->by_id[mid]->id < id) low = mid + 1;
        else high = mid;
    }
    if (low == l->n || l->by_id[low]->id != id) return; /* it has been merged into another since */
    struct block *b = l->by_id[low];
    if (stamp <= l->stamp[b->link.count]) return;
    b->grown += by;
    b->logged = true;
}

static bool ranks_load_log(struct loading *l, u64 stamp, bytes value)
{
    if (l->n == 0 || value.n % LOGGED_SIZE) return false;
    if (!l->by_id) {
        l->by_id = mem_alloc(l->n * sizeof *l->by_id);
        memcpy(l->by_id, l->v, l->n * sizeof *l->by_id);
        qsort(l->by_id, l->n, sizeof *l->by_id, compare_ids);
    }
    for (const char *p = value.p; p < value.p + value.n; p += LOGGED_SIZE)
        ranks_apply(l, stamp, get_u32(p), (i32)get_u32(p + 4));
    if (l->k->log == 0) l->k->trimmed = stamp - 1;
    l->k->log += value.n / LOGGED_SIZE;
    l->k->stamp = MAX(l->k->stamp, stamp);
    return true;
}

/* Moves the loaded blocks into the tree; false: they are inconsistent, and were freed. */
static bool take_over(struct loading *l, u64 size)
{
    u64 sum = 0;
    bool sound = !l->damaged;
    for (u32 i = 0; i < l->n; i++) {
        sound = sound && l->v[i]->grown > 0 && l->v[i]->grown < UINT32_MAX;
        sum += (u64)l->v[i]->grown;
    }
    sound = sound && sum == size;
    for (u32 i = 0; i < l->n; i++) {
        struct block *b = l->v[i];
        b->link.count = (u32)b->grown;
        b->grown = 0;
        if (sound) block_insert(l->k, l->k->blocks.tail, b);
        else block_free(l->k, b);
    }
    return sound;
}

void ranks_load(struct ranks *k, struct store_session *s, bytes prefix, bytes after, u64 size)
{
    struct loading l = {.k = k};
    struct store_iter *it = store_iter(s, FAM_RANK, prefix, after, 0);
    store_seek_first(it);
    bool any = store_valid(it);
    for (; store_valid(it) && !l.damaged; store_next(it)) {
        bytes key = store_key(it), value = store_iter_value(it);
        bytes sub = bytes_of(key.p + prefix.n, key.n - prefix.n);
        bool is_log = sub.n == 16 && get_u64(sub.p) == LOG_MARK;
        l.damaged = !(is_log ? ranks_load_log(&l, get_u64(sub.p + 8), value)
                             : ranks_load_block(&l, sub, value));
    }
    store_iter_done(it);
    k->loaded = true;
    if (any && !take_over(&l, size)) ranks_drop(k);
    if (k->log == 0) k->trimmed = k->stamp;
    mem_free(l.v);
    mem_free(l.by_id);
    mem_free(l.stamp);
}

/* -- writing ------------------------------------------------------------------------------------- */

struct writing {
    struct ranks *k;
    struct store_session *session;
    bytes prefix;
    struct buf sub, log;
};

static bytes sub_of(struct writing *w, const struct block *b)
{
    struct spot start = start_of(b);
    buf_clear(&w->sub);
    if (!spot_is_first(&start)) spot_encode(&start, &w->sub);
    return buf_bytes(&w->sub);
}

static void write_block(struct writing *w, struct block *b)
{
    char value[ROW_SIZE];
    put_u64(value, b->link.count);
    put_u32(value + 8, b->id);
    put_u64(value + 12, w->k->stamp);
    store_put2(w->session, FAM_RANK, w->prefix, sub_of(w, b), bytes_of(value, sizeof value));
    b->stored = true;
    b->logged = b->rewrite = false;
    b->grown = 0;
}

static void log_block(struct writing *w, struct block *b)
{
    char *p = buf_reserve(&w->log, LOGGED_SIZE);
    put_u32(p, b->id);
    put_u32(p + 4, (u32)(i32)b->grown);
    w->log.n += LOGGED_SIZE;
    b->logged = true;
}

static void log_key(struct writing *w, u64 stamp)
{
    buf_clear(&w->sub);
    append_u64(&w->sub, LOG_MARK);
    append_u64(&w->sub, stamp);
}

static void trim_log(struct writing *w, u64 stamp)
{
    struct buf from = {0}, to = {0};
    log_key(w, w->k->trimmed + 1);
    buf_append_bytes(&from, w->prefix);
    buf_append_bytes(&from, buf_bytes(&w->sub));
    log_key(w, stamp + 1);
    buf_append_bytes(&to, w->prefix);
    buf_append_bytes(&to, buf_bytes(&w->sub));
    if (stamp > w->k->trimmed) store_delete_range(w->session, FAM_RANK, buf_bytes(&from), buf_bytes(&to));
    w->k->trimmed = stamp;
    buf_release(&from);
    buf_release(&to);
}

/* Moves the hand in proportion to what was logged, at most to the end of its round. */
static void move_hand(struct writing *w, u64 logged)
{
    struct ranks *k = w->k;
    k->log += logged;
    if (k->hand.at) k->hand.log += logged;
    else if (k->log <= RANKS_LOG_MIN) return;
    for (k->hand.credit += logged; k->hand.credit >= RANKS_FOLD; k->hand.credit -= RANKS_FOLD) {
        if (!k->hand.at) {
            k->hand.stamp = k->stamp;
            k->hand.log = 0;
        }
        struct block *b = block_of(k->hand.at ? k->hand.at->link.next : k->blocks.head);
        k->hand.at = b;
        if (b && b->logged) write_block(w, b);
        if (b) continue;
        trim_log(w, k->hand.stamp);
        k->log = k->hand.log;
        k->hand.credit = 0;
        return;
    }
}

/* Writes changed blocks as one log row; a single change is written to the block's own row instead. */
static void write_changed(struct writing *w)
{
    struct ranks *k = w->k;
    u32 to_log = 0;
    for (u32 i = 0; i < k->changed_n; i++) {
        const struct block *b = k->changed[i];
        to_log += !b->gone && !b->rewrite && b->grown != 0;
    }
    for (u32 i = 0; i < k->changed_n; i++) {
        struct block *b = k->changed[i];
        if (b->gone && b->stored) store_delete2(w->session, FAM_RANK, w->prefix, sub_of(w, b));
        if (b->gone || (!b->rewrite && b->grown == 0)) continue;
        if (b->rewrite || to_log == 1) write_block(w, b);
        else log_block(w, b);
    }
}

void ranks_commit(struct ranks *k, struct store_session *s, bytes prefix, bytes after)
{
    struct writing w = {.k = k, .session = s, .prefix = prefix};
    if (k->wipe) store_delete_range(s, FAM_RANK, prefix, after);
    k->wipe = false;
    if (k->changed_n == 0) return;
    k->stamp++;
    write_changed(&w);
    move_hand(&w, w.log.n / LOGGED_SIZE);
    if (w.log.n) {
        log_key(&w, k->stamp);
        store_put2(s, FAM_RANK, prefix, buf_bytes(&w.sub), buf_bytes(&w.log));
    }
    blocks_forget_changed(k);
    buf_release(&w.sub);
    buf_release(&w.log);
}
