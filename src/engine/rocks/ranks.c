/* The blocks of a sorted set: a keyed ctree whose leaves are blocks, and their rows.
 *
 * Invariants:
 * - The first block begins at SPOT_FIRST, so that every place lies in a block. No block is empty, but
 *   that of a set which is.
 * - A block's count is that of its row as of the row's stamp, plus what was logged for its id since,
 *   plus `grown` of the running transaction. `logged`: something was logged since its row was written.
 * - Of two blocks that join the right one goes; its id is never used again. (Ids are 32 bits: half a
 *   block's worth of new entries for each, 5 * 10^11 of them.)
 * - When the hand has come round, every block's row is younger than the round's beginning, or nothing
 *   was logged for the block since: log rows up to that stamp are of no use. */
#include "engine/rocks/ranks.h"

#include <stdlib.h>

#include "base/alloc.h"

#define LOG_MARK UINT64_MAX /* the enc8 of a NaN: behind all scores */
#define ROW_SIZE 20
#define LOGGED_SIZE 8

struct block {
    struct ctree_leaf link; /* first; count: its entries */
    struct ctree_key key;   /* where it begins; item: itself, for its member */
    u32 member_len, id;
    i64 grown;              /* since the last commit */
    bool changed;           /* is in k->changed */
    bool rewrite;           /* its row is to be written */
    bool stored;            /* it has a row */
    bool logged;
    bool gone;
    char member[];
};

/* -- places -------------------------------------------------------------------------------- */

void spot_encode(const struct spot *s, struct buf *out)
{
    append_u64(out, codec_score(s->score) + s->past);
    if (!s->past) buf_append_bytes(out, s->member);
}

bool spot_read(bytes sub, struct spot *out)
{
    if (sub.n < 8) return false;
    *out = (struct spot){.score = codec_score_read(get_u64(sub.p)), .member = bytes_of(sub.p + 8, sub.n - 8)};
    return true;
}

/* -- blocks -------------------------------------------------------------------------------- */

static struct block *block_of(struct ctree_leaf *leaf) { return (struct block *)leaf; }
static bytes member_of(const struct block *b) { return bytes_of(b->member, b->member_len); }
static struct spot start_of(const struct block *b)
{
    return (struct spot){.score = b->key.score, .member = member_of(b)};
}

static struct block *block_new(struct ranks *k, const struct spot *start, u32 id)
{
    struct block *b = mem_alloc(sizeof *b + start->member.n);
    *b = (struct block){.key = {start->score, b}, .member_len = (u32)start->member.n, .id = id};
    if (start->member.n) memcpy(b->member, start->member.p, start->member.n);
    k->bytes += sizeof *b + start->member.n;
    return b;
}

static void block_free(struct ranks *k, struct block *b)
{
    k->bytes -= sizeof *b + b->member_len;
    mem_free(b);
}

static void mark(struct ranks *k, struct block *b)
{
    if (b->changed) return;
    b->changed = true;
    if (k->changed_n == k->changed_cap) {
        k->changed_cap = MAX(2 * k->changed_cap, 16);
        k->changed = mem_realloc(k->changed, k->changed_cap * sizeof *k->changed);
    }
    k->changed[k->changed_n++] = b;
}

static void mark_rewrite(struct ranks *k, struct block *b)
{
    b->rewrite = true;
    mark(k, b);
}

static void insert_after(struct ranks *k, struct ctree_leaf *after, struct block *b)
{
    ctree_insert(&k->blocks, after, &b->link, &b->key);
}

static void set_count(struct ranks *k, struct block *b, u32 n)
{
    b->link.count = n;
    ctree_update(&k->blocks, &b->link, &b->key);
}

/* Takes a block out of the tree. Its memory goes with the next commit. */
static void take_out(struct ranks *k, struct block *b)
{
    if (k->hand.at == b) k->hand.at = block_of(b->link.prev);
    ctree_remove(&k->blocks, &b->link);
    b->gone = true;
    mark(k, b);
}

static void forget_changed(struct ranks *k)
{
    for (u32 i = 0; i < k->changed_n; i++) {
        struct block *b = k->changed[i];
        b->changed = b->rewrite = false;
        b->grown = 0;
        if (b->gone) block_free(k, b);
    }
    k->changed_n = 0;
}

static void free_blocks(struct ranks *k)
{
    forget_changed(k);
    while (k->blocks.tail) {
        struct block *b = block_of(k->blocks.tail);
        ctree_remove(&k->blocks, &b->link);
        block_free(k, b);
    }
    k->hand.at = NULL;
}

/* -- the whole ------------------------------------------------------------------------------- */

static bytes touched_member(const void *item) { return *(const bytes *)item; } /* struct change begins with it */

struct ranks *ranks_new(u64 version)
{
    struct ranks *k = mem_zalloc(sizeof *k);
    k->version = version;
    k->blocks.keyed = true;
    ztree_init(&k->touched, touched_member);
    return k;
}

void ranks_free(struct ranks *k)
{
    if (!k) return;
    free_blocks(k);
    ztree_release(&k->touched);
    buf_release(&k->low);
    buf_release(&k->high);
    mem_free(k->changed);
    mem_free(k);
}

size_t ranks_memory(const struct ranks *k)
{
    if (!k) return 0;
    return sizeof *k + k->bytes + ctree_memory(&k->blocks) + k->changed_cap * sizeof *k->changed + k->low.cap +
           k->high.cap;
}

void ranks_append(struct ranks *k, const struct spot *start, u32 n)
{
    struct block *b = block_new(k, start, k->next_id++);
    b->link.count = n;
    insert_after(k, k->blocks.tail, b);
    mark_rewrite(k, b);
}

void ranks_drop(struct ranks *k)
{
    free_blocks(k);
    k->wipe = true;
    k->log = k->trimmed = k->stamp = 0;
}

/* -- finding --------------------------------------------------------------------------------- */

static bool begins_by(const struct ctree_key *key, const struct spot *s)
{
    if (key->score != s->score) return key->score < s->score;
    return s->past || bytes_cmp(member_of(key->item), s->member) <= 0;
}

/* The last block that begins at the place or before it, and the entries in those before that. */
static struct block *find(const struct ranks *k, const struct spot *s, u64 *before)
{
    struct ctree_node *node = k->blocks.root;
    *before = 0;
    for (u32 level = k->blocks.height; level > 0; level--) {
        const struct ctree_inner *in = (const struct ctree_inner *)node;
        u32 low = 0, high = in->n - 1; /* the child is among these */
        while (low < high) {
            u32 mid = (low + high + 1) / 2;
            if (begins_by(&in->first[mid], s)) low = mid;
            else high = mid - 1;
        }
        for (u32 i = 0; i < low; i++) *before += in->count[i];
        node = in->child[low];
    }
    return (struct block *)node;
}

u64 ranks_before(const struct ranks *k, const struct spot *s, struct spot *start)
{
    u64 before;
    *start = start_of(find(k, s, &before));
    return before;
}

u32 ranks_at(const struct ranks *k, u64 rank, struct spot *start)
{
    u32 offset;
    *start = start_of(block_of(ctree_at(&k->blocks, rank, &offset)));
    return offset;
}

u32 ranks_start(const struct block *b, struct spot *start)
{
    *start = start_of(b);
    return b->link.count;
}

/* Most entries of a block: the number of blocks, too, should stay moderate, for all of them are loaded. */
static u32 block_limit(const struct ranks *k)
{
    u64 limit = RANKS_BLOCK;
    while (16 * limit * limit < k->blocks.count) limit *= 2;
    return (u32)limit;
}

/* The last one is where sets grow that are ordered by time: it leaves full blocks behind. */
u32 ranks_split_at(const struct block *b)
{
    return b->link.next ? b->link.count / 2 : b->link.count - b->link.count / 8;
}

/* -- changing --------------------------------------------------------------------------------- */

static void join(struct ranks *k, struct block *left, struct block *right)
{
    u32 n = left->link.count + right->link.count;
    take_out(k, right);
    set_count(k, left, n);
    mark_rewrite(k, left);
}

static void look_for_neighbour(struct ranks *k, struct block *b)
{
    struct block *prev = block_of(b->link.prev), *next = block_of(b->link.next);
    u32 most = b->link.count ? block_limit(k) / 2 : UINT32_MAX; /* an empty one must go */
    if (prev && b->link.count + prev->link.count <= most) join(k, prev, b);
    else if (next && b->link.count + next->link.count <= most) join(k, b, next);
}

struct block *ranks_add(struct ranks *k, const struct spot *entry, int by)
{
    u64 before;
    struct block *b = find(k, entry, &before);
    if (UNLIKELY(by < 0 && b->link.count == 0)) { /* what was stored did not agree with the entries */
        ranks_drop(k);
        return NULL;
    }
    b->grown += by;
    mark(k, b);
    set_count(k, b, (u32)((i64)b->link.count + by));
    if (by < 0 && b->link.count < RANKS_SMALL) look_for_neighbour(k, b);
    return by > 0 && b->link.count > RANKS_BLOCK && b->link.count > block_limit(k) ? b : NULL;
}

void ranks_split(struct ranks *k, struct block *b, const struct spot *at, u32 n)
{
    CHECK(n > 0 && n < b->link.count);
    struct block *right = block_new(k, at, k->next_id++);
    right->link.count = b->link.count - n;
    set_count(k, b, n);
    insert_after(k, &b->link, right);
    mark_rewrite(k, b);
    mark_rewrite(k, right);
}

/* -- loading ----------------------------------------------------------------------------------- */

struct loading {
    struct ranks *k;
    struct block **v, **by_id; /* in order; by_id NULL: not made yet */
    u64 *stamp;                /* of v[i]'s row */
    u32 n, cap;
    bool damaged;
};

static bool load_block(struct loading *l, bytes sub, bytes value)
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

static void apply(struct loading *l, u64 stamp, u32 id, i32 by)
{
    u32 low = 0, high = l->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (l->by_id[mid]->id < id) low = mid + 1;
        else high = mid;
    }
    if (low == l->n || l->by_id[low]->id != id) return; /* it has joined another since */
    struct block *b = l->by_id[low];
    if (stamp <= l->stamp[b->link.count]) return;
    b->grown += by;
    b->logged = true;
}

static bool load_log(struct loading *l, u64 stamp, bytes value)
{
    if (l->n == 0 || value.n % LOGGED_SIZE) return false;
    if (!l->by_id) {
        l->by_id = mem_alloc(l->n * sizeof *l->by_id);
        memcpy(l->by_id, l->v, l->n * sizeof *l->by_id);
        qsort(l->by_id, l->n, sizeof *l->by_id, compare_ids);
    }
    for (const char *p = value.p; p < value.p + value.n; p += LOGGED_SIZE)
        apply(l, stamp, get_u32(p), (i32)get_u32(p + 4));
    if (l->k->log == 0) l->k->trimmed = stamp - 1;
    l->k->log += value.n / LOGGED_SIZE;
    l->k->stamp = MAX(l->k->stamp, stamp);
    return true;
}

/* Whether what was read makes sense; the blocks go into the tree, or away. */
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
        if (sound) insert_after(l->k, l->k->blocks.tail, b);
        else block_free(l->k, b);
    }
    return sound;
}

void ranks_load(struct ranks *k, struct store *s, bytes prefix, bytes after, u64 size)
{
    struct loading l = {.k = k};
    struct store_iter *it = store_iter(s, FAM_RANK, prefix, after, 0);
    store_seek_first(it);
    bool any = store_valid(it);
    for (; store_valid(it) && !l.damaged; store_next(it)) {
        bytes key = store_key(it), sub = bytes_of(key.p + prefix.n, key.n - prefix.n), value = store_iter_value(it);
        bool is_log = sub.n == 16 && get_u64(sub.p) == LOG_MARK;
        l.damaged = !(is_log ? load_log(&l, get_u64(sub.p + 8), value) : load_block(&l, sub, value));
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
    struct store *store;
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
    store_put2(w->store, FAM_RANK, w->prefix, sub_of(w, b), bytes_of(value, sizeof value));
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
    if (stamp > w->k->trimmed) store_delete_range(w->store, FAM_RANK, buf_bytes(&from), buf_bytes(&to));
    w->k->trimmed = stamp;
    buf_release(&from);
    buf_release(&to);
}

/* Moves the hand by what was logged, at most to the end of its round. */
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

/* What a block was changed by goes into the log, unless that would be all there is to log. */
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
        if (b->gone && b->stored) store_delete2(w->store, FAM_RANK, w->prefix, sub_of(w, b));
        if (b->gone || (!b->rewrite && b->grown == 0)) continue;
        if (b->rewrite || to_log == 1) write_block(w, b);
        else log_block(w, b);
    }
}

void ranks_commit(struct ranks *k, struct store *s, bytes prefix, bytes after)
{
    struct writing w = {.k = k, .store = s, .prefix = prefix};
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
    forget_changed(k);
    buf_release(&w.sub);
    buf_release(&w.log);
}

/* -- checking -------------------------------------------------------------------------------------- */

static const struct ctree_key *first_of(const struct ctree_leaf *leaf)
{
    return &((const struct block *)leaf)->key;
}

void ranks_check(const struct ranks *k)
{
    u64 sum = 0;
    ctree_check(&k->blocks, first_of);
    for (const struct ctree_leaf *l = k->blocks.head; l; l = l->next) {
        const struct block *b = (const struct block *)l;
        struct spot next = l->next ? start_of((const struct block *)l->next) : SPOT_END;
        CHECK(!b->gone && b->link.count > 0 && before_spot(b->key.score, member_of(b), &next));
        CHECK(l->prev || (b->key.score == -INFINITY && b->member_len == 0));
        sum += b->link.count;
    }
    CHECK(sum == k->blocks.count);
}
