/* Ranks in big sorted sets: how many entries precede a spot, without reading them all.
 *
 * The entries, in their order, are divided into blocks of at most RANKS_BLOCK, or sqrt(n) / 2 in very big
 * sets; a block has its start and the number of its entries. The blocks of a set are in memory, in a counted
 * tree, while its row is cached: the entries before a block are summed up in O(log n), and only the block
 * itself has to be walked. Sets of up to RANKS_FROM entries have no blocks (those that shrink keep them down
 * to RANKS_UNTIL): they are walked from the start.
 *
 * On disk, in the family zset_rank under P · version:
 *
 *   enc8(score) · member of the block's start       u64 entries · u32 id · u64 stamp
 *                                                   (the first block's key is just P · version)
 *   FF FF FF FF FF FF FF FF · u64 stamp             n × (u32 id · i32 by how many the block grew)
 *
 * Writing every changed block would double the cost of a ZADD, which usually hits a block of its own. So a
 * transaction logs by how much its blocks grew, in one row, and a block's own row is rewritten only now and
 * then: its count is then as of its stamp, and log rows up to that stamp don't apply to it. A hand goes round
 * the blocks and rewrites one for every RANKS_FOLD logged changes; log rows from before its last round are
 * deleted. All of it is part of the transaction's batch, so that counts and entries always agree.
 *
 * The entries themselves are order.c's: it reports changes, and finds the middle of a block to be split. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_RANKS_H
#define MAYFLY_ENGINE_ROCKS_TYPE_RANKS_H

#include <math.h>

#include "ds/ctree.h"
#include "ds/ztree.h"
#include "engine/rocks/codec.h"
#include "engine/rocks/store/store.h"

#define RANKS_FROM 1024   /* entries above which a set gets blocks … */
#define RANKS_UNTIL 512   /* … and below which it loses them */
#define RANKS_BLOCK 256   /* entries above which a block is split */
#define RANKS_FILL 192    /* of the blocks of a set that gets them */
#define RANKS_SMALL 32    /* entries below which a block looks for a neighbour to join */
#define RANKS_LOG_MIN 1024 /* logged changes that are left alone */
#define RANKS_FOLD 8

/* A place between entries: before the first one that is not before (score, member); or, `past`,
 * behind the last one of this score. */
struct spot {
    double score;
    bytes member;
    bool past;
};
#define SPOT_FIRST ((struct spot){.score = -INFINITY, .member = {"", 0}})
#define SPOT_END ((struct spot){.score = INFINITY, .past = true})

static inline bool spot_is_first(const struct spot *s)
{
    return s->score == -INFINITY && !s->past && s->member.n == 0;
}

/* True if an entry is before the spot. */
static inline bool before_spot(double score, bytes member, const struct spot *s)
{
    if (score != s->score) return score < s->score;
    return s->past || bytes_cmp(member, s->member) < 0;
}

/* Appends or reads enc8(score) · member. A spot that is `past` is encoded as the first one after its
 * score. */
void spot_encode(const struct spot *s, struct buf *out);
bool spot_read(bytes sub, struct spot *out); /* false: too short; the member lives as long as sub */

struct block;

/* What is cached about the order of one version of a sorted set. */
struct ranks {
    u64 version;

    /* the blocks */
    struct ctree blocks; /* of struct block; no leaves: there are none */
    struct block **changed; /* since the last commit, those that went included */
    u32 changed_n, changed_cap;
    u32 next_id;
    bool loaded;        /* the stored blocks have been read */
    bool wipe;          /* the next commit deletes all stored blocks */
    u64 stamp;          /* of the last commit that changed a block */
    u64 log;            /* changes in the log rows that are stored */
    u64 trimmed;        /* stamp up to which log rows are deleted */
    struct {            /* the hand's round: */
        struct block *at;  /* the block it came to last; NULL: none yet */
        u64 stamp, log;    /* of the commit it began with; changes logged since */
        u64 credit;        /* changes it has not moved for yet */
    } hand;
    size_t bytes;       /* of the blocks */

    /* order.c's */
    struct ztree touched;  /* what the transaction touched, by its place now */
    struct buf low, high;  /* all stored entries that are untouched lie between these, included */
    bool ends_known;       /* whether these are kept */
};

struct ranks *ranks_new(u64 version);
void ranks_free(struct ranks *k); /* NULL is fine */
size_t ranks_memory(const struct ranks *k);

static inline bool ranks_kept(const struct ranks *k) { return k->blocks.leaves > 0; }

/* Reads the stored blocks, under P · version; if they don't add up to the set's size they are
 * forgotten, and will be deleted. */
void ranks_load(struct ranks *k, struct store_session *s, bytes prefix, bytes after, u64 size);
/* Gives a set blocks: the next one begins at the spot (the first at SPOT_FIRST) and has n entries. */
void ranks_append(struct ranks *k, const struct spot *start, u32 n);
void ranks_drop(struct ranks *k); /* removes them all */

/* The entries in all blocks before the one that holds the place, and where that one begins; or the
 * block that holds an entry, by rank, and the entry's number in it. */
u64 ranks_before(const struct ranks *k, const struct spot *s, struct spot *start);
u32 ranks_at(const struct ranks *k, u64 rank, struct spot *start);

/* An entry is added (+1) or removed (-1). Returns its block if that is now too big. */
struct block *ranks_add(struct ranks *k, const struct spot *entry, int by);
u32 ranks_start(const struct block *b, struct spot *start); /* where it begins; its number of entries */
u32 ranks_split_at(const struct block *b); /* the entries it should keep when it is split */
/* The block keeps its first n entries; `at` is the next one. */
void ranks_split(struct ranks *k, struct block *b, const struct spot *at, u32 n);

/* Writes changed blocks into the batch. */
void ranks_commit(struct ranks *k, struct store_session *s, bytes prefix, bytes after);

void ranks_check(const struct ranks *k); /* for tests: CHECKs the tree */

#endif
