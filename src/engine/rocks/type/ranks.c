/* The blocks of a sorted set: a keyed ctree whose leaves are blocks. ranks_rows.c stores them.
 *
 * Invariants:
 * - The first block begins at SPOT_FIRST, so that every spot is in a block. Only an empty set has an empty
 *   block.
 * - When two blocks are merged, the right one is freed; its id is never used again. (Ids have 32 bits, and a
 *   new one takes at least half a block of new entries: enough for 5 * 10^11.) */
#include "engine/rocks/type/ranks_block.h"

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

struct block *block_new(struct ranks *k, const struct spot *start, u32 id)
{
    struct block *b = mem_alloc(sizeof *b + start->member.n);
    *b = (struct block){.key = {start->score, b}, .member_len = (u32)start->member.n, .id = id};
    if (start->member.n) memcpy(b->member, start->member.p, start->member.n);
    k->bytes += sizeof *b + start->member.n;
    return b;
}

void block_free(struct ranks *k, struct block *b)
{
    k->bytes -= sizeof *b + b->member_len;
    mem_free(b);
}

static void ranks_mark(struct ranks *k, struct block *b)
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
    ranks_mark(k, b);
}

void block_insert(struct ranks *k, struct ctree_leaf *after, struct block *b)
{
    ctree_insert(&k->blocks, after, &b->link, &b->key);
}

static void set_count(struct ranks *k, struct block *b, u32 n)
{
    b->link.count = n;
    ctree_update(&k->blocks, &b->link, &b->key);
}

/* Removes a block from the tree. The next commit frees it. */
static void ranks_take_out(struct ranks *k, struct block *b)
{
    if (k->hand.at == b) k->hand.at = block_of(b->link.prev);
    ctree_remove(&k->blocks, &b->link);
    b->gone = true;
    ranks_mark(k, b);
}

void blocks_forget_changed(struct ranks *k)
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
    blocks_forget_changed(k);
    while (k->blocks.tail) {
        struct block *b = block_of(k->blocks.tail);
        ctree_remove(&k->blocks, &b->link);
        block_free(k, b);
    }
    k->hand.at = NULL;
}

/* -- the whole ------------------------------------------------------------------------------- */

/* A struct change begins with it. */
static bytes touched_member(const void *item) { return *(const bytes *)item; }

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
    size_t lists = k->changed_cap * sizeof *k->changed + k->low.cap + k->high.cap;
    return sizeof *k + k->bytes + ctree_memory(&k->blocks) + lists;
}

void ranks_append(struct ranks *k, const struct spot *start, u32 n)
{
    struct block *b = block_new(k, start, k->next_id++);
    b->link.count = n;
    block_insert(k, k->blocks.tail, b);
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

/* The last block that begins at or before the spot; *before: the entries in all blocks before it. */
static struct block *ranks_find(const struct ranks *k, const struct spot *s, u64 *before)
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
    *start = start_of(ranks_find(k, s, &before));
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

/* The most entries a block may have. Grows with the set: all blocks are loaded, so they should not be too
 * many. */
static u32 block_limit(const struct ranks *k)
{
    u64 limit = RANKS_BLOCK;
    while (16 * limit * limit < k->blocks.count) limit *= 2;
    return (u32)limit;
}

/* The last block is split unevenly: sets ordered by time grow there, and this leaves full blocks behind. */
u32 ranks_split_at(const struct block *b)
{
    return b->link.next ? b->link.count / 2 : b->link.count - b->link.count / 8;
}

/* -- changing --------------------------------------------------------------------------------- */

static void ranks_join(struct ranks *k, struct block *left, struct block *right)
{
    u32 n = left->link.count + right->link.count;
    ranks_take_out(k, right);
    set_count(k, left, n);
    mark_rewrite(k, left);
}

static void look_for_neighbour(struct ranks *k, struct block *b)
{
    struct block *prev = block_of(b->link.prev), *next = block_of(b->link.next);
    u32 most = b->link.count ? block_limit(k) / 2 : UINT32_MAX; /* an empty one must go */
    if (prev && b->link.count + prev->link.count <= most) ranks_join(k, prev, b);
    else if (next && b->link.count + next->link.count <= most) ranks_join(k, b, next);
}

struct block *ranks_add(struct ranks *k, const struct spot *entry, int by)
{
    u64 before;
    struct block *b = ranks_find(k, entry, &before);
    if (UNLIKELY(by < 0 && b->link.count == 0)) { /* what was stored did not agree with the entries */
        ranks_drop(k);
        return NULL;
    }
    b->grown += by;
    ranks_mark(k, b);
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
    block_insert(k, &b->link, right);
    mark_rewrite(k, b);
    mark_rewrite(k, right);
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
