/* A ctree whose leaves are sorted arrays of entries.
 *
 * Invariants: entries ascend strictly by (score, member) through all leaves, and no
 * leaf is empty.
 *
 * Three rules save memory:
 * - A full leaf first moves entries to a neighbour that has room, and splits only if neither has: random
 *   inserts fill leaves to 0.8 and more.
 * - Inserting past either end starts a new leaf instead of splitting the full one, so that sorted input fills
 *   leaves completely.
 * - A leaf left half empty by a removal merges with a neighbour if they fit into one leaf with some spare
 *   room.
 *
 * All leaves have room for LEAF_CAP entries, except a single leaf, which may have room for the next power of
 * two only: many trees hold a handful of entries. */
#include "ds/ztree.h"

#include "base/alloc.h"
#include "base/err.h"

#define LEAF_CAP 62                 /* makes a leaf just 1024 bytes */
#define EVEN_AT (LEAF_CAP * 7 / 8)  /* a neighbour filled up to this accepts entries */
#define MERGE_AT (LEAF_CAP * 7 / 8) /* neighbours with at most this many entries together are merged */

struct ztree_leaf {
    struct ctree_leaf link;
    struct ctree_key entry[];
};

static size_t leaf_size(u32 cap) { return sizeof(struct ztree_leaf) + cap * sizeof(struct ctree_key); }

/* The minimum capacity of a single leaf with this many entries. */
static u32 only_leaf_cap(u32 count)
{
    u32 cap = 4;
    while (cap < count) cap *= 2;
    return MIN(cap, LEAF_CAP);
}

static struct ztree_leaf *ztree_leaf_of(struct ctree_leaf *link) { return (struct ztree_leaf *)link; }

static void update(struct ztree *t, struct ztree_leaf *leaf)
{
    ctree_update(&t->tree, &leaf->link, &leaf->entry[0]);
}

/* --- searching --- */

/* A position between entries. */
struct bound {
    double score;
    enum { BEFORE_SCORE, AFTER_SCORE, BEFORE_MEMBER } side;
    bytes member; /* with BEFORE_MEMBER */
};

static inline bool ztree_is_before(const struct ztree *t, const struct ctree_key *e,
                                   const struct bound *b)
{
    if (LIKELY(e->score != b->score)) return e->score < b->score;
    if (b->side != BEFORE_MEMBER) return b->side == AFTER_SCORE;
    return bytes_cmp(t->member_of(e->item), b->member) < 0;
}

/* The number of entries, of n ascending ones, before the bound. */
static u32 ztree_count_before(const struct ztree *t, const struct ctree_key *e, u32 n,
                              const struct bound *b)
{
    u32 low = 0;
    while (n > 0) {
        u32 half = n / 2;
        if (ztree_is_before(t, &e[low + half], b)) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* The rank of a bound and its position. A position between two leaves is the end of the first one. *leaf is
 * NULL if the tree is empty. */
static u64 ztree_locate(const struct ztree *t, const struct bound *b, struct ztree_leaf **leaf,
                        u32 *index)
{
    u64 rank = 0;
    struct ctree_node *node = t->tree.root;
    for (u32 level = t->tree.height; level > 0; level--) {
        const struct ctree_inner *in = (const struct ctree_inner *)node;
        u32 i = ztree_count_before(t, &in->first[1], in->n - 1, b);
        for (u32 k = 0; k < i; k++) rank += in->count[k];
        node = in->child[i];
    }
    *leaf = (struct ztree_leaf *)node;
    *index = node ? ztree_count_before(t, (*leaf)->entry, (*leaf)->link.count, b) : 0;
    return rank + *index;
}

/* The same, but at an entry; false: none after the bound. */
static bool seek(const struct ztree *t, const struct bound *b, struct ztree_leaf **leaf, u32 *index)
{
    ztree_locate(t, b, leaf, index);
    if (!*leaf || *index < (*leaf)->link.count) return *leaf != NULL;
    *leaf = ztree_leaf_of((*leaf)->link.next);
    *index = 0;
    return *leaf != NULL;
}

static struct bound before_member(double score, bytes member)
{
    return (struct bound){.score = score, .side = BEFORE_MEMBER, .member = member};
}

static struct bound at_score(double score, bool exclusive)
{
    return (struct bound){.score = score, .side = exclusive ? AFTER_SCORE : BEFORE_SCORE};
}

/* --- leaves --- */

static struct ztree_leaf *leaf_new(u32 cap)
{
    struct ztree_leaf *leaf = mem_alloc(leaf_size(cap));
    leaf->link.count = 0;
    return leaf;
}

/* Makes room for one more entry in a single leaf, which may be small. */
static struct ztree_leaf *grow_only_leaf(struct ztree *t, struct ztree_leaf *leaf)
{
    u32 cap = only_leaf_cap(leaf->link.count + 1);
    if (cap == only_leaf_cap(leaf->link.count)) return leaf;
    leaf = mem_realloc(leaf, leaf_size(cap));
    t->tree.root = &leaf->link.node;
    t->tree.head = t->tree.tail = &leaf->link;
    return leaf;
}

/* Moves entries between two neighbours until the left one has `keep`. */
static void deal(struct ztree_leaf *left, struct ztree_leaf *right, u32 keep)
{
    u32 a = left->link.count, b = right->link.count;
    size_t size = sizeof left->entry[0];
    if (keep < a) {
        u32 n = a - keep;
        memmove(&right->entry[n], &right->entry[0], b * size);
        memcpy(&right->entry[0], &left->entry[keep], n * size);
    } else {
        u32 n = keep - a;
        memcpy(&left->entry[a], &right->entry[0], n * size);
        memmove(&right->entry[0], &right->entry[n], (b - n) * size);
    }
    left->link.count = keep;
    right->link.count = a + b - keep;
}

static void ztree_split_leaf(struct ztree *t, struct ztree_leaf *leaf)
{
    struct ztree_leaf *right = leaf_new(LEAF_CAP);
    deal(leaf, right, LEAF_CAP / 2);
    update(t, leaf);
    ctree_insert(&t->tree, &leaf->link, &right->link, &right->entry[0]);
}

static void even_out(struct ztree *t, struct ztree_leaf *left, struct ztree_leaf *right)
{
    deal(left, right, (left->link.count + right->link.count) / 2);
    update(t, left);
    update(t, right);
}

/* Makes room in a full leaf for an entry at *index. Returns the leaf the entry belongs to now, and updates
 * *index. */
static struct ztree_leaf *ztree_make_room(struct ztree *t, struct ztree_leaf *leaf, u32 *index)
{
    struct ztree_leaf *prev = ztree_leaf_of(leaf->link.prev), *left = leaf;
    struct ztree_leaf *next = ztree_leaf_of(leaf->link.next);
    if (next && next->link.count <= EVEN_AT) {
        even_out(t, leaf, next);
    } else if (prev && prev->link.count <= EVEN_AT) {
        *index += prev->link.count;
        left = prev;
        even_out(t, prev, leaf);
    } else {
        ztree_split_leaf(t, leaf);
    }
    if (*index <= left->link.count) return left;
    *index -= left->link.count;
    return ztree_leaf_of(left->link.next);
}

/* Removes n entries from a leaf, and merges or removes the leaf if possible. */
static void ztree_take_out(struct ztree *t, struct ztree_leaf *leaf, u32 index, u32 n)
{
    u32 rest = leaf->link.count -= n;
    memmove(&leaf->entry[index], &leaf->entry[index + n], (rest - index) * sizeof leaf->entry[0]);
    struct ztree_leaf *prev = ztree_leaf_of(leaf->link.prev), *next = ztree_leaf_of(leaf->link.next);
    if (rest > 0) update(t, leaf);
    if (rest > LEAF_CAP / 2) return;

    struct ztree_leaf *gone = NULL;
    if (rest == 0) {
        gone = leaf;
    } else if (prev && prev->link.count + rest <= MERGE_AT) {
        deal(prev, leaf, prev->link.count + rest);
        update(t, prev);
        gone = leaf;
    } else if (next && rest + next->link.count <= MERGE_AT) {
        deal(leaf, next, rest + next->link.count);
        update(t, leaf);
        gone = next;
    }
    if (!gone) return;
    ctree_remove(&t->tree, &gone->link);
    mem_free(gone);
}

/* --- the tree --- */

void ztree_init(struct ztree *t, ztree_member_fn member_of)
{
    *t = (struct ztree){.tree = {.keyed = true}, .member_of = member_of};
}

void ztree_release(struct ztree *t)
{
    while (!ztree_release_some(t, UINT32_MAX, NULL, NULL)) {}
}

size_t ztree_memory(const struct ztree *t)
{
    if (t->tree.leaves == 1) return leaf_size(only_leaf_cap((u32)t->tree.count));
    return t->tree.leaves * leaf_size(LEAF_CAP) + ctree_memory(&t->tree);
}

static void insert_leaf(struct ztree *t, struct ctree_leaf *after, struct ctree_key entry)
{
    struct ztree_leaf *leaf = leaf_new(t->tree.leaves ? LEAF_CAP : only_leaf_cap(1));
    leaf->entry[0] = entry;
    leaf->link.count = 1;
    ctree_insert(&t->tree, after, &leaf->link, &entry);
}

void ztree_insert(struct ztree *t, double score, void *item)
{
    struct bound b = before_member(score, t->member_of(item));
    struct ctree_key entry = {.score = score, .item = item};
    struct ztree_leaf *leaf;
    u32 index;
    u64 rank = ztree_locate(t, &b, &leaf, &index);
    if (!leaf || leaf->link.count == LEAF_CAP) {
        if (rank == t->tree.count) {
            insert_leaf(t, t->tree.tail, entry);
            return;
        }
        if (rank == 0) {
            insert_leaf(t, NULL, entry);
            return;
        }
        CHECK(leaf); /* only an empty tree has none */
        leaf = ztree_make_room(t, leaf, &index);
    }
    if (t->tree.leaves == 1) leaf = grow_only_leaf(t, leaf);
    struct ctree_key *to = &leaf->entry[index];
    memmove(to + 1, to, (leaf->link.count - index) * sizeof *to);
    *to = entry;
    leaf->link.count++;
    update(t, leaf);
}

bool ztree_remove(struct ztree *t, double score, bytes member)
{
    struct bound b = before_member(score, member);
    struct ztree_leaf *leaf;
    u32 index;
    if (!seek(t, &b, &leaf, &index)) return false;
    const struct ctree_key *e = &leaf->entry[index];
    if (e->score != score || !bytes_eq(t->member_of(e->item), member)) return false;
    ztree_take_out(t, leaf, index, 1);
    return true;
}

void ztree_erase(struct ztree *t, u64 from, u64 to, ztree_item_fn fn, void *arg)
{
    if (from >= t->tree.count || to < from) return;
    u64 left = MIN(to, t->tree.count - 1) - from + 1;
    while (left > 0) {
        u32 index;
        struct ztree_leaf *leaf = ztree_leaf_of(ctree_at(&t->tree, from, &index));
        u32 n = (u32)MIN(left, leaf->link.count - index);
        for (u32 i = index; fn && i < index + n; i++) fn(leaf->entry[i].item, arg);
        ztree_take_out(t, leaf, index, n);
        left -= n;
    }
}

bool ztree_release_some(struct ztree *t, u32 max_entries, ztree_item_fn fn, void *arg)
{
    if (max_entries > 0) ztree_erase(t, 0, max_entries - 1, fn, arg);
    return t->tree.count == 0;
}

u64 ztree_rank(const struct ztree *t, double score, bytes member)
{
    struct bound b = before_member(score, member);
    struct ztree_leaf *leaf;
    u32 index;
    return ztree_locate(t, &b, &leaf, &index);
}

u64 ztree_rank_score(const struct ztree *t, double score, bool exclusive)
{
    struct bound b = at_score(score, exclusive);
    struct ztree_leaf *leaf;
    u32 index;
    return ztree_locate(t, &b, &leaf, &index);
}

/* --- cursors --- */

bool ztree_at(const struct ztree *t, u64 rank, struct ztree_pos *pos)
{
    if (rank >= t->tree.count) return false;
    pos->leaf = ztree_leaf_of(ctree_at(&t->tree, rank, &pos->index));
    return true;
}

bool ztree_seek(const struct ztree *t, double score, bytes member, struct ztree_pos *pos)
{
    struct bound b = before_member(score, member);
    struct ztree_leaf *leaf;
    bool found = seek(t, &b, &leaf, &pos->index);
    pos->leaf = leaf;
    return found;
}

bool ztree_next(struct ztree_pos *pos)
{
    if (pos->index + 1 < pos->leaf->link.count) {
        pos->index++;
        return true;
    }
    if (!pos->leaf->link.next) return false;
    *pos = (struct ztree_pos){.leaf = ztree_leaf_of(pos->leaf->link.next), .index = 0};
    return true;
}

bool ztree_prev(struct ztree_pos *pos)
{
    if (pos->index > 0) {
        pos->index--;
        return true;
    }
    if (!pos->leaf->link.prev) return false;
    pos->leaf = ztree_leaf_of(pos->leaf->link.prev);
    pos->index = pos->leaf->link.count - 1;
    return true;
}

double ztree_score(const struct ztree_pos *pos) { return pos->leaf->entry[pos->index].score; }
void *ztree_item(const struct ztree_pos *pos) { return pos->leaf->entry[pos->index].item; }

/* --- checking --- */

static const struct ctree_key *ztree_first_of(const struct ctree_leaf *leaf)
{
    return &((const struct ztree_leaf *)leaf)->entry[0];
}

void ztree_check(const struct ztree *t)
{
    ctree_check(&t->tree, ztree_first_of);
    const struct ctree_key *last = NULL;
    for (struct ctree_leaf *link = t->tree.head; link; link = link->next) {
        CHECK(link->count <= LEAF_CAP);
        for (u32 i = 0; i < link->count; i++) {
            const struct ctree_key *e = &ztree_leaf_of(link)->entry[i];
            struct bound b = before_member(e->score, t->member_of(e->item));
            CHECK(!last || ztree_is_before(t, last, &b));
            last = e;
        }
    }
}
