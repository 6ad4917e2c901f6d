/* The blocks of a sorted set, shared by ranks.c and ranks_rows.c. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_RANKS_BLOCK_H
#define MAYFLY_ENGINE_ROCKS_TYPE_RANKS_BLOCK_H

#include "base/alloc.h"
#include "engine/rocks/type/ranks.h"

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

static inline struct block *block_of(struct ctree_leaf *leaf) { return (struct block *)leaf; }
static inline bytes member_of(const struct block *b) { return bytes_of(b->member, b->member_len); }
static inline struct spot start_of(const struct block *b)
{
    return (struct spot){.score = b->key.score, .member = member_of(b)};
}

struct block *block_new(struct ranks *k, const struct spot *start, u32 id);
void block_free(struct ranks *k, struct block *b);
void block_insert(struct ranks *k, struct ctree_leaf *after, struct block *b); /* into the tree */
void blocks_forget_changed(struct ranks *k); /* after they were written, or dropped */

#endif
