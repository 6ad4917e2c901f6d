/* The order of a large sorted set: entries (score, item) sorted by score, then by the
 * item's member bytes. Insert, remove, rank and select are O(log n).
 *
 * The tree points to items but does not own them. An item's member must not change
 * or move while the item is in the tree. No score may be NaN; -0.0 equals 0.0. */
#ifndef MAYFLY_DS_ZTREE_H
#define MAYFLY_DS_ZTREE_H

#include "base/bytes.h"
#include "ds/ctree.h"

typedef bytes (*ztree_member_fn)(const void *item);
typedef void (*ztree_item_fn)(void *item, void *arg);

struct ztree {
    struct ctree tree;
    ztree_member_fn member_of;
};

void ztree_init(struct ztree *t, ztree_member_fn member_of);
void ztree_release(struct ztree *t); /* frees the nodes, not the items; leaves an empty tree */

static inline u64 ztree_count(const struct ztree *t) { return t->tree.count; }
size_t ztree_memory(const struct ztree *t); /* bytes of all nodes */

/* The member must not be in the tree yet, under any score. */
void ztree_insert(struct ztree *t, double score, void *item);

/* False: no such entry. `member` may point into the entry's item. */
bool ztree_remove(struct ztree *t, double score, bytes member);

/* Removes the entries of ranks from..to, inclusive, as far as they exist.
 * Calls fn (unless NULL) for each; fn may free the item but must not access the tree. */
void ztree_erase(struct ztree *t, u64 from, u64 to, ztree_item_fn fn, void *arg);

/* Removes up to max_entries entries and frees their nodes, so that a large tree is freed in slices; fn as
 * above. True when the tree is empty. */
bool ztree_release_some(struct ztree *t, u32 max_entries, ztree_item_fn fn, void *arg);

/* The number of entries before (score, member): the rank of that entry if it exists. */
u64 ztree_rank(const struct ztree *t, double score, bytes member);

/* The number of entries with a score below the bound, or, when the bound is
 * exclusive, not above it. So this is also the rank of the first entry in a range
 * that starts at the bound. For a range's end pass !exclusive: then it is the
 * number of entries up to there, one more than the rank of the last. */
u64 ztree_rank_score(const struct ztree *t, double score, bool exclusive);

/* A cursor, valid until the tree is modified. */
struct ztree_pos {
    const struct ztree_leaf *leaf;
    u32 index;
};

/* Move the cursor to the entry of that rank, or to the first entry not before (score, member). False: none,
 * and the cursor is invalid. */
bool ztree_at(const struct ztree *t, u64 rank, struct ztree_pos *pos);
bool ztree_seek(const struct ztree *t, double score, bytes member, struct ztree_pos *pos);

/* Moves by one entry. False: no further entry, and the cursor is unchanged. */
bool ztree_next(struct ztree_pos *pos);
bool ztree_prev(struct ztree_pos *pos);

double ztree_score(const struct ztree_pos *pos);
void *ztree_item(const struct ztree_pos *pos);

/* For tests: CHECKs order, counts, separators and fill. O(n). */
void ztree_check(const struct ztree *t);

#endif
